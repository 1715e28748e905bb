// Which values of the field Host a request may have. Used by gateway.cpp.
#pragma once

#include <string_view>

namespace lorry::ops {

// host: the field, with a port or without. True for addresses, "localhost", and the name that the server was given to listen on.
bool is_known_host(std::string_view host, std::string_view own);

}  // namespace lorry::ops
