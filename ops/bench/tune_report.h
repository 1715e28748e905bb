// What the speeds of the instruction sets say about a chip: the row that the table in kernels/cpu/isa.cpp should have for it, as text and
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
    std::string name;  // what the processor calls itself
    int threads = 0;
    std::vector<kernels::CpuIsa> isas;                 // that were measured, narrowest first
    std::optional<kernels::CpuIsa> in_table;           // what its row in the table says
    kernels::CpuIsa in_use = kernels::CpuIsa::scalar;  // one of `isas`
};

struct TuneVerdict {
    kernels::CpuIsa fastest = kernels::CpuIsa::scalar;
    std::vector<double> speeds;      // [isas] against the one in use: the geometric mean over all lines
    std::optional<std::string> row;  // what the table lacks
    std::string finding;             // a sentence for people
};

// Answers depend on the instruction set, so what is in use changes only for a gain that is no noise.
TuneVerdict judge_isas(const TunedChip& chip, std::span<const TuneLine> lines);

// The lines (operations are those of integers too), their means by way to store weights and over all, the finding, and the row.
std::string show_tuning(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);
schema::Json tuning_json(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);

}  // namespace lorry::ops
