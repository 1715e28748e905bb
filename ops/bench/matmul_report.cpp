// Renders a line per shape and size, refusals counted by reason, and rows as the table has them.
#include "ops/bench/matmul_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "engine/model/model_layout.h"
#include "ops/bench/limits.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cuda::MatmulRow;
using kernels::cuda::MatmulShape;
using kernels::cuda::TunedMatmul;
using kernels::cuda::Tuning;
using schema::Json;

// Decoding one or many sequences, and prefill.
constexpr std::array<std::int64_t, 4> shown_rows = {16, 64, 256, 2048};

bool is_fp8(const MatmulShape& shape) { return shape.inputs == kernels::Format::fp8_rows; }

Work work_of(const MatmulShape& shape, std::int64_t rows) {
    const double element = is_fp8(shape) ? 1.0 : 2.0;
    return {.bytes = element * real((shape.out_features + rows) * shape.in_features) + 4.0 * real(rows * shape.out_features),
            .operations = 2.0 * real(rows * shape.out_features * shape.in_features)};
}

// The share of `seconds` that the chip's memory or its arithmetic needs at least.
double share_of_limit(const Tuning& tuning, const MatmulShape& shape, const Work& work, double seconds) {
    const double operations_per_second = is_fp8(shape) ? tuning.rates.fp8_rate() : tuning.rates.operations_per_second;
    return std::max(work.bytes / tuning.rates.copied_per_second, work.operations / operations_per_second) / seconds;
}

double seconds_of(const TunedMatmul& matmul, std::size_t bucket) {
    const std::optional<double> seconds = matmul.candidates[matmul.chosen[bucket]].seconds[bucket];
    CHECK(seconds.has_value(), "a chosen candidate was timed");
    return *seconds;
}

std::string name_of(const MatmulShape& shape) {
    return fmt::format("{} x {}{}", shape.out_features, shape.in_features, is_fp8(shape) ? " fp8" : "");
}

std::map<std::string, std::int64_t> refusals_of(const TunedMatmul& matmul) {
    std::map<std::string, std::int64_t> counts;
    for (const auto& candidate : matmul.candidates) {
        if (candidate.refusal) ++counts[kernels::cuda::reason_of(*candidate.refusal)];
    }
    return counts;
}

}  // namespace

std::vector<MatmulShape> matmul_shapes(std::span<const engine::ModelConfig> configs, kernels::Format inputs) {
    const std::int64_t multiple = kernels::cuda::features_multiple(inputs);
    std::vector<MatmulShape> shapes;
    for (const engine::ModelConfig& config : configs) {
        for (const engine::LinearModule& module : engine::layout_of(config).linears) {
            const MatmulShape shape{inputs, module.projection_out, module.in_features};
            if (is_fp8(shape) && module.projection == engine::Projection::head) continue;
            const bool is_known = std::ranges::find(shapes, shape) != shapes.end();
            if (!is_known && shape.out_features % multiple == 0 && shape.in_features % multiple == 0) shapes.push_back(shape);
        }
    }
    return shapes;
}

std::optional<double> gain_of(const TunedMatmul& matmul) {
    if (matmul.chosen.empty()) return std::nullopt;
    double logarithms = 0.0;
    for (std::size_t bucket = 0; bucket < matmul.buckets.size(); ++bucket)
        logarithms += std::log(matmul.own_seconds[bucket] / seconds_of(matmul, bucket));
    return std::exp(logarithms / static_cast<double>(matmul.buckets.size()));
}

std::string finding_of(const TunedMatmul& matmul) {
    if (!matmul.is_complete && matmul.candidates.empty()) return name_of(matmul.shape) + ": no time was left";
    std::int64_t refused = 0;
    std::string reasons;
    for (const auto& [reason, count] : refusals_of(matmul)) {
        refused += count;
        reasons += fmt::format("{}{} as {}", reasons.empty() ? "" : ", ", count, reason);
    }
    const std::string text =
        fmt::format("{}: {} of {} candidates refused{}{}", name_of(matmul.shape), refused, matmul.candidates.size(),
                    refused == 0 ? "" : " (" + reasons + ")", matmul.is_complete ? "" : "; no time was left for the others");
    const auto gain = gain_of(matmul);
    if (!gain) return text + "; none gives all rows the same bits, so our own kernel stays";
    return text + fmt::format("; {:.2f} times our own kernel{}", *gain, *gain > 1.0 ? "" : ", which stays");
}

bool gets_rows(const TunedMatmul& matmul, RowsOf which) {
    return which == RowsOf::all ? !matmul.chosen.empty() : gain_of(matmul).value_or(0.0) > 1.0;
}

std::vector<std::string> table_rows(const Tuning& tuning, RowsOf which) {
    std::vector<std::string> lines;
    for (const TunedMatmul& matmul : tuning.matmuls) {
        if (!gets_rows(matmul, which)) continue;
        for (const MatmulRow& row : kernels::cuda::rows_of(tuning, matmul)) {
            const auto is_its = [&](const auto& candidate) { return candidate.algorithm == row.range.algorithm; };
            lines.push_back(text_of(row) + "  # " + tuning.device + ", " + std::ranges::find_if(matmul.candidates, is_its)->name);
        }
    }
    return lines;
}

