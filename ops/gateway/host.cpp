// Takes the port off, and tells addresses from names.
#include "ops/gateway/host.h"

#include <algorithm>
#include <string>

namespace lorry::ops {
namespace {

bool consists_of(std::string_view text, std::string_view letters) {
    return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

}  // namespace

bool is_known_host(std::string_view host, std::string_view own) {
    if (host.starts_with('[')) {
        const std::size_t end = host.find(']');
        return end != std::string_view::npos && consists_of(host.substr(1, end - 1), "0123456789abcdefABCDEF:.");
    }
    std::string name(host.substr(0, host.find(':')));
    std::ranges::transform(name, name.begin(),
                           [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter; });
    // A name of a host does not end in a number (RFC 1123), so digits and dots are an address.
    return consists_of(name, "0123456789.") || name == "localhost" || (!own.empty() && name == own);
}

}  // namespace lorry::ops
