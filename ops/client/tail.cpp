// `lorry tail`: prints the output of streaming jobs as it arrives.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka/reader.h"
#include "ops/client/batch_id.h"
#include "ops/client/chunk_printer.h"
#include "ops/client/job_search.h"
#include "ops/client/wait_limit.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "schema/codec.h"

namespace lorry::ops {
namespace {

class TailCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--job", job_id_, "one job, live, until it ends: its custom_id, or BATCH/custom_id for a job of a batch")
            ->type_name("ID")
            ->check(not_empty());
        app.add_option("--batch", batch_id_, "the jobs of a batch, line by line, until Ctrl-C")->type_name("ID")->check(not_empty());
        app.add_flag("--json", json_, "prints the records unchanged, one per line");
        app.add_option("--timeout", timeout_,
                       "stops after this time; exit code 1 if the job has not ended by then, or no text came from the batch; 0 prints what "
                       "exists")
            ->type_name("TIME");
        configuration_.declare(app, {SettingScope::kafka});
    }

    ExitCode run() override {
        SignalWatcher signals;
        if (!job_id_.empty() && !batch_id_.empty()) throw UsageError("tail takes --job or --batch, not both");
        const auto error = batch_id_.empty() ? std::nullopt : batch_id_error(batch_id_);
        if (error) throw UsageError("--batch: " + *error);
        const Settings settings = configuration_.load();
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        topics_ = topics_of(settings);
        const WaitLimit limit(time_of("--timeout", timeout_));
        ChunkPrinter printer(std::cout, job_id_);
        consumer::RecordReader reader(limit.applied_to(kafka), {.topics = {topics_.chunks(), topics_.results()}, .start = start()});
        // Only now: a signal while the brokers are waited for ends the program at once.
        const SignalWatcher::Armed armed(signals, [this] { stop_ = true; });
        return follow(reader, printer, limit);
    }

private:
    // Earlier output matters only when one job or batch is asked for.
    consumer::RecordReader::Start start() const {
        if (job_id_.empty() && batch_id_.empty()) return consumer::RecordReader::End{};
        const std::string batch = batch_id_.empty() ? job_id_.substr(0, job_id_.find('/')) : batch_id_;
        return start_of_batch(batch);
    }

    // For people. Text arrives of streamed jobs only.
    std::string wanted() const {
        if (!job_id_.empty()) return "job " + job_id_;
        return (batch_id_.empty() ? "any job" : "batch " + batch_id_) + " with \"stream\": true";
    }

    bool is_wanted(const std::string& job_id) const {
        if (!job_id_.empty()) return job_id == job_id_;
        return batch_id_.empty() || job_id.starts_with(batch_id_ + "/");
    }

    ExitCode follow(consumer::RecordReader& reader, ChunkPrinter& printer, const WaitLimit& limit) {
        bool waiting_said = false;
        consumer::CatchUp catch_up(reader);
        while (!stop_) {
            const bool had_ended = result_.has_value();
            for (const schema::JobRecord& record : reader.poll()) take(record, printer);
            if (!had_ended && result_) catch_up.begin_again();
            // Chunks are published before the result: once the result is read, the topics hold all of the job's chunks.
            if (!job_id_.empty() && result_ && catch_up.is_done()) return end_of_job(printer);
            if (limit.ends(catch_up.is_done())) return timed_out(reader.is_away());
            if (!result_ && !seen_ && !waiting_said && catch_up.is_done()) {
                std::cerr << fmt::format("nothing from {} yet; waiting (Ctrl-C or --timeout stops waiting)\n", wanted());
                waiting_said = true;
            }
        }
        return job_id_.empty() ? ExitCode::done : ExitCode::failed;
    }

    ExitCode timed_out(bool is_away) const {
        if (is_away) {
            std::cerr << "lorry: the time is up, and Kafka does not answer: check that the brokers run\n";
            return ExitCode::failed;
        }
        if (job_id_.empty() && (batch_id_.empty() || seen_)) return ExitCode::done;
        std::cerr << fmt::format("lorry: the time is up, and {}\n", what_is_missing());
        return ExitCode::failed;
    }

    std::string what_is_missing() const {
        if (job_id_.empty()) {
            return fmt::format("no text arrived from batch {} in {}: check the id, and that its jobs have \"stream\": true", batch_id_,
                               topics_.chunks());
        }
        if (seen_) return fmt::format("job {} has not ended", job_id_);
        return fmt::format(
            "nothing arrived from job {}, neither text in {} nor a result in {}: check the id (a batch's job is BATCH/custom_id) and that "
            "a worker is running",
            job_id_, topics_.chunks(), topics_.results());
    }

    void take(const schema::JobRecord& record, ChunkPrinter& printer) {
        if (!record.key || !record.value || !is_wanted(*record.key)) return;
        if (record.source.topic == topics_.results()) {
            result_ = *record.value;
            // Its chunks may still be in flight in the other topic; follow() waits for the end of the single job.
            return;
        }
        seen_ = true;
        if (json_) {
            std::cout << *record.value << '\n' << std::flush;
            return;
        }
        const auto chunk = parse_chunk(*record.value);
        if (!chunk) {
            std::cerr << fmt::format("{} [{}] offset {}: {}\n", record.source.topic, record.source.partition, record.source.offset,
                                     chunk.error());
            return;
        }
        if (printer.take(*record.key, *chunk) == ChunkPrinter::Taken::restarted) {
            std::cerr << fmt::format("{}: started again, on another worker or after a restart\n", *record.key);
        }
    }

    ExitCode end_of_job(ChunkPrinter& printer) {
        const bool streamed = printer.end(job_id_) || (json_ && seen_);
        const auto summary = schema::parse_result(*result_);
        if (summary && summary->ok && !streamed && !json_) {
            const auto line = schema::Json::parse(*result_);
            if (line) std::cout << text_of_result(*line) << '\n';
            std::cerr << "(the job did not stream; set \"stream\": true in its body)\n";
        }
        if (summary && summary->ok) return ExitCode::done;
        std::cerr << fmt::format("lorry: job {} failed: {}\n", job_id_, summary ? summary->error : summary.error());
        return ExitCode::failed;
    }

    std::string job_id_;
    std::string batch_id_;
    std::optional<std::string> timeout_;
    bool json_ = false;
    Configuration configuration_;
    schema::Topics topics_;
    std::optional<std::string> result_;  // of the single job
    bool seen_ = false;                  // a chunk of a requested job arrived
    std::atomic<bool> stop_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tail_command() { return std::make_unique<TailCommand>(); }

}  // namespace lorry::ops
