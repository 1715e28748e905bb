// One thread that polls all connections; a connection is two sockets with a buffer for each direction.
#include "consumer/kafka/port_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <list>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {
namespace {

class Descriptor {
public:
    explicit Descriptor(int value) : value_(value) {}
    Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() {
        if (value_ >= 0) close(value_);
    }
    int get() const { return value_; }

private:
    int value_;
};

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

void send_at_once(int descriptor) {
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Bytes that were read from one side and not yet written to the other.
struct Flow {
    std::array<char, 1 << 16> bytes;
    std::size_t begin = 0;
    std::size_t end = 0;

    bool is_empty() const { return begin == end; }
    // False: the connection is over.
    bool read_from(int descriptor) {
        const ssize_t count = recv(descriptor, bytes.data(), bytes.size(), 0);
        if (count < 0) return would_block();
        begin = 0;
        end = static_cast<std::size_t>(count);
        return count > 0;
    }
    bool write_to(int descriptor) {
        const ssize_t count = send(descriptor, bytes.data() + begin, end - begin, MSG_NOSIGNAL);
        if (count < 0) return would_block();
        begin += static_cast<std::size_t>(count);
        return true;
    }
};

struct Pair {
    Descriptor client;
    Descriptor server;
    Flow up;    // client to server
    Flow down;  // server to client

    // A side is read only after everything read before was forwarded: the slower side sets the pace.
    static short events(const Flow& from, const Flow& to) {
        return static_cast<short>((from.is_empty() ? POLLIN : 0) | (to.is_empty() ? 0 : POLLOUT));
    }
    // False: the connection is over.
    bool serve(short client_events, short server_events) {
        if (up.is_empty() && (client_events & (POLLIN | POLLHUP | POLLERR)) != 0 && !up.read_from(client.get())) return false;
        if (down.is_empty() && (server_events & (POLLIN | POLLHUP | POLLERR)) != 0 && !down.read_from(server.get())) return false;
        if (!up.is_empty() && !up.write_to(server.get())) return false;
        return down.is_empty() || down.write_to(client.get());
    }
};

void accept_into(std::list<Pair>& pairs, int listener, std::uint16_t target_port) {
    Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.get() < 0) return;
    Descriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(target_port);
    // Blocking, so that it is either there or not; on one machine that takes no time.
    if (server.get() < 0 || connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
    if (fcntl(server.get(), F_SETFL, O_NONBLOCK) != 0) return;
    send_at_once(client.get());
    send_at_once(server.get());
    pairs.push_back({.client = std::move(client), .server = std::move(server), .up = {}, .down = {}});
}

}  // namespace

PortRelay::PortRelay(std::uint16_t port, std::uint16_t target_port) {
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    const sockaddr_in address = loopback(port);
    if (listener.get() < 0 || setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || listen(listener.get(), 64) != 0) {
        throw std::system_error(errno, std::generic_category(), "port " + std::to_string(port) + " of 127.0.0.1");
    }
    wake_ = eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    listener_ = dup(listener.get());
    thread_ = std::thread([this, target_port] { run(target_port); });
}

PortRelay::~PortRelay() {
    const std::uint64_t one = 1;
    CHECK(write(wake_, &one, sizeof(one)) == sizeof(one), "an event descriptor takes a one");
    thread_.join();
    close(listener_);
    close(wake_);
}

void PortRelay::run(std::uint16_t target_port) const {
    std::list<Pair> pairs;
    std::vector<pollfd> polled;
    while (true) {
        polled = {{.fd = wake_, .events = POLLIN, .revents = 0}, {.fd = listener_, .events = POLLIN, .revents = 0}};
        for (const Pair& pair : pairs) {
            polled.push_back({.fd = pair.client.get(), .events = Pair::events(pair.up, pair.down), .revents = 0});
            polled.push_back({.fd = pair.server.get(), .events = Pair::events(pair.down, pair.up), .revents = 0});
        }
        if (poll(polled.data(), polled.size(), -1) < 0) continue;
        if (polled[0].revents != 0) return;
        std::size_t at = 2;
        for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
            const bool alive = pair->serve(polled[at].revents, polled[at + 1].revents);
            pair = alive ? std::next(pair) : pairs.erase(pair);
        }
        if (polled[1].revents != 0) accept_into(pairs, listener_, target_port);
    }
}

}  // namespace lorry::consumer
