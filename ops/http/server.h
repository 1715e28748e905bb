// An HTTP/1.1 server for pages that strangers may ask for. It bounds what a client can take of the process: descriptors, memory and time.
// Used by ops/worker/health_server.h.
//
// One thread does all network work and never blocks. Each page has a thread of its own, so that a slow page or client delays no other page.
// Requests are GET or HEAD. A request with a body is refused before its body is read; answers are not compressed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lorry::ops {

struct HttpAnswer {
    unsigned status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

struct HttpPage {
    std::string path;
    // Called on the page's thread, for one request at a time. An exception is answered with 500.
    std::function<HttpAnswer()> answer;
};

struct HttpLimits {
    // Open at most. For one more, the server closes another: of the address with the most connections, the one that was quiet for longest.
    std::size_t connections = 64;
    std::size_t waiting = 16;                           // requests for one page that is slow; further ones are answered with 503
    std::size_t header_bytes = 8192;                    // of a request; 431 beyond
    std::chrono::milliseconds request_timeout{10'000};  // from a request's first byte, or the connection's start, to the end of its header
    std::chrono::milliseconds idle_timeout{120'000};    // from an answer to the next request
    std::chrono::milliseconds write_timeout{10'000};    // for an answer
};

class HttpServer {
public:
    struct Options {
        std::string host;        // a name or an address; "" listens on all
        std::uint16_t port = 0;  // 0: any free one
        std::vector<HttpPage> pages;
        HttpLimits limits = {};
        // Called on the page's thread with the page that threw and the exception's message. May be empty.
        std::function<void(const std::string& path, const std::string& reason)> on_failure = {};
    };
    // Descriptors that a server takes besides one for each connection: the listening socket and those of the event loop.
    static constexpr std::size_t descriptors_own = 4;

    // Listens, and answers from now on. Throws std::system_error if it cannot listen there.
    explicit HttpServer(Options options);
    // Closes all connections; waits for pages that are being made.
    ~HttpServer();

    std::uint16_t port() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::ops
