// Members of records that programs exchange, as they are read and written. Used by the codec's files (codec_status.cpp, codec_key.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schema/codec_error.h"
#include "schema/job.h"
#include "schema/json.h"

namespace lorry::schema {

inline Json milliseconds(const std::optional<Timestamp>& time) {
    return time ? Json(static_cast<std::int64_t>(time->time_since_epoch().count())) : Json();
}

// Reads members of one object and keeps the first error. A member that is null counts as missing.
class MemberReader {
public:
    explicit MemberReader(const Json& object) : object_(object) {}

    std::string text(std::string_view key) {
        const Json* value = member(key);
        if (value == nullptr) return {};
        if (value->is_string()) return *value->as_string();
        return wrong<std::string>(key, "a string");
    }
    std::string required_text(std::string_view key) {
        std::string value = text(key);
        if (value.empty() && error_.empty()) error_ = fmt::format("field '{}' is missing", key);
        return value;
    }
    std::int64_t integer(std::string_view key) {
        const Json* value = member(key);
        if (value == nullptr) return 0;
        if (const auto integer = value->as_integer()) return *integer;
        return wrong<std::int64_t>(key, "an integer");
    }
    std::int32_t partition(std::string_view key) { return static_cast<std::int32_t>(natural(key, INT32_MAX)); }
    // Sums of such numbers do not overflow.
    std::int64_t count(std::string_view key) { return natural(key, std::int64_t{1} << 53); }
    std::optional<Timestamp> time(std::string_view key) {
        if (member(key) == nullptr) return std::nullopt;
        return timestamp_of(integer(key));
    }
    bool flag(std::string_view key) {
        const Json* value = member(key);
        if (value == nullptr) return false;
        if (const auto flag = value->as_bool()) return *flag;
        return wrong<bool>(key, "a boolean");
    }
    bool has(std::string_view key) const { return member(key) != nullptr; }
    std::vector<std::int64_t> offsets(std::string_view key) {
        std::vector<std::int64_t> out;
        const Json* value = member(key);
        if (value == nullptr) return out;
        if (!value->is_array()) return wrong<std::vector<std::int64_t>>(key, "an array of offsets");
        for (const Json& element : *value->as_array()) {
            const auto offset = element.as_integer();
            if (!offset || *offset < 0) return wrong<std::vector<std::int64_t>>(key, "an array of offsets");
            out.push_back(*offset);
        }
        return out;
    }
    std::vector<std::string> texts(std::string_view key) {
        std::vector<std::string> out;
        const Json* value = member(key);
        if (value == nullptr) return out;
        if (!value->is_array()) return wrong<std::vector<std::string>>(key, "an array of strings");
        for (const Json& element : *value->as_array()) {
            if (!element.is_string()) return wrong<std::vector<std::string>>(key, "an array of strings");
            out.push_back(*element.as_string());
        }
        return out;
    }
    // Fails if there is a member that is not among these.
    void allow_only(std::span<const std::string_view> keys) {
        if (!object_.is_object()) return fail(fmt::format("it is {}, not an object", object_.kind()));
        for (const auto& [key, value] : *object_.as_object()) {
            if (std::ranges::find(keys, key) == keys.end()) fail(fmt::format("field '{}' is not known to this version", shortened(key)));
        }
    }
    void fail(std::string error) {
        if (error_.empty()) error_ = std::move(error);
    }
    const std::string& error() const { return error_; }

private:
    const Json* member(std::string_view key) const {
        const Json* value = object_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    template <typename T>
    T wrong(std::string_view key, std::string_view expected) {
        fail(fmt::format("field '{}' must be {}, not {}", key, expected, member(key)->kind()));
        return {};
    }
    std::int64_t natural(std::string_view key, std::int64_t most) {
        const std::int64_t value = integer(key);
        if (value >= 0 && value <= most) return value;
        fail(fmt::format("field '{}' is {}; allowed is 0 to {}", key, value, most));
        return 0;
    }

    const Json& object_;
    std::string error_;
};

inline Expected<Json, std::string> parse_object(std::string_view value, std::string_view what) {
    auto object = Json::parse(value);
    if (!object) return unexpected(fmt::format("the {} is not JSON: {}", what, object.error()));
    if (!object->is_object()) return unexpected(fmt::format("the {} is a JSON {}, not an object", what, object->kind()));
    return std::move(*object);
}

inline const Json& object_at(const Json& object, std::string_view key, const Json& otherwise) {
    const Json* value = object.find(key);
    return value == nullptr ? otherwise : *value;
}

}  // namespace lorry::schema
