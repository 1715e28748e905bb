// Sorts the parts of messages by what they are for a client.
#include "consumer/answer/harmony_answer.h"

#include <algorithm>
#include <utility>

#include "schema/json.h"

namespace lorry::consumer {

AnswerParts HarmonyAnswer::push(std::string_view text) {
    AnswerParts parts;
    for (const engine::HarmonyPart& part : messages_.push(text)) take(part, parts);
    return parts;
}

AnswerParts HarmonyAnswer::finish(bool was_cut) {
    AnswerParts parts;
    was_cut_ = was_cut;
    for (const engine::HarmonyPart& part : messages_.finish()) take(part, parts);
    return parts;
}

void HarmonyAnswer::take(const engine::HarmonyPart& part, AnswerParts& parts) {
    if (part.begins) reasoning_.in_message = content_.in_message = false;
    if (is_call(part)) return take_call(part, parts);
    add_text(part.is_thought, part.text, parts);
}

bool HarmonyAnswer::is_call(const engine::HarmonyPart& part) const {
    return plan_.calls != nullptr && (plan_.parallel || calls_ == 0) && std::ranges::find(plan_.names, part.function) != plan_.names.end();
}

void HarmonyAnswer::take_call(const engine::HarmonyPart& part, AnswerParts& parts) {
    arguments_ += part.text;
    if (!part.ends) return;
    const std::string written = std::exchange(arguments_, {});
    const bool is_empty = written.find_first_not_of(answer_space) == std::string::npos;
    const auto arguments = schema::Json::parse(is_empty && !was_cut_ ? "{}" : written);
    if (!arguments || !arguments->is_object()) return add_text(part.is_thought, written, parts);
    parts.calls.push_back({.name = part.function, .arguments = arguments->dump()});
    ++calls_;
}

void HarmonyAnswer::add_text(bool is_thought, std::string_view text, AnswerParts& parts) {
    if (text.empty()) return;
    const bool is_reasoning = is_thought && plan_.thought != nullptr;
    Voice& voice = is_reasoning ? reasoning_ : content_;
    std::string& out = is_reasoning ? parts.reasoning : parts.content;
    if (voice.has_spoken && !voice.in_message) out += '\n';
    out += text;
    voice = {.has_spoken = true, .in_message = true};
}

}  // namespace lorry::consumer
