// Logging through spdlog's default logger. The functions are Lorry's own, because spdlog's would compile all of fmt's formatting in each
// file that calls them. Called by consumer/ and ops/. Any thread.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lorry::consumer {

enum class LogLevel { debug, info, warning, error };

void log_text(LogLevel level, std::string_view text);

template <class... Arguments>
void log_at(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_text(level, fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void log_debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_at(LogLevel::debug, format, std::forward<Arguments>(arguments)...);
}
template <class... Arguments>
void log_info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_at(LogLevel::info, format, std::forward<Arguments>(arguments)...);
}
template <class... Arguments>
void log_warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_at(LogLevel::warning, format, std::forward<Arguments>(arguments)...);
}
template <class... Arguments>
void log_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_at(LogLevel::error, format, std::forward<Arguments>(arguments)...);
}

}  // namespace lorry::consumer
