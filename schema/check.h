// CHECK for Lorry's own mistakes and Expected for a bad job: two of the three kinds of failure (the third, a bad world, is an exception).
// Included by every layer.
#pragma once

#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace lorry {

// A value, or the reason why it is missing. Bad input is a value, never an exception.
template <typename T, typename E>
using Expected = tl::expected<T, E>;

template <typename E>
tl::unexpected<std::decay_t<E>> unexpected(E&& error) {
    return tl::unexpected<std::decay_t<E>>(std::forward<E>(error));
}

// Prints the condition, its place and the reason to stderr and aborts. On in every build.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view why);

}  // namespace lorry

#define CHECK(condition, why)                                           \
    do {                                                                \
        if (!(condition)) [[unlikely]]                                  \
            ::lorry::check_failed(#condition, __FILE__, __LINE__, why); \
    } while (false)
