// A batch's states one after the other. A part has a row for each result: its line, 1 if it is a success, and the result itself.
#include "consumer/batches/batch_run.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "consumer/batch_failure.h"
#include "schema/codec.h"
#include "schema/codec_error.h"
#include "schema/key.h"
#include "schema/secret.h"

namespace lorry::consumer {
namespace {

using schema::BatchState;
using schema::Json;

// Of a batch that is refused: they are in its record, which is written again and again and has to stay small.
constexpr std::size_t errors_max = 20;
constexpr std::size_t error_message_bytes_max = 300;
constexpr std::size_t row_bytes_max = std::size_t{1} << 30;  // a result in a part: more than any topic takes
// A line of an input that was checked, whatever limit it was checked with.
constexpr std::size_t input_line_bytes_max = std::size_t{64} << 20;
constexpr std::int64_t line_frame = 512;  // what a line's job has besides, in bytes

schema::Seconds seconds(BatchRun::Time time) { return time.time_since_epoch().count(); }

schema::BatchError error_of(schema::ErrorCode code, std::string message, std::optional<std::string> param = {}) {
    const auto row = schema::find_error_row(code);
    CHECK(row, "each code has a row");
    return {.code = std::string(row->name), .line = std::nullopt, .message = std::move(message), .param = std::move(param)};
}

schema::BatchError denied(std::string message, std::string param) {
    return {.code = "permission_denied", .line = std::nullopt, .message = std::move(message), .param = std::move(param)};
}

// A content of the batch is gone, or is not as it was: the batch cannot go on.
class BatchContentLost : public std::runtime_error {
public:
    explicit BatchContentLost(schema::BatchError the_error) : std::runtime_error(the_error.message), error(std::move(the_error)) {}
    const schema::BatchError error;
};

std::uint64_t random_seed() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
}

[[noreturn]] void lose_content(const char* code, std::string message) {
    throw BatchContentLost({.code = code, .line = std::nullopt, .message = std::move(message), .param = std::nullopt});
}

// Of an input that was checked.
[[noreturn]] void lose_input() { lose_content("content_changed", "the input file is not any more as it was when it was checked"); }
std::string_view checked_line(LineReader& input) {
    for (;;) {
        const auto line = input.next();
        if (!line) lose_input();
        if (line->is_too_long) lose_content("content_changed", "a line of the input file is too long to be read again");
        if (!line->text.empty()) return line->text;
    }
}
Json checked_object(std::string_view line) {
    auto object = Json::parse(line);
    if (!object || !object->is_object()) lose_input();
    return *std::move(object);
}

// Of a line whose job has no result.
std::string missing_row(const std::string& custom_id, schema::BatchFailure failure) {
    const bool is_expired = failure == schema::BatchFailure::expired;
    const auto row = schema::find_error_row(is_expired ? schema::ErrorCode::batch_expired : schema::ErrorCode::batch_cancelled);
    return Json::object({{"id", "batch_req_" + schema::draw_random_id()},
                         {"custom_id", custom_id},
                         {"response", Json()},
                         {"error", Json::object({{"code", row->name}, {"message", message_of(failure)}})}})
        .dump();
}

// For those who upload a table or a JSON array, said once for a batch.
std::string example_of(schema::Endpoint endpoint) {
    const schema::EndpointRow row = schema::row_of(endpoint);
    return fmt::format(R"(. A batch's file is JSON lines, one request a line, such as {{"custom_id":"1","method":"POST","url":"{}",)"
                       R"("body":{{"model":"base","{}":…}}}})",
                       row.url, row.prompt_field);
}

std::string text_in(const Json& object, const char* name) {
    const Json* value = object.find(name);
    return value != nullptr && value->is_string() ? *value->as_string() : std::string();
}

}  // namespace

// A row of a part.
struct BatchRun::Row {
    std::int64_t line = 0;
    bool is_success = false;
    std::string_view result;

    // nullopt: it is none, which nobody writes.
    static std::optional<Row> of(std::string_view text) {
        Row row;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row.line);
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        if (error != std::errc() || text.size() < 3 || text[0] != ' ' || text[2] != ' ') return std::nullopt;
        row.is_success = text[1] == '1';
        row.result = text.substr(3);
        return row;
    }
};

