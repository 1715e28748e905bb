// The rules of the checker, one function for each promise; see checker.h.
#include "tests/faults/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "consumer/commit_metadata.h"

namespace lorry::faults {
namespace {

using schema::JobRecord;
using schema::Json;
using schema::Source;
using Kind = Violation::Kind;

constexpr std::array kinds = {
    std::pair{Kind::lost, "lost"},
    std::pair{Kind::stalled, "stalled"},
    std::pair{Kind::wrong_exit, "wrong_exit"},
    std::pair{Kind::not_reached, "not_reached"},
    std::pair{Kind::doubled, "doubled"},
    std::pair{Kind::stranger, "stranger"},
    std::pair{Kind::wrong_end, "wrong_end"},
    std::pair{Kind::readers_disagree, "readers_disagree"},
    std::pair{Kind::committed_too_far, "committed_too_far"},
    std::pair{Kind::metadata_unreadable, "metadata_unreadable"},
    std::pair{Kind::broken_stream, "broken_stream"},
    std::pair{Kind::status_disorder, "status_disorder"},
    std::pair{Kind::hanging_transaction, "hanging_transaction"},
    std::pair{Kind::ledger_differs, "ledger_differs"},
    std::pair{Kind::beyond_limits, "beyond_limits"},
};

const Json* at(const Json* json, std::initializer_list<std::string_view> path) {
    for (const std::string_view key : path) json = json == nullptr ? nullptr : json->find(key);
    return json;
}

std::string text_at(const Json* json, std::initializer_list<std::string_view> path) {
    const Json* found = at(json, path);
    return found == nullptr || !found->is_string() ? std::string() : *found->as_string();
}

// The text of the only choice of a completion's or chunk's body.
std::optional<std::string> choice_text(const Json* body) {
    const Json* choices = at(body, {"choices"});
    if (choices == nullptr || !choices->is_array() || choices->as_array()->size() != 1) return std::nullopt;
    const Json* text = choices->as_array()->front().find("text");
    if (text == nullptr || !text->is_string()) return std::nullopt;
    return *text->as_string();
}

std::string show(const Source& source) { return fmt::format("{} [{}] offset {}", source.topic, source.partition, source.offset); }

class Checking {
public:
    explicit Checking(const Evidence& evidence) : evidence_(evidence) {}

    std::vector<Violation> run() {
        for (const JobRecord& job : evidence_.jobs) jobs_.emplace(job.source, &job);
        sort_ends(evidence_.results);
        sort_ends(evidence_.dead_letters);
        sort_statuses();
        sort_chunks();
        check_jobs();
        check_readers();
        check_all_commits();
        check_ends();
        check_ledgers();
        check_peaks();
        check_points();
        check_pauses();
        check_worker_ends();
        check_crashes();
        return std::move(violations_);
    }

private:
    void complain(Kind kind, std::string text) { violations_.push_back({kind, std::move(text)}); }

    void sort_ends(const std::vector<JobRecord>& records) {
        for (const JobRecord& record : records) {
            const auto source = source_of(record);
            if (!source || !jobs_.contains(*source)) {
                complain(Kind::stranger, fmt::format("{} ends no job of ours", show(record.source)));
            } else {
                ends_of_[*source].push_back(&record);
            }
        }
    }

    void sort_statuses() {
        for (const JobRecord& record : evidence_.statuses) {
            const auto status = schema::parse_status(record.value.value_or(""));
            if (!status) {
                complain(Kind::status_disorder, fmt::format("{} is no status: {}", show(record.source), status.error()));
            } else {
                statuses_of_[status->run.source].push_back(*status);
            }
        }
    }

    void sort_chunks() {
        for (const JobRecord& record : evidence_.chunks) {
            const auto chunk = Json::parse(record.value.value_or(""));
            const Json* attempt = chunk ? chunk->find("attempt") : nullptr;
            if (attempt == nullptr || !record.key) {
                complain(Kind::broken_stream, fmt::format("{} is no chunk", show(record.source)));
            } else {
                chunks_of_[{*record.key, attempt->as_integer().value_or(0)}].push_back(*chunk);
            }
        }
    }

    void check_jobs() {
        const std::size_t sent = evidence_.jobs_sent.value_or(jobs_.size());
        if (jobs_.size() != sent) complain(Kind::lost, fmt::format("{} jobs were sent, the topic has {}", sent, jobs_.size()));
        if (jobs_.empty()) complain(Kind::not_reached, "there are no jobs");
        for (const auto& [source, job] : jobs_) check_job(source, *job);
    }

