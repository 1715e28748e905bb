// Reads CIDR blocks and compares bits.
#include "ops/gateway/address_ranges.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "schema/whole_number.h"

namespace lorry::ops {
namespace {

constexpr unsigned all_bits = 128;
constexpr unsigned bits_of_v4_prefix = 96;

}  // namespace

bool AddressRanges::read_address(std::string_view text, Address& out, bool& is_v4) {
    const std::string copy(text);
    is_v4 = copy.find(':') == std::string::npos;
    if (!is_v4) return inet_pton(AF_INET6, copy.c_str(), out.data()) == 1;
    out = {};
    out[10] = out[11] = 0xff;
    return inet_pton(AF_INET, copy.c_str(), out.data() + 12) == 1;
}

bool AddressRanges::matches(const Range& range, const Address& address) {
    for (unsigned bit = 0; bit < range.bits; ++bit) {
        const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
        if ((range.first[bit / 8] & mask) != (address[bit / 8] & mask)) return false;
    }
    return true;
}

Expected<AddressRanges, std::string> AddressRanges::parse(std::string_view list) {
    AddressRanges made;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        const std::string_view text = list.substr(at, end - at);
        at = end + 1;
        const std::size_t slash = std::min(text.find('/'), text.size());
        Range range;
        bool is_v4 = false;
        if (!read_address(text.substr(0, slash), range.first, is_v4))
            return unexpected(fmt::format("'{}' is no IP address or block: write 10.0.0.0/8 or ::1, with commas between several", text));
        const unsigned before = is_v4 ? bits_of_v4_prefix : 0;
        const auto bits = slash == text.size() ? std::optional(all_bits - before) : schema::parse_whole<unsigned>(text.substr(slash + 1));
        if (!bits || *bits > all_bits - before)
            return unexpected(fmt::format("'{}': after the slash stands a number from 0 to {}", text, all_bits - before));
        range.bits = before + *bits;
        for (unsigned bit = range.bits; bit < all_bits; ++bit) {
            if ((range.first[bit / 8] & (0x80U >> (bit % 8))) != 0)
                return unexpected(fmt::format("'{}' has bits beyond its first {}: write the block's first address", text, *bits));
        }
        made.ranges_.push_back(range);
    }
    return made;
}

bool AddressRanges::contains(std::string_view address) const {
    Address bytes{};
    bool is_v4 = false;
    if (!read_address(address, bytes, is_v4)) return false;
    return std::ranges::any_of(ranges_, [&](const Range& range) { return matches(range, bytes); });
}

}  // namespace lorry::ops
