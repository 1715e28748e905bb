// Computes geometric means, writes one sentence per outcome, and renders the table.
#include "ops/bench/tune_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::CpuIsa;
using kernels::cpu::name_of;
using schema::Json;

constexpr double gain_min = 1.03;

std::size_t place_of(const TunedChip& chip, CpuIsa isa) {
    const auto place = std::ranges::find(chip.isas, isa);
    CHECK(place != chip.isas.end(), "this instruction set was measured");
    return static_cast<std::size_t>(place - chip.isas.begin());
}

double ratio(const TunedChip& chip, const TuneLine& line, std::size_t isa) {
    return line.speeds[place_of(chip, chip.choice.isa)].seconds / line.speeds[isa].seconds;
}

// Mean ratios over the lines of one weight format, or over all.
std::vector<double> mean_ratios(const TunedChip& chip, std::span<const TuneLine> lines, std::optional<std::string_view> weights) {
    std::vector<double> means;
    for (std::size_t isa = 0; isa < chip.isas.size(); ++isa) {
        double logarithms = 0.0;
        double count = 0.0;
        for (const TuneLine& line : lines) {
            if (weights && line.weights != *weights) continue;
            logarithms += std::log(ratio(chip, line, isa));
            count += 1.0;
        }
        means.push_back(std::exp(logarithms / count));
    }
    return means;
}

// "1.52 times avx512, 1.53 times avx2"
std::string gains_of(const TunedChip& chip, const TuneVerdict& verdict, CpuIsa isa) {
    std::string text;
    for (std::size_t i = chip.isas.size(); i-- > 0;) {
        if (chip.isas[i] == isa) continue;
        const double gain = verdict.speeds[place_of(chip, isa)] / verdict.speeds[i];
        text += fmt::format("{}{:.2f} times {}", text.empty() ? "" : ", ", gain, name_of(chip.isas[i]));
    }
    return text;
}

}  // namespace

TuneVerdict judge_isas(const TunedChip& chip, std::span<const TuneLine> lines) {
    TuneVerdict verdict{.speeds = mean_ratios(chip, lines, {})};
    const auto best = std::ranges::max_element(verdict.speeds);
    verdict.fastest = chip.isas[static_cast<std::size_t>(best - verdict.speeds.begin())];
    const char* const in_use = name_of(chip.choice.isa);
    if (chip.isas.size() == 1) {
        verdict.finding = fmt::format("There is no choice: this machine has only {}.", in_use);
        return verdict;
    }
    verdict.is_wrong = *best >= gain_min;
    const char* const fastest = name_of(verdict.fastest);
    verdict.finding = fmt::format("{} is the fastest: {}. ", fastest, gains_of(chip, verdict, verdict.fastest));
    if (verdict.fastest == chip.choice.isa) {
        verdict.finding += fmt::format("It is in use, because {}.", chip.choice.reason);
    } else if (!verdict.is_wrong) {
        verdict.finding += fmt::format("{} is in use, because {}. The gain is too small to change it.", in_use, chip.choice.reason);
    } else {
        verdict.finding += fmt::format(
            "But {0} is in use, because {1}. Set --isa {2}, or isa = \"{2}\" in lorry.toml, for all workers. Please report this output, so "
            "that the rules in kernels/cpu/isa.cpp can be corrected.",
            in_use, chip.choice.reason, fastest);
    }
    return verdict;
}

std::string show_tuning(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict) {
    std::vector<std::vector<std::string>> rows = {{"", ""}, {"weights", "work"}};
    for (const CpuIsa isa : chip.isas) {
        rows[0].insert(rows[0].end(), {name_of(isa), "", isa == chip.choice.isa ? "in use" : ""});
        rows[1].insert(rows[1].end(), {"GOP/s", "GB/s", "speed"});
    }
    const auto add_means = [&](const std::string& weights, const std::vector<double>& means) {
        std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{weights, "geometric mean"});
        for (const double mean : means) row.insert(row.end(), {"", "", fmt::format("{:.2f}", mean)});
    };
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{lines[i].weights, lines[i].work});
        for (std::size_t isa = 0; isa < chip.isas.size(); ++isa) {
            const auto& [work, seconds] = lines[i].speeds[isa];
            row.insert(row.end(), {fmt::format("{:.1f}", work.operations / seconds * 1e-9),
                                   fmt::format("{:.1f}", work.bytes / seconds * 1e-9), fmt::format("{:.2f}", ratio(chip, lines[i], isa))});
        }
        const bool is_last = i + 1 == lines.size() || lines[i + 1].weights != lines[i].weights;
        if (is_last) add_means(lines[i].weights, mean_ratios(chip, lines, lines[i].weights));
    }
    add_means("all", verdict.speeds);
    return fmt::format("{} ({}, family 0x{:02X}, model 0x{:02X}), {} threads\n\n{}\n{}\n", chip.name, chip.chip.vendor, chip.chip.family,
                       chip.chip.model, chip.threads, show_table(rows, ~0b11U), verdict.finding);
}

Json tuning_json(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict) {
    Json speeds = Json::Array();
    for (const TuneLine& line : lines) {
        for (std::size_t isa = 0; isa < chip.isas.size(); ++isa) {
            const auto& [work, seconds] = line.speeds[isa];
            speeds.push(Json::object({{"weights", line.weights},
                                      {"work", line.work},
                                      {"isa", name_of(chip.isas[isa])},
                                      {"seconds", seconds},
                                      {"operations_per_second", work.operations / seconds},
                                      {"bytes_per_second", work.bytes / seconds},
                                      {"speed", ratio(chip, line, isa)}}));
        }
    }
    Json means = Json::Object();
    for (std::size_t isa = 0; isa < chip.isas.size(); ++isa) means.set(name_of(chip.isas[isa]), verdict.speeds[isa]);
    return Json::object({{"cpu", chip.name},
                         {"vendor", chip.chip.vendor},
                         {"family", chip.chip.family},
                         {"model", chip.chip.model},
                         {"threads", chip.threads},
                         {"in_use", name_of(chip.choice.isa)},
                         {"reason", chip.choice.reason},
                         {"lines", std::move(speeds)},
                         {"speeds", std::move(means)},
                         {"fastest", name_of(verdict.fastest)},
                         {"is_wrong", verdict.is_wrong},
                         {"finding", verdict.finding}});
}

}  // namespace lorry::ops