    void check_job(const Source& source, const JobRecord& job) {
        const auto found = ends_of_.find(source);
        const std::string name = fmt::format("{} ({:.60})", show(source), job.value.value_or("null"));
        if (found == ends_of_.end()) return complain(Kind::lost, name);
        const auto& ends = found->second;
        if (ends.size() > 1) {
            std::string list;
            for (const JobRecord* end : ends) list += fmt::format("; {} by attempt {}", show(end->source), attempt_of(*end).value_or(0));
            complain(Kind::doubled, fmt::format("{}: {} ends{}", name, ends.size(), list));
        }
        const Expectation expected = expectation_of(job, evidence_.rules);
        for (const JobRecord* end : ends) check_end(name, job, *end, expected);
        if (!expected.dead_letter && ends.size() == 1) check_statuses(name, source, *ends.front());
    }

    static std::optional<std::int64_t> attempt_of(const JobRecord& result) {
        return schema::find_number<std::int64_t>(result.headers, schema::attempt_header);
    }

    void check_end(const std::string& name, const JobRecord& job, const JobRecord& end, const Expectation& expected) {
        if (expected.dead_letter != (end.source.topic == evidence_.topics.dlq())) {
            return complain(Kind::wrong_end, name + ": a result in the place of a dead letter, or the other way round");
        }
        if (expected.dead_letter) {
            if (end.value != job.value || end.key != job.key) complain(Kind::wrong_end, name + ": the dead letter has other bytes");
            return;
        }
        const auto value = Json::parse(end.value.value_or(""));
        if (!value) return complain(Kind::wrong_end, name + ": the result is not JSON");
        if (end.key != expected.job_id) complain(Kind::wrong_end, name + ": the result has another key");
        if (text_at(&*value, {"custom_id"}) != expected.custom_id) complain(Kind::wrong_end, name + ": the result has another custom_id");
        if (text_at(&*value, {"id"}) != schema::result_id(job.source, expected.custom_id)) {
            complain(Kind::wrong_end, name + ": the result has another id");
        }
        const Json* body = at(&*value, {"response", "body"});
        const auto text = choice_text(body);
        if (text) {
            if (!expected.text) {
                return complain(Kind::wrong_end, fmt::format("{}: an answer instead of {}", name, name_of(expected.codes.front())));
            }
            if (*text != *expected.text) return complain(Kind::wrong_end, name + ": the answer differs from an undisturbed run's");
            if (expected.stream) check_stream(name, end, *text);
            return;
        }
        std::string code = text_at(&*value, {"error", "code"});
        if (code.empty()) code = text_at(body, {"error", "code"});
        if (std::ranges::find(expected.codes, code, [](schema::ErrorCode one) { return name_of(one); }) == expected.codes.end()) {
            complain(Kind::wrong_end, fmt::format("{}: ended with '{}', not with {}", name, code,
                                                  expected.text ? "its answer" : fmt::format("'{}'", name_of(expected.codes.front()))));
        }
    }

    void check_stream(const std::string& name, const JobRecord& end, const std::string& text) {
        const auto attempt = attempt_of(end);
        const auto found = chunks_of_.find({end.key.value_or(""), attempt.value_or(0)});
        if (!attempt || found == chunks_of_.end()) return complain(Kind::broken_stream, name + ": the winning attempt has no chunks");
        std::string joined;
        std::int64_t next = 0;
        for (const Json& chunk : found->second) {
            const Json* seq = chunk.find("seq");
            if (seq == nullptr || seq->as_integer() != next) {
                return complain(Kind::broken_stream, fmt::format("{}: attempt {} has no chunk {} in its place", name, *attempt, next));
            }
            ++next;
            joined += choice_text(chunk.find("chunk")).value_or("");
        }
        if (joined != text) complain(Kind::broken_stream, fmt::format("{}: the chunks of attempt {} are not the text", name, *attempt));
    }

    // A status of a losing attempt may come at any time: a worker that was stopped for a long time still publishes what it believes.
    void check_statuses(const std::string& name, const Source& source, const JobRecord& end) {
        const auto found = statuses_of_.find(source);
        const schema::Status* terminal = nullptr;
        std::size_t terminals = 0;
        if (found != statuses_of_.end()) {
            for (const schema::Status& status : found->second) {
                if (schema::is_terminal(status.state)) {
                    ++terminals;
                    terminal = &status;
                } else if (terminal != nullptr && status.run.attempt == terminal->run.attempt) {
                    complain(Kind::status_disorder, name + ": running after its end");
                }
            }
        }
        if (terminals != 1) return complain(Kind::status_disorder, fmt::format("{}: one end, {} terminal statuses", name, terminals));
        if (attempt_of(end) != terminal->run.attempt) complain(Kind::status_disorder, name + ": result and status name different attempts");
        const auto summary = schema::parse_result(end.value.value_or(""));
        const bool completed = terminal->state == schema::JobState::completed;
        if (summary && summary->ok != completed) complain(Kind::status_disorder, name + ": result and status disagree on how it ended");
    }

