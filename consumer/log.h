// Logging through spdlog's default logger. The functions are Lorry's own, because spdlog's would compile all of fmt's formatting in each
// file that calls them. Called by consumer/ and ops/. Any thread.
#pragma once

#include <chrono>
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

// Paces a message that would otherwise be logged again and again. One thread.
class LogPace {
public:
    explicit LogPace(std::chrono::steady_clock::duration interval) : interval_(interval) {}
    // True the first time, and again once the interval has passed.
    bool is_due() {
        if (std::chrono::steady_clock::now() < next_) return false;
        restart();
        return true;
    }
    // The next message is due after the interval.
    void restart() { next_ = std::chrono::steady_clock::now() + interval_; }

private:
    std::chrono::steady_clock::duration interval_;
    std::chrono::steady_clock::time_point next_;
};

}  // namespace lorry::consumer
