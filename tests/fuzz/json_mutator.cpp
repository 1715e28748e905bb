// Implements mutate_json: most edits of bytes only break JSON's syntax, so that what reads the values would hardly be reached.
#include <random>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace lorry::fuzz {
namespace {

using schema::Json;
using schema::Numeral;

std::size_t count_values(const Json& value) {
    std::size_t count = 1;
    if (const auto* array = value.as_array()) {
        for (const Json& element : *array) count += count_values(element);
    } else if (const auto* object = value.as_object()) {
        for (const auto& [name, member] : *object) count += count_values(member);
    }
    return count;
}

// The value at that place of a walk from the root.
const Json& value_at(const Json& root, std::size_t place) {
    const Json* value = &root;
    while (place > 0) {
        --place;
        const auto descend = [&](const Json& child) {
            const std::size_t count = count_values(child);
            if (place < count) {
                value = &child;
                return true;
            }
            place -= count;
            return false;
        };
        if (const auto* array = value->as_array()) {
            static_cast<void>(std::ranges::any_of(*array, descend));
        } else {
            static_cast<void>(std::ranges::any_of(*value->as_object(), [&](const Json::Member& member) { return descend(member.second); }));
        }
    }
    return *value;
}

class Editor {
public:
    Editor(const Json& root, unsigned seed) : root_(root), values_(count_values(root)), random_(seed) {}

    Json edited() {
        place_ = below(values_);
        return copy(root_);
    }

private:
    std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }

    // Copies a tree and replaces the value at place_.
    Json copy(const Json& value) {
        if (place_ == 0) {
            place_ = values_;  // beyond the rest
            return replacement(value);
        }
        --place_;
        if (const auto* array = value.as_array()) {
            Json::Array copied;
            for (const Json& element : *array) copied.push_back(copy(element));
            return copied;
        }
        if (const auto* object = value.as_object()) {
            Json::Object copied;
            for (const auto& [name, member] : *object) copied.emplace_back(name, copy(member));
            return copied;
        }
        return value;
    }

    Json replacement(const Json& value) {
        switch (below(4)) {
            case 0: return hard_value();
            case 1: return value_at(root_, below(values_));
            default: break;
        }
        if (const auto* array = value.as_array()) return of_other_length(*array, [&] { return value_at(root_, below(values_)); });
        if (const auto* object = value.as_object()) {
            return of_other_length(*object, [&] {
                return Json::Member((*object)[below(object->size())].first + (below(2) == 0 ? "" : "s"), value_at(root_, below(values_)));
            });
        }
        if (const auto* text = value.as_string()) return of_other_bytes(*text);
        if (const auto number = value.as_integer()) return *number / 2 + static_cast<std::int64_t>(below(300)) - 100;
        return hard_value();
    }

    template <typename List, typename Make>
    List of_other_length(List list, const Make& make) {
        const auto place = [&](std::size_t bound) { return list.begin() + static_cast<std::ptrdiff_t>(below(bound)); };
        if (list.empty()) return list;
        switch (below(3)) {
            case 0: list.erase(place(list.size())); break;
            case 1: std::iter_swap(place(list.size()), place(list.size())); break;
            default: list.insert(place(list.size() + 1), make());
        }
        return list;
    }

    static std::string of_other_bytes(const std::string& text) {
        constexpr std::size_t growth = 16;
        std::string bytes = text;
        bytes.resize(text.size() + growth);
        bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), text.size(), bytes.size()));
        return schema::repair_utf8(bytes);
    }

    Json hard_value() {
        const Json values[] = {
            nullptr,
            true,
            false,
            0,
            1,
            -1,
            2,
            65'536,
            2'147'483'647,
            std::int64_t{-2'147'483'649},
            std::int64_t{1} << 53,
            INT64_MAX,
            INT64_MIN,
            Numeral{"18446744073709551616"},
            Numeral{"1e308"},
            Numeral{"-0.0"},
            5e-324,
            0.5,
            1.5,
            "",
            "a",
            "\xC3\xA9",
            "\x1B[2J",
            std::string(1, '\0'),
            std::string(5'000, 'x'),
            Json::array({}),
            Json::object({}),
            Json::array({Json::array({})}),
        };
        return values[below(std::size(values))];
    }

    const Json& root_;
    const std::size_t values_;
    std::mt19937 random_;
    std::size_t place_ = 0;
};

}  // namespace

std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    std::vector<std::string_view> parts;
    std::string_view rest = text_of(data, size);
    for (std::size_t end = 0; end != rest.npos; rest.remove_prefix(end == rest.npos ? 0 : end + 1)) {
        end = rest.find(separator);
        parts.push_back(rest.substr(0, end));
    }
    const std::size_t chosen = seed / 2 % parts.size();
    const auto json = seed % 2 == 0 ? Json::parse(parts[chosen]) : Expected<Json, std::string>(unexpected(std::string()));
    if (!json) return LLVMFuzzerMutate(data, size, size_max);
    const std::string edited = Editor(*json, seed).edited().dump();
    std::string input;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) input += separator;
        input += i == chosen ? std::string_view(edited) : parts[i];
    }
    if (input.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
    std::ranges::copy(input, data);
    return input.size();
}

}  // namespace lorry::fuzz
