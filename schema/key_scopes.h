// The rights of a key or a token, for people. Used by `lorry keys` and ops/gateway. Pure, any thread.
#pragma once

#include <string>

#include "schema/key.h"

namespace lorry::schema {

// "models section,base; urls /v1/embeddings; batches; admin"
std::string show_scopes(const KeyScopes& scopes);

}  // namespace lorry::schema
