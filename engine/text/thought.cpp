// Looks for marks in a text that comes in pieces.
#include "engine/text/thought.h"

#include <algorithm>

namespace lorry::engine {
std::size_t begun_mark(std::string_view text, std::string_view mark) {
    for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
        if (text.ends_with(mark.substr(0, length))) return length;
    }
    return 0;
}

ThoughtReader::Parts ThoughtReader::push(std::string_view text) {
    if (messages_) return parts_of(messages_->push(text));
    Parts parts;
    held_ += text;
    if (state_ == ThoughtState::undecided) decide(parts);
    if (state_ == ThoughtState::thinking) think(parts);
    if (state_ == ThoughtState::answering) answer(parts);
    return parts;
}

ThoughtReader::Parts ThoughtReader::finish() {
    if (messages_) return parts_of(messages_->finish());
    Parts parts;
    if (state_ == ThoughtState::thinking) {
        held_.resize(std::min(held_.size(), held_.find_last_not_of(thought_space) + 1));
        parts.thought = std::move(held_);
    } else {
        parts.answer = thought_ && !has_words_ && !is_structured_ ? std::string() : std::move(held_);
    }
    held_.clear();
    return parts;
}

ThoughtReader::Parts ThoughtReader::parts_of(const std::vector<HarmonyPart>& messages) {
    Parts parts;
    for (const HarmonyPart& part : messages) (part.is_thought && part.function.empty() ? parts.thought : parts.answer) += part.text;
    state_ = messages_->state();
    return parts;
}

void ThoughtReader::decide(Parts& parts) {
    const std::size_t first = held_.find_first_not_of(thought_space, spaces_);
    spaces_ = std::min(held_.size(), first);
    if (first == std::string::npos) return;
    const std::string_view written = std::string_view(held_).substr(first);
    if (written.starts_with(marks_.start)) {
        held_.erase(0, first + marks_.start.size());
        spaces_ = 0;
        state_ = ThoughtState::thinking;
    } else if (!marks_.start.starts_with(written)) {
        state_ = ThoughtState::answering;
        has_words_ = true;  // white space before it is its own
        parts.answer = std::move(held_);
        held_.clear();
    }
}

void ThoughtReader::think(Parts& parts) {
    thought_ = true;
    if (!has_words_) {
        held_.erase(0, std::min(held_.size(), held_.find_first_not_of(thought_space)));
        spaces_ = 0;
    }
    const std::size_t end = held_.find(marks_.end, spaces_);
    const std::size_t certain = end == std::string::npos ? held_.size() - begun_mark(held_, marks_.end) : end;
    // White space at the end of what is certain may be that before the end mark.
    const std::size_t last = std::string_view(held_).substr(spaces_, certain - spaces_).find_last_not_of(thought_space);
    const std::size_t words = last == std::string_view::npos ? 0 : spaces_ + last + 1;
    has_words_ = has_words_ || words > 0;
    parts.thought += held_.substr(0, words);
    if (end == std::string::npos) {
        held_.erase(0, words);
        spaces_ = certain - words;
        return;
    }
    held_.erase(0, end + marks_.end.size());
    state_ = ThoughtState::answering;
    has_words_ = false;
}

void ThoughtReader::answer(Parts& parts) {
    if (thought_ && !has_words_ && !is_structured_) {
        held_.erase(0, std::min(held_.size(), held_.find_first_not_of(thought_space)));
        has_words_ = !held_.empty();
    }
    parts.answer += held_;
    held_.clear();
}

}  // namespace lorry::engine
