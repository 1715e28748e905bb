// What is known about a chat's answers before they are generated, and the parts that they are divided into. Used by the readers of answers
// and by plan.h.
#pragma once

#include <string>
#include <vector>

#include "consumer/answer/call_parser.h"
#include "consumer/answer/formats.h"
#include "engine/text/thought.h"

namespace lorry::consumer {

// What a job's answers may consist of, beside content.
struct AnswerPlan {
    AnswerForm form = AnswerForm::text;
    const ThoughtFormat* thought = nullptr;  // nullptr: the model does not think, or its thoughts are content
    engine::ThoughtState begin = engine::ThoughtState::answering;
    bool is_structured = false;         // a grammar says what follows a thought
    const CallFormat* calls = nullptr;  // nullptr: none are looked for
    std::vector<std::string> names;     // of the functions that may be called
    bool parallel = true;               // what follows the first call is content otherwise
};

struct AnswerParts {
    std::string reasoning;
    std::string content;
    std::vector<FunctionCall> calls;
};

}  // namespace lorry::consumer
