// Makes reasoning, content and tool calls from the messages of GPT-OSS's format harmony, as an answer arrives. Used by answer_reader.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "consumer/answer/answer_plan.h"
#include "engine/text/harmony.h"

namespace lorry::consumer {

// One thread at a time.
class HarmonyAnswer {
public:
    // The plan outlives the answer.
    explicit HarmonyAnswer(const AnswerPlan& plan) : plan_(plan), messages_(plan.begin) {}

    // What became certain: a call once its message has ended. A call of no known function, or without an object of arguments, is text of
    // its channel. Texts of several messages are joined by line breaks, as in vLLM.
    AnswerParts push(std::string_view text);
    // The answer has ended: returns what was held back. was_cut: by a limit; a call without arguments then does not count as a call.
    AnswerParts finish(bool was_cut);

private:
    // What messages of one kind have said.
    struct Voice {
        bool has_spoken = false;
        bool in_message = false;  // it has spoken in this message
    };
    void take(const engine::HarmonyPart& part, AnswerParts& parts);
    void take_call(const engine::HarmonyPart& part, AnswerParts& parts);
    void add_text(bool is_thought, std::string_view text, AnswerParts& parts);
    bool is_call(const engine::HarmonyPart& part) const;

    const AnswerPlan& plan_;
    engine::HarmonyReader messages_;
    std::string arguments_;  // of the call whose message comes
    std::size_t calls_ = 0;
    bool was_cut_ = false;
    Voice reasoning_;
    Voice content_;
};

}  // namespace lorry::consumer