std::string with_rows(std::string_view table, const Tuning& tuning, RowsOf which) {
    std::string text;
    while (!table.empty()) {
        const std::size_t end = std::min(table.find('\n'), table.size());
        const auto row = kernels::cuda::parse_matmul_row(table.substr(0, end));
        CHECK(row.has_value(), "the table was read before");
        const auto is_its = [&](const TunedMatmul& matmul) {
            return matmul.shape == (*row)->shape && (matmul.is_complete || gets_rows(matmul, which));
        };
        const bool is_measured_again =
            *row && (*row)->chip == tuning.chip && (*row)->library == tuning.library && std::ranges::any_of(tuning.matmuls, is_its);
        if (!is_measured_again) text.append(table.substr(0, end)).append("\n");
        table.remove_prefix(std::min(end + 1, table.size()));
    }
    for (const std::string& line : table_rows(tuning, which)) text += line + "\n";
    return text;
}

std::string show_matmuls(const Tuning& tuning) {
    std::vector<std::vector<std::string>> rows = {
        {"outputs x inputs", "rows", "us", "GB/s", "TFLOP/s", "of the limit", "times own", "algorithm"}};
    std::string findings;
    for (const TunedMatmul& matmul : tuning.matmuls) {
        findings += finding_of(matmul) + "\n";
        if (matmul.chosen.empty()) continue;
        for (std::size_t bucket = 0; bucket < matmul.buckets.size(); ++bucket) {
            if (std::ranges::find(shown_rows, matmul.buckets[bucket]) == shown_rows.end()) continue;
            const double seconds = seconds_of(matmul, bucket);
            const Work work = work_of(matmul.shape, matmul.buckets[bucket]);
            rows.push_back({name_of(matmul.shape), fmt::format("{}", matmul.buckets[bucket]), fmt::format("{:.1f}", seconds * 1e6),
                            fmt::format("{:.0f}", work.bytes / seconds * 1e-9), fmt::format("{:.1f}", work.operations / seconds * 1e-12),
                            fmt::format("{:.0f} %", 100.0 * share_of_limit(tuning, matmul.shape, work, seconds)),
                            fmt::format("{:.2f}", matmul.own_seconds[bucket] / seconds), matmul.candidates[matmul.chosen[bucket]].name});
        }
    }
    std::string text = fmt::format(
        "{} (compute capability {}.{}, {} processors), cuBLASLt {}: copies {:.0f} GB/s, multiplies {:.0f} TFLOP/s\n\n{}\n{}", tuning.device,
        tuning.chip.capability / 10, tuning.chip.capability % 10, tuning.chip.processors, kernels::cuda::version_text(tuning.library),
        tuning.rates.copied_per_second * 1e-9, tuning.rates.operations_per_second * 1e-12, show_table(rows, 0b01111110), findings);
    const std::vector<std::string> lines = table_rows(tuning);
    if (!lines.empty())
        text +=
            "\nRows for kernels/cuda/cublaslt/matmul_table.cpp, in the place of the same shapes' on this chip, or for --table FILE:\n\n";
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

Json matmuls_json(const Tuning& tuning) {
    Json matmuls = Json::Array();
    for (const TunedMatmul& matmul : tuning.matmuls) {
        Json refused = Json::Object();
        for (const auto& [reason, count] : refusals_of(matmul)) refused.set(reason, count);
        Json buckets = Json::Array();
        for (std::size_t bucket = 0; bucket < matmul.chosen.size(); ++bucket) {
            const double seconds = seconds_of(matmul, bucket);
            const Work work = work_of(matmul.shape, matmul.buckets[bucket]);
            buckets.push(Json::object({{"rows", matmul.buckets[bucket]},
                                       {"seconds", seconds},
                                       {"own_seconds", matmul.own_seconds[bucket]},
                                       {"bytes_per_second", work.bytes / seconds},
                                       {"operations_per_second", work.operations / seconds},
                                       {"share_of_limit", share_of_limit(tuning, matmul.shape, work, seconds)},
                                       {"algorithm", matmul.candidates[matmul.chosen[bucket]].name}}));
        }
        const auto gain = gain_of(matmul);
        matmuls.push(Json::object({{"inputs", kernels::name_of(matmul.shape.inputs)},
                                   {"out_features", matmul.shape.out_features},
                                   {"in_features", matmul.shape.in_features},
                                   {"candidates", static_cast<std::int64_t>(matmul.candidates.size())},
                                   {"refused", std::move(refused)},
                                   {"gain", gain ? Json(*gain) : Json()},
                                   {"complete", matmul.is_complete},
                                   {"finding", finding_of(matmul)},
                                   {"buckets", std::move(buckets)}}));
    }
    Json rows = Json::Array();
    for (const std::string& line : table_rows(tuning)) rows.push(line);
    return Json::object({{"device", tuning.device},
                         {"capability", tuning.chip.capability},
                         {"processors", tuning.chip.processors},
                         {"library", static_cast<std::int64_t>(tuning.library)},
                         {"copied_bytes_per_second", tuning.rates.copied_per_second},
                         {"operations_per_second", tuning.rates.operations_per_second},
                         {"matmuls", std::move(matmuls)},
                         {"rows", std::move(rows)}});
}

}  // namespace lorry::ops
