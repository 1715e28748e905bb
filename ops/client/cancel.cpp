// `lorry cancel`: asks the workers to end jobs or a batch. Run by the program's command table.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka/client.h"
#include "ops/client/batch_id.h"
#include "ops/client/job_search.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"

namespace lorry::ops {
namespace {

class CancelCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("JOB_ID", job_ids_, "jobs: a custom_id, or BATCH/custom_id for a job of a batch")->check(not_empty());
        app.add_option("--batch", batch_id_, "all jobs of a batch")->type_name("ID");
        app.add_flag("--force", force_, "does not check whether the jobs topic has it");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        if (job_ids_.empty() == batch_id_.empty()) throw UsageError("cancel takes either job ids or --batch ID");
        const Settings settings = configuration_.load();
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        const schema::Topics topics = topics_of(settings);
        const std::vector<SoughtJob> all = sought();
        if (!force_) check_known(kafka, topics, all);
        std::vector<schema::Cancel> cancels;
        for (const SoughtJob& one : all) cancels.push_back({.id = one.id, .is_batch = one.is_batch});
        consumer::send_cancels(kafka, topics, std::move(cancels));
        for (const SoughtJob& one : all) {
            std::cerr << fmt::format("{} {}: cancelled. Jobs submitted before now that have not ended yet end as batch_cancelled\n",
                                     one.is_batch ? "batch" : "job", one.id);
        }
        return ExitCode::done;
    }

private:
    std::vector<SoughtJob> sought() const {
        std::vector<SoughtJob> all;
        for (const std::string& id : job_ids_) all.push_back({.id = id, .is_batch = false});
        if (batch_id_.empty()) return all;
        if (const auto error = batch_id_error(batch_id_)) throw UsageError("--batch: " + *error);
        all.push_back({.id = batch_id_, .is_batch = true});
        return all;
    }

    static void check_known(const consumer::KafkaConfig& kafka, const schema::Topics& topics, const std::vector<SoughtJob>& sought) {
        const auto missing = missing_in_jobs_topic(kafka, topics, sought, "--force cancels it anyway");
        if (missing.empty()) return;
        const SoughtJob& first = missing.front();
        const std::string others = missing.size() > 1 ? fmt::format(", nor {} more of these", missing.size() - 1) : "";
        throw std::runtime_error(fmt::format(
            "{} has no {} {}{}; nothing was cancelled. Check the id{} and --prefix; --force cancels it anyway", topics.jobs(),
            first.is_batch ? "job of batch" : "job", first.id, others, first.is_batch ? "" : " (a batch's job is BATCH/custom_id)"));
    }

    std::vector<std::string> job_ids_;
    std::string batch_id_;
    bool force_ = false;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_cancel_command() { return std::make_unique<CancelCommand>(); }

}  // namespace lorry::ops
