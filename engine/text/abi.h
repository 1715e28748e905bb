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

// Value: TokenId or lorry_text_token.
template <typename Value>
lorry_text_sink sink_into(std::vector<Value>& out) {
    return {.context = &out, .write = [](void* context, const void* data, std::size_t size) noexcept {
                auto& values = *static_cast<std::vector<Value>*>(context);
                values.resize(size / sizeof(Value));
                if (size > 0) std::memcpy(values.data(), data, size);
            }};
}

}  // namespace lorry::engine::abi
