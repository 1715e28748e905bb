// Takes the port off, and tells addresses from names.
#include "ops/gateway/host.h"

#include <algorithm>
#include <optional>
#include <string>

#include "schema/ascii.h"

namespace lorry::ops {
namespace {

bool consists_of(std::string_view text, std::string_view letters) {
    return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

// A host and, perhaps, a port after a colon (RFC 9110, 7.2); nullopt: it is neither.
std::optional<std::string_view> without_port(std::string_view host) {
    // The colons of an IPv6 address stand within brackets.
    const std::size_t from = host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0;
    const std::size_t colon = host.find(':', from);
    if (colon == std::string_view::npos) return host;
    const std::string_view port = host.substr(colon + 1);
    if (port.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    return host.substr(0, colon);
}

}  // namespace

bool is_known_host(std::string_view host, std::string_view own) {
    const auto bare = without_port(host);
    if (!bare) return false;
    if (bare->starts_with('[')) return bare->ends_with(']') && consists_of(bare->substr(1, bare->size() - 2), "0123456789abcdefABCDEF:.");
    const std::string name = schema::lower_case(*bare);
    // A name of a host does not end in a number (RFC 1123), so digits and dots are an address.
    return consists_of(name, "0123456789.") || name == "localhost" || (!own.empty() && name == own);
}

}  // namespace lorry::ops