// One of the two files of results, while it is written.
struct BatchRun::ResultFile {
    std::unique_ptr<FileStore::Writer> writer;  // nullptr: no row was known when the files were chosen
    std::int64_t bytes = 0;

    void add(std::string_view row) {
        if (writer == nullptr) lose_content("content_changed", "the stored results are not any more as they were");
        writer->write(fmt::format("{}\n", row));
        bytes += std::ssize(row) + 1;
    }
};

// How far the input was checked.
struct BatchRun::Check {
    std::int64_t position = 0;  // of the next line's first byte
    std::int64_t number = 0;    // of the line before, from 1
    std::int64_t lines = 0;     // that are not empty
    std::int64_t blank_lines = 0;
    // Hashes of custom_ids. The seed is random, as a client could choose ids whose hashes share a bucket.
    std::unordered_set<std::uint64_t> ids;
    const std::uint64_t seed = random_seed();
    std::vector<schema::BatchError> errors;
};

// How far the files of results were written.
struct BatchRun::Writing {
    ResultFile output;
    ResultFile errors;
    std::size_t parts = 0;      // that were written
    std::size_t line = 0;       // the next one that may have no result
    std::int64_t position = 0;  // of its first byte
};

BatchRun::BatchRun(schema::BatchRecord batch, FileStore& store, BatchLog& log, Options options)
    : batch_(std::move(batch)), store_(store), log_(log), options_(std::move(options)), progress_(batch_) {
    count_again();
}

BatchRun::~BatchRun() = default;

void BatchRun::read_part(const std::string& part, const std::function<void(const Row&)>& take) const {
    auto content = store_.open(part, 0);
    if (!content) lose_content("content_missing", fmt::format("stored results of the batch are missing: {}", part));
    LineReader rows(std::move(content), 0, row_bytes_max);
    while (const auto text = rows.next()) {
        if (text->is_too_long) lose_content("content_changed", fmt::format("stored results of the batch are damaged: {}", part));
        const auto row = Row::of(text->text);
        if (row && row->line >= 0 && row->line < batch_.lines) take(*row);
    }
}

void BatchRun::count_again() {
    has_result_.assign(static_cast<std::size_t>(batch_.lines), false);
    batch_.succeeded = 0;
    batch_.failed = 0;
    counted_ = 0;
    sent_bytes_.clear();
    sent_bytes_total_ = 0;
}

// A part that is gone or damaged is left out as a whole.
void BatchRun::count() {
    CHECK(!has_counted(), "there is a part to be counted");
    std::vector<std::pair<std::int64_t, bool>> rows;
    try {
        read_part(batch_.parts[counted_], [&](const Row& row) { rows.emplace_back(row.line, row.is_success); });
    } catch (const BatchContentLost& lost) {
        if (!lost_) lost_ = lost.error;
        batch_.parts.erase(batch_.parts.begin() + static_cast<std::ptrdiff_t>(counted_));
        return;
    }
    for (const auto& [line, is_success] : rows) {
        if (!has_result_.at(static_cast<std::size_t>(line))) mark(line, is_success);
    }
    ++counted_;
}

void BatchRun::mark(std::int64_t line, bool is_success) {
    has_result_.at(static_cast<std::size_t>(line)) = true;
    ++(is_success ? batch_.succeeded : batch_.failed);
    const auto sent = sent_bytes_.find(line);
    if (sent == sent_bytes_.end()) return;
    sent_bytes_total_ -= sent->second;
    sent_bytes_.erase(sent);
}

void BatchRun::note_sent(const BatchLine& line) {
    if (!options_.ahead_bytes) return;
    const std::int64_t bytes = std::ssize(line.text) + line_frame;
    sent_bytes_.emplace(line.number, bytes);
    sent_bytes_total_ += bytes;
}

std::int64_t BatchRun::open_bytes() const {
    if (!options_.ahead_bytes || !is_gathering()) return 0;
    // Lines that an earlier owner sent may be of any length. Their results may be lost, so that they leave room for others.
    const std::int64_t unknown = (open_lines() - std::ssize(sent_bytes_)) * static_cast<std::int64_t>(options_.line_bytes_max);
    return sent_bytes_total_ + std::min(unknown, *options_.ahead_bytes / 2);
}

