// Reads "--name value" and "--name" arguments. Used by the programs of tests/faults.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lorry::faults {

struct UsageError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Call order: has, text, number and so on for each known argument, then refuse_others(). All throw UsageError.
class Arguments {
public:
    explicit Arguments(std::span<char* const> arguments) {
        for (std::size_t i = 1; i < arguments.size(); ++i) {
            const std::string_view name = arguments[i];
            if (!name.starts_with("--")) throw UsageError("not an argument: " + std::string(name));
            const bool has_value = i + 1 < arguments.size() && !std::string_view(arguments[i + 1]).starts_with("--");
            values_[std::string(name.substr(2))].emplace_back(has_value ? arguments[++i] : "");
        }
    }

    bool has(const std::string& name) {
        asked_.insert(name);
        return values_.contains(name);
    }
    std::vector<std::string> all(const std::string& name) { return has(name) ? values_.at(name) : std::vector<std::string>{}; }
    std::string text(const std::string& name, std::string otherwise) { return has(name) ? values_.at(name).back() : std::move(otherwise); }
    std::string text(const std::string& name) {
        if (!has(name)) throw UsageError("--" + name + " is missing");
        return values_.at(name).back();
    }
    std::int64_t number(const std::string& name, std::int64_t otherwise) {
        if (!has(name)) return otherwise;
        const std::string& value = values_.at(name).back();
        std::int64_t parsed = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
        if (error != std::errc() || end != value.data() + value.size()) throw UsageError("--" + name + ": not a number: " + value);
        return parsed;
    }
    std::chrono::milliseconds milliseconds(const std::string& name, std::int64_t otherwise) {
        return std::chrono::milliseconds(number(name, otherwise));
    }
    void refuse_others() const {
        for (const auto& [name, values] : values_) {
            if (!asked_.contains(name)) throw UsageError("--" + name + " is not known");
        }
    }

private:
    std::map<std::string, std::vector<std::string>> values_;
    std::set<std::string> asked_;
};

}  // namespace lorry::faults
