// Looks for the marks of a format in a text that comes in pieces, and parses what follows them.
#include "consumer/answer/answer_reader.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

namespace lorry::consumer {
AnswerReader::AnswerReader(const AnswerPlan& plan) : plan_(plan) {
    if (plan.thought != nullptr) thought_.emplace(plan.thought->marks, plan.begin);
}

AnswerReader::Parts AnswerReader::push(std::string_view text) {
    Parts parts;
    std::string answer(text);
    if (thought_) {
        engine::ThoughtReader::Parts divided = thought_->push(text);
        parts.reasoning = std::move(divided.thought);
        answer = std::move(divided.answer);
    }
    read(std::move(answer), false, parts);
    return parts;
}

AnswerReader::Parts AnswerReader::finish() {
    Parts parts;
    std::string answer;
    if (thought_) {
        engine::ThoughtReader::Parts divided = thought_->finish();
        parts.reasoning = std::move(divided.thought);
        answer = std::move(divided.answer);
    }
    read(std::move(answer), true, parts);
    if (calls_ == 0) parts.content += space_;
    return parts;
}

void AnswerReader::read(std::string text, bool final, Parts& parts) {
    text_ += text;
    while (!text_.empty() && (mark_ ? read_calls(final, parts) : read_text(final, parts))) {
    }
}

bool AnswerReader::read_text(bool final, Parts& parts) {
    std::size_t certain = text_.size();
    if (looks_for_calls()) {
        const auto& marks = plan_.calls->marks;
        std::size_t first = std::string::npos;
        for (std::size_t i = 0; i < marks.size(); ++i) {
            const std::size_t found = text_.find(marks[i].start);
            const bool begins = !has_content_ && calls_ == 0 && found == std::min(text_.find_first_not_of(answer_space), text_.size());
            if (found < first && (!marks[i].begins_answer || begins)) {
                first = found;
                mark_ = i;
            }
            if (!final) certain = std::min(certain, text_.size() - engine::begun_mark(text_, marks[i].start));
        }
        if (mark_) certain = first;
    }
    add_content(std::string_view(text_).substr(0, certain), parts);
    text_.erase(0, certain);
    next_attempt_ = 0;
    return mark_.has_value();
}

bool AnswerReader::read_calls(bool final, Parts& parts) {
    if (!final && text_.size() < next_attempt_) return false;
    const auto& marks = plan_.calls->marks;
    const std::string_view start = marks[*mark_].start;
    bool waits = false;
    // Several marks may start alike, and differ in what follows.
    for (std::size_t i = *mark_; i < marks.size(); ++i) {
        if (marks[i].start != start) continue;
        const std::size_t begin = marks[i].is_part_of_body ? 0 : start.size();
        ParsedCalls parsed = parse_calls(*plan_.calls, marks[i], std::string_view(text_).substr(begin), plan_.names, final);
        waits = waits || parsed.end == ParseEnd::incomplete;
        if (parsed.end != ParseEnd::complete) continue;
        if (!plan_.parallel && parsed.calls.size() > 1) continue;
        calls_ += parsed.calls.size();
        std::ranges::move(parsed.calls, std::back_inserter(parts.calls));
        text_.erase(0, begin + parsed.consumed);
        mark_.reset();
        space_.clear();
        return true;
    }
    if (waits) {
        constexpr std::size_t growth = 16;
        next_attempt_ = text_.size() + text_.size() / growth;
        return false;
    }
    add_content(start, parts);
    text_.erase(0, start.size());
    mark_.reset();
    return true;
}

void AnswerReader::add_content(std::string_view text, Parts& parts) {
    if (has_content_ && calls_ == 0) {
        parts.content += text;
        return;
    }
    const std::size_t words = std::min(text.size(), text.find_first_not_of(answer_space));
    space_ += text.substr(0, words);
    if (words == text.size()) return;
    parts.content += space_;
    parts.content += text.substr(words);
    space_.clear();
    has_content_ = true;
}

std::string call_id(const CallFormat& format, std::string_view body_id, std::int32_t choice, std::size_t call) {
    const std::string place = fmt::format("{}/{}/{}", body_id, choice, call);
    const XXH128_hash_t hash = XXH3_128bits(place.data(), place.size());
    return std::string(format.id_prefix) + fmt::format("{:016x}{:016x}", hash.high64, hash.low64).substr(0, format.id_digits);
}

}  // namespace lorry::consumer
