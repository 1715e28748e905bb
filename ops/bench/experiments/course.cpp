// `lorry bench course`: its flags, and its output to the terminal and to files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/bench/experiments/course_bench.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/paths.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchCourseCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    std::string random_weights_;
    std::string out_ = "course";
    std::vector<std::string> only_;
    bool quick_ = false;
};

void BenchCourseCommand::declare(CLI::App& app) {
    std::vector<std::string> names;
    for (const CourseRow& row : course_table()) names.emplace_back(row.name);
    app.add_option("--random-weights", random_weights_,
                   "instead of --model: a model of this shape with random weights (default: stories42m)")
        ->check(CLI::IsMember(random_model_names()));
    app.add_option("--out", out_, "DIR for course.html, its charts as SVG files, and course.json")->capture_default_str();
    app.add_option("--only", only_, "only these experiments")->delimiter(',')->check(CLI::IsMember(names));
    app.add_flag("--quick", quick_, "fewer and shorter runs, to check that it works");
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchCourseCommand::run() {
    Settings settings = configuration_.load();
    if (settings.device == "cuda") throw UsageError("--device cuda: the course runs on the CPU only");
    settings.device = "cpu";
    settings.prefix_cache = false;
    settings.max_batch = std::max<std::int64_t>(settings.max_batch, 64);
    const std::filesystem::path out = out_;
    std::filesystem::create_directories(out);
    const TemporaryFolder scratch;
    if (!random_weights_.empty() || settings.model.empty())
        make_up_model({random_weights_.empty() ? "stories42m" : random_weights_}, scratch.path(), settings);
    EngineSetup setup(settings, {.plain_decoding = true});
    check_context(setup, course_context);
    const std::string model = fmt::format("{}, weights in {}", setup.reply().base_name, setup.storage());
    const std::string provenance = show_provenance(cpu_options(settings).isa);
    const std::string machine = fmt::format("{}, {}", model, provenance);
    std::cerr << machine << '\n';

    Course course{.settings = settings, .setup = setup, .scratch = scratch.path(), .quick = quick_};
    std::vector<Experiment> experiments;
    Json results = Json::Array();
    for (const CourseRow& row : course_table()) {
        if (!only_.empty() && std::ranges::find(only_, row.name) == only_.end()) continue;
        std::cerr << row.name << " …\n";
        Experiment& experiment = experiments.emplace_back(run_experiment(row, course));
        std::cout << (experiments.size() > 1 ? "\n" : "") << show_experiment(experiment) << std::flush;
        results.push(experiment_json(experiment));
        for (Chart& chart : experiment.charts) {
            chart.note = fmt::format("{}, {}", chart.note.empty() ? model : chart.note, provenance);
            write_text(out / (chart.name + ".svg"), svg_of(chart));
        }
    }
    write_text(out / "course.html", experiments_page(experiments, machine));
    Json all = circumstances_json(setup);
    all.set("quick", quick_);
    all.set("experiments", std::move(results));
    write_text(out / "course.json", with_provenance(all, cpu_options(settings).isa).dump() + "\n");
    std::cerr << "charts: " << (out / "course.html").string() << '\n';
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_course_command() { return std::make_unique<BenchCourseCommand>(); }

}  // namespace lorry::ops
