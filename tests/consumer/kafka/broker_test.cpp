// The embedded broker's answers to requests that no Kafka client sends on purpose; the tests write them byte by byte.
#include "consumer/kafka/broker.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "consumer/kafka/admin.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

// A JoinGroup request, version 0 (kafka.apache.org/protocol), from a member that offers one protocol without metadata.
std::string join_request(const std::string& group, const std::string& member) {
    std::string text;
    const auto add_number = [&](auto number) {
        for (std::size_t i = sizeof number; i-- > 0;) text.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i)));
    };
    const auto add_string = [&](const std::string& part) {
        add_number(static_cast<std::int16_t>(part.size()));
        text += part;
    };
    constexpr std::int16_t join_group = 11;
    add_number(join_group);
    add_number(std::int16_t{0});  // version
    add_number(std::int32_t{1});  // correlation id
    add_string("test");           // client id
    add_string(group);
    add_number(std::int32_t{30'000});  // session time-out in ms
    add_string(member);
    add_string("consumer");
    add_number(std::int32_t{1});  // protocols
    add_string("range");
    add_number(std::int32_t{0});  // bytes of its metadata
    const std::string body = std::exchange(text, "");
    add_number(static_cast<std::int32_t>(body.size()));
    return text + body;
}

class RawConnection {
public:
    explicit RawConnection(const std::string& address) {
        std::uint16_t port = 0;
        const std::size_t colon = address.rfind(':');
        EXPECT_EQ(std::from_chars(address.data() + colon + 1, address.data() + address.size(), port).ec, std::errc());
        sockaddr_in broker{};
        broker.sin_family = AF_INET;
        broker.sin_port = htons(port);
        broker.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval patience{.tv_sec = 15, .tv_usec = 0};
        setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&broker), sizeof broker), 0);
    }
    ~RawConnection() { close(socket_); }
    RawConnection(const RawConnection&) = delete;
    RawConnection& operator=(const RawConnection&) = delete;

    void send_all(const std::string& request) const {
        EXPECT_EQ(send(socket_, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    }
    // The error code of an answer of version 0, which begins with its size and the correlation id; nullopt if no answer came.
    std::optional<int> error_code() const {
        std::array<unsigned char, 10> head{};
        if (recv(socket_, head.data(), head.size(), MSG_WAITALL) != static_cast<ssize_t>(head.size())) return std::nullopt;
        return head[8] << 8U | head[9];
    }

private:
    const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

// Pins: the broker aborted when a member lost its connection and joined again before the broker had noticed the loss.
TEST(EmbeddedBroker, AnswersAMemberThatJoinsOnceMoreBeforeItWasAnswered) {
    EmbeddedBroker::Options options = broker_options(1);
    options.rebalance_delay = 2s;
    const EmbeddedBroker broker(options);
    const RawConnection first(broker.address());
    const RawConnection second(broker.address());
    first.send_all(join_request("group", "member"));
    std::this_thread::sleep_for(200ms);
    second.send_all(join_request("group", "member"));
    EXPECT_EQ(second.error_code(), 0);
    EXPECT_NO_THROW(describe_cluster({.brokers = broker.address()}));
}

}  // namespace
}  // namespace lorry::consumer
