// One parser for each CallBody.
#include "consumer/answer/call_parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "consumer/answer/python_calls.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using schema::Json;

std::size_t skip_space(std::string_view text, std::size_t from) {
    return std::min(text.size(), text.find_first_not_of(answer_space, from));
}

// Models were taught one name of the arguments, and write the other one at times.
constexpr std::array<std::string_view, 5> members_of_calls{"name", "arguments", "parameters", "id", "type"};

// Finds the end of a JSON object or array by its structure; numbers, words and escapes are left to the parser. It stops at the first
// character that JSON cannot have there: where marks follow each other, each is left after a few characters, not after the whole text.
class JsonScanner {
public:
    struct End {
        ParseEnd kind = ParseEnd::failed;
        std::size_t place = 0;  // complete: past the value
    };

    // text: begins with its bracket.
    static End scan(std::string_view text) { return JsonScanner(text).run(); }

private:
    enum class Next : std::uint8_t { value, value_or_end, key, key_or_end, colon, comma_or_end };

    explicit JsonScanner(std::string_view text) : text_(text) {}

    End run() {
        while (true) {
            at_ = skip_space(text_, at_);
            if (at_ == text_.size()) return {.kind = ParseEnd::incomplete};
            if (!step(text_[at_])) return {};
            if (open_.empty()) return {.kind = ParseEnd::complete, .place = at_};
        }
    }

    // False if it cannot come here.
    bool step(char c) {
        const bool takes_value = next_ == Next::value || next_ == Next::value_or_end;
        switch (c) {
            case '"': return string();
            case '{':
            case '[':
                if (!takes_value) return false;
                open_ += c;
                next_ = c == '{' ? Next::key_or_end : Next::value_or_end;
                break;
            case '}':
            case ']':
                if (open_.empty() || open_.back() != (c == '}' ? '{' : '[')) return false;
                if (next_ != Next::comma_or_end && next_ != (c == '}' ? Next::key_or_end : Next::value_or_end)) return false;
                open_.pop_back();
                next_ = Next::comma_or_end;
                break;
            case ',':
                if (next_ != Next::comma_or_end) return false;
                next_ = open_.back() == '{' ? Next::key : Next::value;
                break;
            case ':':
                if (next_ != Next::colon) return false;
                next_ = Next::value;
                break;
            default: return takes_value && word();
        }
        ++at_;
        return true;
    }

    // To its end, or that of the text.
    bool string() {
        if (next_ == Next::colon || next_ == Next::comma_or_end) return false;
        const bool is_key = next_ == Next::key || next_ == Next::key_or_end;
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\') ++at_;
        }
        at_ = std::min(at_ + 1, text_.size());
        next_ = is_key ? Next::colon : Next::comma_or_end;
        return true;
    }

    // A number, true, false or null.
    bool word() {
        const std::size_t end = std::min(text_.find_first_not_of("+-.0123456789Eaeflnrstu", at_), text_.size());
        if (end == at_) return false;
        at_ = end;
        next_ = Next::comma_or_end;
        return true;
    }

    const std::string_view text_;
    std::size_t at_ = 0;
    Next next_ = Next::value;
    std::string open_;  // brackets
};

// A reader of one text after its mark.
class Parser {
public:
    Parser(std::string_view text, std::span<const std::string> names, bool final) : text_(text), names_(names), final_(final) {}

    ParsedCalls object() {
        const auto value = json('{');
        if (!value || !add(*value)) return stopped();
        return done();
    }

    ParsedCalls objects() {
        while (true) {
            const auto value = json('{');
            if (!value || !add(*value)) return parsed_.calls.empty() || waits_ ? stopped() : done();
            parsed_.consumed = at_;
            at_ = skip_space(text_, at_);
            if (at_ == text_.size() && !final_) return waiting();
            if (at_ == text_.size() || text_[at_] != ';') return done();
            ++at_;
        }
    }

    ParsedCalls array() {
        const auto value = json('[');
        if (!value) return stopped();
        for (const Json& call : *value->as_array()) {
            if (!add(call)) return {};
        }
        return parsed_.calls.empty() ? ParsedCalls() : done();
    }

