// `lorry collect`: collects the results of one batch, each once, into a file.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "consumer/file/lock.h"
#include "consumer/kafka/admin.h"
#include "ops/client/batch_follower.h"
#include "ops/client/batch_id.h"
#include "ops/client/wait_limit.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/kafka_settings.h"
#include "ops/progress_bar.h"
#include "ops/signals.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// How every result line begins. An incomplete last line is only cut off if it begins like this.
constexpr std::string_view line_begin = R"({"id":")";

// Where result lines go: a file, perhaps started by an earlier call, or standard output. Call order: if is_begun(), read_earlier(); then
// open(), add() and flush().
class ResultFile {
public:
    // Throws UsageError if the name is that of a folder, ResumeRefused if another call writes the file.
    explicit ResultFile(const std::string& name)
        : name_(name),
          to_stdout_(name == "-"),
          is_new_(!to_stdout_ && !std::filesystem::exists(name_)),
          is_begun_(!to_stdout_ && std::filesystem::is_regular_file(name_)) {
        if (!to_stdout_ && std::filesystem::is_directory(name_))
            throw UsageError(fmt::format("-o {} is a folder: name a file in it", name_));
        if (is_begun_) lock_ = consumer::open_locked(name_, O_RDWR);
    }
    bool is_begun() const { return is_begun_; }
    // Reads the results of an earlier call. Throws UsageError if the file contains anything else, so that it never appends to other data.
    void read_earlier(const std::function<void(const schema::ResultSummary&)>& on_earlier) {
        std::ifstream file(name_, std::ios::binary);
        if (!file) throw std::runtime_error(fmt::format("{} cannot be read: check its permissions", name_));
        std::string line;
        for (std::int64_t number = 1; std::getline(file, line); ++number) {
            const bool is_cut = file.eof();
            if (is_cut && line_begin.starts_with(line.substr(0, line_begin.size()))) break;  // interrupted in the middle of a write
            const auto summary = schema::parse_result(line);
            if (!summary || is_cut) {
                throw UsageError(fmt::format("{}, line {} is not a result ({}); give -o another name: this file was not changed", name_,
                                             number, summary ? "the line is incomplete" : summary.error()));
            }
            whole_bytes_ += line.size() + 1;
            written_.add(summary->id.empty() ? line : summary->id);
            on_earlier(*summary);
            ++earlier_;
        }
    }
    // Cuts off an incomplete last line, and creates the file if it does not exist.
    void open() {
        if (to_stdout_) return;
        if (lock_ < 0) lock_ = consumer::open_locked(name_, O_RDWR | O_CREAT);
        if (is_new_ && std::filesystem::file_size(name_) > 0)
            throw UsageError(fmt::format("{} was begun by another call meanwhile: call again to add what is missing", name_));
        if (is_begun_ && std::filesystem::file_size(name_) != whole_bytes_) std::filesystem::resize_file(name_, whole_bytes_);
        file_.open(name_, std::ios::app | std::ios::binary);
        if (!file_) throw std::runtime_error(fmt::format("{} cannot be written: check the folder and its permissions", name_));
    }
    // Removes a new file without results.
    ~ResultFile() {
        std::error_code ignored;
        if (is_new_ && file_.is_open() && added_ == 0) std::filesystem::remove(name_, ignored);
        if (lock_ >= 0) ::close(lock_);
    }
    ResultFile(const ResultFile&) = delete;
    ResultFile& operator=(const ResultFile&) = delete;

    void add(const BatchResult& result) {
        if (!written_.add(result.summary.id.empty() ? result.line : result.summary.id)) return;
        ++added_;
        out() << result.line << '\n';
    }
    void flush() {
        if (out().flush()) return;
        if (to_stdout_) throw std::runtime_error("writing standard output failed: is the disk full?");
        throw std::runtime_error(
            fmt::format("writing {} failed: is the disk full? No result is lost: run the same command again to continue", name_));
    }
    std::int64_t earlier() const { return earlier_; }
    std::int64_t added() const { return added_; }

private:
    std::ostream& out() { return to_stdout_ ? std::cout : file_; }

    const std::string name_;
    const bool to_stdout_;
    const bool is_new_;
    const bool is_begun_;
    std::ofstream file_;
    int lock_ = -1;                   // a descriptor of the file: two calls that wrote it would write each result twice
    std::uintmax_t whole_bytes_ = 0;  // length of the complete earlier lines
    consumer::TextSet written_;
    std::int64_t earlier_ = 0;
    std::int64_t added_ = 0;
};

class CollectCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app_ = &app;
        app.add_option("--batch", batch_id_, "the batch, as `lorry submit` printed it")->type_name("ID")->required();
        app.add_option("-o,--output", output_, "the file to append results to, one line each; results it already has are not repeated")
            ->type_name("FILE")
            ->default_str("standard output");
        app.add_option("--timeout", timeout_, "stops waiting after this time; 0 takes the results that exist")->type_name("TIME");
        app.add_option("--since", since_, "reads the topics from this long ago, such as 2h (default: the time in the id, otherwise all)")
            ->type_name("TIME");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        SignalWatcher signals;
        const Settings settings = configuration_.load();
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        if (const auto error = batch_id_error(batch_id_)) throw UsageError("--batch: " + *error);
        const auto timeout = time_of("--timeout", timeout_);
        const auto since = time_of("--since", since_);
        const schema::Topics topics = topics_of(settings);
        ResultFile file(output_);
        const WaitLimit limit(timeout);
        BatchFollower batch(limit.applied_to(kafka), topics,
                            {.batch_id = batch_id_, .since = since ? std::optional(now() - *since) : std::nullopt});
        // Only now: a signal while the brokers are waited for ends the program at once. Nothing was written yet.
        const SignalWatcher::Armed armed(signals, [this] { stop_ = true; });
        if (file.is_begun()) {
            BatchFollower jobs(limit.applied_to(kafka), topics, {.batch_id = batch_id_, .since = {}, .results = false});
            file.read_earlier([&](const schema::ResultSummary& earlier) {
                batch.know(earlier);
                jobs.know(earlier);
            });
            refuse_other_results(jobs);
            if (stop_) return report(FollowEnd::stopped, batch, file, topics);
        }
        file.open();
        FollowEnd end = FollowEnd::stopped;
        {
            ProgressBar progress("collecting");
            end = follow_to_end(batch, progress,
                                {.limit = limit,
                                 .stop = stop_,
                                 .on_result = [&](const BatchResult& result) { file.add(result); },
                                 .after_poll = [&] { file.flush(); }});
        }
        const ExitCode code = report(end, batch, file, topics);
        if (end == FollowEnd::lost || end == FollowEnd::cut_short || end == FollowEnd::timed_out) tell_of_vanished(kafka, batch);
        return code;
    }

private:
    // A result does not name its batch, but its id is made of its job's topic position, so the batch's jobs show which ids belong to it.
    // Unmatched results could belong to jobs whose records are gone; jobs still to be submitted have no results.
    void refuse_other_results(BatchFollower& jobs) const {
        ProgressBar progress("checking whose results are in the file");
        follow_to_end(jobs, progress, {.limit = WaitLimit::now(), .stop = stop_, .on_result = {}, .after_poll = {}});
        const std::int64_t others = jobs.known() - jobs.counts().finished();
        if (stop_ || jobs.counts().jobs == 0 || others <= jobs.jobs_gone_max()) return;
        throw UsageError(
            fmt::format("{} holds {} results of jobs outside batch {}: give -o another name, such as {}.jsonl; this file "
                        "was not changed",
                        output_, show_count(others), batch_id_, batch_id_));
    }

    // Only the embedded broker deletes records by size; there it explains what is missing. Brokers that do not answer soon are not asked
    // again: the report is complete without it.
    static void tell_of_vanished(consumer::KafkaConfig kafka, BatchFollower& batch) {
        if (batch.is_away()) return;
        kafka.deadline_start = std::min<std::chrono::milliseconds>(kafka.deadline_start, std::chrono::seconds(3));
        std::vector<std::string> shortened;
        try {
            if (!consumer::describe_cluster(kafka).embedded) return;
            shortened = batch.shortened_topics();
        } catch (const consumer::KafkaAway&) {
            return;
        }
        if (shortened.empty()) return;
        std::cerr << fmt::format(
            "lorry: the embedded broker keeps at most 5 MiB per partition, and the oldest records of {} have vanished. Give `lorry broker` "
            "more --partitions, take smaller batches or a Kafka of your own; `lorry run` needs no broker\n",
            fmt::join(shortened, " and of "));
    }

    ExitCode report(FollowEnd end, BatchFollower& batch, const ResultFile& file, const schema::Topics& topics) const {
        if (end == FollowEnd::no_such) {
            throw std::runtime_error(fmt::format("no job of batch {} is in {}: check the id and --prefix{}", batch_id_, topics.jobs(),
                                                 !since_ ? "" : ", and read further back with --since"));
        }
        const bool read = batch.has_caught_up();
        std::cerr << fmt::format("batch {}: {}{}\n", batch_id_, show_counts(batch), read ? "" : "; not everything was read yet");
        if (output_ != "-") {
            std::cerr << fmt::format("{}: {} results added{}\n", output_, show_count(file.added()),
                                     file.earlier() > 0 ? fmt::format(", {} were there before", show_count(file.earlier())) : "");
        }
        const std::string again =
            fmt::format("lorry collect --batch {}{}{}", batch_id_, output_ == "-" ? "" : " -o " + output_, repeated_flags(*app_));
        switch (end) {
            case FollowEnd::complete: return batch.counts().failed == 0 ? ExitCode::done : ExitCode::failed;
            case FollowEnd::lost:
                std::cerr << fmt::format(
                    "lorry: {} more jobs ended, but their results are no longer in {}, and no more are coming: submit those jobs again, as "
                    "another batch\n",
                    show_count(batch.counts().total() - batch.counts().finished()), topics.results());
                break;
            case FollowEnd::cut_short:
                std::cerr << fmt::format(
                    "lorry: only {} of {} jobs were submitted, and no more are coming. To send the rest:\n"
                    "  lorry submit FILE --batch {} --resume{}\n",
                    show_count(batch.counts().jobs), show_count(batch.counts().announced), batch_id_, repeated_flags(*app_));
                break;
            case FollowEnd::timed_out: std::cerr << fmt::format("lorry: the time is up. To collect the rest:\n  {}\n", again); break;
            case FollowEnd::stopped: std::cerr << fmt::format("lorry: interrupted. To continue:\n  {}\n", again); break;
            case FollowEnd::no_such: break;
        }
        return ExitCode::failed;
    }

    std::string batch_id_;
    std::string output_ = "-";
    std::optional<std::string> timeout_;
    std::optional<std::string> since_;
    const CLI::App* app_ = nullptr;
    Configuration configuration_;
    std::atomic<bool> stop_ = false;
};

}  // namespace

std::unique_ptr<Command> make_collect_command() { return std::make_unique<CollectCommand>(); }

}  // namespace lorry::ops
