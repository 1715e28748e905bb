// `lorry bench tune`: its flags, and what it prints. Used by command_bench.cpp.
#pragma once

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
    CLI::App* app_ = nullptr;
    TuneShape shape_;
    bool json_ = false;
};

}  // namespace lorry::ops
