// Forwards TCP connections from one port of 127.0.0.1 to another. librdkafka's mock cluster listens on any free port; this gives it a port
// that the user chose. Used by broker.cpp.
#pragma once

#include <cstdint>
#include <thread>

namespace lorry::consumer {

class PortRelay {
public:
    // Starts listening and forwards connections on a thread of its own. Throws std::system_error when the port is taken.
    PortRelay(std::uint16_t port, std::uint16_t target_port);
    ~PortRelay();  // closes all connections
    PortRelay(const PortRelay&) = delete;
    PortRelay& operator=(const PortRelay&) = delete;

private:
    void run(std::uint16_t target_port) const;

    int listener_ = -1;
    int wake_ = -1;  // an eventfd; the thread ends when it becomes readable
    std::thread thread_;
};

}  // namespace lorry::consumer
