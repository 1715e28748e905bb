// The program against a real Kafka: calls of commands, and topics of its own for each test. LORRY_KAFKA_ADDRESS_FILE names the file with
// the broker's address.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/ops/client/fixture.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/real_broker.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {

inline std::string first_line(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

class RealKafkaProgram : public testing::Test {
protected:
    void SetUp() override {
        const auto broker = tests::real_broker();
        if (!broker) GTEST_SKIP() << tests::no_real_broker;
        address = broker->address;
        secure = broker->folder / "secure";
        topics.prefix = fmt::format("p{}-{}", ::getpid(), std::chrono::system_clock::now().time_since_epoch().count() % 1'000'000'000);
        group = topics.prefix + "-tiny";
        config.brokers = address;
        const Call created = call({"topics", "create", "--partitions", "2", "--brokers", address, "--prefix", topics.prefix});
        ASSERT_EQ(created.code, 0) << created.err;
    }

    // `lorry ARGUMENTS` as the user who has all rights.
    Call lorry(std::vector<std::string> arguments) const {
        arguments.insert(arguments.end(), {"--brokers", address, "--prefix", topics.prefix});
        return call(std::move(arguments));
    }

    // `lorry worker` on that model; callers add brokers and prefix.
    std::vector<std::string> worker_command(const tests::TinyModel& tiny, const std::filesystem::path& ledger) const {
        return {LORRY_PROGRAM, "worker",  "--model",  tiny.model.string(), "--adapters", tiny.adapters.string(), "--base-name",
                "tiny",        "--group", group,      "--member",          "worker-1",   "--metrics-address",    "off",
                "--threads",   "1",       "--ledger", ledger.string()};
    }

    std::string address;
    std::filesystem::path secure;
    schema::Topics topics;
    std::string group;
    consumer::KafkaConfig config{.brokers = "", .passthrough = {}, .deadline_start = 30s, .deadline_later = 60s};
};

}  // namespace lorry::ops
