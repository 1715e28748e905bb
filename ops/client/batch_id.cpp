// Converts between times and batch ids.
#include "ops/client/batch_id.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>

#include <fmt/format.h>

#include "ops/kafka_settings.h"
#include "schema/codec.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

constexpr std::string_view form = "00000000T000000Z-xxxxxx";  // 0: a decimal digit, x: a hex digit, others: themselves

bool has_form(std::string_view id) {
    if (id.size() != form.size()) return false;
    for (std::size_t i = 0; i < id.size(); ++i) {
        const char byte = id[i];
        const bool digit = byte >= '0' && byte <= '9';
        const bool fits = form[i] == '0' ? digit : form[i] == 'x' ? digit || (byte >= 'a' && byte <= 'f') : byte == form[i];
        if (!fits) return false;
    }
    return true;
}

int number_at(std::string_view id, std::size_t begin, std::size_t count) {
    int value = 0;
    std::from_chars(id.data() + begin, id.data() + begin + count, value);
    return value;
}

}  // namespace

std::string make_batch_id(schema::Timestamp at, std::uint32_t random) {
    const auto day = std::chrono::floor<std::chrono::days>(at);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(at - day));
    return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z-{:06x}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                       static_cast<unsigned>(date.day()), time.hours().count(), time.minutes().count(), time.seconds().count(),
                       random & 0xFFFFFFU);
}

std::string make_batch_id() { return make_batch_id(now(), std::random_device{}()); }

std::optional<schema::Timestamp> time_of_batch_id(std::string_view id) {
    if (!has_form(id)) return std::nullopt;
    const std::chrono::year_month_day date(std::chrono::year(number_at(id, 0, 4)),
                                           std::chrono::month(static_cast<unsigned>(number_at(id, 4, 2))),
                                           std::chrono::day(static_cast<unsigned>(number_at(id, 6, 2))));
    const int hour = number_at(id, 9, 2);
    const int minute = number_at(id, 11, 2);
    const int second = number_at(id, 13, 2);
    if (!date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
    return schema::Timestamp(std::chrono::sys_days(date)) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
           std::chrono::seconds(second);
}

std::optional<std::string> batch_id_error(std::string_view id) {
    const bool plain =
        std::ranges::none_of(id, [](char byte) { return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f || byte == '/'; });
    if (!id.empty() && id.size() <= schema::id_bytes_max && plain && schema::is_valid_utf8(id)) return std::nullopt;
    return fmt::format("'{}' cannot be a batch's id: allowed are 1 to {} bytes of UTF-8 without '/' and control characters",
                       schema::repair_utf8(id.substr(0, 80)), schema::id_bytes_max);
}

}  // namespace lorry::ops
