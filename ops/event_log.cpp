// The formatters that make plain or JSON lines of what spdlog is given.
#include "ops/event_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "ops/printable.h"

namespace lorry::ops {
namespace {

// Marks an event's JSON, so that a message that begins with a brace is not taken for one.
constexpr std::string_view event_mark = "\x01";

std::string_view text_of(const spdlog::details::log_msg& message) { return {message.payload.data(), message.payload.size()}; }

class PlainLines final : public spdlog::formatter {
public:
    void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
        fmt::format_to(std::back_inserter(out), "lorry: {}\n", printable(text_of(message)));
    }
    std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<PlainLines>(); }
};

class JsonLines final : public spdlog::formatter {
public:
    void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
        const std::string_view text = text_of(message);
        const auto since_epoch = message.time.time_since_epoch();
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
        const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch - seconds);
        const auto level = spdlog::level::to_string_view(message.level);
        std::string line;
        const auto to = std::back_inserter(line);
        fmt::format_to(to, R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03d}Z","level":"{}",)", fmt::gmtime(seconds.count()), millis.count(),
                       std::string_view(level.data(), level.size()));
        if (text.starts_with(event_mark)) {
            fmt::format_to(to, "{}", text.substr(event_mark.size() + 1));  // without the object's own brace
        } else {
            fmt::format_to(to, "\"event\":\"message\",\"message\":{}}}", schema::Json(schema::repair_utf8(text)).dump());
        }
        fmt::format_to(std::back_inserter(out), "{}\n", printable(line, ""));
    }
    std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLines>(); }
};

void log(spdlog::level::level_enum level, const char* event, schema::Json::Object members) {
    members.emplace(members.begin(), "event", event);
    spdlog::log(level, "{}{}", event_mark, schema::Json(std::move(members)).dump());
}

}  // namespace

void start_plain_log() {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("plain"));
    spdlog::set_formatter(std::make_unique<PlainLines>());
    spdlog::set_level(spdlog::level::err);
}

void start_event_log(const std::string& level) {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("lorry"));
    spdlog::set_formatter(std::make_unique<JsonLines>());
    spdlog::set_level(spdlog::level::from_str(level == "error" ? "err" : level));
}

void log_event(const char* event, schema::Json::Object members) { log(spdlog::level::info, event, std::move(members)); }
void log_warning(const char* event, schema::Json::Object members) { log(spdlog::level::warn, event, std::move(members)); }

}  // namespace lorry::ops
