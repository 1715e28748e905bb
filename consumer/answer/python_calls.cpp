// A parser by recursive descent.
#include "consumer/answer/python_calls.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr int depth_max = 64;

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

class Reader {
public:
    explicit Reader(std::string_view text) : text_(text) {}

    PythonCalls read() {
        PythonCalls read;
        if (!take('[')) return {};
        while (true) {
            auto one = call();
            if (!one) return {.incomplete = at_ >= text_.size(), .calls = {}, .consumed = 0};
            read.calls.push_back(std::move(*one));
            if (take(']')) break;
            if (!take(',')) return {.incomplete = at_ >= text_.size(), .calls = {}, .consumed = 0};
        }
        read.consumed = at_;
        return read;
    }

private:
    void skip_space() { at_ = std::min(text_.size(), text_.find_first_not_of(" \t\r\n", at_)); }
    bool take(char c) {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    std::string word() {
        skip_space();
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::optional<PythonCall> call() {
        PythonCall read{.name = word(), .arguments = Json(Json::Object())};
        if (read.name.empty() || !take('(')) return std::nullopt;
        if (take(')')) return read;
        while (true) {
            const std::string name = word();
            if (name.empty() || !take('=')) return std::nullopt;
            auto argument = value(0);
            if (!argument) return std::nullopt;
            read.arguments.set(name, std::move(*argument));
            if (take(')')) return read;
            if (!take(',')) return std::nullopt;
        }
    }

    std::optional<Json> value(int depth) {
        skip_space();
        if (at_ >= text_.size() || depth > depth_max) return std::nullopt;
        switch (text_[at_]) {
            case '"':
            case '\'': return string();
            case '[': return list(depth);
            case '{': return dictionary(depth);
            default: return scalar();
        }
    }

    std::optional<Json> scalar() {
        const std::size_t begin = at_;
        while (at_ < text_.size() && (is_name_character(text_[at_]) || text_[at_] == '+')) ++at_;
        if (at_ >= text_.size()) return std::nullopt;  // it may go on
        const std::string_view word = text_.substr(begin, at_ - begin);
        if (word == "True") return Json(true);
        if (word == "False") return Json(false);
        if (word == "None") return Json();
        auto json = Json::parse(word);
        if (!json) {
            at_ = begin;
            return std::nullopt;
        }
        return std::move(*json);
    }

    std::optional<Json> list(int depth) {
        Json read = Json(Json::Array());
        ++at_;
        if (take(']')) return read;
        while (true) {
            auto element = value(depth + 1);
            if (!element) return std::nullopt;
            read.push(std::move(*element));
            if (take(']')) return read;
            if (!take(',')) return std::nullopt;
        }
    }

    std::optional<Json> dictionary(int depth) {
        Json read = Json(Json::Object());
        ++at_;
        if (take('}')) return read;
        while (true) {
            auto key = value(depth + 1);
            if (!key || !key->is_string() || !take(':')) return std::nullopt;
            auto member = value(depth + 1);
            if (!member) return std::nullopt;
            read.set(*key->as_string(), std::move(*member));
            if (take('}')) return read;
            if (!take(',')) return std::nullopt;
        }
    }

    // As JSON, but for the quotes that Python allows.
    std::optional<Json> string() {
        const char quote = text_[at_];
        std::string json = "\"";
        for (std::size_t i = at_ + 1; i < text_.size(); ++i) {
            const char c = text_[i];
            if (c == quote) {
                auto read = Json::parse(json + '"');
                if (!read) return std::nullopt;
                at_ = i + 1;
                return std::move(*read);
            }
            if (c == '\\' && i + 1 < text_.size()) {
                const char escaped = text_[++i];
                json += escaped == '\'' ? "'" : std::string{'\\', escaped};
            } else if (c == '"') {
                json += "\\\"";
            } else if (static_cast<unsigned char>(c) < ' ') {  // JSON has them as escapes only
                json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
            } else {
                json += c;
            }
        }
        at_ = text_.size();
        return std::nullopt;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

PythonCalls read_python_calls(std::string_view text) { return Reader(text).read(); }

}  // namespace lorry::consumer