void BatchRun::take(std::int64_t line, std::string_view result) {
    // A batch that is given up keeps the results that it has.
    if (!is_gathering() || !has_counted() || lost_) return;
    if (line < 0 || line >= std::min(batch_.next_line, batch_.lines) || has_result_.at(static_cast<std::size_t>(line))) return;
    const auto summary = schema::parse_result(result);
    if (!summary) return;
    // One line, whoever wrote it.
    const std::string text = result.find('\n') == result.npos ? std::string(result) : Json::parse(result)->dump();
    pending_ += fmt::format("{} {} {}\n", line, summary->ok ? 1 : 0, text);
    mark(line, summary->ok);
}

bool BatchRun::step(const Moment& moment) {
    if (!has_counted()) {
        count();
    } else if (lost_) {
        give_up(moment);
    } else {
        try {
            return go_on(moment);
        } catch (const BatchContentLost& error) {
            lose(error.error);
        }
    }
    return true;
}

bool BatchRun::go_on(const Moment& moment) {
    if (!pending_.empty() && !pending_since_) pending_since_ = moment.now;
    const bool is_early = batch_.state == BatchState::validating || batch_.state == BatchState::in_progress;
    if (moment.is_cancelled && is_early) {
        check_.reset();
        enter(BatchState::cancelling, moment.now);
        write(moment);
        return true;
    }
    switch (batch_.state) {
        case BatchState::validating: check_piece(moment); return true;
        case BatchState::in_progress: return advance(moment);
        case BatchState::cancelling: return await_stop(moment);
        case BatchState::finalizing: write_piece(moment); return true;
        case BatchState::failed:
        case BatchState::completed:
        case BatchState::expired:
        case BatchState::cancelled: return false;
    }
    CHECK(false, "each state has its step");
}

void BatchRun::enter(BatchState state, Time now) {
    batch_.state = state;
    batch_.since.emplace(state, seconds(now));
}

// An input that was checked.
LineReader BatchRun::open_input(std::int64_t from) const {
    auto content = store_.open(batch_.input_file, from);
    if (!content) lose_content("content_missing", "the input file was deleted before the batch had ended");
    return {std::move(content), from, std::max(options_.line_bytes_max, input_line_bytes_max)};
}

// What is wrong with a line so that the whole batch is refused.
std::optional<schema::BatchError> BatchRun::fault_of(std::string_view line, Check& check) const {
    using enum schema::ErrorCode;
    const auto object = Json::parse(line);
    if (!object || !object->is_object()) {
        const std::string what = object ? fmt::format("is a JSON {}, not an object", object->kind()) : "is not JSON: " + object.error();
        return error_of(invalid_json, fmt::format("the line {}{}", what, check.errors.empty() ? example_of(batch_.endpoint) : ""));
    }
    const std::string id = text_in(*object, "custom_id");
    if (id.empty() || id.size() > schema::id_bytes_max)
        return error_of(invalid_custom_id, fmt::format("'custom_id' has to be a string of 1 to {} bytes", schema::id_bytes_max),
                        "custom_id");
    if (!check.ids.insert(XXH3_64bits_withSeed(id.data(), id.size(), check.seed)).second)
        return error_of(duplicate_custom_id, fmt::format("'custom_id' is '{}', as that of an earlier line", schema::shortened(id)),
                        "custom_id");
    if (text_in(*object, "method") != "POST") return error_of(invalid_value, "'method' has to be POST", "method");
    const auto url = schema::endpoint_at(text_in(*object, "url"));
    if (!url || *url != batch_.endpoint) {
        return error_of(
            unsupported_url,
            fmt::format("'url' has to be the batch's endpoint, {}: make a batch for each url", schema::row_of(batch_.endpoint).url), "url");
    }
    const Json* body = object->find("body");
    if (body == nullptr || !body->is_object()) return error_of(missing_field, "'body' has to be an object", "body");
    const Json* model = body->find("model");
    const std::string* name = model == nullptr ? nullptr : model->as_string();
    // A line that names no model fails alone, as one of which another field is wrong.
    if (name != nullptr && !schema::allows_model({.models = batch_.models}, *name, options_.base_name))
        return denied(fmt::format("the API key may not use the model '{}'", schema::shortened(*name)), "body.model");
    if (schema::goes_first(*body) && !batch_.key.empty()) return denied(std::string(schema::goes_first_refusal), "body.priority");
    return std::nullopt;
}

