// A proxy between the brokers and their clients that delays, cuts and loses traffic as networks do. Used by Cluster (rig.h). Of Kafka's
// protocol it knows only where a request ends and which requests are EndTxn. Two threads per connection.
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
    delay_request,   // the request reaches the broker late
    stray_request,   // the client's connection is cut at once, but the request still reaches the broker later
    drop_request,    // the connection is cut and the broker never sees the request
    drop_response,   // the broker acts on the request, but the connection is cut instead of the answer
    delay_response,  // the answer arrives late
};

class FaultProxy {
public:
    // Two ports of 127.0.0.1: the one the proxy listens on, and the broker's.
    struct Route {
        std::uint16_t port = 0;
        std::uint16_t target = 0;
    };
    // Throws std::system_error when a port is taken.
    explicit FaultProxy(const std::vector<Route>& routes);
    ~FaultProxy();
    FaultProxy(const FaultProxy&) = delete;
    FaultProxy& operator=(const FaultProxy&) = delete;

    // The functions below may be called from any thread and act on all routes.
    void set_latency(std::chrono::milliseconds each_way) { latency_ms_ = each_way.count(); }
    void set_refusing(bool refusing) { refusing_ = refusing; }  // of new connections
    void cut_all();
    // Applies the fault to the next `count` EndTxn requests.
    void arm(EndTxnFault fault, int count, std::chrono::milliseconds delay = std::chrono::milliseconds(0));
    // How many requests and connections met a fault: one that was armed, a delay, a cut, or a broker that was down.
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
    EndTxnFault fault_ = EndTxnFault::none;  // guarded by mutex_, like the next three
    int fault_count_ = 0;
    std::chrono::milliseconds fault_delay_{0};
    std::list<std::unique_ptr<Connection>> connections_;
    std::vector<Listener> listeners_;
};

// The first of `count` consecutive free ports of 127.0.0.1, below the range of ephemeral ports.
std::uint16_t free_ports(std::uint64_t seed, int count);

}  // namespace lorry::faults
