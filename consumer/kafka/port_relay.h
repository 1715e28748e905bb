// Passes TCP connections on from one port of 127.0.0.1 to another: librdkafka's mock cluster takes whatever port is free, people want one
// that they know. Used by broker.cpp.
#pragma once

#include <cstdint>
#include <thread>

namespace lorry::consumer {

class PortRelay {
public:
    // Listens at once, on a thread of its own. Throws std::system_error when the port is taken.
    PortRelay(std::uint16_t port, std::uint16_t target_port);
    ~PortRelay();  // ends all connections
    PortRelay(const PortRelay&) = delete;
    PortRelay& operator=(const PortRelay&) = delete;

private:
    void run(std::uint16_t target_port) const;

    int listener_ = -1;
    int wake_ = -1;  // readable: the end
    std::thread thread_;
};

}  // namespace lorry::consumer
