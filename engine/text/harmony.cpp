// Looks for marks, and keeps headers until their messages begin.
#include "engine/text/harmony.h"

#include <algorithm>
#include <utility>

namespace lorry::engine {
namespace {

constexpr std::string_view guard = "\uFDD0";
constexpr std::string_view header_space = " \t\r\n";
constexpr std::string_view recipient_mark = "to=";
constexpr std::string_view function_mark = "functions.";

std::string_view without_space(std::string_view text) { return text.substr(std::min(text.size(), text.find_first_not_of(header_space))); }

// Takes the first word off the text; empty: there is none.
std::string_view take_word(std::string_view& text) {
    text = without_space(text);
    const std::string_view word = text.substr(0, text.find_first_of(header_space));
    text.remove_prefix(word.size());
    return word;
}

// Of a header's words, the one that says who gets the message.
std::string_view recipient_in(std::string_view text) {
    for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
        if (word.starts_with(recipient_mark)) return word.substr(recipient_mark.size());
        if (word.starts_with(function_mark)) return word;
    }
    return {};
}

}  // namespace

std::string harmony_text_of(std::string_view mark) { return std::string(guard) + std::string(mark); }

HarmonyReader::HarmonyReader(ThoughtState begin) {
    if (begin == ThoughtState::undecided) return;
    in_message_ = true;
    message_ = {.is_thought = begin == ThoughtState::thinking, .begins = true};
}

std::vector<HarmonyPart> HarmonyReader::push(std::string_view text) {
    held_ += text;
    read(false);
    return std::exchange(parts_, {});
}

std::vector<HarmonyPart> HarmonyReader::finish() {
    read(true);
    end_message();
    return std::exchange(parts_, {});
}

ThoughtState HarmonyReader::state() const {
    if (!in_message_) return ThoughtState::undecided;
    return message_.is_thought && message_.function.empty() ? ThoughtState::thinking : ThoughtState::answering;
}

void HarmonyReader::read(bool final) {
    std::size_t at = 0;
    while (at < held_.size()) {
        const std::string_view rest = std::string_view(held_).substr(at);
        const std::size_t found = rest.find(guard);
        const std::size_t text = found != std::string_view::npos ? found : rest.size() - (final ? 0 : begun_mark(rest, guard));
        if (text > 0) take_text(rest.substr(0, text));
        at += text;
        if (found == std::string_view::npos) break;
        const std::size_t mark = read_mark(rest.substr(text), final);
        if (mark == 0) break;
        at += mark;
    }
    held_.erase(0, at);
}

// text: from the guard on. Returns its bytes that were read; 0: there may be a mark, if more text comes.
std::size_t HarmonyReader::read_mark(std::string_view text, bool final) {
    const std::string_view spelled = text.substr(guard.size());
    for (const std::string_view mark : harmony_marks) {
        if (!spelled.starts_with(mark)) continue;
        take_mark(mark);
        return guard.size() + mark.size();
    }
    const bool is_begun = std::ranges::any_of(harmony_marks, [&](std::string_view mark) { return mark.starts_with(spelled); });
    if (is_begun && !final) return 0;
    take_text(guard);
    return guard.size();
}

void HarmonyReader::take_mark(std::string_view mark) {
    if (mark == "<|message|>") {
        if (!in_message_) begin_message();
    } else if (mark == "<|constrain|>") {
        header_.has_type = true;
    } else if (mark == "<|channel|>") {
        if (in_message_) {
            end_message();
            begin_header(false);
        }
        header_.has_channel = true;
        header_.channel.clear();
    } else {
        end_message();
        begin_header(mark == "<|start|>");
    }
}

void HarmonyReader::take_text(std::string_view text) {
    if (in_message_) return add(text, false);
    if (header_.has_type) return;
    if (header_.has_channel) {
        header_.channel += text;
        return;
    }
    header_.role += text;
    if (header_.has_role) return;
    const std::string_view words = without_space(header_.role);
    if (words.starts_with(recipient_mark) || recipient_mark.starts_with(words)) return;
    in_message_ = true;
    message_ = {.begins = true};
    add(header_.role, false);
}

void HarmonyReader::begin_header(bool has_role) { header_ = {.has_role = has_role}; }

void HarmonyReader::begin_message() {
    std::string_view channel = header_.channel;
    message_ = {.is_thought = take_word(channel) == "analysis", .begins = true};
    if (recipient().starts_with(function_mark)) message_.function = recipient().substr(function_mark.size());
    in_message_ = true;
}

void HarmonyReader::end_message() {
    if (!in_message_) {
        const bool is_cut_off = header_.has_type || !recipient().empty();
        const std::string words(is_cut_off ? std::string_view() : words_after_name());
        if (words.empty()) return;
        begin_message();
        add(words, true);
    } else {
        add({}, true);
    }
    in_message_ = false;
    header_ = {};
}

void HarmonyReader::add(std::string_view text, bool ends) {
    HarmonyPart part = message_;
    part.text = text;
    part.ends = ends;
    parts_.push_back(std::move(part));
    message_.begins = false;
}

std::string_view HarmonyReader::words_after_name() const {
    std::string_view text = header_.has_channel ? header_.channel : header_.role;
    if (header_.has_channel || header_.has_role) take_word(text);
    return without_space(text);
}

std::string_view HarmonyReader::recipient() const {
    std::string_view role = header_.role;
    if (header_.has_role) take_word(role);
    const std::string_view found = recipient_in(role);
    return found.empty() ? recipient_in(header_.channel) : found;
}

}  // namespace lorry::engine
