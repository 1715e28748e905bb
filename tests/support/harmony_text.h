// Texts of the harmony format as the engine writes them. Used by tests of engine/ and consumer/.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/harmony.h"

namespace lorry::tests {

// What the engine makes of special tokens: `written` spells them.
inline std::string harmony_text(std::string_view written) {
    std::string text;
    while (!written.empty()) {
        std::string_view found;
        for (const std::string_view mark : engine::harmony_marks) {
            if (written.starts_with(mark)) found = mark;
        }
        text += found.empty() ? std::string(1, written.front()) : engine::harmony_text_of(found);
        written.remove_prefix(found.empty() ? 1 : found.size());
    }
    return text;
}

}  // namespace lorry::tests
