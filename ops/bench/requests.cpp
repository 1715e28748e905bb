// `lorry bench requests`: answers lines of JSON on standard input with lines on standard output.
#include <chrono>
#include <iostream>

#include "ops/adapter_folders.h"
#include "ops/bench/request_bench.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"

namespace lorry::ops {
namespace {

class BenchRequestsCommand final : public Command {
public:
    void declare(CLI::App& app) override { configuration_.declare(app, {SettingScope::model}); }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        const engine::Clock::time_point begin = engine::Clock::now();
        EngineSetup setup(settings, {.plain_decoding = true});
        const double load_seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
        const AdapterFolders folders(settings.adapters, base_name_of(settings), setup.model().config(), setup.texts());
        answer_request_lines(setup, folders, load_seconds, std::cin, std::cout);
        return ExitCode::done;
    }

private:
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_bench_requests_command() { return std::make_unique<BenchRequestsCommand>(); }

}  // namespace lorry::ops
