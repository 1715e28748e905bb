// `lorry bench tune`: its flags, and what it prints. Used by command_bench.cpp.
#pragma once

#include <string>
#include <vector>

#include "ops/tune_bench.h"

namespace CLI {
class App;
}

namespace lorry::ops {

class TuneCommand {
public:
    void declare(CLI::App& bench);
    bool parsed() const;
    void run() const;

private:
    void tune_cpu() const;
    // Throws UsageError saying what stands in the way of using a GPU.
    void tune_cuda() const;

    CLI::App* app_ = nullptr;
    std::string device_ = "cpu";
    std::string model_;  // whose shapes the GPU multiplies; empty: those of random_weights_
    std::vector<std::string> random_weights_ = {"llama-3.1-8b"};
    TuneShape shape_;
    bool json_ = false;
};

}  // namespace lorry::ops
