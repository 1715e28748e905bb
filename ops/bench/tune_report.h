// Judges the measured speeds of the instruction sets: whether the rules in kernels/cpu/isa.cpp choose the fastest one for this machine, as
// text and as JSON. Called by tune.cpp. Pure.
#pragma once

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
    std::vector<kernels::CpuIsa> isas;  // the measured ones, narrowest first
    kernels::cpu::IsaChoice choice;     // the one in use, of `isas`, and the rule's reason
};

struct TuneVerdict {
    kernels::CpuIsa fastest = kernels::CpuIsa::scalar;
    std::vector<double> speeds;  // [isas] against the one in use: the geometric mean over all lines
    bool is_wrong = false;       // another one is faster than the one in use, by more than noise
    std::string finding;         // for people; says what to do if is_wrong
};

// Answers depend on the instruction set, so the one in use is wrong only if another gains more than noise.
TuneVerdict judge_isas(const TunedChip& chip, std::span<const TuneLine> lines);

// The lines (operations include those of integers), their means per weight format and over all, and the finding.
std::string show_tuning(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);
schema::Json tuning_json(const TunedChip& chip, std::span<const TuneLine> lines, const TuneVerdict& verdict);

}  // namespace lorry::ops
