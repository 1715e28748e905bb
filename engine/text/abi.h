// The C++ side of lorry_text.h: views of strings, and sinks that collect the results of a call. Included only by the .cpp files of
// engine/text.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/lorry_text.h"
#include "engine/text/token.h"

namespace lorry::engine::abi {

inline lorry_text_view view_of(std::string_view text) { return {.data = text.data(), .size = text.size()}; }

// The sink's function is noexcept, because an exception must not pass through Rust: running out of memory ends the program.
inline lorry_text_sink sink_into(std::string& out) {
    return {.context = &out, .write = [](void* context, const void* data, std::size_t size) noexcept {
                static_cast<std::string*>(context)->assign(static_cast<const char*>(data), size);
            }};
}

inline lorry_text_sink sink_into(std::vector<TokenId>& out) {
    return {.context = &out, .write = [](void* context, const void* data, std::size_t size) noexcept {
                auto& ids = *static_cast<std::vector<TokenId>*>(context);
                ids.resize(size / sizeof(TokenId));
                if (size > 0) std::memcpy(ids.data(), data, size);
            }};
}

}  // namespace lorry::engine::abi
