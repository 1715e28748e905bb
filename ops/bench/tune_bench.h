// The same matmuls and attention with each instruction set that this machine has, in turn: what the table of measured chips
// (kernels/cpu/isa.cpp) decides. Called by tune.cpp; tune_report.h says what follows from it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "kernels/backend.h"
#include "ops/bench/limits.h"

namespace lorry::ops {

// Those between which there is a choice on this machine, narrowest first: scalar only where there is no other.
std::vector<kernels::CpuIsa> tune_isas();

struct TuneShape {
    engine::ModelConfig config;  // whose layers are computed, without the head
    int threads = 0;             // 0: all that this process may use
    double seconds = 2.0;        // for each line, all instruction sets together; each layer runs three times at least
    bool quick = false;          // one layer and one run
};

// One kind of work in one way to store weights.
struct TuneLine {
    std::string weights;  // "bfloat16"
    std::string work;     // "matmuls, 64 rows"
    struct Speed {
        Work work;
        double seconds = 0.0;  // of each layer's fastest run
    };
    std::vector<Speed> speeds;  // [isas]
};

std::vector<TuneLine> measure_isas(const TuneShape& shape, std::span<const kernels::CpuIsa> isas);

}  // namespace lorry::ops
