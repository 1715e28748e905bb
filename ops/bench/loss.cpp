// `lorry bench loss`: its flags and its table.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include "ops/bench/loss_bench.h"
#include "ops/bench/output.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/units.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchLossCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--jobs", jobs_, "FILE of jobs, as for `lorry run`")->required();
        app.add_option("--jobs-max", jobs_max_, "take only the first N")->check(whole_number_from(1))->capture_default_str();
        output_.declare(app);
        configuration_.declare(app, {SettingScope::model});
    }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        std::vector<std::vector<std::string>> table = {{"weights", "perplexity", "of tokens", "answers as float32"}};
        Json rows = Json::Array();
        for (const LossRow& row : measure_loss(settings, jobs_, jobs_max_)) {
            table.push_back({row.weights, fmt::format("{:.4f}", row.perplexity), show_count(row.tokens),
                             fmt::format("{} of {}", row.answers_same, row.answers)});
            Json json = row.circumstances;
            json.set("perplexity", row.perplexity);
            json.set("tokens", row.tokens);
            json.set("answers", row.answers);
            json.set("answers_same", row.answers_same);
            rows.push(std::move(json));
        }
        output_.print(show_table(table, 0b1110), Json::object({{"rows", std::move(rows)}}), cpu_options(settings).isa);
        return ExitCode::done;
    }

private:
    Configuration configuration_;
    std::string jobs_;
    std::int64_t jobs_max_ = 500;
    BenchOutput output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_loss_command() { return std::make_unique<BenchLossCommand>(); }

}  // namespace lorry::ops
