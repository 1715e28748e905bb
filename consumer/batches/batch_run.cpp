// A batch's states one after the other. A part has a row for each result: its line, 1 if it is a success, and the result itself.
#include "consumer/batches/batch_run.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
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

constexpr std::size_t errors_max = 100;
constexpr std::size_t row_bytes_max = std::size_t{64} << 20;  // a result in a part

schema::Seconds seconds(BatchRun::Time time) { return time.time_since_epoch().count(); }

schema::BatchError error_of(schema::ErrorCode code, std::string message, std::optional<std::string> param = {}) {
    const auto row = schema::find_error_row(code);
    CHECK(row, "each code has a row");
    return {.code = std::string(row->name), .line = std::nullopt, .message = std::move(message), .param = std::move(param)};
}

// A row of a part; nullopt: it is none, which nobody writes.
struct Row {
    std::int64_t line = 0;
    bool is_success = false;
    std::string_view result;
};
std::optional<Row> row_of(std::string_view text) {
    Row row;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row.line);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (error != std::errc() || text.size() < 3 || text[0] != ' ' || text[2] != ' ') return std::nullopt;
    row.is_success = text[1] == '1';
    row.result = text.substr(3);
    return row;
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

std::string text_in(const Json& object, const char* name) {
    const Json* value = object.find(name);
    return value != nullptr && value->is_string() ? *value->as_string() : std::string();
}

}  // namespace

BatchRun::BatchRun(schema::BatchRecord batch, FileStore& store, BatchLog& log, Options options)
    : batch_(std::move(batch)), store_(store), log_(log), options_(std::move(options)) {
    has_result_.resize(static_cast<std::size_t>(batch_.lines));
    batch_.succeeded = 0;
    batch_.failed = 0;
    for (const std::string& part : batch_.parts) {
        auto content = store_.open(part, 0);
        if (!content) throw std::runtime_error(fmt::format("batch {}: its results {} are missing in the files' folder", batch_.id, part));
        LineReader rows(std::move(content), 0, row_bytes_max);
        while (const auto text = rows.next()) {
            if (const auto row = row_of(text->text)) mark(row->line, row->is_success);
        }
    }
}

void BatchRun::mark(std::int64_t line, bool is_success) {
    has_result_.at(static_cast<std::size_t>(line)) = true;
    ++(is_success ? batch_.succeeded : batch_.failed);
}

void BatchRun::take(std::int64_t line, std::string_view result) {
    const bool is_gathering = batch_.state == BatchState::in_progress || batch_.state == BatchState::cancelling;
    if (!is_gathering || line < 0 || line >= batch_.next_line || has_result_.at(static_cast<std::size_t>(line))) return;
    const auto summary = schema::parse_result(result);
    if (!summary) return;
    // One line, whoever wrote it.
    const std::string text = result.find('\n') == result.npos ? std::string(result) : Json::parse(result)->dump();
    pending_ += fmt::format("{} {} {}\n", line, summary->ok ? 1 : 0, text);
    mark(line, summary->ok);
}

