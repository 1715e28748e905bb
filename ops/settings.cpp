// Reads and shows values of settings by their rows.
#include "ops/settings.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

std::string wrong(std::string_view text, std::string_view allowed) { return fmt::format("is '{}'; allowed is {}", text, allowed); }

bool is_word_of(std::string_view words, std::string_view word) {
    while (!words.empty()) {
        const std::size_t end = std::min(words.find('|'), words.size());
        if (words.substr(0, end) == word) return true;
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    return false;
}

// In the largest unit of which it is a whole number: 1048576 is "1MiB", 20,000 ms are "20s".
std::string show_exactly(Bytes bytes) {
    constexpr std::array units = {"", "KiB", "MiB", "GiB"};
    std::size_t unit = 0;
    for (; unit + 1 < units.size() && bytes.count > 0 && bytes.count % 1024 == 0; ++unit) bytes.count /= 1024;
    return fmt::format("{}{}", bytes.count, units[unit]);
}
std::string show_exactly(std::chrono::milliseconds time) {
    return time.count() % 1000 == 0 ? fmt::format("{}s", time.count() / 1000) : fmt::format("{}ms", time.count());
}

struct Reader {
    Settings& settings;
    const Setting& setting;
    std::string_view text;
    using Result = Expected<void, std::string>;

    Result operator()(std::string Settings::*field) const {
        if (lists_words(setting) && !is_word_of(setting.value, text)) return unexpected(wrong(text, setting.value));
        settings.*field = text;
        return {};
    }
    Result operator()(std::int64_t Settings::*field) const {
        const auto value = parse_integer(text);
        if (!value || *value < setting.minimum) return unexpected(wrong(text, fmt::format("an integer from {}", setting.minimum)));
        settings.*field = *value;
        return {};
    }
    Result operator()(bool Settings::*field) const {
        if (text != "true" && text != "false") return unexpected(wrong(text, "true or false"));
        settings.*field = text == "true";
        return {};
    }
    Result operator()(Bytes Settings::*field) const {
        const auto value = parse_bytes(text);
        if (!value) return unexpected(wrong(text, "a size such as 512MiB or 4GiB"));
        (settings.*field).count = *value;
        return {};
    }
    Result operator()(std::optional<Bytes> Settings::*field) const {
        const auto value = parse_bytes(text);
        if (!value) return unexpected(wrong(text, "a size such as 512MiB or 4GiB"));
        settings.*field = Bytes{*value};
        return {};
    }
    Result operator()(std::chrono::milliseconds Settings::*field) const {
        const auto value = parse_duration(text);
        if (!value) return unexpected(wrong(text, "a time such as 200ms, 20s or 5min"));
        settings.*field = *value;
        return {};
    }
};

}  // namespace

std::span<const Setting> setting_table() {
    static const std::vector<Setting> table = [] {
        std::vector<Setting> rows;
        const Settings all(rows);
        return rows;
    }();
    return table;
}

const Setting* find_setting(std::string_view key) {
    const auto table = setting_table();
    const auto place = std::ranges::find(table, key, [](const Setting& setting) -> std::string_view { return setting.key; });
    return place == table.end() ? nullptr : &*place;
}

std::string flag_of(const Setting& setting) {
    std::string flag = fmt::format("--{}", setting.key);
    std::ranges::replace(flag, '_', '-');
    return flag;
}

// Words in capitals name kinds of values: "HOST:PORT|off".
bool lists_words(const Setting& setting) {
    const std::string_view value = setting.value;
    return value.find('|') != std::string_view::npos && std::ranges::none_of(value, [](char byte) { return byte >= 'A' && byte <= 'Z'; });
}

Expected<void, std::string> set_setting(Settings& settings, const Setting& setting, std::string_view text) {
    return std::visit(Reader{settings, setting, text}, setting.field);
}

std::string show_setting(const Settings& settings, const Setting& setting) {
    return std::visit(
        [&](auto field) -> std::string {
            using T = std::remove_cvref_t<decltype(settings.*field)>;
            if constexpr (std::is_same_v<T, std::optional<Bytes>>) {
                return (settings.*field) ? show_exactly(*(settings.*field)) : std::string();
            } else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, std::chrono::milliseconds>) {
                return show_exactly(settings.*field);
            } else {
                return fmt::format("{}", settings.*field);
            }
        },
        setting.field);
}

}  // namespace lorry::ops
