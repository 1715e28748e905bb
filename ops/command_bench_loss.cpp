// `lorry bench loss`: its flags, and its table.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/loss_bench.h"
#include "ops/units.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchLossCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--jobs", jobs_, "FILE of jobs, as for `lorry run`")->required();
        app.add_option("--jobs-max", jobs_max_, "take the first so many")->check(CLI::PositiveNumber)->capture_default_str();
        app.add_flag("--json", json_, "print JSON");
        configuration_.declare(app, {SettingScope::model});
    }

    ExitCode run() override {
        std::vector<std::vector<std::string>> table = {{"weights", "perplexity", "of tokens", "answers as float32"}};
        Json results = Json::Array();
        for (const LossRow& row : measure_loss(configuration_.load(), jobs_, jobs_max_)) {
            table.push_back({row.weights, fmt::format("{:.4f}", row.perplexity), show_count(row.tokens),
                             fmt::format("{} of {}", row.answers_same, row.answers)});
            Json json = row.circumstances;
            json.set("perplexity", row.perplexity);
            json.set("tokens", row.tokens);
            json.set("answers", row.answers);
            json.set("answers_same", row.answers_same);
            results.push(std::move(json));
        }
        std::cout << (json_ ? results.dump() + "\n" : show_table(table, 0b1110));
        return ExitCode::done;
    }

private:
    Configuration configuration_;
    std::string jobs_;
    std::int64_t jobs_max_ = 500;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_loss_command() { return std::make_unique<BenchLossCommand>(); }

}  // namespace lorry::ops
