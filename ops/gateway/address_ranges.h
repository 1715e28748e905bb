// Lists of IP addresses and networks: which clients are trusted proxies. Used by proxy_authenticator.h. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::ops {

class AddressRanges {
public:
    // "10.0.0.0/8,::1": addresses and CIDR blocks, with commas between them. An address with bits below its block is an error, as it is
    // mostly a slip.
    static Expected<AddressRanges, std::string> parse(std::string_view list);

    // False for what is no address.
    bool contains(std::string_view address) const;

private:
    // IPv4 is ::ffff:0:0/96 (RFC 4291, 2.5.5.2).
    using Address = std::array<std::uint8_t, 16>;
    struct Range {
        Address first{};
        unsigned bits = 0;  // of its beginning that addresses share
    };
    static bool read_address(std::string_view text, Address& out, bool& is_v4);
    static bool matches(const Range& range, const Address& address);

    std::vector<Range> ranges_;
};

}  // namespace lorry::ops
