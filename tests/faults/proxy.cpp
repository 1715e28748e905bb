// The proxy with blocking sockets; a connection ends when either side closes it. See proxy.h.
#include "tests/faults/proxy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "schema/check.h"

namespace lorry::faults {
namespace {

constexpr int end_txn_key = 26;
constexpr std::size_t size_bytes = 4;
constexpr std::size_t key_bytes = 2;
constexpr std::size_t frame_bytes_max = std::size_t{256} << 20;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

bool read_exactly(int socket, unsigned char* to, std::size_t count) {
    while (count > 0) {
        const ssize_t got = recv(socket, to, count, 0);
        if (got <= 0) return false;
        to += got;
        count -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int socket, const unsigned char* from, std::size_t count) {
    while (count > 0) {
        const ssize_t sent = send(socket, from, count, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        from += sent;
        count -= static_cast<std::size_t>(sent);
    }
    return true;
}

int connect_to(std::uint16_t port) {
    const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    if (connected >= 0 && connect(connected, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return connected;
    if (connected >= 0) close(connected);
    return -1;
}

bool can_be_bound(std::uint16_t port) {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    const bool bound = probe >= 0 && bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    if (probe >= 0) close(probe);
    return bound;
}

}  // namespace

struct FaultProxy::Connection {
    int client = -1;
    int server = -1;
    std::atomic<bool> mute = false;                  // send the client nothing more
    std::atomic<std::int64_t> answers_delay_ms = 0;  // delay of the next bytes
    std::atomic<int> directions_left = 2;
    std::thread up;
    std::thread down;

    void cut() const {
        shutdown(client, SHUT_RDWR);
        shutdown(server, SHUT_RDWR);
    }
    ~Connection() {
        cut();
        if (up.joinable()) up.join();
        if (down.joinable()) down.join();
        close(client);
        close(server);
    }
};

FaultProxy::FaultProxy(const std::vector<Route>& routes) {
    for (const Route& route : routes) {
        const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int on = 1;
        const sockaddr_in address = loopback(route.port);
        if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
            bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 128) != 0) {
            const std::system_error error(errno, std::generic_category(), "port " + std::to_string(route.port) + " of 127.0.0.1");
            close_listeners();
            throw error;
        }
        listeners_.push_back({listener, std::thread([this, listener, target = route.target] { accept_all(listener, target); })});
    }
}

FaultProxy::~FaultProxy() {
    close_listeners();
    connections_.clear();
}

void FaultProxy::close_listeners() {
    ending_ = true;
    for (Listener& listener : listeners_) {
        shutdown(listener.socket, SHUT_RDWR);
        listener.acceptor.join();
        close(listener.socket);
    }
}

void FaultProxy::accept_all(int listener, std::uint16_t target) {
    while (!ending_) {
        const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) continue;
        const int server = refusing_ || ending_ ? -1 : connect_to(target);
        if (server < 0) {
            ++hits_;
            close(client);
            continue;
        }
        const int on = 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        auto connection = std::make_unique<Connection>();
        connection->client = client;
        connection->server = server;
        connection->up = std::thread([this, raw = connection.get()] { pass_up(*raw); });
        connection->down = std::thread([this, raw = connection.get()] { pass_down(*raw); });
        const std::scoped_lock lock(mutex_);
        connections_.remove_if([](const auto& one) { return one->directions_left == 0; });
        connections_.push_back(std::move(connection));
    }
}

void FaultProxy::cut_all() {
    const std::scoped_lock lock(mutex_);
    for (const auto& connection : connections_) {
        if (connection->directions_left > 0) ++hits_;
        connection->cut();
    }
}

void FaultProxy::arm(EndTxnFault fault, int count, std::chrono::milliseconds delay) {
    const std::scoped_lock lock(mutex_);
    fault_ = fault;
    fault_count_ = count;
    fault_delay_ = delay;
}

EndTxnFault FaultProxy::fault_of(const unsigned char* header) {
    if (((header[0] << 8) | header[1]) != end_txn_key) return EndTxnFault::none;
    const std::scoped_lock lock(mutex_);
    if (fault_count_ == 0) return EndTxnFault::none;
    --fault_count_;
    ++hits_;
    return fault_;
}

// Forwards requests one by one: four bytes of size, then the request, which begins with its key.
void FaultProxy::pass_up(Connection& connection) {
    std::vector<unsigned char> frame;
    const auto wait = [&] {
        std::unique_lock lock(mutex_);
        const auto delay = fault_delay_;
        lock.unlock();
        std::this_thread::sleep_for(delay);
    };
    for (;;) {
        frame.resize(size_bytes);
        if (!read_exactly(connection.client, frame.data(), size_bytes)) break;
        std::size_t size = 0;
        for (std::size_t i = 0; i < size_bytes; ++i) size = size << 8 | frame[i];
        if (size < key_bytes || size > frame_bytes_max) break;
        frame.resize(size_bytes + size);
        if (!read_exactly(connection.client, frame.data() + size_bytes, size)) break;
        if (latency_ms_ > 0) ++hits_;
        std::this_thread::sleep_for(std::chrono::milliseconds(latency_ms_));
        bool cut_after = false;
        switch (fault_of(frame.data() + size_bytes)) {
            case EndTxnFault::none: break;
            case EndTxnFault::delay_request: wait(); break;
            case EndTxnFault::stray_request:
                shutdown(connection.client, SHUT_RDWR);
                wait();
                cut_after = true;
                break;
            case EndTxnFault::drop_request: connection.cut(); break;
            case EndTxnFault::drop_response:
                connection.mute = true;
                cut_after = true;
                break;
            case EndTxnFault::delay_response: {
                const std::scoped_lock lock(mutex_);
                connection.answers_delay_ms = fault_delay_.count();
                break;
            }
        }
        if (!write_all(connection.server, frame.data(), frame.size())) break;
        // The broker reads what was sent before the connection ended and acts on it.
        if (cut_after) {
            shutdown(connection.server, SHUT_WR);
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            break;
        }
    }
    connection.cut();
    --connection.directions_left;
}

void FaultProxy::pass_down(Connection& connection) {
    std::array<unsigned char, 1 << 16> bytes;
    for (;;) {
        const ssize_t count = recv(connection.server, bytes.data(), bytes.size(), 0);
        if (count <= 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(latency_ms_ + connection.answers_delay_ms.exchange(0)));
        if (!connection.mute && !write_all(connection.client, bytes.data(), static_cast<std::size_t>(count))) break;
    }
    // A request whose client was cut off is still on its way to the broker.
    shutdown(connection.client, SHUT_RDWR);
    --connection.directions_left;
}

std::uint16_t free_ports(std::uint64_t seed, int count) {
    constexpr std::uint64_t low = 20'000;
    constexpr std::uint64_t range = 12'000;
    for (std::uint64_t i = 0; i < range; ++i) {
        const auto first = static_cast<std::uint16_t>(low + (seed + i * 7) % range);
        int free = 0;
        while (free < count && can_be_bound(static_cast<std::uint16_t>(first + free))) ++free;
        if (free == count) return first;
    }
    CHECK(false, "some of 12,000 ports are free");
}

}  // namespace lorry::faults
