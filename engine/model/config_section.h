// Reads the members of a JSON object of a model's config files. Errors name file, key and value. Used by model_config.cpp and the readers
// that it calls.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "schema/codec_error.h"
#include "schema/json.h"

namespace lorry::engine {

// Larger sizes in a config mean a broken file. The product of two of them fits into 64 bits.
inline constexpr std::int64_t size_max = std::int64_t{1} << 28;

// Where AutoGPTQ and AutoAWQ described a checkpoint's codes before they wrote quantization_config into config.json.
struct QuantizedFile {
    const char* name;
    const char* method;  // if the file names none
};
inline constexpr std::array quantized_files = {QuantizedFile{"quantize_config.json", "gptq"}, QuantizedFile{"quant_config.json", "awq"}};

template <typename Rows>
std::string names_in(const Rows& rows) {
    std::string out;
    for (const auto& row : rows) out += (out.empty() ? "" : ", ") + std::string(row.name);
    return out;
}

// The members of one JSON object. Errors name file, key and value.
class Section {
public:
    Section(const schema::Json& object, std::string file, std::string path = {})
        : object_(object), file_(std::move(file)), path_(std::move(path)) {
        if (!object.is_object())
            throw std::runtime_error(
                fmt::format("{}: {} must be an object, not {}", file_, path_.empty() ? "the top level" : path_, object.kind()));
    }

    // The member; nullptr if it is absent or null.
    const schema::Json* find(std::string_view key) const {
        const schema::Json* value = object_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    bool has(std::string_view key) const { return object_.find(key) != nullptr; }
    const std::string& file() const { return file_; }
    const schema::Json::Object& members() const { return *object_.as_object(); }

    [[noreturn]] void refuse(std::string_view key, std::string_view advice) const {
        const schema::Json* value = object_.find(key);
        throw std::runtime_error(fmt::format("{}: {} = {} is not supported: {}", file_, name(key),
                                             value == nullptr ? "(absent)" : schema::shortened(value->dump(), bytes_shown), advice));
    }

    std::int64_t integer(std::string_view key, std::optional<std::int64_t> absent, std::int64_t lowest, std::int64_t highest) const {
        const schema::Json* value = find(key);
        if (value == nullptr && absent) return *absent;
        if (value == nullptr) fail_absent(key);
        const auto number = value->as_integer();
        if (!number || *number < lowest || *number > highest)
            refuse(key, fmt::format("it must be an integer from {} to {}", lowest, highest));
        return *number;
    }
    double real(std::string_view key, std::optional<double> absent, double lowest, double highest) const {
        const auto number = optional_real(key, lowest, highest);
        if (number) return *number;
        if (!absent) fail_absent(key);
        return *absent;
    }
    std::optional<double> optional_real(std::string_view key, double lowest, double highest) const {
        const schema::Json* value = find(key);
        if (value == nullptr) return std::nullopt;
        const auto number = value->as_number();
        if (!number || !(*number >= lowest && *number <= highest))
            refuse(key, fmt::format("it must be a number from {} to {}", lowest, highest));
        return number;
    }
    bool boolean(std::string_view key, bool absent) const {
        const schema::Json* value = find(key);
        if (value == nullptr) return absent;
        if (!value->is_bool()) refuse(key, "it must be true or false");
        return *value->as_bool();
    }
    // The row of `rows` with the name that the key gives, or with the name `absent` if the key is absent.
    template <typename Rows>
    const auto& one_of(const Rows& rows, std::string_view key, std::string_view absent) const {
        const schema::Json* value = find(key);
        if (value != nullptr && !value->is_string()) refuse(key, "it must be a string");
        const std::string_view text = value == nullptr ? absent : std::string_view(*value->as_string());
        for (const auto& row : rows) {
            if (row.name == text) return row;
        }
        refuse(key, fmt::format("supported: {}", names_in(rows)));
    }

private:
    [[noreturn]] void fail_absent(std::string_view key) const {
        throw std::runtime_error(fmt::format("{}: {} is {}; it is required", file_, name(key), has(key) ? "null" : "missing"));
    }
    std::string name(std::string_view key) const { return (path_.empty() ? "" : path_ + ".") + schema::shortened(key); }
    static constexpr std::size_t bytes_shown = 120;  // of a value

    const schema::Json& object_;
    std::string file_;
    std::string path_;
};

}  // namespace lorry::engine
