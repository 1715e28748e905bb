// Encodes and parses records of the keys topic, and answers what a key permits.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "schema/key.h"
#include "schema/record_members.h"

namespace lorry::schema {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t label_bytes_max = 200;
constexpr std::size_t names_max = 1'000;  // models of one key
constexpr std::array members = {"id"sv,         "tenant"sv,     "name"sv,   "sha256"sv, "created_at"sv,
                                "expires_at"sv, "revoked_at"sv, "scopes"sv, "limits"sv};
constexpr std::array scope_members = {"models"sv, "endpoints"sv, "batches"sv, "admin"sv};
constexpr std::array limit_members = {"requests_per_minute"sv, "tokens_per_minute"sv, "tokens_per_day"sv, "calls_at_once"sv,
                                      "batch_jobs"sv};

// Members in the order of the record; `hash` is left out if it is null.
Json object_of(const KeyRecord& key, Json hash) {
    Json models;
    if (key.scopes.models) {
        models = Json::array({});
        for (const std::string& model : *key.scopes.models) models.push(repair_utf8(model));
    }
    Json urls;
    if (key.scopes.endpoints) {
        urls = Json::array({});
        for (const Endpoint endpoint : *key.scopes.endpoints) urls.push(row_of(endpoint).url);
    }
    Json object = Json::object({{"id", key.id}, {"tenant", repair_utf8(key.tenant)}, {"name", repair_utf8(key.name)}});
    if (!hash.is_null()) object.set("sha256", std::move(hash));
    object.set("created_at", milliseconds(key.created));
    object.set("expires_at", milliseconds(key.expires));
    object.set("revoked_at", milliseconds(key.revoked));
    object.set(
        "scopes",
        Json::object(
            {{"models", std::move(models)}, {"endpoints", std::move(urls)}, {"batches", key.scopes.batches}, {"admin", key.scopes.admin}}));
    Json limits = Json::object({{"requests_per_minute", key.limits.requests_per_minute},
                                {"tokens_per_minute", key.limits.tokens_per_minute},
                                {"calls_at_once", key.limits.calls_at_once}});
    // Left out where there is none: gateways of versions without these limits then still take the key.
    if (key.limits.tokens_per_day) limits.set("tokens_per_day", *key.limits.tokens_per_day);
    if (key.limits.batch_jobs) limits.set("batch_jobs", *key.limits.batch_jobs);
    object.set("limits", std::move(limits));
    return object;
}

// A time, which has to be one if it is there: without it the key would be good for ever.
std::optional<Timestamp> strict_time(MemberReader& reader, std::string_view key) {
    const auto time = reader.time(key);
    if (!time && reader.has(key)) reader.fail(fmt::format("field '{}' is no time", key));
    return time;
}

// The list, which is not empty: an empty one would permit nothing.
std::optional<std::vector<std::string>> names(MemberReader& reader, std::string_view key) {
    if (!reader.has(key)) return std::nullopt;
    std::vector<std::string> list = reader.texts(key);
    if (list.empty() || list.size() > names_max) {
        reader.fail(fmt::format("field '{}' has {} elements; allowed are 1 to {}, or null", key, list.size(), names_max));
    }
    return list;
}

KeyScopes read_scopes(MemberReader& reader) {
    reader.allow_only(scope_members);
    KeyScopes scopes{.models = names(reader, "models"), .batches = reader.flag("batches"), .admin = reader.flag("admin")};
    if (const auto urls = names(reader, "endpoints")) {
        scopes.endpoints.emplace();
        for (const std::string& url : *urls) {
            const auto endpoint = endpoint_at(url);
            if (!endpoint) {
                reader.fail(fmt::format("field 'endpoints' has '{}', which this version does not know", shortened(url)));
                break;
            }
            scopes.endpoints->push_back(*endpoint);
        }
    }
    return scopes;
}

KeyLimits read_limits(MemberReader& reader) {
    reader.allow_only(limit_members);
    const auto limit = [&](std::string_view key) -> std::optional<std::int64_t> {
        if (!reader.has(key)) return std::nullopt;
        const std::int64_t value = reader.count(key);
        if (value < 1) reader.fail(fmt::format("field '{}' is {}; allowed are numbers from 1, or null for no limit", key, value));
        return value;
    };
    return {.requests_per_minute = limit("requests_per_minute"),
            .tokens_per_minute = limit("tokens_per_minute"),
            .tokens_per_day = limit("tokens_per_day"),
            .calls_at_once = limit("calls_at_once"),
            .batch_jobs = limit("batch_jobs")};
}

}  // namespace

