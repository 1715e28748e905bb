// Looks for the marks of a format in a text that comes in pieces, and parses what follows them.
#include "consumer/answer/answer_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

namespace lorry::consumer {
AnswerReader::AnswerReader(const AnswerPlan& plan) : plan_(plan) {
    if (plan.form == AnswerForm::harmony) {
        messages_.emplace(plan);
        return;
    }
    if (plan.thought != nullptr) thought_.emplace(plan.thought->marks, plan.begin, plan.is_structured);
}

AnswerReader::Parts AnswerReader::push(std::string_view text) {
    if (messages_) return messages_->push(text);
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

AnswerReader::Parts AnswerReader::finish(bool was_cut) {
    if (messages_) return messages_->finish(was_cut);
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
    while (!rest().empty() && (mark_ ? read_calls(final, parts) : read_text(final, parts))) {
    }
    text_.erase(0, begin_);
    begin_ = 0;
}

// The first mark in the text, if there is one, with the place where it begins.
std::optional<AnswerReader::FoundMark> AnswerReader::find_mark() const {
    const auto& marks = plan_.calls->marks;
    const std::string_view text = rest();
    std::string letters;
    for (const CallMark& mark : marks) letters += mark.start.front();
    const bool may_begin = !has_content_ && calls_ == 0;
    const std::size_t words = may_begin ? text.find_first_not_of(answer_space) : std::string_view::npos;
    for (std::size_t at = text.find_first_of(letters); at != std::string_view::npos; at = text.find_first_of(letters, at + 1)) {
        for (std::size_t i = 0; i < marks.size(); ++i) {
            if (text.substr(at).starts_with(marks[i].start) && (!marks[i].begins_answer || at == words))
                return FoundMark{.mark = i, .place = at};
        }
    }
    return std::nullopt;
}

bool AnswerReader::read_text(bool final, Parts& parts) {
    std::size_t certain = rest().size();
    if (looks_for_calls()) {
        const auto found = find_mark();
        if (found) {
            mark_ = found->mark;
            certain = found->place;
        } else if (!final) {
            for (const CallMark& mark : plan_.calls->marks)
                certain = std::min(certain, rest().size() - engine::begun_mark(rest(), mark.start));
        }
    }
    add_content(rest().substr(0, certain), parts);
    begin_ += certain;
    next_attempt_ = 0;
    return mark_.has_value();
}

bool AnswerReader::read_calls(bool final, Parts& parts) {
    if (!final && rest().size() < next_attempt_) return false;
    const auto& marks = plan_.calls->marks;
    const std::string_view start = marks[*mark_].start;
    bool waits = false;
    // Several marks may start alike, and differ in what follows.
    for (std::size_t i = *mark_; i < marks.size(); ++i) {
        if (marks[i].start != start) continue;
        const std::size_t begin = marks[i].is_part_of_body ? 0 : start.size();
        ParsedCalls parsed = parse_calls(marks[i], rest().substr(begin), plan_.names, final);
        waits = waits || parsed.end == ParseEnd::incomplete;
        if (parsed.end != ParseEnd::complete) continue;
        if (!plan_.parallel && parsed.calls.size() > 1) continue;
        calls_ += parsed.calls.size();
        std::ranges::move(parsed.calls, std::back_inserter(parts.calls));
        begin_ += begin + parsed.consumed;
        mark_.reset();
        space_.clear();
        return true;
    }
    if (waits) {
        constexpr std::size_t growth = 16;
        next_attempt_ = rest().size() + rest().size() / growth;
        return false;
    }
    add_content(start, parts);
    begin_ += start.size();
    mark_.reset();
    return true;
}

void AnswerReader::add_content(std::string_view text, Parts& parts) {
    if (has_content_ && calls_ == 0) {
        parts.content += text;
        return;
    }
    // After a call, white space at the end is held back as well: another call, or the end, drops it.
    const std::size_t end = text.find_last_not_of(answer_space) + 1;  // 0: it is all white space
    const std::size_t certain = end == 0 || calls_ > 0 ? end : text.size();
    if (certain > 0) {
        parts.content += std::exchange(space_, {});
        parts.content += text.substr(0, certain);
        has_content_ = true;
    }
    space_ += text.substr(certain);
}

std::string call_id(const CallFormat& format, std::string_view body_id, std::int32_t choice, std::size_t call) {
    const std::string place = fmt::format("{}/{}/{}", body_id, choice, call);
    const XXH128_hash_t hash = XXH3_128bits(place.data(), place.size());
    return std::string(format.id_prefix) + fmt::format("{:016x}{:016x}", hash.high64, hash.low64).substr(0, format.id_digits);
}

}  // namespace lorry::consumer
