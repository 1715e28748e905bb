// Turns the deltas of chunks into lines for `lorry tail`.
#include "ops/client/chunk_printer.h"

#include <fmt/format.h>

namespace lorry::ops {
namespace {

const schema::Json* element(const schema::Json* array, std::size_t index) {
    const auto* elements = array == nullptr ? nullptr : array->as_array();
    return elements == nullptr || index >= elements->size() ? nullptr : &(*elements)[index];
}

const schema::Json* member(const schema::Json* object, std::string_view key) { return object == nullptr ? nullptr : object->find(key); }

std::string text_at(const schema::Json* value) {
    const std::string* text = value == nullptr ? nullptr : value->as_string();
    return text == nullptr ? std::string() : *text;
}

std::int64_t integer_at(const schema::Json* value) { return value == nullptr ? 0 : value->as_integer().value_or(0); }

}  // namespace

Expected<ChunkText, std::string> parse_chunk(std::string_view value) {
    const auto record = schema::Json::parse(value);
    if (!record) return unexpected("the chunk is not JSON: " + record.error());
    const schema::Json* chunk = record->find("chunk");
    if (chunk == nullptr || !chunk->is_object()) return unexpected(std::string("the chunk has no field 'chunk'"));
    ChunkText text{.custom_id = text_at(record->find("custom_id")),
                   .attempt = integer_at(record->find("attempt")),
                   .seq = integer_at(record->find("seq")),
                   .choices = {}};
    const schema::Json* choices = chunk->find("choices");
    for (std::size_t i = 0; const schema::Json* choice = element(choices, i); ++i) {
        const schema::Json* delta = choice->find("delta");
        const schema::Json* reason = choice->find("finish_reason");
        text.choices.push_back({.index = integer_at(choice->find("index")),
                                .text = text_at(delta == nullptr ? choice->find("text") : member(delta, "content")),
                                .finished = reason != nullptr && !reason->is_null()});
    }
    return text;
}

std::string text_of_result(const schema::Json& line) {
    const schema::Json* body = member(line.find("response"), "body");
    if (const schema::Json* choice = element(member(body, "choices"), 0)) {
        const schema::Json* message = choice->find("message");
        return text_at(message == nullptr ? choice->find("text") : member(message, "content"));
    }
    return text_at(member(element(member(body, "data"), 0), "label"));
}

ChunkPrinter::ChunkPrinter(std::ostream& out, std::string live_job_id) : out_(out), live_job_id_(std::move(live_job_id)) {}

ChunkPrinter::Taken ChunkPrinter::take(const std::string& job_id, const ChunkText& chunk) {
    auto [place, is_new] = jobs_.try_emplace(job_id);
    Job& job = place->second;
    if (is_new) job.attempt = chunk.attempt;
    if (chunk.attempt < job.attempt) return Taken::old;
    const bool restarted = chunk.attempt > job.attempt;
    if (restarted) {
        job = {.attempt = chunk.attempt, .next_seq = 0, .open_lines = {}};
        if (live_line_open_ && job_id == live_job_id_) out_ << '\n';
        live_line_open_ = false;
    }
    if (chunk.seq < job.next_seq) return Taken::old;  // chunks are delivered at least once
    job.next_seq = chunk.seq + 1;
    for (const ChunkText::Choice& choice : chunk.choices) {
        const std::string& text = choice.text;
        if (job_id == live_job_id_ && choice.index == 0) {
            out_ << text << std::flush;
            if (!text.empty()) live_line_open_ = text.back() != '\n';
            continue;
        }
        std::string& open = job.open_lines[choice.index];
        open += text;
        // Other lines must not interrupt the live text.
        if (live_job_id_.empty()) write_lines(job_id, choice.index, open, choice.finished);
    }
    return restarted ? Taken::restarted : Taken::text;
}

void ChunkPrinter::write_lines(const std::string& job_id, std::int64_t choice, std::string& text, bool all) {
    const std::string name = choice == 0 ? job_id : fmt::format("{} ({})", job_id, choice);
    std::size_t end = 0;
    while ((end = text.find('\n')) != std::string::npos) {
        out_ << name << ": " << std::string_view(text).substr(0, end) << '\n';
        text.erase(0, end + 1);
    }
    if (all && !text.empty()) {
        out_ << name << ": " << text << '\n';
        text.clear();
    }
    out_ << std::flush;
}

bool ChunkPrinter::end(const std::string& job_id) {
    const auto place = jobs_.find(job_id);
    if (place == jobs_.end()) return false;
    if (job_id == live_job_id_ && live_line_open_) out_ << '\n' << std::flush;
    for (auto& [choice, text] : place->second.open_lines) write_lines(job_id, choice, text, true);
    jobs_.erase(place);
    return true;
}

}  // namespace lorry::ops