// Of a line, or of the file.
void BatchRun::refuse(schema::BatchError error, std::optional<std::int64_t> line) {
    error.line = line;
    error.message = schema::shortened(error.message, error_message_bytes_max);
    check_->errors.push_back(std::move(error));
}

void BatchRun::check_line(std::string_view line, std::int64_t number) {
    if (line.empty()) {
        // All later readers of the input pass them again, and they count towards no limit of jobs.
        if (++check_->blank_lines > options_.lines_max)
            refuse({.code = "too_many_lines", .message = fmt::format("a batch may have {} blank lines", options_.lines_max)}, number);
    } else if (++check_->lines > options_.lines_max) {
        refuse({.code = "too_many_lines", .message = fmt::format("a batch may have {} lines", options_.lines_max)}, number);
    } else if (auto fault = fault_of(line, *check_)) {
        refuse(*std::move(fault), number);
    }
}

// Reads the next lines. Any fault fails the batch, before a line is sent; an owner that goes on with another's batch checks all of it.
void BatchRun::check_piece(const Moment& moment) {
    if (!check_) check_ = std::make_unique<Check>();
    Check& check = *check_;
    auto content = store_.open(batch_.input_file, check.position);
    if (!content) {
        refuse({.code = "file_not_found", .message = "the input file was deleted"}, std::nullopt);
        return finish_check(moment);
    }
    LineReader lines(std::move(content), check.position, options_.line_bytes_max);
    const std::int64_t end = check.position + static_cast<std::int64_t>(options_.piece_bytes);
    while (lines.position() < end) {
        const auto line = lines.next();
        const std::int64_t number = check.number + lines.number();
        if (line && !line->is_too_long) {
            check_line(line->text, number);
            if (std::max(check.lines, check.blank_lines) <= options_.lines_max && check.errors.size() < errors_max) continue;
        } else if (line) {
            refuse(error_of(schema::ErrorCode::payload_too_large, fmt::format("the line has more than {} bytes", options_.line_bytes_max)),
                   number + 1);
        }
        return finish_check(moment);
    }
    check.position = lines.position();
    check.number += lines.number();
}

void BatchRun::finish_check(const Moment& moment) {
    const std::int64_t lines = check_->lines;
    if (lines == 0 && check_->errors.empty()) refuse({.code = "empty_file", .message = "the input file has no lines"}, std::nullopt);
    if (check_->errors.empty() && batch_.key_jobs_max && moment.key_jobs + lines > *batch_.key_jobs_max) {
        refuse(
            {.code = "batch_queue_full",
             .message = fmt::format("the batches of this API key may have {} jobs without a result; {} wait or run, and this file has {}",
                                    *batch_.key_jobs_max, moment.key_jobs, lines)},
            std::nullopt);
    }
    batch_.errors = std::move(std::exchange(check_, nullptr)->errors);
    if (batch_.errors.empty()) {
        batch_.lines = lines;
        has_result_.assign(static_cast<std::size_t>(lines), false);
        enter(BatchState::in_progress, moment.now);
    } else {
        enter(BatchState::failed, moment.now);
    }
    write(moment);
}

// The next of: an end, lines, a part, counts.
bool BatchRun::advance(const Moment& moment) {
    const bool is_expired = seconds(moment.now) >= batch_.expires;
    if (ended() == batch_.lines ||
        (is_expired && (ended() == batch_.next_line || seconds(moment.now) >= batch_.expires + options_.expiry_patience.count()))) {
        finalize(moment);
        return true;
    }
    const bool is_part_due =
        pending_.size() >= options_.part_bytes || (pending_since_ && moment.now - *pending_since_ >= options_.part_age);
    if (is_part_due) {
        store_part();
        write(moment);
        return true;
    }
    if (!is_expired && send(moment)) return true;
    if (ended() == ended_written_ || (written_ && moment.now - *written_ < options_.counts_age)) return false;
    write(moment);
    return true;
}

