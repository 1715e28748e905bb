// One batch, carried out by its owner: checks the input, sends its lines as jobs, gathers their results, and writes the files of results.
// Knows no Kafka. Made by consumer/kafka/batches/batch_owner.cpp; one thread.
//
// The batch's record says what the run has done, and is written together with what it describes: lines are sent in the transaction that
// says which is the next one, and positions in the results are written with the names of the parts that have all results before them. So an
// owner that begins with the last record sends no line twice and loses no result, wherever the one before it ended. A result that comes
// twice is recognized by its line.
//
// A step takes one piece of a few MiB at most, so that one thread can carry out many batches, and no file is in memory as a whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "consumer/batches/batch_backend.h"
#include "consumer/batches/batch_progress.h"
#include "consumer/batches/line_reader.h"
#include "schema/completion.h"

namespace lorry::consumer {

// A line of the input, as a job.
struct BatchLine {
    std::int64_t number = 0;  // from 0, among those that are not empty
    std::string text;
    std::string model;  // as its body names it; empty: it does not
};

// All of it is written, or nothing.
struct BatchWrite {
    std::vector<BatchLine> lines;
    schema::BatchRecord batch;
    std::vector<schema::FileRecord> files;
};

class BatchLog {
public:
    virtual ~BatchLog() = default;
    // Throws on any failure to write. Then it is unknown what was written, and the run must not be used any more.
    virtual void write(const BatchWrite& write) = 0;
    // Stops the lines that were sent. It may be repeated.
    virtual void stop_lines(const schema::BatchRecord& batch) = 0;
};

class BatchRun {
public:
    struct Options {
        std::string base_name;
        std::size_t line_bytes_max = std::size_t{1} << 20;
        std::int64_t lines_max = 50'000;
        std::int64_t ahead = 2'000;  // lines of a tenant that were sent and have no result
        // What these lines have together, in bytes, unless it is one line: for brokers that keep no more. nullopt: any.
        std::optional<std::int64_t> ahead_bytes = {};
        std::size_t slice_lines = 200;                   // sent at once
        std::size_t slice_bytes = std::size_t{2} << 20;  // the same
        std::size_t part_bytes = std::size_t{4} << 20;   // of results in memory; then they are stored
        std::size_t piece_bytes = std::size_t{4} << 20;  // of the input, read in one step
        std::chrono::seconds part_age{60};               // the same
        std::chrono::seconds counts_age{2};              // until clients see how many lines have ended
        std::chrono::seconds stop_patience{600};         // for lines of a cancelled batch to end
        std::chrono::seconds expiry_patience{60};        // for lines to end by their deadline
    };
    static constexpr std::chrono::seconds store_patience{3600};  // after a batch's deadline, for a store that fails; see given_up()
    using Positions = std::map<std::int32_t, std::int64_t>;      // by partition of the results topic
    using Time = BatchProgress::Time;

    // Store and log outlive it.
    BatchRun(schema::BatchRecord batch, FileStore& store, BatchLog& log, Options options);
    ~BatchRun();
    BatchRun(const BatchRun&) = delete;
    BatchRun& operator=(const BatchRun&) = delete;

    // First reads the parts that the record names: which lines have a result. Each call reads one; call it until has_counted() before
    // anything else. Throws as the store: begin again later.
    void count();
    bool has_counted() const { return counted_ == batch_.parts.size(); }

    const schema::BatchRecord& record() const { return batch_; }
    bool has_ended() const { return schema::is_final(batch_.state); }
    // Results from here on concern it; empty: those from now on.
    const Positions& results_from() const { return batch_.results_at; }
    // Lines that were sent and have no result.
    std::int64_t open_lines() const { return is_gathering() ? batch_.next_line - ended() : 0; }
    // What these lines have together, in bytes. Counted with ahead_bytes only, and too high for lines that an earlier owner sent.
    std::int64_t open_bytes() const;
    // The next step goes on with what the last one began, for which it keeps memory and files.
    bool is_amid() const { return check_ || writing_ || !has_counted(); }