    ParsedCalls named() {
        constexpr std::string_view id_mark = "[CALL_ID]";
        constexpr std::string_view separator = "[ARGS]";
        const std::size_t begin = skip_space(text_, 0);
        const std::size_t end = std::min(text_.find_first_of("[{ \t\r\n", begin), text_.size());
        const std::string name(text_.substr(begin, end - begin));
        if (end == text_.size()) return final_ ? ParsedCalls() : waiting();
        if (!is_function(name)) return {};
        at_ = skip_space(text_, end);
        const auto waits_for = [&](std::string_view mark) { return mark.starts_with(text_.substr(at_)) && !final_; };
        if (waits_for(id_mark)) return waiting();
        if (text_.substr(at_).starts_with(id_mark)) {
            // Calls get ids of their own.
            at_ = std::min(text_.find_first_of("[{", at_ + id_mark.size()), text_.size());
        }
        if (waits_for(separator)) return waiting();
        if (text_.substr(at_).starts_with(separator)) at_ += separator.size();
        const auto arguments = json('{');
        if (!arguments) return stopped();
        parsed_.calls.push_back({.name = name, .arguments = arguments->dump()});
        return done();
    }

    ParsedCalls python() {
        at_ = skip_space(text_, 0);
        if (at_ == text_.size()) return final_ ? ParsedCalls() : waiting();
        auto read = read_python_calls(text_.substr(at_));
        if (read.incomplete && !final_) return waiting();
        if (read.calls.empty()) return {};
        for (const PythonCall& call : read.calls) {
            if (!is_function(call.name)) return {};
            parsed_.calls.push_back({.name = call.name, .arguments = call.arguments.dump()});
        }
        at_ += read.consumed;
        return done();
    }

private:
    bool is_function(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }

    // The value that begins with this bracket, past white space.
    std::optional<Json> json(char bracket) {
        at_ = skip_space(text_, at_);
        if (at_ == text_.size()) {
            waits_ = !final_;
            return std::nullopt;
        }
        if (text_[at_] != bracket) return std::nullopt;
        const JsonScanner::End end = JsonScanner::scan(text_.substr(at_));
        waits_ = end.kind == ParseEnd::incomplete && !final_;
        if (end.kind != ParseEnd::complete) return std::nullopt;
        auto value = Json::parse(text_.substr(at_, end.place));
        if (!value) return std::nullopt;
        at_ += end.place;
        return std::move(*value);
    }

    // False if the value is no call of a function, or has more than a call: nothing that the model wrote may be lost.
    bool add(const Json& value) {
        const Json* name = value.find("name");
        if (name == nullptr || !name->is_string() || !is_function(*name->as_string())) return false;
        const Json* arguments = nullptr;
        for (const auto& [key, member] : *value.as_object()) {
            if (std::ranges::find(members_of_calls, key) == members_of_calls.end()) return false;
            if ((key != "arguments" && key != "parameters") || member.is_null()) continue;
            if (arguments != nullptr || !member.is_object()) return false;
            arguments = &member;
        }
        parsed_.calls.push_back({.name = *name->as_string(), .arguments = arguments != nullptr ? arguments->dump() : "{}"});
        return true;
    }

    static ParsedCalls waiting() { return {.end = ParseEnd::incomplete, .calls = {}, .consumed = 0}; }
    ParsedCalls stopped() const { return waits_ ? waiting() : ParsedCalls(); }
    ParsedCalls done() {
        parsed_.end = ParseEnd::complete;
        if (parsed_.consumed == 0) parsed_.consumed = at_;
        return std::move(parsed_);
    }

    const std::string_view text_;
    const std::span<const std::string> names_;
    const bool final_;
    std::size_t at_ = 0;
    bool waits_ = false;  // for more text
    ParsedCalls parsed_;
};

ParsedCalls parse_body(CallBody body, Parser parser) {
    switch (body) {
        case CallBody::object: return parser.object();
        case CallBody::objects: return parser.objects();
        case CallBody::array: return parser.array();
        case CallBody::named: return parser.named();
        case CallBody::python: return parser.python();
    }
    return {};
}

}  // namespace

ParsedCalls parse_calls(const CallMark& mark, std::string_view text, std::span<const std::string> names, bool final) {
    ParsedCalls parsed = parse_body(mark.body, Parser(text, names, final));
    if (parsed.end != ParseEnd::complete || mark.end.empty()) return parsed;
    const std::size_t end = skip_space(text, parsed.consumed);
    const std::string_view rest = text.substr(end);
    if (rest.starts_with(mark.end)) {
        parsed.consumed = end + mark.end.size();
    } else if (mark.end.starts_with(rest) && !final) {
        return {.end = ParseEnd::incomplete, .calls = {}, .consumed = 0};
    }
    return parsed;
}

}  // namespace lorry::consumer
