// The grammar of answers that must call a function, in the model's own format, with arguments that match the functions' schemas. Used by
// the preparer. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "consumer/answer/formats.h"
#include "engine/text/token.h"
#include "schema/job.h"

namespace lorry::consumer {

// The id of a text that is a special token of the model; nullopt: its tokenizer has no such token.
using FindSpecial = std::function<std::optional<engine::TokenId>(std::string_view)>;

// tools: at least one function. The error says what the format cannot express.
Expected<schema::Structure, std::string> call_structure(const CallFormat& format, const schema::ToolUse& tools,
                                                        const FindSpecial& find_special);

}  // namespace lorry::consumer
