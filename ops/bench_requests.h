// What the benchmarks of `lorry bench` share: made-up prompts, how often they run, the quantiles of what they measure, and the files that
// they write.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model_config.h"

namespace lorry::ops {

// Pseudo-random tokens, the same for the same number.
std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens);

// Of so many runs the best one counts: `least`, and more until that time is over.
class Tries {
public:
    Tries(int least, std::chrono::duration<double> time) : least_(least), time_(time) {}
    bool another();

private:
    using Clock = std::chrono::steady_clock;

    int least_;
    std::chrono::duration<double> time_;
    Clock::time_point begin_ = Clock::now();
    int runs_ = 0;
};
// The least seconds of each of `ways`; in turn, so that a busy machine slows all of them down.
std::vector<double> least_in_turn(Tries tries, std::size_t ways, const std::function<double(std::size_t way)>& run);

// The least of the ascending values that `share` of them do not exceed.
double quantile(std::span<const double> ascending, double share);

// Throws std::runtime_error naming the file.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace lorry::ops
