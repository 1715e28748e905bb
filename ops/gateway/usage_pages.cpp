// Reads what is asked for, on a thread of its own.
#include "ops/gateway/usage_pages.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "ops/gateway/errors.h"
#include "ops/gateway/query.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

// A field that was not sent is empty.
struct Fields {
    std::string since, until, tenant, by, format;
};

Expected<Fields, std::string> fields_of(std::string_view target) {
    Fields fields{.by = "day,tenant,key,model", .format = "json"};
    const std::array places = {std::pair("since", &fields.since), std::pair("until", &fields.until), std::pair("tenant", &fields.tenant),
                               std::pair("by", &fields.by), std::pair("format", &fields.format)};
    const auto query = query_of(target);
    if (!query) return unexpected(std::string(broken_query));
    for (const auto& [name, value] : *query) {
        const auto place = std::ranges::find(places, name, [](const auto& each) { return std::string_view(each.first); });
        if (place == places.end()) {
            return unexpected(
                fmt::format("/v1/usage has no field '{}': it takes since, until, tenant, by and format", schema::shortened(name)));
        }
        *place->second = value;
    }
    return fields;
}

}  // namespace

Expected<UsageQuery, HttpAnswer> usage_query(std::string_view target, const std::optional<std::string>& own) {
    const auto fields = fields_of(target);
    if (!fields) return unexpected(gateway_error(400, fields.error()));
    UsageQuery query{.filter = {.tenant = own}, .by = {}, .is_csv = fields->format == "csv"};
    if (!query.is_csv && fields->format != "json") return unexpected(gateway_error(400, "the field format is json or csv"));
    for (const auto& [name, text, day] :
         {std::tuple("since", &fields->since, &query.filter.since), std::tuple("until", &fields->until, &query.filter.until)}) {
        if (text->empty()) continue;
        *day = schema::parse_day(*text);
        if (!*day) return unexpected(gateway_error(400, fmt::format("the field {} is a day in UTC, such as 2026-11-27", name)));
    }
    if (!fields->tenant.empty()) {
        if (own && *own != fields->tenant) {
            return unexpected(gateway_error("permission_denied",
                                            "this API key sees the usage of its own tenant: that of others takes one made with --admin"));
        }
        query.filter.tenant = fields->tenant;
    }
    auto by = schema::usage_columns(fields->by);
    if (!by) return unexpected(gateway_error(400, fmt::format("the field by: {}", by.error())));
    query.by = *std::move(by);
    return query;
}

UsagePages::UsagePages(Options options) : options_(std::move(options)) {
    if (is_served()) thread_.emplace(1);
}

bool UsagePages::answer(UsageQuery query, std::function<void(HttpAnswer)> done) {
    if (waiting_ >= waiting_max) return false;
    ++waiting_;
    thread_->post([this, query = std::move(query), done = std::move(done)] {
        --waiting_;
        done(page(query));
    });
    return true;
}

HttpAnswer UsagePages::page(const UsageQuery& query) const {
    try {
        const schema::UsageReport report = report_usage(options_.read(query.filter), query.by, options_.prices);
        if (query.is_csv) return {.type = "text/csv; charset=utf-8; header=present", .body = csv_of(report)};
        return {.type = json_type, .body = json_of(report).dump()};
    } catch (const std::runtime_error& error) {
        return with_retry(gateway_error(503, fmt::format("the usage cannot be read at the moment: {}", error.what())),
                          std::chrono::seconds(10));
    }
}

}  // namespace lorry::ops