bool BatchRun::await_stop(const Moment& moment) {
    if (!std::exchange(has_stopped_lines_, true) && batch_.next_line > 0) log_.stop_lines(batch_);
    const auto since = batch_.since.at(BatchState::cancelling);
    if (ended() < batch_.next_line && seconds(moment.now) < since + options_.stop_patience.count()) return false;
    finalize(moment);
    return true;
}

// A slice of lines. False: all are sent, or enough of them.
bool BatchRun::send(const Moment& moment) {
    const std::int64_t room = options_.ahead - moment.others_open - open_lines();
    constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
    const std::int64_t room_bytes = options_.ahead_bytes ? *options_.ahead_bytes - moment.others_open_bytes - open_bytes() : any;
    const bool is_alone = moment.others_open + open_lines() == 0;  // a single line may have any size
    if (batch_.next_line == batch_.lines || room <= 0 || (room_bytes <= 0 && !is_alone)) return false;
    // Closed after each slice: hundreds of batches may be open.
    LineReader input = open_input(batch_.next_byte);
    std::vector<BatchLine> slice;
    std::size_t bytes = 0;
    std::int64_t record_bytes = 0;
    std::int64_t end = batch_.next_byte;
    const std::int64_t left = std::min(room, batch_.lines - batch_.next_line);
    while (std::ssize(slice) < left && slice.size() < options_.slice_lines && bytes < options_.slice_bytes) {
        const std::string_view line = checked_line(input);
        record_bytes += std::ssize(line) + line_frame;
        if (record_bytes > room_bytes && !(is_alone && slice.empty())) break;
        const Json object = checked_object(line);
        const Json* body = object.find("body");
        slice.push_back({.number = batch_.next_line + std::ssize(slice),
                         .text = std::string(line),
                         .model = body == nullptr ? "" : text_in(*body, "model")});
        bytes += line.size();
        end = input.position();
    }
    if (slice.empty()) return false;
    for (const BatchLine& line : slice) note_sent(line);
    batch_.next_line += std::ssize(slice);
    batch_.next_byte = end;
    write(moment, std::move(slice));
    return true;
}

void BatchRun::store_part() {
    const std::string name = fmt::format("{}.{}", batch_.id, schema::draw_random_id());
    const auto part = store_.create(name);
    part->write(pending_);
    part->keep();
    batch_.parts.push_back(name);
    ++counted_;
    pending_.clear();
    pending_since_.reset();
}

void BatchRun::write(const Moment& moment, std::vector<BatchLine> lines, std::vector<schema::FileRecord> files) {
    // Results that are not stored are read again by the next owner.
    if (pending_.empty()) batch_.results_at = moment.read;
    log_.write({.lines = std::move(lines), .batch = batch_, .files = std::move(files)});
    written_ = moment.now;
    ended_written_ = ended();
}

// From now on results are of no concern: those that are missing will be rows of the error file.
void BatchRun::finalize(const Moment& moment) {
    if (!pending_.empty()) store_part();
    enter(BatchState::finalizing, moment.now);
    if (batch_.succeeded > 0) batch_.output_file = schema::draw_file_id();
    if (batch_.succeeded < batch_.lines) batch_.error_file = schema::draw_file_id();
    write(moment);
}

// It cannot go on. What it has is counted again, as parts may be gone.
void BatchRun::lose(schema::BatchError why) {
    lost_ = std::move(why);
    check_.reset();
    writing_.reset();
    if (!pending_.empty()) store_part();
    count_again();
}

// Its files get the rows that are still there. Lines without one have none: their names may be gone, too.
void BatchRun::give_up(const Moment& moment) {
    if (batch_.next_line > ended()) log_.stop_lines(batch_);
    batch_.errors.push_back(*std::exchange(lost_, std::nullopt));
    batch_.output_file = batch_.succeeded > 0 ? std::optional(schema::draw_file_id()) : std::nullopt;
    batch_.error_file = batch_.failed > 0 ? std::optional(schema::draw_file_id()) : std::nullopt;
    enter(BatchState::finalizing, moment.now);
    write(moment);
}

