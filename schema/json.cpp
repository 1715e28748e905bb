// Json's parser (nlohmann's SAX interface builds the tree) and writer.
#include "schema/json.h"

#include "schema/json_fault.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace lorry::schema {
namespace {

constexpr std::size_t depth_max = 100;

// Drops what leads up to `last` from a text that begins with `first`.
void drop_start(std::string_view& text, std::string_view first, std::string_view last) {
    const std::size_t end = text.starts_with(first) ? text.find(last) : text.npos;
    if (end != text.npos) text.remove_prefix(end + last.size());
}

// Keeps the last member of each name, in the place of the first. A body may have many members whose names were chosen to collide in a
// hash table; sorting costs the same for all names.
void drop_repeated_keys(Json::Object& members) {
    if (members.size() < 2) return;
    // Stable: equal names become neighbours in the order of the text.
    std::vector<std::size_t> by_name(members.size());
    std::iota(by_name.begin(), by_name.end(), std::size_t{0});
    std::ranges::sort(by_name, {}, [&](std::size_t i) { return std::pair(std::string_view(members[i].first), i); });
    std::vector<bool> repeated;
    for (std::size_t k = 1, first = by_name[0]; k < by_name.size(); ++k) {
        const std::size_t i = by_name[k];
        if (members[i].first != members[first].first) {
            first = i;
            continue;
        }
        members[first].second = std::move(members[i].second);
        repeated.resize(members.size());
        repeated[i] = true;
    }
    if (repeated.empty()) return;
    std::size_t i = 0;
    std::erase_if(members, [&](const Json::Member&) { return repeated[i++]; });
}

// The shortest text that reads back equal. It reads back as a real: templates print 1 and 1.0 differently.
std::string text_of(double value) {
    CHECK(std::isfinite(value), "JSON has no infinities and no NaN");
    char digits[32];
    std::string text(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

// Receives nlohmann's events and builds the tree. Open containers are kept by value and moved into their parent at their end.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
public:
    bool null() override { return add(Json()); }
    bool boolean(bool value) override { return add(Json(value)); }
    bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
    bool number_unsigned(number_unsigned_t value) override { return add(Json(std::uint64_t{value})); }
    bool number_float(number_float_t value, const string_t& text) override {
        return add(text == text_of(value) ? Json(value) : Json(Numeral{text}));
    }
    bool string(string_t& value) override { return add(Json(std::move(value))); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(Json::Object()); }
    bool end_object() override {
        auto members = std::get<Json::Object>(std::move(open_.back().members));
        drop_repeated_keys(members);
        return close(Json(std::move(members)));
    }
    bool start_array(std::size_t) override { return open(Json::Array()); }
    bool end_array() override { return close(Json(std::get<Json::Array>(std::move(open_.back().members)))); }
    bool key(string_t& value) override {
        open_.back().key = std::move(value);
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
        // nlohmann's text begins with an exception number, which means nothing to users. Nor does the number of line 1: a text of one line
        // is often a line of a file, whose own number the caller adds. What it quotes is left out: texts may hold prompts and secrets, and
        // errors go to logs.
        std::string_view text = error.what();
        drop_start(text, "[", "] ");
        drop_start(text, "parse error at line 1,", ": ");
        for (const std::string_view quote : {"; last read: '", " parsing '"}) text = text.substr(0, text.find(quote));
        error_ = text;
        byte_ = position;
        error_ += " (at byte " + std::to_string(position) + ")";
        return false;
    }

    Json root;
    const std::string& error() const { return error_; }
    // Where the text is wrong; nullopt: it is nested too deeply.
    std::optional<std::size_t> byte() const { return byte_; }

private:
    struct Container {
        std::variant<Json::Object, Json::Array> members;
        std::string key;  // of the member to come; unused in arrays
    };

    bool open(std::variant<Json::Object, Json::Array> members) {
        if (open_.size() == depth_max) {
            error_ = "nested deeper than " + std::to_string(depth_max) + " levels";
            return false;
        }
        open_.push_back({.members = std::move(members), .key = {}});
        return true;
    }
    bool close(Json done) {
        open_.pop_back();
        return add(std::move(done));
    }
    bool add(Json value) {
        if (open_.empty()) {
            root = std::move(value);
        } else if (auto* object = std::get_if<Json::Object>(&open_.back().members)) {
            object->emplace_back(std::move(open_.back().key), std::move(value));
        } else {
            std::get<Json::Array>(open_.back().members).push_back(std::move(value));
        }
        return true;
    }

    std::vector<Container> open_;
    std::string error_;
    std::optional<std::size_t> byte_;
};

// The bytes before and after a place, whole characters on one line.
std::string excerpt(std::string_view text, std::size_t place) {
    constexpr std::size_t before = 24;
    constexpr std::size_t after = 16;
    const auto is_inside = [&](std::size_t at) {
        return at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    };
    std::size_t begin = std::min(place, text.size()) - std::min({place, text.size(), before});
    std::size_t end = std::min(text.size(), place + after);
    while (is_inside(begin)) --begin;
    while (is_inside(end)) ++end;
    std::string part = repair_utf8(text.substr(begin, end - begin));
    std::ranges::replace_if(
        part, [](char each) { return static_cast<unsigned char>(each) < ' '; }, ' ');
    return (begin > 0 ? "…" : "") + part + (end < text.size() ? "…" : "");
}

// Keeps one string member of the outermost object and skips everything else.
class MemberScanner : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit MemberScanner(std::string_view key) : key_(key) {}

    bool null() override { return other(); }
    bool boolean(bool) override { return other(); }
    bool number_integer(number_integer_t) override { return other(); }
    bool number_unsigned(number_unsigned_t) override { return other(); }
    bool number_float(number_float_t, const string_t&) override { return other(); }
    bool string(string_t& value) override {
        if (depth_ == 1 && matches_) found = std::move(value);
        return depth_ > 0;
    }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override {
        other();
        ++depth_;
        return true;
    }
    bool end_object() override {
        --depth_;
        return true;
    }
    bool start_array(std::size_t) override {
        other();
        return depth_++ > 0;  // an outermost array has no members
    }
    bool end_array() override { return end_object(); }
    bool key(string_t& value) override {
        if (depth_ == 1) matches_ = value == key_;
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

    std::optional<std::string> found;

private:
    // The last of equal keys wins here too, even if it is not a string.
    bool other() {
        if (depth_ == 1 && matches_) found.reset();
        return depth_ > 0;
    }

    std::string_view key_;
    std::size_t depth_ = 0;
    bool matches_ = false;
};

// Nearly all bytes need no escape: they are copied run by run.
void write_string(std::string_view text, std::string& out) {
    CHECK(is_valid_utf8(text), "JSON strings are UTF-8; repair the text before it is written");
    static constexpr char hex[] = "0123456789abcdef";
    out += '"';
    std::size_t run = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
        out += text.substr(run, i - run);
        run = i + 1;
        switch (text[i]) {
            case '"': out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            case '\b': out += "\\b"; break;
            case '\f': out += "\\f"; break;
            default:
                out += "\\u00";
                out += hex[byte >> 4];
                out += hex[byte & 15];
        }
    }
    out += text.substr(run);
    out += '"';
}

void write(const Json& value, std::string& out) {
    if (const auto* object = value.as_object()) {
        char separator = '{';
        for (const auto& [key, member] : *object) {
            out += separator;
            separator = ',';
            write_string(key, out);
            out += ':';
            write(member, out);
        }
        if (object->empty()) out += '{';
        out += '}';
    } else if (const auto* array = value.as_array()) {
        char separator = '[';
        for (const auto& element : *array) {
            out += separator;
            separator = ',';
            write(element, out);
        }
        if (array->empty()) out += '[';
        out += ']';
    } else if (const auto* text = value.as_string()) {
        write_string(*text, out);
    } else if (const auto boolean = value.as_bool()) {
        out += *boolean ? "true" : "false";
    } else if (value.is_integer()) {
        out += std::to_string(*value.as_integer());
    } else if (const auto* numeral = value.as_numeral()) {
        out += numeral->text;
    } else if (const auto number = value.as_number()) {
        out += text_of(*number);
    } else {
        out += "null";
    }
}

}  // namespace

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        value_ = static_cast<std::int64_t>(value);
    } else {
        value_ = Numeral{std::to_string(value)};
    }
}