bool allows_all_models(const KeyScopes& scopes) {
    return scopes.models && std::ranges::find(*scopes.models, all_models) != scopes.models->end();
}

bool allows_model(const KeyScopes& scopes, std::string_view model, std::string_view base_name) {
    const bool is_base = model == "base" || model == base_name;
    if (!scopes.models) return is_base;
    if (allows_all_models(scopes)) return true;
    const auto has = [&](std::string_view name) { return std::ranges::find(*scopes.models, name) != scopes.models->end(); };
    return is_base ? has("base") || has(base_name) : has(model.substr(0, model.rfind('@')));
}

bool allows_endpoint(const KeyScopes& scopes, Endpoint endpoint) {
    return !scopes.endpoints || std::ranges::find(*scopes.endpoints, endpoint) != scopes.endpoints->end();
}

bool goes_first(const Json& body) {
    const Json* priority = body.find("priority");
    return priority != nullptr && priority->as_number().value_or(0.0) < 0.0;
}

std::optional<std::string> key_label_error(std::string_view what, std::string_view label) {
    const bool is_plain = std::ranges::none_of(label, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (!label.empty() && label.size() <= label_bytes_max && is_plain && is_valid_utf8(label)) return std::nullopt;
    return fmt::format("'{}' cannot be a key's {}: allowed are 1 to {} bytes of UTF-8 without control characters",
                       repair_utf8(label.substr(0, label_bytes_max)), what, label_bytes_max);
}

std::string encode_key(const KeyRecord& key) { return object_of(key, to_hex(key.hash)).dump(); }

std::string describe_key(const KeyRecord& key) { return object_of(key, {}).dump(); }

Expected<KeyRecord, std::string> parse_key(std::string_view value) {
    const auto object = parse_object(value, "key's record");
    if (!object) return unexpected(object.error());
    const Json empty = Json::object({});
    MemberReader top(*object);
    MemberReader scopes(object_at(*object, "scopes", empty));
    MemberReader limits(object_at(*object, "limits", empty));
    top.allow_only(members);
    if (!top.has("scopes")) top.fail("field 'scopes' is missing");
    KeyRecord key{.id = top.required_text("id"), .tenant = top.required_text("tenant"), .name = top.required_text("name")};
    if (!is_key_id(key.id)) top.fail(fmt::format("field 'id' is '{}', which is no key's id", shortened(key.id)));
    for (const auto& [what, label] : {std::pair("tenant", &key.tenant), std::pair("name", &key.name)}) {
        if (auto error = key_label_error(what, *label)) top.fail(*std::move(error));
    }
    const auto hash = sha256_from_hex(top.required_text("sha256"));
    if (!hash) top.fail("field 'sha256' is no hash: allowed are 64 hexadecimal digits");
    key.hash = hash.value_or(Sha256{});
    key.created = strict_time(top, "created_at").value_or(Timestamp{});
    key.expires = strict_time(top, "expires_at");
    key.revoked = strict_time(top, "revoked_at");
    key.scopes = read_scopes(scopes);
    key.limits = read_limits(limits);
    for (const auto& [reader, where] : {std::pair(&top, ""), std::pair(&scopes, "in 'scopes': "), std::pair(&limits, "in 'limits': ")}) {
        if (!reader->error().empty()) return unexpected(fmt::format("the key's record is refused: {}{}", where, reader->error()));
    }
    return key;
}

}  // namespace lorry::schema
