// `lorry bench tune`: measures the CPU's instruction sets and prints whether the rules choose the fastest, or measures the GPU's matmuls
// and prints rows of its table.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "engine/files.h"
#include "kernels/processors.h"
#include "ops/bench/matmul_report.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/tune_report.h"
#include "ops/command.h"
#include "ops/machine.h"
#include "ops/paths.h"

namespace lorry::ops {
namespace {

class BenchTuneCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    void tune_cpu() const;
    // Throws UsageError with the reason if a GPU cannot be used.
    void tune_cuda() const;

    std::string device_ = "cpu";
    std::vector<std::string> models_;  // models whose shapes the GPU multiplies; empty: those of random_weights_
    std::vector<std::string> random_weights_ = {"llama-3.1-8b"};
    std::string quantize_ = "none";
    std::string table_;  // file for the rows; empty: they are only printed
    std::optional<double> seconds_max_;
    bool slower_too_ = false;  // also write rows of shapes that our own kernel multiplies faster
    TuneShape shape_;
    BenchOutput output_;
};

void BenchTuneCommand::declare(CLI::App& app) {
    app.add_option("--device", device_, "cpu: instruction sets; cuda: the matmuls that cuBLASLt has for the shapes of a model")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->capture_default_str();
    app.add_option("--model", models_, "cuda: the folder of a model, or of several")->delimiter(',');
    app.add_option("--random-weights", random_weights_, "cuda: instead of --model, models of these shapes")
        ->delimiter(',')
        ->check(CLI::IsMember(random_model_names()))
        ->capture_default_str();
    app.add_option("--quantize", quantize_, "cuda: fp8: what --quantize fp8 multiplies, instead of bfloat16")
        ->check(CLI::IsMember({"none", "fp8"}))
        ->capture_default_str();
    CLI::Option* const table =
        app.add_option("--table", table_, "cuda: a file for --matmul-table, in which the rows replace those of the same shapes");
    app.add_option("--seconds-max", seconds_max_, "cuda: start nothing after this time; shapes left over keep Lorry's own kernel")
        ->check(CLI::Range(0.001, 1e6));
    app.add_flag("--slower-too", slower_too_, "with --table: also rows of shapes that Lorry's own kernel multiplies faster, for tests")
        ->needs(table);
    app.add_option("--threads", shape_.threads, "0: as many as this process may use")->check(CLI::Range(0, 1024))->capture_default_str();
    app.add_option("--seconds", shape_.seconds, "time per line of the table; the fastest run counts")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_flag("--quick", shape_.quick, "one layer and one run, to check that it works");
    output_.declare(app);
}

ExitCode BenchTuneCommand::run() {
    device_ == "cuda" ? tune_cuda() : tune_cpu();
    return ExitCode::done;
}

void BenchTuneCommand::tune_cpu() const {
    TuneShape shape = shape_;
    shape.config = random_model_config("smollm2-135m");
    const TunedChip tuned{.chip = kernels::cpu::this_chip(),
                          .name = cpu_model(),
                          .threads = shape.threads > 0 ? shape.threads : kernels::usable_processors(),
                          .isas = tune_isas(),
                          .choice = kernels::cpu::choose_isa()};
    std::cerr << "this takes about a minute; nothing else should run meanwhile …\n";
    const std::vector<TuneLine> lines = measure_isas(shape, tuned.isas);
    const TuneVerdict verdict = judge_isas(tuned, lines);
    output_.print(show_tuning(tuned, lines, verdict), tuning_json(tuned, lines, verdict), tuned.choice.isa);
}

void BenchTuneCommand::tune_cuda() const {
    if (const auto obstacle = kernels::cuda_obstacle()) throw UsageError("--device cuda: " + *obstacle);
    std::vector<engine::ModelConfig> configs;
    for (const std::string& folder : models_) configs.push_back(engine::ModelConfig::load(folder));
    if (models_.empty()) {
        for (const std::string& name : random_weights_) configs.push_back(random_model_config(name));
    }
    std::string table;
    if (!table_.empty() && std::filesystem::exists(table_)) {
        static_cast<void>(kernels::cuda::read_matmul_rows(table_));  // an invalid table fails before the measurement
        table = *engine::read_text(table_);
    }
    const auto quantization = kernels::quantization_of(quantize_).value_or(kernels::Quantization::none);
    const kernels::Format inputs = kernels::weight_format(quantization).input.value_or(kernels::Format::bfloat16);
    std::cerr << "this takes some minutes; nothing else should use the GPU meanwhile …\n";
    std::optional<std::chrono::duration<double>> time_max;
    if (seconds_max_) time_max = std::chrono::duration<double>(*seconds_max_);
    const kernels::cuda::Tuning tuning =
        kernels::cuda::tune_matmuls(matmul_shapes(configs, inputs), time_max, [&](const kernels::cuda::Tuning& so_far) {
            std::cerr << finding_of(so_far.matmuls.back()) << '\n';
            if (!table_.empty()) write_text(table_, with_rows(table, so_far, slower_too_ ? RowsOf::all : RowsOf::gains));
        });
    output_.print(show_matmuls(tuning), matmuls_json(tuning), {}, tuning.device);
}

}  // namespace

std::unique_ptr<Command> make_bench_tune_command() { return std::make_unique<BenchTuneCommand>(); }

}  // namespace lorry::ops
