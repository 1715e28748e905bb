// Knows callers by their API keys, in the field `Authorization: Bearer KEY`. Made by what serves HTTP, used by gateway.cpp.
#pragma once

#include <functional>

#include "consumer/call_backend.h"
#include "ops/gateway/authenticator.h"

namespace lorry::ops {

class KeyAuthenticator final : public Authenticator {
public:
    // `keys` outlives it. `now`: the time by which keys expire.
    KeyAuthenticator(const consumer::KeyDirectory& keys, std::function<schema::Timestamp()> now);

    // An unknown key and one with a wrong secret get the same answer, in the same time but for the search in the table of keys. Answers
    // and logs have nothing of what was sent.
    Expected<Caller, HttpAnswer> identify(const HttpRequest& request) const override;

private:
    const consumer::KeyDirectory& keys_;
    const std::function<schema::Timestamp()> now_;
};

}  // namespace lorry::ops
