// `lorry bench`: benchmarks of the machine and the engine, without Kafka or files. Each subcommand is a Command in a file of its own in
// this folder (experiments/course.cpp for `course`, structure/structure.cpp for `structure`) and one row here.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "ops/command.h"

namespace lorry::ops {

std::unique_ptr<Command> make_bench_machine_command();
std::unique_ptr<Command> make_bench_tune_command();
std::unique_ptr<Command> make_bench_attention_command();
std::unique_ptr<Command> make_bench_queue_command();
std::unique_ptr<Command> make_bench_throughput_command();
std::unique_ptr<Command> make_bench_adapters_command();
std::unique_ptr<Command> make_bench_loading_command();
std::unique_ptr<Command> make_bench_structure_command();
std::unique_ptr<Command> make_bench_speculation_command();
std::unique_ptr<Command> make_bench_loss_command();
std::unique_ptr<Command> make_bench_course_command();
std::unique_ptr<Command> make_bench_pipeline_command();
std::unique_ptr<Command> make_bench_requests_command();

namespace {

struct BenchRow {
    const char* name;
    const char* summary;
    std::unique_ptr<Command> (*make)();
};
constexpr std::array benches = {
    BenchRow{"machine", "the limits of memory and processor", make_bench_machine_command},
    BenchRow{"tune", "which instruction set, or which of a GPU's matmuls, is the fastest", make_bench_tune_command},
    BenchRow{"attention", "attention alone, compared with the machine's limits", make_bench_attention_command},
    BenchRow{"queue", "a queue of short and long jobs: static against continuous batching, KV cache off and on", make_bench_queue_command},
    BenchRow{"throughput", "many requests at once, and the share of the machine that they use", make_bench_throughput_command},
    BenchRow{"adapters", "many more adapters than memory holds, some requested far more often than others", make_bench_adapters_command},
    BenchRow{"loading", "how long the steps of a full batch take while adapters are loaded", make_bench_loading_command},
    BenchRow{"structure", "answers that match a JSON schema beside free text of as many tokens", make_bench_structure_command},
    BenchRow{"speculation", "answers that copy from their prompts, with guesses of the next tokens and without",
             make_bench_speculation_command},
    BenchRow{"pipeline", "what a worker does beside the model: time per token of each of its threads", make_bench_pipeline_command},
    BenchRow{"loss", "how narrower weights change a model's answers", make_bench_loss_command},
    BenchRow{"course", "the experiments of a course on serving LoRA adapters, as tables and charts", make_bench_course_command},
    BenchRow{"requests", "runs the token ids that ops/bench-peers sends, one line of JSON at a time (ops/bench/request_bench.h)",
             make_bench_requests_command},
};

class BenchCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.require_subcommand(1);
        for (const BenchRow& row : benches) {
            parts_.emplace_back(app.add_subcommand(row.name, row.summary), row.make());
            parts_.back().second->declare(*parts_.back().first);
        }
    }

    ExitCode run() override {
        return std::ranges::find_if(parts_, [](const auto& part) { return part.first->parsed(); })->second->run();
    }

private:
    std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> parts_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace lorry::ops
