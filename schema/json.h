// A JSON value as a plain tree. Used by the codec, the readers of model files, ops/ and the tests. The parser is nlohmann's, which only
// json.cpp includes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schema/check.h"

namespace lorry::schema {

// A number as it was written, in JSON's notation, if an int64 or a double would write other digits: 18446744073709551615, 1.50, 1e3.
struct Numeral {
    std::string text;
};

class Json {
public:
    using Array = std::vector<Json>;
    using Member = std::pair<std::string, Json>;
    using Object = std::vector<Member>;  // in the order of the text; the last of equal keys wins at parse

    Json() noexcept = default;  // null
    // Not inline: g++ 12 would warn about uninitialized alternatives that the variant does not hold, and call sites stay small.
    [[gnu::noinline]] Json(const Json& other);
    [[gnu::noinline]] Json(Json&& other) noexcept;
    [[gnu::noinline]] Json& operator=(const Json& other);
    [[gnu::noinline]] Json& operator=(Json&& other) noexcept;
    [[gnu::noinline]] ~Json();
    Json(std::nullptr_t) {}
    Json(bool value) : value_(value) {}
    Json(int value) : value_(std::int64_t{value}) {}
    Json(unsigned value) : value_(std::int64_t{value}) {}
    Json(std::int64_t value) : value_(value) {}
    Json(std::uint64_t value);
    Json(double value) : value_(value) {}
    Json(float value) : value_(double{value}) {}
    Json(Numeral value) : value_(std::move(value)) {}
    Json(const char* value) : value_(std::string(value)) {}
    Json(std::string_view value) : value_(std::string(value)) {}
    Json(std::string value) : value_(std::move(value)) {}
    Json(Array value) : value_(std::move(value)) {}
    Json(Object value) : value_(std::move(value)) {}
    template <typename T>
    Json(const std::optional<T>& value) {
        if (value) *this = Json(*value);
    }

    static Json object(std::initializer_list<Member> members) { return Json(Object(members)); }
    static Json array(std::initializer_list<Json> elements) { return Json(Array(elements)); }

    // Reads one JSON text in time n log n of its bytes. The error says what is wrong and at which byte, and quotes nothing of the text.
    // Refused: invalid UTF-8, NaN, numbers beyond a double's range, trailing text, nesting deeper than 100. Numbers keep the digits of the
    // text: dump() writes them as they were written.
    static Expected<Json, std::string> parse(std::string_view text);

    bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
    bool is_object() const { return std::holds_alternative<Object>(value_); }
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }  // an integer of more bits is not
    bool is_number() const { return is_integer() || std::holds_alternative<double>(value_) || as_numeral() != nullptr; }

    // The value if it is of that kind, else nullptr or nullopt.
    const Object* as_object() const { return std::get_if<Object>(&value_); }
    const Array* as_array() const { return std::get_if<Array>(&value_); }
    const std::string* as_string() const { return std::get_if<std::string>(&value_); }
    const Numeral* as_numeral() const { return std::get_if<Numeral>(&value_); }
    std::optional<bool> as_bool() const;
    std::optional<std::int64_t> as_integer() const;  // also a real with an integral value, such as 3.0
    std::optional<double> as_number() const;

    // The member of that name, or nullptr if this is not an object or has no such member.
    const Json* find(std::string_view key) const;
    // Sets or adds a member; this must be an object or null (which becomes one).
    void set(std::string key, Json value);
    void push(Json value);  // the same for arrays

    // Compact text in UTF-8. Reals that were not parsed have the shortest form that reads back equal, with ".0" if they are whole. Strings
    // must be valid UTF-8 and reals finite (CHECK): apply repair_utf8 to text from outside.
    std::string dump() const;
    // "null", "boolean", "integer", "number", "string", "array" or "object", for error messages.
    const char* kind() const;

private:
    std::variant<std::monostate, bool, std::int64_t, double, Numeral, std::string, Array, Object> value_;
};

// The string value of member `key` of the outermost object, found without building a tree: for texts too large to hold. nullopt: the text
// is not a JSON object, or the member is missing or not a string.
std::optional<std::string> scan_string_member(std::string_view text, std::string_view key);

// Some editors put it at the start of a text file. It is not part of the text.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
// True if the bytes are well-formed UTF-8 (no overlong forms, no surrogates).
bool is_valid_utf8(std::string_view bytes);
// The number of code points in well-formed UTF-8.
std::int64_t count_characters(std::string_view utf8);
// The same text, with U+FFFD in place of each byte that is not part of a well-formed character.
std::string repair_utf8(std::string_view bytes);

}  // namespace lorry::schema
