// API keys: who calls the gateway, and what they may do. A key is a text that only its owner has; a KeyRecord, in the keys topic under the
// key's id, says what it permits. Made by `lorry keys`, read by consumer/kafka/follow/key_topic.h and ops/gateway. Pure functions, any
// thread. secret.h draws and hashes keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/endpoint.h"
#include "schema/job.h"
#include "schema/secret.h"

namespace lorry::schema {

class Json;

struct KeyScopes {
    // Names of adapters and of the base model, not empty; all_models among them: all. nullopt: the base model, and what a gateway shares.
    std::optional<std::vector<std::string>> models = {};
    std::optional<std::vector<Endpoint>> endpoints = {};  // not empty; nullopt: all
    bool batches = false;                                 // files and batches
    bool admin = false;                                   // what does not belong to one tenant: the metrics
};
inline constexpr const char* all_models = "*";
bool allows_all_models(const KeyScopes& scopes);
// `model`: as a call names it, perhaps with "@hash". The base model has two names, "base" and base_name. Scopes without models allow only
// the base model: adapters are not shared between tenants unless a setting says so.
bool allows_model(const KeyScopes& scopes, std::string_view model, std::string_view base_name);
bool allows_endpoint(const KeyScopes& scopes, Endpoint endpoint);
// Whether the body of a job asks to start before jobs of others, by a `priority` below 0. Callers with keys may not.
bool goes_first(const Json& body);
inline constexpr std::string_view goes_first_refusal =
    "'priority' is below 0, which goes before others: send 0, or more to let others go first";

// At least 1 each; nullopt: no limit.
struct KeyLimits {
    std::optional<std::int64_t> requests_per_minute = {};
    std::optional<std::int64_t> tokens_per_minute = {};  // of prompts and answers
    std::optional<std::int64_t> tokens_per_day = {};     // the same, of a day in UTC
    std::optional<std::int64_t> calls_at_once = {};
    std::optional<std::int64_t> batch_jobs = {};  // of its batches that have not ended, without a result
};

struct KeyRecord {
    std::string id;      // key_id_digits hexadecimal digits
    std::string tenant;  // whose jobs the calls are
    std::string name;    // for people
    Sha256 hash{};       // of the whole key
    Timestamp created{};
    std::optional<Timestamp> expires = {};  // from then on it is refused
    std::optional<Timestamp> revoked = {};  // if set, it is refused
    KeyScopes scopes = {};
    KeyLimits limits = {};
};

// Why this cannot be a key's tenant or name (`what`), or nullopt: 1 to 200 bytes of UTF-8 without control characters.
std::optional<std::string> key_label_error(std::string_view what, std::string_view label);

// The value of a record of the keys topic, one line without its end. It has the hash: not for people.
std::string encode_key(const KeyRecord& key);
// The same without the hash, for people and scripts.
std::string describe_key(const KeyRecord& key);
// Unlike other records, one with a member that this version does not know is refused: the member may take rights away.
Expected<KeyRecord, std::string> parse_key(std::string_view value);

}  // namespace lorry::schema
