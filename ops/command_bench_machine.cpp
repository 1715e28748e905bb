// `lorry bench machine`: what benchmarks measure the kernels against.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/rates.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/limits.h"
#include "ops/machine.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

// One row of a quantity for one thread and for all of them; a dash where the processor cannot do it.
std::vector<std::string> rate_row(const char* what, const char* unit, const std::optional<double>& one, const std::optional<double>& all) {
    const auto show = [&](const std::optional<double>& rate) { return rate ? show_giga(*rate, unit) : std::string("-"); };
    return {what, show(one), show(all)};
}

class BenchMachineCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_flag("--json", json_, "print JSON");
        configuration_.declare(app, {SettingScope::model});
    }

    ExitCode run() override {
        const kernels::CpuOptions options = cpu_options(configuration_.load());
        const Rates one = kernels::cpu::measure_rates(1, options.isa);
        const Rates all = kernels::cpu::measure_rates(options.threads, options.isa);
        const std::string isa = kernels::cpu::name_of(kernels::cpu::usable_isa(options.isa));
        if (json_) {
            const Json rates = Json::array({rates_json(one), rates_json(all)});
            std::cout << Json::object({{"cpu", cpu_model()}, {"isa", isa}, {"rates", rates}}).dump() << '\n';
            return ExitCode::done;
        }
        std::cout << cpu_model() << ", " << isa << "\n\n";
        std::cout << show_table({{"", "1 thread", fmt::format("{} threads", all.threads)},
                                 rate_row("copy", "GB/s", one.copy, all.copy),
                                 rate_row("read", "GB/s", one.read, all.read),
                                 rate_row("float32 multiply-adds", "GFLOP/s", one.float32, all.float32),
                                 rate_row("bfloat16 dot", "GFLOP/s", one.bfloat16_dot, all.bfloat16_dot),
                                 rate_row("int8 dot", "GOP/s", one.int8_dot, all.int8_dot)},
                                0b110);
        return ExitCode::done;
    }

private:
    Configuration configuration_;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_machine_command() { return std::make_unique<BenchMachineCommand>(); }

}  // namespace lorry::ops
