// The largest batch that is allowed, with contents on disk: how much memory its owner takes, and for how long a step keeps its thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include <fmt/format.h>

#include "consumer/batches/batch_run.h"
#include "consumer/batches/folder_store.h"
#include "tests/support/labels.h"
#include "tests/support/peak_memory.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using schema::BatchRecord;
using schema::BatchState;
using SteadyTime = std::chrono::steady_clock;

const tests::Labelled large{"LargeBatch.*", {tests::Label::slow}};

constexpr std::int64_t line_count = 50'000;
constexpr std::size_t line_bytes = 4'000;
constexpr const char* input_name = "file-00000000000000000000000000000001";

// Keeps which lines wait for a result, and what a record and a write take.
class CountingLog final : public BatchLog {
public:
    void write(const BatchWrite& write) override {
        for (const BatchLine& line : write.lines) waiting.push_back(line.number);
        std::size_t bytes = 0;
        for (const BatchLine& line : write.lines) bytes += line.text.size();
        largest = std::max(largest, bytes);
        files.insert(files.end(), write.files.begin(), write.files.end());
        last = write.batch;
    }
    void stop_lines(const BatchRecord&) override {}
    std::vector<std::int64_t> waiting;
    std::vector<schema::FileRecord> files;
    std::size_t largest = 0;
    BatchRecord last;
};

// A line, or a result, of about 4,000 bytes.
std::string filled(std::string begin, std::string_view end) {
    begin.append(line_bytes - begin.size() - end.size(), 'x');
    return begin.append(end);
}

void write_input(FileStore& store) {
    const auto input = store.create(input_name);
    for (std::int64_t i = 0; i < line_count; ++i) {
        input->write(
            filled(fmt::format(R"({{"custom_id":"line-{}","method":"POST","url":"/v1/completions","body":{{"prompt":")", i), "\"}}\n"));
    }
    input->keep();
}

TEST(LargeBatch, TakesLittleMemoryAndShortSteps) {
    const tests::TempFolder folder;
    FolderStore store(folder.path());
    store.mark("0123", "a test");
    write_input(store);
    CountingLog log;
    log.last = {.id = "batch_00000000000000000000000000000001",
                .tenant = "search",
                .input_file = input_name,
                .endpoint = schema::Endpoint::completions,
                .created = 1'000,
                .expires = 100'000};
    tests::begin_peak_memory();
    const std::int64_t before = tests::peak_memory();
    SteadyTime::duration longest{};
    const auto run_until = [&](BatchState state) {
        BatchRun run(log.last, store, log, {.base_name = "tiny"});
        const BatchRun::Positions read = {{0, 0}};
        while (!schema::is_final(run.record().state) && run.record().state != state) {
            const auto began = SteadyTime::now();
            run.step({.now = BatchRun::Time(std::chrono::seconds(2'000)), .read = read});
            longest = std::max(longest, SteadyTime::now() - began);
            if (!run.has_counted()) continue;
            for (const std::int64_t line : std::exchange(log.waiting, {})) {
                run.take(line, filled(fmt::format(R"({{"id":"r","custom_id":"line-{}","response":{{"status_code":200,"request_id":"r",)"
                                                  R"("body":{{"text":")",
                                                  line),
                                      R"("}},"error":null})"));
            }
        }
    };
    run_until(BatchState::finalizing);
    // Another owner counts all results, and writes them.
    run_until(BatchState::completed);
    const std::int64_t taken = (tests::peak_memory() - before) / 1024;
    EXPECT_EQ(log.last.succeeded, line_count);
    ASSERT_EQ(log.files.size(), 1U);
    EXPECT_GE(log.files[0].bytes, line_count * std::int64_t{line_bytes - 10});
    EXPECT_LE(log.largest, std::size_t{3} << 20);
    EXPECT_LE(taken, 48) << "MiB";
    EXPECT_LE(longest, std::chrono::seconds(60)) << "the group waits five minutes; the last step waits for the disk";
    const auto seconds = std::chrono::duration<double>(longest).count();
    std::cout << fmt::format("{} lines of {} bytes: at most {} MiB more memory, the longest step took {:.3f} s\n", line_count, line_bytes,
                             taken, seconds);
}

}  // namespace
}  // namespace lorry::consumer
