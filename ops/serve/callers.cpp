// Makes authenticators of settings, once these fit together.
#include "ops/serve/callers.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/event_log.h"
#include "ops/kafka_settings.h"
#include "ops/units.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

bool has_tokens(const Settings& settings) { return !settings.jwt_keys.empty(); }
bool has_proxies(const Settings& settings) { return !settings.trusted_header.empty(); }

// Settings that are of no use alone.
void check_together(const Settings& settings) {
    const std::array needs = {std::pair("--jwt-issuer", &settings.jwt_issuer), std::pair("--jwt-audience", &settings.jwt_audience)};
    for (const auto& [flag, value] : needs) {
        if (value->empty() == has_tokens(settings))
            throw UsageError(fmt::format("tokens take --jwt-keys, --jwt-issuer and --jwt-audience: {} is {}", flag,
                                         value->empty() ? "missing" : "given without --jwt-keys"));
    }
    if (has_proxies(settings) == settings.trusted_proxies.empty())
        throw UsageError("a proxy's word takes both --trusted-header and --trusted-proxies");
}

std::optional<JwtVerifier> verifier_of(const Settings& settings) {
    check_together(settings);
    if (!has_tokens(settings)) return std::nullopt;
    return std::optional<JwtVerifier>(
        std::in_place, JwtVerifier::Options{.issuer = settings.jwt_issuer, .audience = settings.jwt_audience, .keys = settings.jwt_keys});
}

std::optional<ProxyAuthenticator> proxy_of(const Settings& settings) {
    if (!has_proxies(settings)) return std::nullopt;
    auto proxies = AddressRanges::parse(settings.trusted_proxies);
    if (!proxies) throw UsageError(fmt::format("--trusted-proxies: {}", proxies.error()));
    return ProxyAuthenticator({.field = schema::lower_case(settings.trusted_header), .proxies = *std::move(proxies)});
}

}  // namespace

Callers::Callers(const Options& options)
    : verifier_(verifier_of(options.settings)),
      proxy_(proxy_of(options.settings)),
      topic_(options.kafka, options.topics.keys()),
      used_(options.kafka, options.topics.status()),
      keys_(topic_, now),
      all_({.keys = keys_,
            .tokens = verifier_ ? &tokens_.emplace(JwtAuthenticator::Options{.verifier = *verifier_,
                                                                             .tenant_claim = options.settings.jwt_tenant_claim,
                                                                             .scope_claim = options.settings.jwt_scope_claim,
                                                                             .now = now})
                                : nullptr,
            .proxy = proxy_ ? &*proxy_ : nullptr}) {
    topic_.wait_until_read(options.deadline);
    if (topic_.counters().known > 0 || verifier_ || proxy_) return;
    throw UsageError(
        fmt::format("the topic {} has no keys, so nobody could call: make one with `lorry keys create`, or "
                    "--insecure-no-keys true serves this machine alone",
                    options.topics.keys()));
}

void Callers::check() {
    topic_.check();
    used_.check();
    if (!verifier_) return;
    try {
        if (verifier_->refresh()) log_event("token_keys_renewed", {{"keys", static_cast<std::int64_t>(verifier_->count())}});
    } catch (const std::runtime_error& error) {
        log_warning("token_keys_not_renewed", {{"why", error.what()}});
    }
}

std::string Callers::describe() const {
    std::string ways = show_count(topic_.counters().known);
    if (verifier_) ways += fmt::format(", and tokens by {}", show_count(static_cast<std::int64_t>(verifier_->count())));
    if (proxy_) ways += ", and proxies";
    return ways;
}

void check_nobody_is_known(const Settings& settings) {
    check_together(settings);
    if (has_tokens(settings) || has_proxies(settings))
        throw UsageError("--insecure-no-keys true serves whoever comes: leave it out, or the settings of tokens and proxies");
}

}  // namespace lorry::ops
