// Makes callers of the claims of tokens that are good.
#include "ops/gateway/jwt_authenticator.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "ops/gateway/bearer.h"
#include "schema/codec_error.h"
#include "schema/whole_number.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::string_view word_prefix = "lorry:";

struct LimitWord {
    std::string_view name;
    std::optional<std::int64_t> schema::KeyLimits::*limit;
};
constexpr std::array limit_words = {LimitWord{"requests-per-minute:", &schema::KeyLimits::requests_per_minute},
                                    LimitWord{"tokens-per-minute:", &schema::KeyLimits::tokens_per_minute},
                                    LimitWord{"calls-at-once:", &schema::KeyLimits::calls_at_once},
                                    LimitWord{"batch-jobs:", &schema::KeyLimits::batch_jobs}};

std::optional<std::int64_t> positive(std::string_view text) {
    const auto value = schema::parse_whole<std::int64_t>(text);
    return value && *value > 0 ? value : std::nullopt;
}

// If `word` begins with `name`, what follows it.
std::optional<std::string> rest_of(std::string_view word, std::string_view name) {
    return word.starts_with(name) && word.size() > name.size() ? std::optional(std::string(word.substr(name.size()))) : std::nullopt;
}

Expected<std::vector<std::string>, std::string> words_of(const Json& claims, const std::string& name) {
    std::vector<std::string> words;
    const Json* claim = claims.find(name);
    if (claim == nullptr) return words;
    if (const std::string* text = claim->as_string()) {
        for (std::size_t at = 0; at < text->size();) {
            const std::size_t end = std::min(text->find(' ', at), text->size());
            if (end > at) words.push_back(text->substr(at, end - at));
            at = end + 1;
        }
        return words;
    }
    if (!claim->is_array()) return unexpected(fmt::format("its claim '{}' is neither a text nor a list", name));
    for (const Json& word : *claim->as_array()) {
        if (!word.is_string()) return unexpected(fmt::format("its claim '{}' has an element that is no text", name));
        words.push_back(*word.as_string());
    }
    return words;
}

Expected<Caller, std::string> caller_of(const Json& claims, const JwtAuthenticator::Options& options) {
    const auto label_at = [&](const std::string& name) -> Expected<std::string, std::string> {
        const Json* claim = claims.find(name);
        if (claim == nullptr || !claim->is_string()) return unexpected(fmt::format("its claim '{}' is no text", name));
        if (schema::key_label_error(name, *claim->as_string()))
            return unexpected(fmt::format("its claim '{}' has to be 1 to 200 bytes without control characters", name));
        return *claim->as_string();
    };
    const auto tenant = label_at(options.tenant_claim);
    if (!tenant) return unexpected(tenant.error());
    const auto subject = claims.find("sub") == nullptr ? tenant : label_at("sub");
    if (!subject) return unexpected(subject.error());
    Caller caller{.id = "jwt:" + *subject, .tenant = *tenant};
    const auto words = words_of(claims, options.scope_claim);
    if (!words) return unexpected(words.error());
    for (const std::string& word : *words) {
        if (const auto applied = apply_scope_word(word, caller); !applied) return unexpected(applied.error());
    }
    return caller;
}

}  // namespace

Expected<void, std::string> apply_scope_word(std::string_view word, Caller& caller) {
    if (!word.starts_with(word_prefix)) return {};
    const std::string_view what = word.substr(word_prefix.size());
    const auto refuse = [&] {
        return unexpected(fmt::format("its scope '{}' is not known", schema::shortened(schema::repair_utf8(word))));
    };
    if (what == "batches") {
        caller.scopes.batches = true;
    } else if (what == "admin") {
        caller.scopes.admin = true;
    } else if (auto model = rest_of(what, "model:")) {
        if (!caller.scopes.models) caller.scopes.models.emplace();
        caller.scopes.models->push_back(*std::move(model));
    } else if (const auto url = rest_of(what, "url:")) {
        const auto endpoint = schema::endpoint_at(*url);
        if (!endpoint) return refuse();
        if (!caller.scopes.endpoints) caller.scopes.endpoints.emplace();
        caller.scopes.endpoints->push_back(*endpoint);
    } else {
        const auto row = std::ranges::find_if(limit_words, [&](const LimitWord& each) { return what.starts_with(each.name); });
        const auto value = row == limit_words.end() ? std::nullopt : positive(what.substr(row->name.size()));
        if (!value) return refuse();
        caller.limits.*(row->limit) = value;
    }
    return {};
}

Expected<Caller, HttpAnswer> JwtAuthenticator::identify(const HttpRequest& request) const {
    const auto token = bearer_token(request);
    if (!token) return unexpected(token_missing("send a token of your identity provider, as Authorization: Bearer TOKEN"));
    const auto claims = options_.verifier.claims_of(*token, options_.now());
    if (!claims) return unexpected(token_refused("the token is refused: " + claims.error()));
    auto caller = caller_of(*claims, options_);
    if (!caller) return unexpected(token_refused("the token is refused: " + caller.error()));
    return *std::move(caller);
}

}  // namespace lorry::ops