bool BatchRun::step(const Moment& moment) {
    if (!pending_.empty() && !pending_since_) pending_since_ = moment.now;
    const bool is_early = batch_.state == BatchState::validating || batch_.state == BatchState::in_progress;
    if (moment.is_cancelled && is_early) {
        enter(BatchState::cancelling, moment.now);
        write(moment);
        return true;
    }
    switch (batch_.state) {
        case BatchState::validating: return validate(moment);
        case BatchState::in_progress: return advance(moment);
        case BatchState::cancelling: return await_stop(moment);
        case BatchState::finalizing: write_files(moment); return true;
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

LineReader BatchRun::open_input(std::int64_t from) const {
    auto content = store_.open(batch_.input_file, from);
    if (!content)
        throw std::runtime_error(fmt::format("batch {}: its input {} is missing in the files' folder", batch_.id, batch_.input_file));
    return {std::move(content), from, options_.line_bytes_max};
}

// What is wrong with a line so that the whole batch is refused. ids: hashes of the custom_ids so far, to which its own is added.
std::optional<schema::BatchError> BatchRun::fault_of(std::string_view line, std::unordered_set<std::uint64_t>& ids) const {
    using enum schema::ErrorCode;
    const auto object = Json::parse(line);
    if (!object) return error_of(invalid_json, fmt::format("the line is not JSON: {}", object.error()));
    if (!object->is_object()) return error_of(invalid_json, fmt::format("the line is a JSON {}, not an object", object->kind()));
    const std::string id = text_in(*object, "custom_id");
    if (id.empty() || id.size() > schema::id_bytes_max)
        return error_of(invalid_custom_id, fmt::format("'custom_id' has to be a string of 1 to {} bytes", schema::id_bytes_max),
                        "custom_id");
    if (!ids.insert(XXH3_64bits(id.data(), id.size())).second)
        return error_of(duplicate_custom_id, fmt::format("'custom_id' is '{}', as that of an earlier line", schema::shortened(id)),
                        "custom_id");
    if (text_in(*object, "method") != "POST") return error_of(invalid_value, "'method' has to be POST", "method");
    const auto url = schema::endpoint_at(text_in(*object, "url"));
    if (!url || *url != batch_.endpoint) {
        return error_of(unsupported_url, fmt::format("'url' has to be the batch's endpoint, {}", schema::row_of(batch_.endpoint).url),
                        "url");
    }
    const Json* body = object->find("body");
    if (body == nullptr || !body->is_object()) return error_of(missing_field, "'body' has to be an object", "body");
    const std::string model = text_in(*body, "model");
    if (!schema::allows_model({.models = batch_.models}, model, options_.base_name)) {
        schema::BatchError error =
            error_of(invalid_value, fmt::format("the API key may not use the model '{}'", schema::shortened(model)), "body.model");
        error.code = "permission_denied";
        return error;
    }
    return std::nullopt;
}

// Reads all lines. Any fault fails the batch, before a line is sent.
bool BatchRun::validate(const Moment& moment) {
    std::unordered_set<std::uint64_t> ids;
    const auto refuse = [&](schema::BatchError error, std::optional<std::int64_t> line) {
        error.line = line;
        batch_.errors.push_back(std::move(error));
    };
    auto content = store_.open(batch_.input_file, 0);
    if (!content) {
        refuse({.code = "file_not_found", .message = "the input file was deleted"}, std::nullopt);
    } else {
        LineReader lines(std::move(content), 0, options_.line_bytes_max);
        while (const auto line = lines.next()) {
            if (line->is_too_long) {
                refuse(
                    error_of(schema::ErrorCode::payload_too_large, fmt::format("the line has more than {} bytes", options_.line_bytes_max)),
                    lines.number() + 1);
                break;
            }
            if (++batch_.lines > options_.lines_max) {
                refuse({.code = "too_many_lines", .message = fmt::format("a batch may have {} lines", options_.lines_max)}, lines.number());
                break;
            }
            if (auto fault = fault_of(line->text, ids)) refuse(*std::move(fault), lines.number());
            if (batch_.errors.size() >= errors_max) break;
        }
        if (batch_.lines == 0 && batch_.errors.empty())
            refuse({.code = "empty_file", .message = "the input file has no lines"}, std::nullopt);
    }
    if (batch_.errors.empty()) {
        has_result_.assign(static_cast<std::size_t>(batch_.lines), false);
        enter(BatchState::in_progress, moment.now);
    } else {
        batch_.lines = 0;
        enter(BatchState::failed, moment.now);
    }
    write(moment);
    return true;
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
    const std::int64_t room = options_.ahead - (batch_.next_line - ended());
    if (batch_.next_line == batch_.lines || room <= 0) return false;
    if (!input_) input_.emplace(open_input(batch_.next_byte));
    std::vector<BatchLine> slice;
    std::size_t bytes = 0;
    while (slice.size() < options_.slice_lines && std::ssize(slice) < room && bytes < options_.slice_bytes) {
        const auto line = input_->next();
        if (!line) break;
        const auto object = Json::parse(line->text);
        const Json* body = object ? object->find("body") : nullptr;
        slice.push_back(
            {.number = batch_.next_line++, .text = std::string(line->text), .model = body == nullptr ? "" : text_in(*body, "model")});
        bytes += line->text.size();
    }
    CHECK(!slice.empty() && batch_.next_line <= batch_.lines, "an input does not change");
    batch_.next_byte = input_->position();
    write(moment, std::move(slice));
    return true;
}

void BatchRun::store_part() {
    const std::string name = fmt::format("{}.{}", batch_.id, schema::draw_random_id());
    const auto part = store_.create(name);
    part->write(pending_);
    part->keep();
    batch_.parts.push_back(name);
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

void BatchRun::write_files(const Moment& moment) {
    const bool is_cancelled = batch_.since.contains(BatchState::cancelling);
    const bool is_whole = ended() == batch_.lines;
    auto output = batch_.output_file ? store_.create(*batch_.output_file) : nullptr;
    auto errors = batch_.error_file ? store_.create(*batch_.error_file) : nullptr;
    std::int64_t output_bytes = 0;
    std::int64_t error_bytes = 0;
    for (const std::string& part : batch_.parts) {
        LineReader rows(store_.open(part, 0), 0, row_bytes_max);
        while (const auto text = rows.next()) {
            const auto row = row_of(text->text);
            if (!row) continue;
            (row->is_success ? output : errors)->write(fmt::format("{}\n", row->result));
            (row->is_success ? output_bytes : error_bytes) += std::ssize(row->result) + 1;
        }
    }
    if (!is_whole) add_missing(*errors, is_cancelled ? schema::BatchFailure::cancelled : schema::BatchFailure::expired, error_bytes);
    std::vector<schema::FileRecord> files;
    const auto keep = [&](FileStore::Writer* writer, const std::optional<std::string>& id, const char* kind, std::int64_t bytes) {
        if (writer == nullptr) return;
        writer->keep();
        files.push_back({.id = *id,
                         .tenant = batch_.tenant,
                         .name = fmt::format("{}_{}.jsonl", batch_.id, kind),
                         .purpose = schema::FilePurpose::batch_output,
                         .bytes = bytes,
                         .created = seconds(moment.now)});
    };
    keep(output.get(), batch_.output_file, "output", output_bytes);
    keep(errors.get(), batch_.error_file, "error", error_bytes);
    batch_.failed = batch_.lines - batch_.succeeded;
    const std::vector<std::string> parts = std::exchange(batch_.parts, {});
    enter(is_cancelled ? BatchState::cancelled : is_whole ? BatchState::completed : BatchState::expired, moment.now);
    write(moment, {}, std::move(files));
    for (const std::string& part : parts) store_.remove(part);
}

// A row for each line without a result.
void BatchRun::add_missing(FileStore::Writer& errors, schema::BatchFailure failure, std::int64_t& bytes) {
    LineReader lines = open_input(0);
    for (std::size_t number = 0; number < has_result_.size(); ++number) {
        const auto line = lines.next();
        CHECK(line, "an input does not change");
        if (has_result_[number]) continue;
        const std::string row = missing_row(text_in(*Json::parse(line->text), "custom_id"), failure) + '\n';
        errors.write(row);
        bytes += std::ssize(row);
    }
}

}  // namespace lorry::consumer