// Of the files that the record names: the rows of a part, or of lines without a result; or the end. A batch with errors was given up.
void BatchRun::write_piece(const Moment& moment) {
    if (!writing_) {
        writing_ = std::make_unique<Writing>();
        if (batch_.output_file) writing_->output.writer = store_.create(*batch_.output_file);
        if (batch_.error_file) writing_->errors.writer = store_.create(*batch_.error_file);
    }
    if (writing_->parts < batch_.parts.size()) {
        read_part(batch_.parts[writing_->parts++],
                  [&](const Row& row) { (row.is_success ? writing_->output : writing_->errors).add(row.result); });
        return;
    }
    const bool is_given_up = !batch_.errors.empty();
    const bool is_cancelled = batch_.since.contains(BatchState::cancelling);
    const bool is_whole = ended() == batch_.lines;
    if (!is_given_up && !is_whole && writing_->line < has_result_.size())
        return write_missing(is_cancelled ? schema::BatchFailure::cancelled : schema::BatchFailure::expired);
    std::vector<schema::FileRecord> files = keep_files(moment);
    const BatchState well = is_whole ? BatchState::completed : BatchState::expired;
    end(is_given_up ? BatchState::failed : is_cancelled ? BatchState::cancelled : well, moment, std::move(files));
}

// A row for each line without a result, of the next lines.
void BatchRun::write_missing(schema::BatchFailure failure) {
    LineReader lines = open_input(writing_->position);
    const std::int64_t end = writing_->position + static_cast<std::int64_t>(options_.piece_bytes);
    for (; writing_->line < has_result_.size() && lines.position() < end; ++writing_->line) {
        const std::string_view line = checked_line(lines);
        if (!has_result_[writing_->line]) writing_->errors.add(missing_row(text_in(checked_object(line), "custom_id"), failure));
    }
    writing_->position = lines.position();
}

std::vector<schema::FileRecord> BatchRun::keep_files(const Moment& moment) {
    std::vector<schema::FileRecord> files;
    const auto keep = [&](ResultFile& file, const std::optional<std::string>& id, const char* kind) {
        if (file.writer == nullptr) return;
        file.writer->keep();
        files.push_back({.id = *id,
                         .tenant = batch_.tenant,
                         .name = fmt::format("{}_{}.jsonl", batch_.id, kind),
                         .purpose = schema::FilePurpose::batch_output,
                         .bytes = file.bytes,
                         .created = seconds(moment.now)});
    };
    keep(writing_->output, batch_.output_file, "output");
    keep(writing_->errors, batch_.error_file, "error");
    writing_.reset();
    return files;
}

void BatchRun::end(BatchState state, const Moment& moment, std::vector<schema::FileRecord> files) {
    batch_.failed = batch_.lines - batch_.succeeded;
    const std::vector<std::string> parts = std::exchange(batch_.parts, {});
    counted_ = 0;
    enter(state, moment.now);
    write(moment, {}, std::move(files));
    try {
        for (const std::string& part : parts) store_.remove(part);
    } catch (const std::runtime_error&) {
        // The batch has ended all the same. Contents that nothing names are removed later (batch_owner.cpp).
    }
}

schema::BatchRecord given_up(schema::BatchRecord batch, BatchRun::Time now) {
    batch.state = BatchState::failed;
    batch.since.emplace(batch.state, seconds(now));
    batch.errors.push_back(
        {.code = "content_unavailable",
         .line = std::nullopt,
         .message = "the batch could not go on before its time was over: its files could not be read or written, or its lines not be sent",
         .param = std::nullopt});
    batch.output_file.reset();
    batch.error_file.reset();
    batch.parts.clear();
    batch.succeeded = 0;
    batch.failed = batch.lines;
    return batch;
}

std::optional<BatchRun::Positions> earlier_positions(BatchRun::Positions read, const BatchRun::Positions& wanted) {
    bool is_new = false;
    for (const auto& [partition, offset] : wanted) {
        const auto place = read.find(partition);
        if (place != read.end() && place->second <= offset) continue;
        read[partition] = offset;
        is_new = true;
    }
    if (!wanted.empty()) {
        for (auto& [partition, offset] : read) {
            if (wanted.contains(partition) || offset == 0) continue;
            offset = 0;
            is_new = true;
        }
    }
    return is_new ? std::optional(std::move(read)) : std::nullopt;
}

}  // namespace lorry::consumer
