// `lorry cancel`: asks the workers to end a job or a batch.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka_client.h"
#include "ops/batch_id.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/kafka_settings.h"

namespace lorry::ops {
namespace {

class CancelCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("JOB_ID", job_id_, "a job: its custom_id, or BATCH/custom_id when it is of a batch");
        app.add_option("--batch", batch_id_, "all jobs of a batch")->type_name("ID");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        if (job_id_.empty() == batch_id_.empty()) throw UsageError("cancel takes a job's id or --batch ID, one of them");
        const Settings settings = configuration_.load();
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        const bool is_batch = !batch_id_.empty();
        if (is_batch) {
            if (const auto error = batch_id_error(batch_id_)) throw UsageError("--batch: " + *error);
        }
        consumer::send_cancel(kafka, topics_of(settings).control(),
                              {.id = is_batch ? batch_id_ : job_id_, .is_batch = is_batch, .at = now()});
        std::cerr << fmt::format("{} {}: cancelled. What was submitted before now and has not ended yet ends as batch_cancelled.\n",
                                 is_batch ? "batch" : "job", is_batch ? batch_id_ : job_id_);
        return ExitCode::done;
    }

private:
    std::string job_id_;
    std::string batch_id_;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_cancel_command() { return std::make_unique<CancelCommand>(); }

}  // namespace lorry::ops