    // The result of a line. Nothing happens if it has one.
    void take(std::int64_t line, std::string_view result);
    struct Moment {
        Time now;
        bool is_cancelled = false;
        const Positions& read;               // all results before were taken
        std::int64_t key_jobs = 0;           // while its input is checked: BatchBackend::key_jobs of its key
        std::int64_t others_open = 0;        // open_lines() of the tenant's other batches
        std::int64_t others_open_bytes = 0;  // open_bytes() of these
    };
    // Does the next thing. False: there is nothing to do before the next result, or later. Throws as the store and the log; then it must
    // not be used any more. A content that is gone, or was changed, ends the batch with what is still there: its parts are counted again,
    // by the next steps.
    bool step(const Moment& moment);
    // What the log should say of it now, if anything. Call it after each step.
    std::optional<std::string> news(Time now) { return progress_.note(batch_, now); }

private:
    struct Row;
    struct ResultFile;
    struct Check;
    struct Writing;
    bool go_on(const Moment& moment);
    void check_piece(const Moment& moment);
    void check_line(std::string_view line, std::int64_t number);
    void refuse(schema::BatchError error, std::optional<std::int64_t> line);
    void finish_check(const Moment& moment);
    std::optional<schema::BatchError> fault_of(std::string_view line, Check& check) const;
    bool is_gathering() const { return batch_.state == schema::BatchState::in_progress || batch_.state == schema::BatchState::cancelling; }
    bool advance(const Moment& moment);
    bool await_stop(const Moment& moment);
    bool send(const Moment& moment);
    void finalize(const Moment& moment);
    void lose(schema::BatchError why);
    void give_up(const Moment& moment);
    void write_piece(const Moment& moment);
    void write_missing(schema::BatchFailure failure);
    std::vector<schema::FileRecord> keep_files(const Moment& moment);
    void end(schema::BatchState state, const Moment& moment, std::vector<schema::FileRecord> files);
    void enter(schema::BatchState state, Time now);
    void store_part();
    void write(const Moment& moment, std::vector<BatchLine> lines = {}, std::vector<schema::FileRecord> files = {});
    std::int64_t ended() const { return batch_.succeeded + batch_.failed; }
    LineReader open_input(std::int64_t from) const;
    void read_part(const std::string& part, const std::function<void(const Row&)>& take) const;
    void count_again();
    void mark(std::int64_t line, bool is_success);
    void note_sent(const BatchLine& line);

    schema::BatchRecord batch_;
    FileStore& store_;
    BatchLog& log_;
    const Options options_;
    std::vector<bool> has_result_;                               // by line
    std::unordered_map<std::int64_t, std::int64_t> sent_bytes_;  // with ahead_bytes: of lines that this owner sent and that have no result
    std::int64_t sent_bytes_total_ = 0;                          // of these
    std::size_t counted_ = 0;                                    // parts
    std::unique_ptr<Check> check_;                               // while the input is checked
    std::unique_ptr<Writing> writing_;                           // while the files of results are written
    std::string pending_;                                        // rows of results that are in no part
    std::optional<Time> pending_since_;                          // when the first of them was seen
    std::optional<schema::BatchError> lost_;                     // why it cannot go on
    std::optional<Time> written_;                                // when the record was written last
    std::int64_t ended_written_ = -1;                            // how many lines it said had ended
    bool has_stopped_lines_ = false;
    BatchProgress progress_;
};

// The record of a batch that could not go on for too long, because the store fails: it ends without results.
schema::BatchRecord given_up(schema::BatchRecord batch, BatchRun::Time now);

// Where results have to be read from when a run that wants them from `wanted` on joins others, which have read up to `read`. nullopt: from
// there. A partition that `wanted` lacks was added after its record was written, so all that is in it concerns it.
std::optional<BatchRun::Positions> earlier_positions(BatchRun::Positions read, const BatchRun::Positions& wanted);

}  // namespace lorry::consumer
