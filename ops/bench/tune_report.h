// Judges the measured speeds of the instruction sets: the row that the table in kernels/cpu/isa.cpp should have for this chip, as text and
// as JSON. Called by tune.cpp. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "ops/bench/tune_bench.h"
#include "schema/json.h"

namespace lorry::ops {

struct TunedChip {
    kernels::cpu::Chip chip;
    std::string name;  // the processor's name for itself
    int threads = 0;
    std::vector<kernels::CpuIsa> isas;                 // the measured ones, narrowest first
    std::optional<kernels::CpuIsa> in_table;           // as in its row of the table
    kernels::CpuIsa in_use = kernels::CpuIsa::scalar;  // one of `isas`
};

struct TuneVerdict {
    kernels::CpuIsa fastest = kernels::CpuIsa::scalar;
    std::vector<double> speeds;      // [isas] against the one in use: the geometric mean over all lines
    std::optional<std::string> row;  // the row that is missing from the table
    std::string finding;             // for people
};

// Answers depend on the instruction set, so the one in use changes only for a gain above noise.
TuneVerdict judge_isas(const TunedChip& chip, std::span<const TuneLine> lines);

// The lines (operations include those of integers), their means per weight format and over all, the finding, and the row.
std::string show_tuning(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);
schema::Json tuning_json(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);

}  // namespace lorry::ops
