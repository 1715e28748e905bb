// `lorry submit`: sends the jobs of a file to the jobs topic as one batch.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "consumer/file/reader.h"
#include "consumer/kafka/admin.h"
#include "consumer/kafka/client.h"
#include "ops/client/batch_follower.h"
#include "ops/client/batch_id.h"
#include "ops/client/job_file.h"
#include "ops/client/job_search.h"
#include "ops/client/wait_limit.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"
#include "ops/paths.h"
#include "ops/progress_bar.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "schema/epoch_unit.h"

namespace lorry::ops {
namespace {

constexpr std::int64_t bad_lines_shown = 20;
// More than this may not fit into a partition, together with headers and other records.
constexpr std::size_t embedded_bytes_noted = 4u << 20;
constexpr std::chrono::hours deadline_longest{366 * 24};  // more is likely a point in time

std::string show_bad(const BadLine& bad) { return fmt::format("line {}: {}", bad.line, bad.reason); }

class SubmitCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app_ = &app;
        app.add_option("FILE", file_, "job lines as the OpenAI Batch API takes them; - is standard input")->required();
        app.add_option("--batch", batch_id_, "the batch's id (default: made from the time, and printed)")
            ->type_name("ID")
            ->check(not_empty());
        app.add_flag("--resume", resume_, "with --batch: sends only the missing jobs, after an interrupted submit");
        app.add_option("--retry-failed", retried_batch_, "sends the jobs that failed in that batch again, as a new batch")
            ->type_name("ID")
            ->check(not_empty());
        app.add_option("--deadline", deadline_, "jobs that have not ended after this time expire, such as 2h; up to a year (default: none)")
            ->type_name("TIME")
            ->check(not_empty());
        app.add_option("--tenant", tenant_, "whose jobs they are; tenants share no prompts in the prefix cache (default: none)")
            ->type_name("NAME")
            ->check(not_empty());
        app.add_option("--spread", spread_, "spreads each model's jobs over N keys, so that several workers serve a busy adapter")
            ->type_name("N")
            ->check(CLI::Range(1, 10'000));
        app.add_flag("--keep-going", keep_going_, "sends the good lines even if others are bad");
        app.add_flag("--wait", wait_, "waits until all jobs have ended; exit code 1 if any failed");
        app.add_option("--timeout", timeout_, "with --wait: stops waiting after this time; the jobs continue")->type_name("TIME");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        SignalWatcher signals;
        settings_ = configuration_.load();
        kafka_ = kafka_config_of(settings_);
        check_usage();
        JobFile file(file_, settings_.job_bytes_max.count);
        if (!retried_batch_.empty()) failed_ = failed_before();
        if (!check_lines(file)) return ExitCode::failed;
        refuse_used_batch();
        warn_of_embedded_broker();
        const consumer::TextSet before = resume_ ? sent_before() : consumer::TextSet();
        std::optional<SignalWatcher::Armed> armed;
        const bool all_sent = send(file, before, [&] { armed.emplace(signals, [this] { stop_ = true; }); });
        if (stop_) return interrupted();
        if (!all_sent) return ExitCode::failed;
        const ExitCode sent = bad_ > 0 ? ExitCode::failed : ExitCode::done;
        if (wait_) return wait() == ExitCode::done ? sent : ExitCode::failed;
        std::cerr << fmt::format("To wait for the results:\n  {}\n", collect_command());
        return sent;
    }

private:
    void check_usage() {
        std::filesystem::path name = file_;
        if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();  // unpacked on the way
        const std::string kind = name.extension().string();
        if (kind == ".csv" || kind == ".tsv") {
            throw UsageError(fmt::format(
                "{} is a table, and submit takes job lines (JSON lines). `lorry run {} -o OUT --text COLUMN` runs over a table "
                "without Kafka; to send it over Kafka, turn each row into a line such as {}",
                file_, file_, R"({"custom_id": "ID", "url": "/v1/completions", "body": {"model": "ADAPTER", "prompt": "TEXT"}})"));
        }
        if (!consumer::is_standard_input(file_)) require_file(file_);
        is_batch_named_ = !batch_id_.empty();
        if (resume_ && batch_id_.empty()) throw UsageError("--resume needs --batch ID: name the batch to complete");
        if (!retried_batch_.empty() && retried_batch_ == batch_id_)
            throw UsageError("--retry-failed makes a new batch: give another --batch");
        if (batch_id_.empty()) batch_id_ = make_batch_id();
        if (const auto error = batch_id_error(batch_id_)) throw UsageError("--batch: " + *error);
        if (!deadline_.empty()) deadline_at_ = now() + deadline_from_now();
        if (tenant_.size() > schema::id_bytes_max || !schema::is_valid_utf8(tenant_)) {
            throw UsageError(fmt::format("--tenant is '{}'; allowed is UTF-8 of up to {} bytes", schema::repair_utf8(tenant_.substr(0, 80)),
                                         schema::id_bytes_max));
        }
        wait_time_ = time_of("--timeout", timeout_);
    }

    // The time of --deadline. Throws UsageError if it is no duration, or a point in time.
    std::chrono::milliseconds deadline_from_now() const {
        const auto time = parse_duration(deadline_);
        if (time && time->count() > 0 && *time <= deadline_longest) return *time;
        const auto number = parse_integer(deadline_);
        const bool is_point = number && std::chrono::seconds(*number) > deadline_longest;
        throw UsageError(fmt::format("--deadline is '{}'{}; allowed is a time from now of up to a year, such as 20min or 2h", deadline_,
                                     is_point ? fmt::format(", which looks like {} since 1970", schema::unit_since_epoch(*number)) : ""));
    }

    // Refuses a batch id that is in use: all its jobs would run twice.
    void refuse_used_batch() {
        if (!is_batch_named_ || resume_) return;
        const schema::Topics topics = topics_of(settings_);
        constexpr std::string_view advice = "without --batch the id is new and needs no check";
        const auto missing = missing_in_jobs_topic(kafka_, topics, {{.id = batch_id_, .is_batch = true}}, advice);
        if (!missing.empty()) return;
        throw UsageError(
            fmt::format("batch {} already has jobs in {}; nothing was sent. --resume sends only the missing ones; to run all again, choose "
                        "another --batch",
                        batch_id_, topics.jobs()));
    }

    // All jobs of a key are in one partition, and so are their results.
    void warn_of_embedded_broker() {
        const auto most = std::ranges::max_element(model_bytes_, {}, [](const auto& entry) { return entry.second; });
        if (most->second / spread_ < embedded_bytes_noted || !consumer::describe_cluster(kafka_).embedded) return;
        std::cerr << fmt::format(
            "lorry: the embedded broker keeps at most 5 MiB per partition, and the jobs for {} are {}: the oldest may vanish before they "
            "run, and results before they are collected. Use "
            "--spread, smaller batches or a Kafka of your own; `lorry run` needs no broker\n",
            most->first, show_bytes(most->second));
    }

    // The custom_ids of the jobs of retried_batch_ that have failed so far.
    consumer::TextSet failed_before() {
        consumer::TextSet ids;
        BatchFollower batch(kafka_, topics_of(settings_), {.batch_id = retried_batch_, .since = {}});
        const auto note = [&](const BatchResult& result) {
            if (!result.summary.ok) ids.add(result.summary.custom_id);
        };
        ProgressBar progress("looking for failed jobs");
        follow_to_end(batch, progress, {.limit = WaitLimit::now(), .stop = stop_, .on_result = note, .after_poll = {}});
        progress.clear();
        if (ids.size() > 0) return ids;
        const char* reason = "its failed jobs are dead letters, which have no custom_id to be found by: correct their lines and send those";
        if (batch.counts().failed == 0) reason = "none of its jobs has failed";
        if (batch.counts().total() == 0) reason = "there is no job of that batch";
        throw std::runtime_error(fmt::format("--retry-failed {}: {}; nothing was sent", retried_batch_, reason));
    }

    bool is_wanted(const JobLine& line) const { return !failed_ || failed_->contains(line.custom_id); }

    // Returns false if nothing will be sent, after printing why.
    bool check_lines(JobFile& file) {
        ProgressBar progress("checking");
        std::int64_t lines = 0;
        while (const auto line = file.next()) {
            ++lines;
            if (*line && !is_wanted(**line)) continue;
            if (*line) {
                ++good_;
                model_bytes_[(*line)->model] += (*line)->text.size();
            } else {
                progress.clear();
                if (++bad_ <= bad_lines_shown) std::cerr << fmt::format("{}, {}\n", file_, show_bad(line->error()));
            }
            progress.show({.done = good_ + bad_, .failed = bad_, .total = {}});
        }
        progress.clear();
        if (bad_ > bad_lines_shown) std::cerr << fmt::format("and {} more bad lines\n", show_count(bad_ - bad_lines_shown));
        if (bad_ > 0 && !keep_going_) {
            std::cerr << fmt::format("lorry: {} of {} lines are not jobs; nothing was sent. {}\n", show_count(bad_), show_count(lines),
                                     lines > bad_
                                         ? "Correct them, or send the others with --keep-going"
                                         : "submit takes job lines (JSON lines); is it a table? `lorry run --help` shows how to label one");
            return false;
        }
        const std::int64_t absent = failed_ ? static_cast<std::int64_t>(failed_->size()) - good_ : 0;
        if (absent > 0) {
            std::cerr << fmt::format("lorry: {} of the {} jobs that failed in batch {} are not in {}\n", show_count(absent),
                                     show_count(good_ + absent), retried_batch_, file_);
        }
        if (good_ == 0) {
            std::cerr << fmt::format("lorry: {} holds {}; nothing was sent\n", file_, failed_ ? "none of them" : "no jobs");
        }
        return good_ > 0;
    }

    // The custom_ids that the batch already has.
    consumer::TextSet sent_before() {
        consumer::TextSet ids;
        BatchFollower batch(kafka_, topics_of(settings_), {.batch_id = batch_id_, .since = {}, .results = false});
        batch.on_job([&](const std::string& value) {
            if (const auto id = schema::scan_string_member(value, "custom_id")) ids.add(*id);
        });
        ProgressBar progress("looking for jobs of the batch");
        follow_to_end(batch, progress, {.limit = WaitLimit::now(), .stop = stop_, .on_result = {}, .after_poll = {}});
        return ids;
    }

    // Leaves out the jobs that were sent before. Calls `begins` when the brokers have answered and nothing was sent yet: a signal before
    // that ends the program at once. Returns false if some jobs were refused, or it was interrupted.
    bool send(JobFile& file, consumer::TextSet before, const std::function<void()>& begins) {
        const auto begin = std::chrono::steady_clock::now();
        ProgressBar progress("submitting");
        std::int64_t skipped = 0;
        consumer::JobProducer::Options options{.topic = topics_of(settings_).jobs(),
                                               .batch_id = batch_id_,
                                               .deadline = deadline_at_,
                                               .headers = {{std::string(batch_jobs_header), std::to_string(good_)}},
                                               .spread = spread_};
        if (!tenant_.empty()) options.headers.emplace_back(schema::tenant_header, tenant_);
        options.on_failure = [&](const consumer::JobProducer::Failure& failure) {
            progress.clear();
            std::cerr << fmt::format("{}, line {}: not sent: {}\n", file_, failure.line, failure.reason);
        };
        consumer::JobProducer producer(kafka_, std::move(options));
        const auto show = [&] {
            const auto counts = producer.counts();
            progress.show({.done = skipped + static_cast<std::int64_t>(counts.delivered + counts.failed),
                           .failed = static_cast<std::int64_t>(counts.failed),
                           .total = good_});
        };
        begins();
        std::cout << batch_id_ << '\n' << std::flush;
        file.rewind();
        while (const auto line = file.next()) {
            if (stop_) break;
            if (!*line || !is_wanted(**line)) continue;
            if (resume_ && !before.add((*line)->custom_id)) {
                ++skipped;
                continue;
            }
            producer.submit((*line)->text, (*line)->model, static_cast<std::uint64_t>((*line)->line));
            show();
        }
        producer.finish();
        progress.clear();
        const auto counts = producer.counts();
        sent_ = static_cast<std::int64_t>(counts.delivered);
        const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
        std::cerr << fmt::format("batch {}: {} for {} sent to {} in {}{}{}\n", batch_id_, show_count(sent_, "job"),
                                 show_count(std::ssize(model_bytes_), "model"), topics_of(settings_).jobs(), show_duration(time),
                                 skipped > 0 ? fmt::format(", {} were there already", show_count(skipped)) : "",
                                 counts.failed > 0 ? fmt::format(", {} could not be sent", show_count(counts.failed)) : "");
        return counts.failed == 0 && !stop_;
    }

    std::string collect_command() const {
        std::string output = batch_id_ + ".jsonl";
        if (std::filesystem::path(file_) == output) output = batch_id_ + ".results.jsonl";
        return fmt::format("lorry collect --batch {} -o {}{}", batch_id_, output, repeated_flags(*app_));
    }

    ExitCode interrupted() const {
        std::cerr << fmt::format(
            "lorry: interrupted; what was sent will run. To send the rest:\n  lorry submit {} --batch {} --resume{}{}\n", file_, batch_id_,
            retried_batch_.empty() ? "" : " --retry-failed " + retried_batch_, repeated_flags(*app_));
        return ExitCode::failed;
    }

    ExitCode wait() {
        BatchFollower batch(kafka_, topics_of(settings_), {.batch_id = batch_id_, .since = {}});
        FollowEnd end = FollowEnd::stopped;
        {
            ProgressBar progress("waiting");
            end = follow_to_end(batch, progress, {.limit = WaitLimit(wait_time_), .stop = stop_, .on_result = {}, .after_poll = {}});
        }
        std::cerr << show_counts(batch) << '\n';
        if (end == FollowEnd::complete) return batch.counts().failed == 0 ? ExitCode::done : ExitCode::failed;
        if (end == FollowEnd::lost) {
            std::cerr << fmt::format("lorry: all jobs ended, but some results are no longer in {}\n", topics_of(settings_).results());
            return ExitCode::failed;
        }
        std::cerr << fmt::format("lorry: {}; the jobs continue. To wait again:\n  {}\n",
                                 end == FollowEnd::timed_out ? "the time is up" : "not waiting any longer", collect_command());
        return ExitCode::failed;
    }

    std::string file_;
    std::string batch_id_;
    std::string retried_batch_;
    std::string deadline_;
    std::string tenant_;
    std::optional<std::string> timeout_;
    std::uint32_t spread_ = 1;
    bool resume_ = false;
    bool is_batch_named_ = false;
    bool keep_going_ = false;
    bool wait_ = false;
    const CLI::App* app_ = nullptr;
    Configuration configuration_;

    Settings settings_;
    consumer::KafkaConfig kafka_;
    std::optional<consumer::TextSet> failed_;  // failed jobs of retried_batch_, by custom_id
    std::optional<schema::Timestamp> deadline_at_;
    std::optional<std::chrono::milliseconds> wait_time_;
    std::int64_t good_ = 0;
    std::int64_t bad_ = 0;
    std::int64_t sent_ = 0;
    std::map<std::string, std::size_t> model_bytes_;  // of the good lines
    std::atomic<bool> stop_ = false;
};

}  // namespace

std::unique_ptr<Command> make_submit_command() { return std::make_unique<SubmitCommand>(); }

}  // namespace lorry::ops
