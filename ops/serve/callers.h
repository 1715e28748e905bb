// Who may call a gateway, as the settings say: by API keys, and perhaps by JSON Web Tokens or through a proxy. Made by serve.cpp.
#pragma once

#include <optional>
#include <string>

#include "consumer/kafka/follow/key_topic.h"
#include "consumer/kafka/follow/status_topic.h"
#include "ops/gateway/authenticators.h"
#include "ops/settings.h"

namespace lorry::ops {

class Callers {
public:
    struct Options {
        const Settings& settings;
        const consumer::KafkaConfig& kafka;
        const schema::Topics& topics;
        consumer::Clock::time_point deadline;
    };
    // Throws UsageError for settings that do not fit together, and if nobody could call; std::runtime_error if the tokens' keys cannot be
    // read; KafkaError if the topics cannot.
    explicit Callers(const Options& options);
    Callers(const Callers&) = delete;
    Callers& operator=(const Callers&) = delete;

    const Authenticator& authenticator() const { return all_; }
    const consumer::DailyTokens& daily_tokens() const { return used_; }
    // Throws if API keys, or what they have used, can no longer be read. Takes the tokens' keys anew if their file has changed. Call it
    // now and then.
    void check();
    // For the log: "2 keys, tokens by 1 key, proxies".
    std::string describe() const;

private:
    std::optional<JwtVerifier> verifier_;
    std::optional<ProxyAuthenticator> proxy_;
    consumer::KeyTopic topic_;
    consumer::StatusTopic used_;
    KeyAuthenticator keys_;
    std::optional<JwtAuthenticator> tokens_;
    Authenticators all_;
};

// Throws UsageError if settings of callers are given together with `insecure_no_keys`.
void check_nobody_is_known(const Settings& settings);

}  // namespace lorry::ops
