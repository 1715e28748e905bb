// Times the same matmuls and attention with each instruction set of this machine in turn; the rules in kernels/cpu/isa.cpp choose one of
// them. Called by tune.cpp; tune_report.h draws the conclusions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "ops/bench/limits.h"

namespace lorry::ops {

// The instruction sets to choose from on this machine, narrowest first; scalar only if there is no other.
std::vector<kernels::CpuIsa> tune_isas();

struct TuneShape {
    engine::ModelConfig config;  // model whose layers are computed, without the head
    int threads = 0;             // 0: all processors that this process may use
    double seconds = 2.0;        // per line, for all instruction sets together; each layer runs at least three times
    bool quick = false;          // one layer and one run
};

// One kind of work with one weight format.
struct TuneLine {
    std::string weights;  // "bfloat16"
    std::string work;     // "matmuls, 64 rows"
    struct Speed {
        Work work;
        double seconds = 0.0;  // sum of each layer's fastest run
    };
    std::vector<Speed> speeds;  // [isas]
};

std::vector<TuneLine> measure_isas(const TuneShape& shape, std::span<const kernels::CpuIsa> isas);

}  // namespace lorry::ops
