// Random numbers, runs, ranks, files.
#include "ops/bench_requests.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

namespace lorry::ops {

std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens) {
    std::mt19937_64 random(number);
    std::vector<kernels::TokenId> prompt;
    for (std::int64_t i = 0; i < tokens; ++i) {
        prompt.push_back(static_cast<kernels::TokenId>(random() % static_cast<std::uint64_t>(config.vocabulary)));
    }
    return prompt;
}

bool Tries::another() {
    if (runs_ >= least_ && Clock::now() - begin_ > time_) return false;
    ++runs_;
    return true;
}

std::vector<double> least_in_turn(Tries tries, std::size_t ways, const std::function<double(std::size_t way)>& run) {
    std::vector<double> least(ways, std::numeric_limits<double>::max());
    while (tries.another()) {
        for (std::size_t way = 0; way < ways; ++way) least[way] = std::min(least[way], run(way));
    }
    return least;
}

double quantile(std::span<const double> ascending, double share) {
    CHECK(!ascending.empty(), "a quantile is one of the values");
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(ascending.size())));
    return ascending[std::clamp<std::size_t>(rank, 1, ascending.size()) - 1];
}

void write_text(const std::filesystem::path& file, std::string_view text) {
    std::ofstream out(file, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) throw std::runtime_error(fmt::format("{}: cannot be written; is the disk full?", file.string()));
}

}  // namespace lorry::ops
