// `lorry cancel`: asks the workers to end a job or a batch.
#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka_client.h"
#include "ops/batch_id.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/job_search.h"
#include "ops/kafka_settings.h"
#include "ops/signals.h"

namespace lorry::ops {
namespace {

class CancelCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("JOB_ID", job_id_, "a job: its custom_id, or BATCH/custom_id when it is of a batch");
        app.add_option("--batch", batch_id_, "all jobs of a batch")->type_name("ID");
        app.add_flag("--force", force_, "without a look whether the jobs topic has it");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        SignalWatcher signals;
        std::atomic<bool> stop = false;
        const SignalWatcher::Armed armed(signals, [&] { stop = true; });
        if (job_id_.empty() == batch_id_.empty()) throw UsageError("cancel takes a job's id or --batch ID, one of them");
        const Settings settings = configuration_.load();
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        const bool is_batch = !batch_id_.empty();
        if (is_batch) {
            if (const auto error = batch_id_error(batch_id_)) throw UsageError("--batch: " + *error);
        }
        const SoughtJob sought{.id = is_batch ? batch_id_ : job_id_, .is_batch = is_batch};
        const char* const what = is_batch ? "batch" : "job";
        const schema::Timestamp at = now();
        const schema::Topics topics = topics_of(settings);
        if (!force_ && is_in_jobs_topic(kafka, topics, sought, "--force cancels it all the same", stop) == false) {
            throw std::runtime_error(fmt::format(
                "{} has no {} {}; nothing was cancelled. Check the id{} and --prefix; --force cancels it all the same", topics.jobs(),
                is_batch ? "job of batch" : "job", sought.id, is_batch ? "" : " (a batch's job is BATCH/custom_id)"));
        }
        if (stop) throw std::runtime_error("interrupted; nothing was cancelled");
        consumer::send_cancel(kafka, topics.control(), {.id = sought.id, .is_batch = is_batch, .at = at});
        std::cerr << fmt::format("{} {}: cancelled. What was submitted before now and has not ended yet ends as batch_cancelled.\n", what,
                                 sought.id);
        return ExitCode::done;
    }

private:
    std::string job_id_;
    std::string batch_id_;
    bool force_ = false;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_cancel_command() { return std::make_unique<CancelCommand>(); }

}  // namespace lorry::ops
