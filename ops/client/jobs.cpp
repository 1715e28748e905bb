// `lorry jobs`: lists jobs from the ledger, and shows the progress of a batch.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/client/batch_follower.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"
#include "ops/progress_bar.h"
#include "ops/units.h"
#include "schema/codec_error.h"
#include "schema/store/store.h"

namespace lorry::ops {
namespace {

constexpr std::size_t error_bytes_shown = 60;

std::string show_between(const std::optional<schema::Timestamp>& begin, const std::optional<schema::Timestamp>& end) {
    if (!begin || !end || *end < *begin) return "-";
    const auto time = *end - *begin;
    return time < std::chrono::seconds(1) ? fmt::format("{} ms", time.count()) : show_duration(time);
}

class JobsCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("JOB_ID", job_id_, "one job: its custom_id, or BATCH/custom_id for a job of a batch")->check(not_empty());
        app.add_option("--batch", batch_id_, "the jobs of a batch, and its progress")->type_name("ID")->check(not_empty());
        app.add_option("--state", state_, "running, completed, failed, expired or cancelled")->type_name("STATE")->check(not_empty());
        app.add_option("--for-model", model_, "jobs for that adapter or base model")->type_name("NAME")->check(not_empty());
        app.add_option("--limit", limit_, "the newest N")->type_name("N")->capture_default_str();
        app.add_flag("--json", json_, "a JSON object per line, as on the status topic");
        configuration_.declare(app, {SettingScope::kafka, SettingScope::ledger});
    }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        const schema::JobFilter filter = read_filter();
        const schema::Store store = open_ledger(settings);
        const std::vector<schema::Status> jobs = store.jobs(filter);
        if (json_) {
            for (const schema::Status& status : jobs) std::cout << schema::encode_status(status) << '\n';
        } else if (!jobs.empty()) {
            print_table(jobs);
        }
        return print_counts(settings, store, filter);
    }

private:
    schema::JobFilter read_filter() const {
        schema::JobFilter filter{.limit = limit_};
        if (!job_id_.empty()) filter.id = job_id_;
        if (!batch_id_.empty()) filter.batch_id = batch_id_;
        if (!model_.empty()) filter.model = model_;
        if (!state_.empty()) {
            filter.state = schema::state_named(state_);
            if (!filter.state) {
                throw UsageError(fmt::format("--state is '{}'; allowed are running, completed, failed, expired and cancelled", state_));
            }
        }
        return filter;
    }

    // The name without the batch's prefix, if a batch was asked for.
    std::string name_of(const schema::Status& status) const {
        const std::string prefix = batch_id_ + "/";
        return !batch_id_.empty() && status.run.job_id.starts_with(prefix) ? status.run.job_id.substr(prefix.size()) : status.run.job_id;
    }

    void print_table(const std::vector<schema::Status>& jobs) const {
        std::vector<std::vector<std::string>> rows = {{"JOB", "MODEL", "STATE", "SUBMITTED (UTC)", "WAITED", "RAN", "TOKENS", "ERROR"}};
        for (const schema::Status& status : jobs) {
            rows.push_back({name_of(status), status.run.model, schema::name_of(status.state), show_time(status.run.submitted),
                            show_between(status.run.submitted, status.run.started), show_between(status.run.started, status.run.finished),
                            status.usage.prompt_tokens > 0
                                ? fmt::format("{} + {}", show_count(status.usage.prompt_tokens), show_count(status.usage.completion_tokens))
                                : "-",
                            schema::shortened(status.error, error_bytes_shown)});
        }
        std::cout << show_table(rows, 0b1110000);
    }

    // Number of jobs of the batch according to the jobs topic; nullopt without brokers.
    std::optional<BatchCounts> jobs_of_batch(const Settings& settings) const {
        if (batch_id_.empty() || settings.brokers.empty()) return std::nullopt;
        BatchFollower batch(kafka_config_of(settings), topics_of(settings), {.batch_id = batch_id_, .since = {}, .results = false});
        ProgressBar progress("counting");
        const std::atomic<bool> stop = false;
        follow_to_end(batch, progress, {.limit = WaitLimit::now(), .stop = stop, .on_result = {}, .after_poll = {}});
        return batch.counts();
    }

    // Fails if the batch or the job is unknown.
    ExitCode print_counts(const Settings& settings, const schema::Store& store, const schema::JobFilter& filter) const {
        const schema::JobCounts counts = store.count(filter);
        std::string text;
        const auto add = [&](std::int64_t count, const char* name) {
            if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", show_count(count), name);
        };
        add(counts.completed, "completed");
        add(counts.failed, "failed");
        add(counts.expired, "expired");
        add(counts.cancelled, "cancelled");
        add(counts.running, "running");
        const bool narrowed = filter.id || filter.state || filter.model;
        if (text.empty()) text = fmt::format("the ledger knows no jobs{}", narrowed ? " of that kind" : "");
        // A job that the filter excludes is not waiting.
        const schema::JobCounts known = narrowed ? store.count({.id = filter.id, .batch_id = filter.batch_id}) : counts;
        const bool is_known = known.finished() + known.running > 0;
        if (filter.id && !is_known) {
            std::cerr << fmt::format(
                "lorry: no job {} is in the ledger {}: it is waiting, or the id is wrong (a batch's job is BATCH/custom_id)\n", job_id_,
                ledger_file_of(settings));
            return ExitCode::failed;
        }
        const auto batch = jobs_of_batch(settings);
        if (filter.batch_id && !is_known && (!batch || batch->total() == 0)) {
            std::cerr << fmt::format("lorry: no job of batch {} is in the ledger {}{}: check the id{}\n", batch_id_,
                                     ledger_file_of(settings), batch ? " or in " + topics_of(settings).jobs() : "",
                                     batch ? " and --prefix" : ", or give --brokers to check the jobs topic too");
            return ExitCode::failed;
        }
        if (batch) {
            const std::int64_t waiting = std::max<std::int64_t>(0, batch->total() - known.finished() - known.running);
            text += fmt::format("; {} waiting, of {} in the batch", show_count(waiting), show_count(batch->total()));
        }
        std::cerr << (batch_id_.empty() ? "" : fmt::format("batch {}: ", batch_id_)) << text << '\n';
        return ExitCode::done;
    }

    std::string job_id_;
    std::string batch_id_;
    std::string state_;
    std::string model_;
    std::size_t limit_ = 20;
    bool json_ = false;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_jobs_command() { return std::make_unique<JobsCommand>(); }

}  // namespace lorry::ops
