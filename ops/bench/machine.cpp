// `lorry bench machine`: measures the limits that benchmarks compare the kernels with.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include "kernels/cpu/rates.h"
#include "ops/bench/limits.h"
#include "ops/bench/output.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

// One row of a rate for one thread and for all threads; a dash if the processor cannot do it.
std::vector<std::string> rate_row(const char* what, const char* unit, const std::optional<double>& one, const std::optional<double>& all) {
    const auto show = [&](const std::optional<double>& rate) { return rate ? show_giga(*rate, unit) : std::string("-"); };
    return {what, show(one), show(all)};
}

class BenchMachineCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        output_.declare(app);
        configuration_.declare(app, {SettingScope::model});
    }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        uses_gpu(settings) ? show_gpu(cpu_options(settings)) : show_cpu(cpu_options(settings));
        return ExitCode::done;
    }

private:
    // Throws UsageError with the reason if a GPU cannot be used.
    void show_gpu(const kernels::CpuOptions& options) const {
        if (const auto obstacle = kernels::cuda_obstacle()) throw UsageError("--device cuda: " + *obstacle);
        const kernels::cuda::ChipDescription chip = kernels::cuda::describe_chip();
        const auto rates = kernels::cuda::measure_chip();
        output_.print(fmt::format("{} (compute capability {}.{}, {} processors), driver for CUDA {}, cudart {}, cuBLASLt {}\n{}\n",
                                  chip.device, chip.chip.capability / 10, chip.chip.capability % 10, chip.chip.processors, chip.driver,
                                  chip.cudart, chip.cublaslt.value_or("none"),
                                  rates ? limits_of(*rates, kernels::Quantization::none).seen : "no rates: " + rates.error()),
                      Json::object({{"gpu", chip.device},
                                    {"capability", chip.chip.capability},
                                    {"processors", chip.chip.processors},
                                    {"driver", chip.driver},
                                    {"cudart", chip.cudart},
                                    {"cublaslt", chip.cublaslt},
                                    {"rates", rates ? rates_json(*rates) : Json()}}),
                      options.isa, chip.device);
    }

    void show_cpu(const kernels::CpuOptions& options) const {
        const Rates one = kernels::cpu::measure_rates(1, options.isa);
        const Rates all = kernels::cpu::measure_rates(options.threads, options.isa);
        const std::string isa = describe_isa(options.isa);
        output_.print(show_table({{"", "1 thread", fmt::format("{} threads", all.threads)},
                                  rate_row("copy", "GB/s", one.copy, all.copy),
                                  rate_row("read", "GB/s", one.read, all.read),
                                  rate_row("float32 multiply-adds", "GFLOP/s", one.float32, all.float32),
                                  rate_row("bfloat16 dot", "GFLOP/s", one.bfloat16_dot, all.bfloat16_dot),
                                  rate_row("int8 dot", "GOP/s", one.int8_dot, all.int8_dot)},
                                 0b110) +
                          "isa " + isa + "\n",
                      Json::object({{"isa_reason", isa}, {"rates", Json::array({rates_json(one), rates_json(all)})}}), options.isa);
    }

    Configuration configuration_;
    BenchOutput output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_machine_command() { return std::make_unique<BenchMachineCommand>(); }

}  // namespace lorry::ops
