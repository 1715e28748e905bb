// Chooses the way by what the request has.
#include "ops/gateway/authenticators.h"

#include "ops/gateway/bearer.h"

namespace lorry::ops {

Expected<Caller, HttpAnswer> Authenticators::identify(const HttpRequest& request) const {
    if (options_.proxy != nullptr && options_.proxy->vouches_for(request)) return options_.proxy->identify(request);
    const auto token = bearer_token(request);
    if (options_.tokens != nullptr && token && !schema::key_id_of(*token)) return options_.tokens->identify(request);
    return options_.keys.identify(request);
}

}  // namespace lorry::ops
