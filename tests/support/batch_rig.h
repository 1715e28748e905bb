// A batch's owner, played with a log and a store in memory. Used by tests of consumer/batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "consumer/batches/batch_run.h"
#include "schema/json.h"
#include "tests/support/fake_batches.h"

namespace lorry::tests {

using consumer::BatchLine;
using consumer::BatchLog;
using consumer::BatchRun;
using consumer::BatchWrite;
using schema::BatchRecord;
using schema::BatchState;
using schema::Json;

struct Crash {};

inline constexpr const char* batch_input_id = "file-00000000000000000000000000000001";

inline std::string line(const std::string& id, const std::string& more = R"("model":"base")") {
    return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{{}}}}})", id, more);
}

// The topics, as far as a batch's owner uses them; and workers that answer each job once, in an order of their own.
class FakeTopics final : public BatchLog {
public:
    int writes_left = -1;  // before the owner crashes; below 0: it does not
    bool crashes_before = true;
    BatchRecord last;
    std::vector<schema::FileRecord> files;
    std::vector<BatchLine> jobs;       // in the order in which they were sent
    std::vector<std::string> results;  // one partition, "LINE RESULT"
    std::vector<std::string> stopped;
    std::size_t most_open = 0;

    // One more thing that survives a crash is about to happen.
    void happen() {
        if (writes_left == 0) throw Crash();
        if (writes_left > 0) --writes_left;
    }
    void write(const BatchWrite& write) override {
        if (crashes_before) happen();
        last = write.batch;
        jobs.insert(jobs.end(), write.lines.begin(), write.lines.end());
        files.insert(files.end(), write.files.begin(), write.files.end());
        most_open = std::max(most_open, jobs.size() - results.size());
        if (!crashes_before) happen();
    }
    void stop_lines(const BatchRecord& batch) override { stopped.push_back(batch.id); }

    // Answers the open job of that place; jobs whose number is a multiple of 10 fail.
    void answer(std::size_t place) {
        std::vector<const BatchLine*> open;
        for (const BatchLine& job : jobs) {
            if (!answered_.contains(job.number)) open.push_back(&job);
        }
        if (open.empty()) return;
        const BatchLine& job = *open[place % open.size()];
        answered_.insert(job.number);
        const auto object = Json::parse(job.text);
        const Json body = job.number % 10 == 0 ? *Json::parse(R"({"error":{"message":"m","type":"t","param":null,"code":"c"}})")
                                               : Json::object({{"answer", job.number}});
        const Json result = Json::object(
            {{"id", fmt::format("batch_req_{}", job.number)},
             {"custom_id", *object->find("custom_id")->as_string()},
             {"response", Json::object({{"status_code", job.number % 10 == 0 ? 400 : 200}, {"request_id", "r"}, {"body", body}})},
             {"error", Json()}});
        results.push_back(fmt::format("{} {}", job.number, result.dump()));
    }

private:
    std::set<std::int64_t> answered_;
};

// The number that a text begins with.
inline std::int64_t number_before(const std::string& text) {
    std::int64_t number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

inline std::string lines_from(int first, int end) {
    std::string text;
    for (int i = first; i < end; ++i) text += line(fmt::format("id-{:02}", i)) + "\n";
    return text;
}
inline std::string lines(int count) { return lines_from(0, count); }

struct BatchRig {
    BatchRig() {
        store.at_write = [this] { topics.happen(); };
    }

    void create(const std::string& input, std::optional<std::vector<std::string>> models = {{"*"}},
                std::optional<std::int64_t> key_jobs_max = {}) {
        store.at_write = [] {};
        store.put(batch_input_id, input);
        store.at_write = [this] { topics.happen(); };
        topics.last = {.id = "batch_00000000000000000000000000000001",
                       .tenant = "search",
                       .input_file = batch_input_id,
                       .endpoint = schema::Endpoint::completions,
                       .models = std::move(models),
                       .key_jobs_max = key_jobs_max,
                       .created = now,
                       .expires = now + 24 * 3600};
    }
    // The record goes through its text, as it does in Kafka.
    void begin() { run.emplace(*schema::parse_batch(schema::encode_batch(topics.last)), store, topics, options); }
    // An owner until it ends or crashes. True: the batch has ended.
    bool own() {
        try {
            begin();
            while (!run->has_counted()) run->count();
            std::int64_t read = run->results_from().empty() ? std::ssize(topics.results) : run->results_from().at(0);
            for (int i = 0; i < 100'000 && !run->has_ended(); ++i) {
                const BatchRun::Positions positions = {{0, read}};
                const bool has_done = run->step({.now = BatchRun::Time(std::chrono::seconds(now)),
                                                 .is_cancelled = is_cancelled,
                                                 .read = positions,
                                                 .key_jobs = key_jobs});
                if (i % 3 == 0 && works) topics.answer(static_cast<std::size_t>(i * 7));
                for (; read < std::ssize(topics.results); ++read) {
                    const std::string& text = topics.results[static_cast<std::size_t>(read)];
                    run->take(number_before(text), std::string_view(text).substr(text.find(' ') + 1));
                }
                if (!has_done && i % 50 == 0) ++now;
            }
            return run->has_ended();
        } catch (const Crash&) {
            return false;
        }
    }
    bool step() {
        const BatchRun::Positions read = {{0, 0}};
        return run->step({.now = BatchRun::Time(std::chrono::seconds(now)),
                          .is_cancelled = is_cancelled,
                          .read = read,
                          .others_open = others_open,
                          .others_open_bytes = others_open_bytes});
    }
    // "LINE id code" of each row of a file of results.
    std::vector<std::string> rows(const std::optional<std::string>& file) const {
        std::vector<std::string> rows;
        if (!file) return rows;
        const auto contents = store.contents();
        const auto content = contents.find(*file);
        if (content == contents.end()) return {"missing"};
        std::istringstream in(content->second);
        for (std::string text; std::getline(in, text);) {
            const auto row = Json::parse(text);
            const Json* error = row->find("error");
            rows.push_back(
                fmt::format("{}{}", *row->find("custom_id")->as_string(), error->is_null() ? "" : " " + *error->find("code")->as_string()));
        }
        std::ranges::sort(rows);
        return rows;
    }
    std::vector<std::string> faults() const {
        std::vector<std::string> list;
        for (const schema::BatchError& error : topics.last.errors)
            list.push_back(fmt::format("{} {} {}", error.line.value_or(0), error.code, error.param.value_or("-")));
        return list;
    }
    // An owner ends in the middle, with a part stored and lines that have no result.
    void break_off() {
        options.part_bytes = 1;
        create(lines(40));
        topics.writes_left = 12;
        ASSERT_FALSE(own());
        topics.writes_left = -1;
        ASSERT_FALSE(topics.last.parts.empty());
        ASSERT_LT(topics.last.next_line, 40);
    }
    std::string state() const { return std::string(name_of(topics.last.state)); }

    MemoryStore store;
    FakeTopics topics;
    BatchRun::Options options{.base_name = "tiny", .lines_max = 60, .ahead = 12, .slice_lines = 5, .part_bytes = 600, .piece_bytes = 400};
    std::int64_t now = 1'000'000;
    bool is_cancelled = false;
    bool works = true;
    std::int64_t key_jobs = 0;
    std::int64_t others_open = 0;
    std::int64_t others_open_bytes = 0;
    std::optional<BatchRun> run;
};

}  // namespace lorry::tests
