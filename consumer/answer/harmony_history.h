// Earlier messages of a chat, in the form that GPT-OSS's own chat template takes. Used by answer_planner.h. Pure.
#pragma once

#include <string>
#include <string_view>

namespace lorry::consumer {

// Whether the template shows only the first call of a message, as GPT-OSS's does, because a message of harmony has only one. Such a
// template refuses a message that has a call, content and reasoning.
bool shows_one_call(std::string_view chat_template);

// messages: JSON, as the codec wrote them. A message with several calls becomes one for each, with the results of the call after it;
// content beside a call and its reasoning becomes the end of the reasoning, where the template puts it if it stands alone.
std::string with_one_call_each(const std::string& messages);

}  // namespace lorry::consumer
