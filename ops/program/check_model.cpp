// `lorry check-model`: reports on a model folder and its adapters without loading their weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/paths.h"
#include "ops/program/model_report.h"

namespace lorry::ops {
namespace {

class CheckModelCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("folder", folder_, "the model's folder (default: the setting model)")->type_name("DIR");
        app.add_flag("--json", json_, "print JSON");
        configuration_.declare(app, {SettingScope::model});
    }

    ExitCode run() override {
        Settings settings = configuration_.load();
        if (!folder_.empty()) settings.model = folder_;
        if (settings.model.empty()) throw UsageError("no model is given: pass its folder, or set `model` in lorry.toml");
        load_config(settings);
        if (!settings.adapters.empty()) require_folder("--adapters", settings.adapters);
        const ModelCheck check = check_model(settings);
        std::cout << (json_ ? json_of(check).dump() + "\n" : show(check));
        const bool all_adapters =
            std::ranges::all_of(check.adapters, [](const AdapterReport& adapter) { return adapter.info.has_value(); });
        return check.problems.empty() && all_adapters ? ExitCode::done : ExitCode::failed;
    }

private:
    Configuration configuration_;
    std::string folder_;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_check_model_command() { return std::make_unique<CheckModelCommand>(); }

}  // namespace lorry::ops