    void check_readers() {
        if (!evidence_.tailed) return;
        using Record = std::tuple<Source, std::optional<std::string>>;
        std::set<Record> afterwards;
        std::set<Record> tailed;
        for (const JobRecord& record : evidence_.results) afterwards.emplace(record.source, record.value);
        for (const JobRecord& record : evidence_.dead_letters) afterwards.emplace(record.source, record.value);
        for (const JobRecord& record : *evidence_.tailed) {
            if (!tailed.emplace(record.source, record.value).second) {
                complain(Kind::readers_disagree, show(record.source) + " was read twice");
            }
        }
        std::vector<Record> differing;
        std::ranges::set_symmetric_difference(afterwards, tailed, std::back_inserter(differing));
        for (const Record& one : differing) complain(Kind::readers_disagree, show(std::get<0>(one)) + " was seen by one of two readers");
    }

    void check_all_commits() {
        FinishedOffsets finished;
        for (const auto& [source, ends] : ends_of_) mark_finished(finished, source);
        std::ranges::move(check_commits(evidence_.commits, finished), std::back_inserter(violations_));
    }

    void check_ends() {
        if (!evidence_.offsets_settled) complain(Kind::hanging_transaction, "an open transaction holds offsets of the group");
        for (const PartitionEnd& end : evidence_.ends) {
            if (end.committed == end.all) continue;
            complain(Kind::hanging_transaction, fmt::format("{} [{}] ends at {} for readers of committed records, at {} for others",
                                                            end.topic, end.partition, end.committed, end.all));
        }
    }

    // The part of a row that rebuilding the ledger does not change.
    static std::string row(const schema::Status& status) {
        const auto time = [](const std::optional<schema::Timestamp>& at) { return at ? at->time_since_epoch().count() : 0; };
        return fmt::format("{} {} attempt {} by {}, {}+{} tokens, submitted {}, started {}, finished {}: {}", status.run.job_id,
                           schema::name_of(status.state), status.run.attempt, status.run.worker, status.usage.prompt_tokens,
                           status.usage.completion_tokens, time(status.run.submitted), time(status.run.started), time(status.run.finished),
                           status.error);
    }

    using Rows = std::map<Source, std::string>;
    static Rows rows_of(const std::vector<schema::Status>& statuses) {
        Rows rows;
        for (const schema::Status& status : statuses) {
            if (schema::is_terminal(status.state)) rows.emplace(status.run.source, row(status));
        }
        return rows;
    }

    void compare_rows(const Rows& one, const Rows& other, std::string_view what) {
        std::vector<Rows::value_type> differing;
        std::ranges::set_symmetric_difference(one, other, std::back_inserter(differing));
        for (const auto& [source, text] : differing) complain(Kind::ledger_differs, fmt::format("{}: {}: {}", what, show(source), text));
    }

    void check_ledgers() {
        std::vector<schema::Status> told;
        for (const auto& [source, statuses] : statuses_of_) {
            const auto terminal = std::ranges::find_if(statuses, [](const schema::Status& one) { return schema::is_terminal(one.state); });
            if (terminal != statuses.end()) told.push_back(*terminal);
        }
        const Rows wanted = rows_of(told);
        for (const LedgerRows& ledger : evidence_.ledgers) {
            if (ledger.rows) {
                compare_rows(rows_of(*ledger.rows), wanted, ledger.name + " and the status topic");
            } else {
                complain(Kind::ledger_differs, ledger.name + " is missing");
            }
        }
    }

    void check_peaks() {
        const FaultRules& rules = evidence_.rules;
        for (const WorkerPeak& peak : evidence_.peaks) {
            const auto compare = [&](std::uint64_t most, std::uint64_t limit, std::string_view what) {
                if (most > limit) complain(Kind::beyond_limits, fmt::format("{} held {} {} (of {})", peak.member, most, what, limit));
            };
            compare(peak.working, rules.working_max, "jobs");
            compare(peak.parked, rules.parked_max, "parked jobs");
            compare(peak.memory_bytes, rules.memory_bytes_max, "bytes");
        }
    }

    void check_points() {
        const FaultPoints& points = evidence_.points;
        const std::size_t reached = points.chosen - points.missed;
        if (static_cast<double>(reached) >= points.reached_least * static_cast<double>(points.chosen)) return;
        complain(Kind::not_reached, fmt::format("{} of {} faults came about", reached, points.chosen));
    }

