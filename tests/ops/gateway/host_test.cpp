// Which values of the field Host pass: a page of another site must not reach the gateway under a name of its own.
#include "ops/gateway/host.h"

#include <gtest/gtest.h>

namespace lorry::ops {
namespace {

TEST(Host, IsAnAddressOrAKnownNameWithAtMostAPort) {
    for (const char* host : {"localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:8000", "10.1.2.3:1", "[::1]", "[::1]:8000",
                             "[fe80::1:2]:80", "[::ffff:10.0.0.1]", "lorry.example", "lorry.example:8000", "localhost:"})
        EXPECT_TRUE(is_known_host(host, "lorry.example")) << host;
    for (const char* host : {"",
                             ":",
                             ":8000",
                             "evil.example",
                             "[::1]evil.example",
                             "[::1]evil.example:8000",
                             "[::1].evil.example",
                             "[::1]:8000.evil.example",
                             "[::1",
                             "[::1:8000",
                             "[]",
                             "[]:80",
                             "[",
                             "]",
                             "[evil.example]",
                             "[::1]]",
                             "[::1][::1]",
                             "localhost:evil.example",
                             "localhost:80:80",
                             "localhost.evil.example",
                             "localhost:8000@evil.example",
                             "localhost@evil.example",
                             "127.0.0.1.evil.example",
                             "127.0.0.1:x",
                             "127.0.0.1 evil.example",
                             "::1",
                             "lorry.example.evil.example",
                             "127.0.0.1:-1"})
        EXPECT_FALSE(is_known_host(host, "lorry.example")) << host;
    EXPECT_FALSE(is_known_host("", ""));
}

}  // namespace
}  // namespace lorry::ops
