// Stands between brokers and who talks to them and does what networks do: delays, cuts, loses. Knows of Kafka's protocol only where a
// request ends and which ones are EndTxn. Two threads per connection.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lorry::faults {

enum class EndTxnFault : std::uint8_t {
    none,
    delay_request,   // it reaches the broker later
    stray_request,   // the client's connection is cut at once, the request reaches the broker later all the same
    drop_request,    // the connection is cut, the broker never sees it
    drop_response,   // the broker acts upon it, the connection is cut instead of the answer
    delay_response,  // the answer comes later
};

class FaultProxy {
public:
    // Both of 127.0.0.1: where we listen, and who listens behind us.
    struct Route {
        std::uint16_t port = 0;
        std::uint16_t target = 0;
    };
    // Throws std::system_error when a port is taken.
    explicit FaultProxy(const std::vector<Route>& routes);
    ~FaultProxy();
    FaultProxy(const FaultProxy&) = delete;
    FaultProxy& operator=(const FaultProxy&) = delete;

    // Any thread, all of them; on all routes.
    void set_latency(std::chrono::milliseconds each_way) { latency_ms_ = each_way.count(); }
    void set_refusing(bool refusing) { refusing_ = refusing; }  // of new connections
    void cut_all();
    // The next `count` EndTxn requests fare so.
    void arm(EndTxnFault fault, int count, std::chrono::milliseconds delay = std::chrono::milliseconds(0));
    // How many requests and connections met with a fault: they fared as armed, were slowed down or cut, or found no broker.
    std::uint64_t hits() const { return hits_; }

private:
    struct Connection;
    struct Listener {
        int socket = -1;
        std::thread acceptor;
    };
    void close_listeners();
    void accept_all(int listener, std::uint16_t target);
    void pass_up(Connection& connection);
    void pass_down(Connection& connection);
    EndTxnFault fault_of(const unsigned char* header);

    std::atomic<std::int64_t> latency_ms_ = 0;
    std::atomic<bool> refusing_ = false;
    std::atomic<bool> ending_ = false;
    std::atomic<std::uint64_t> hits_ = 0;
    std::mutex mutex_;
    EndTxnFault fault_ = EndTxnFault::none;  // guarded by mutex_, as the next three
    int fault_count_ = 0;
    std::chrono::milliseconds fault_delay_{0};
    std::list<std::unique_ptr<Connection>> connections_;
    std::vector<Listener> listeners_;
};

// The first of `count` free ports of 127.0.0.1 in a row, below those that the system hands out by itself.
std::uint16_t free_ports(std::uint64_t seed, int count);

}  // namespace lorry::faults