Expected<Json, std::string> Json::parse(std::string_view text) {
    TreeBuilder builder;
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return unexpected(builder.error());
    return std::move(builder.root);
}

std::optional<JsonFault> find_json_fault(std::string_view text) {
    TreeBuilder builder;
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder) || !builder.byte()) return std::nullopt;
    return JsonFault{.error = builder.error(), .byte = *builder.byte(), .around = excerpt(text, *builder.byte() - 1)};
}

std::optional<std::string> scan_string_member(std::string_view text, std::string_view key) {
    MemberScanner scanner(key);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &scanner)) return std::nullopt;
    return std::move(scanner.found);
}

std::optional<bool> Json::as_bool() const {
    const bool* value = std::get_if<bool>(&value_);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::int64_t> Json::as_integer() const {
    if (const auto* integer = std::get_if<std::int64_t>(&value_)) return *integer;
    constexpr double limit = 9007199254740992.0;  // 2^53: every integer below has its own double
    const auto real = as_number();
    if (!real || std::abs(*real) >= limit || *real != std::trunc(*real)) return std::nullopt;
    return static_cast<std::int64_t>(*real);
}

std::optional<double> Json::as_number() const {
    if (const auto* integer = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*integer);
    if (const auto* real = std::get_if<double>(&value_)) return *real;
    if (const auto* numeral = as_numeral()) {
        double value = 0;
        std::from_chars(numeral->text.data(), numeral->text.data() + numeral->text.size(), value);
        return value;
    }
    return std::nullopt;
}

const Json* Json::find(std::string_view key) const {
    if (const auto* members = as_object()) {
        for (const auto& [name, value] : *members) {
            if (name == key) return &value;
        }
    }
    return nullptr;
}

void Json::set(std::string key, Json value) {
    if (is_null()) value_ = Object();
    auto* members = std::get_if<Object>(&value_);
    CHECK(members != nullptr, "only an object has members");
    for (auto& [name, old] : *members) {
        if (name == key) {
            old = std::move(value);
            return;
        }
    }
    members->emplace_back(std::move(key), std::move(value));
}

void Json::push(Json value) {
    if (is_null()) value_ = Array();
    auto* elements = std::get_if<Array>(&value_);
    CHECK(elements != nullptr, "only an array has elements");
    elements->push_back(std::move(value));
}

std::string Json::dump() const {
    std::string out;
    write(*this, out);
    return out;
}

const char* Json::kind() const {
    if (is_null()) return "null";
    if (is_bool()) return "boolean";
    if (is_integer() || (as_numeral() != nullptr && as_numeral()->text.find_first_of(".eE") == std::string::npos)) return "integer";
    if (is_number()) return "number";
    if (is_string()) return "string";
    return is_array() ? "array" : "object";
}

namespace {

// The length of the well-formed character at the start of `bytes`; 0: the first byte begins none.
std::size_t character_bytes(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || length > bytes.size()) return 0;
    // The second byte's range excludes overlong forms, surrogates and code points beyond U+10FFFF.
    const unsigned second = byte(1);
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (second < lowest || second > highest) return 0;
    for (std::size_t k = 2; k < length; ++k) {
        if ((byte(k) & 0xC0) != 0x80) return 0;
    }
    return length;
}

// The number of leading ASCII bytes, in whole words.
std::size_t ascii_bytes(std::string_view bytes) {
    std::size_t count = 0;
    for (std::uint64_t word = 0; count + sizeof word <= bytes.size(); count += sizeof word) {
        std::memcpy(&word, bytes.data() + count, sizeof word);
        if ((word & 0x8080808080808080U) != 0) break;
    }
    return count;
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
    for (;;) {
        bytes.remove_prefix(ascii_bytes(bytes));
        if (bytes.empty()) return true;
        const std::size_t length = character_bytes(bytes);
        if (length == 0) return false;
        bytes.remove_prefix(length);
    }
}

std::int64_t count_characters(std::string_view utf8) {
    return std::ranges::count_if(utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

std::string repair_utf8(std::string_view bytes) {
    if (is_valid_utf8(bytes)) return std::string(bytes);
    std::string out;
    out.reserve(bytes.size());
    while (!bytes.empty()) {
        const std::size_t length = character_bytes(bytes);
        out += length == 0 ? std::string_view("\uFFFD") : bytes.substr(0, length);
        bytes.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

}  // namespace lorry::schema