    void check_pauses() {
        for (const Pause& pause : evidence_.pauses) {
            if (pause.longest <= evidence_.pause_limit) continue;
            complain(Kind::stalled, fmt::format("after {}: no job ended for {} ms (of {}) though some were left", pause.after,
                                                pause.longest.count(), evidence_.pause_limit.count()));
        }
    }

    void check_worker_ends() {
        const auto show_code = [](std::optional<int> code) { return code ? std::to_string(*code) : "none, it runs on"; };
        for (const WorkerEnd& end : evidence_.worker_ends) {
            if (end.exit_code != end.wanted) {
                complain(end.exit_code ? Kind::wrong_exit : Kind::stalled,
                         fmt::format("{}: exit code {} instead of {}: {}", end.member, show_code(end.exit_code), show_code(end.wanted),
                                     end.log));
            }
            for (const std::string& word : end.words) {
                if (end.log.find(word) != std::string::npos) continue;
                complain(Kind::wrong_exit, fmt::format("{} ended without saying '{}': {}", end.member, word, end.log));
            }
        }
    }

    // A job runs alone the third time, so each job that crashed by chance had a death of its own.
    void check_crashes() {
        const std::size_t crashed = crashed_by_chance(evidence_);
        if (crashed <= evidence_.deaths) return;
        complain(Kind::wrong_end, fmt::format("{} jobs ended as worker_crashed by chance, in {} deaths", crashed, evidence_.deaths));
    }

    const Evidence& evidence_;
    std::map<Source, const JobRecord*> jobs_;
    std::map<Source, std::vector<const JobRecord*>> ends_of_;
    std::map<Source, std::vector<schema::Status>> statuses_of_;
    std::map<std::pair<std::string, std::int64_t>, std::vector<Json>> chunks_of_;
    std::vector<Violation> violations_;
};

}  // namespace

std::string_view name_of(Kind kind) {
    return std::ranges::find_if(kinds, [&](const auto& one) { return one.first == kind; })->second;
}

std::optional<Source> source_of(const JobRecord& record) {
    auto named = schema::source_of_result(record.headers);
    if (!named) named = schema::source_of_dead_letter(record.headers);
    return named ? std::optional(named->source) : std::nullopt;
}

std::vector<Violation> check(const Evidence& evidence) { return Checking(evidence).run(); }

void mark_finished(FinishedOffsets& finished, const Source& source) {
    auto& offsets = finished[source.partition];
    const auto offset = static_cast<std::size_t>(source.offset);
    if (offsets.size() <= offset) offsets.resize(offset + 1);
    offsets[offset] = true;
}

std::vector<Violation> check_commits(std::span<const CommittedOffset> commits, const FinishedOffsets& finished) {
    std::vector<Violation> violations;
    for (const CommittedOffset& commit : commits) {
        const auto state = consumer::decode_commit_metadata(commit.offset, commit.metadata);
        if (!state) {
            violations.push_back(
                {Kind::metadata_unreadable, fmt::format("jobs [{}] offset {}: {}", commit.partition, commit.offset, state.error().text)});
            continue;
        }
        const auto of_partition = finished.find(commit.partition);
        const auto is_finished = [&](std::int64_t offset) {
            return of_partition != finished.end() && static_cast<std::size_t>(offset) < of_partition->second.size() &&
                   of_partition->second[static_cast<std::size_t>(offset)];
        };
        auto hole = state->holes.begin();
        const bool above = state->highest_finished > commit.offset;
        for (std::int64_t offset = 0; offset < commit.offset || (above && offset <= state->highest_finished); ++offset) {
            if (offset == commit.offset) continue;
            if (hole != state->holes.end() && *hole == offset) {
                ++hole;
            } else if (!is_finished(offset)) {
                violations.push_back(
                    {Kind::committed_too_far, fmt::format("jobs [{}] offset {} has no end, but is finished in the commit of offset {}",
                                                          commit.partition, offset, commit.offset)});
            }
        }
    }
    return violations;
}

std::int64_t answer_tokens(const Evidence& evidence) {
    std::int64_t tokens = 0;
    for (const JobRecord& result : evidence.results) {
        if (const auto summary = schema::parse_result(result.value.value_or(""))) tokens += summary->usage.completion_tokens;
    }
    return tokens;
}

std::size_t crashed_by_chance(const Evidence& evidence) {
    return static_cast<std::size_t>(std::ranges::count_if(evidence.results, [](const JobRecord& result) {
        const auto summary = schema::parse_result(result.value.value_or(""));
        return summary && summary->error.starts_with("worker_crashed") && !summary->custom_id.starts_with(name_of(JobKind::killer));
    }));
}

}  // namespace lorry::faults
