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
constexpr const char* table_file = "kernels/cpu/isa.cpp";

std::size_t place_of(const TunedChip& chip, CpuIsa isa) {
    const auto place = std::ranges::find(chip.isas, isa);
    CHECK(place != chip.isas.end(), "this instruction set was measured");
    return static_cast<std::size_t>(place - chip.isas.begin());
}

double ratio(const TunedChip& chip, const TuneLine& line, std::size_t isa) {
    return line.speeds[place_of(chip, chip.in_use)].seconds / line.speeds[isa].seconds;
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

std::string row_of(const TunedChip& chip, const TuneVerdict& verdict, CpuIsa isa) {
    return fmt::format("Row{{\"{0}\", 0x{1:02X}, 0x{2:02X}, 0x{2:02X}, CpuIsa::{3}}},  // {4}: {5}", chip.chip.vendor, chip.chip.family,
                       chip.chip.model, name_of(isa), chip.name, gains_of(chip, verdict, isa));
}

}  // namespace

TuneVerdict judge_isas(const TunedChip& chip, std::span<const TuneLine> lines) {
    TuneVerdict verdict{.speeds = mean_ratios(chip, lines, {})};
    const auto best = std::ranges::max_element(verdict.speeds);
    verdict.fastest = chip.isas[static_cast<std::size_t>(best - verdict.speeds.begin())];
    if (chip.in_table && chip.in_table != chip.in_use) {
        verdict.finding =
            fmt::format("This chip has a row in {} that says {}, which this system does not let it use: {} is in use instead.", table_file,
                        name_of(*chip.in_table), name_of(chip.in_use));
        return verdict;
    }
    if (chip.isas.size() == 1) {
        verdict.finding = fmt::format("There is no choice: this machine has only {}.", name_of(chip.in_use));
        return verdict;
    }
    const bool changes = *best >= gain_min;
    const CpuIsa right = changes ? verdict.fastest : chip.in_use;
    verdict.finding = fmt::format("{} is the fastest: {}. ", name_of(verdict.fastest), gains_of(chip, verdict, verdict.fastest));
    if (!chip.in_table) {
        verdict.finding += fmt::format("This chip has no row in {}, so that {} is in use. Add:", table_file, name_of(chip.in_use));
        verdict.row = row_of(chip, verdict, right);
    } else if (changes) {
        verdict.finding += fmt::format("This chip's row in {} says {}. Add above it:", table_file, name_of(chip.in_use));
        verdict.row = row_of(chip, verdict, right);
    } else if (right == verdict.fastest) {
        verdict.finding += fmt::format("This chip's row in {} says so.", table_file);
    } else {
        verdict.finding +=
            fmt::format("This chip's row in {} says {}, and the gain is too small to change it.", table_file, name_of(right));
    }
    return verdict;
}

std::string show_tuning(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict) {
    std::vector<std::vector<std::string>> rows = {{"", ""}, {"weights", "work"}};
    for (const CpuIsa isa : chip.isas) {
        rows[0].insert(rows[0].end(), {name_of(isa), "", isa == chip.in_use ? "in use" : ""});
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
    std::string text = fmt::format("{} ({}, family 0x{:02X}, model 0x{:02X}), {} threads\n\n{}\n{}\n", chip.name, chip.chip.vendor,
                                   chip.chip.family, chip.chip.model, chip.threads, show_table(rows, ~0b11U), verdict.finding);
    if (verdict.row) text += fmt::format("\n    {}\n", *verdict.row);
    return text;
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
                         {"in_table", chip.in_table ? Json(name_of(*chip.in_table)) : Json()},
                         {"in_use", name_of(chip.in_use)},
                         {"lines", std::move(speeds)},
                         {"speeds", std::move(means)},
                         {"fastest", name_of(verdict.fastest)},
                         {"finding", verdict.finding},
                         {"row", verdict.row}});
}

}  // namespace lorry::ops
