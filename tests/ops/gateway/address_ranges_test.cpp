// Which addresses are in which blocks, and which lists are refused.
#include "ops/gateway/address_ranges.h"

#include <gmock/gmock.h>

namespace lorry::ops {
namespace {

using testing::HasSubstr;

bool is_in(const std::string& list, const std::string& address) { return AddressRanges::parse(list)->contains(address); }

TEST(AddressRanges, KnowsTheAddressesOfBlocks) {
    EXPECT_TRUE(is_in("10.0.0.0/8", "10.255.0.1"));
    EXPECT_FALSE(is_in("10.0.0.0/8", "11.0.0.0"));
    EXPECT_TRUE(is_in("192.168.4.0/23", "192.168.5.255"));
    EXPECT_FALSE(is_in("192.168.4.0/23", "192.168.6.0"));
    EXPECT_TRUE(is_in("10.0.0.7", "10.0.0.7"));
    EXPECT_FALSE(is_in("10.0.0.7", "10.0.0.8"));
    EXPECT_TRUE(is_in("0.0.0.0/0", "8.8.8.8"));
    EXPECT_FALSE(is_in("0.0.0.0/0", "2001:db8::1"));
    EXPECT_TRUE(is_in("::/0", "2001:db8::1"));
    EXPECT_TRUE(is_in("2001:db8::/33", "2001:db8:7fff::1"));
    EXPECT_FALSE(is_in("2001:db8::/33", "2001:db8:8000::1"));
    EXPECT_TRUE(is_in("10.0.0.0/8,::1", "::1"));
    EXPECT_FALSE(is_in("10.0.0.0/8,::1", "::2"));
    EXPECT_TRUE(is_in("10.0.0.0/8", "::ffff:10.1.1.1")) << "the same address, as sockets for both versions write it";
    for (const char* none : {"", "10.0.0", "10.0.0.1.1", "localhost", "10.0.0.1 ", "fe80::1%eth0"})
        EXPECT_FALSE(is_in("0.0.0.0/0,::/0", none)) << none;
}

TEST(AddressRanges, RefusesListsThatAreNoBlocks) {
    for (const char* list : {"", ",", "10.0.0.0/8,", "10.0.0", "localhost", " ::1", "10.0.0.0-10.0.0.9", "*"})
        EXPECT_THAT(AddressRanges::parse(list).error(), HasSubstr("is no IP address or block")) << list;
    for (const char* list : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8 ", "10.0.0.0/-1", "::/129", "10.0.0.0/8/8", "10.0.0.0/x"})
        EXPECT_THAT(AddressRanges::parse(list).error(), HasSubstr("after the slash")) << list;
    for (const char* list : {"10.0.0.1/8", "::1/64", "0.0.0.1/0"})
        EXPECT_THAT(AddressRanges::parse(list).error(), HasSubstr("has bits beyond")) << list;
}

}  // namespace
}  // namespace lorry::ops
