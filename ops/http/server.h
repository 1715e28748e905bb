// An HTTP/1.1 server for clients that nobody trusts. It bounds what a client can take of the process: descriptors, memory and
// time. Used by ops/http/pages.h and ops/gateway.
//
// One thread does all network work and calls an HttpHandler, which must not block. Answers are not compressed. Order: constructor, start(),
// then any of the others; stop() before the handler ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lorry::ops {

class TlsIdentity;

using HttpField = std::pair<std::string, std::string>;

struct HttpRequest {
    std::string method;             // "GET", as it was sent
    std::string target;             // as it was sent: a path, mostly
    std::vector<HttpField> fields;  // of the header; names in lower case
    bool has_body = false;          // as its header says
    std::string body;               // empty until all of it has come
    std::string from;               // the client's address: "10.0.0.7", "fe80::1"

    // The first field of that name, in lower case; nullptr: there is none.
    const std::string* field(std::string_view name) const;
    std::size_t count(std::string_view name) const;
};

struct HttpAnswer {
    unsigned status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
    std::vector<HttpField> fields = {};  // further ones
};

// Counts the requests of a server, from 1.
using HttpRequestId = std::uint64_t;

// What answers the requests. All calls come from the network's thread.
class HttpHandler {
public:
    virtual ~HttpHandler() = default;
    // A request whose header has come, and whose body has not. An answer refuses it, and the connection ends.
    virtual std::optional<HttpAnswer> refuse(const HttpRequest& request) = 0;
    // A whole request. HttpServer::answer(), or write() and end(), follow now or later.
    virtual void handle(HttpRequestId id, HttpRequest request) = 0;
    // Which bodies are not collected, but passed on as they come, and how many bytes they may have; nullopt: this one is collected. Then
    // begin() comes first, take_part() for each part, and handle() last, whose request has no body. After each part the server waits for
    // HttpServer::go_on(), or for an answer, which ends the connection if the body has not come whole.
    virtual std::optional<std::size_t> streamed_bytes_max(const HttpRequest&) { return std::nullopt; }
    virtual void begin(HttpRequestId, HttpRequest) {}
    virtual void take_part(HttpRequestId, std::string) {}
    // All of a streamed answer has been written that there was so far.
    virtual void on_written(HttpRequestId) {}
    // The request has no answer yet, and its client has closed the connection, or only its own side of it. It may be called twice.
    virtual void on_client_gone(HttpRequestId) {}
    // answer_timeout is over. The answer, or the end of what was begun, must follow at once.
    virtual void on_overdue(HttpRequestId) {}
    // The server's own refusals: a text for people as an answer.
    virtual HttpAnswer refusal(unsigned status, const std::string& text) = 0;
};

struct HttpLimits {
    // Open at most. For one more, the server closes another that waits for no answer: of the address with the most connections, the one
    // that was quiet for longest. If all wait for answers, it closes the new one.
    std::size_t connections = 64;
    std::size_t header_bytes = 8192;                    // of a request; 431 beyond
    std::size_t body_bytes = 0;                         // of a request; 413 beyond
    std::size_t bodies_bytes = std::size_t{256} << 20;  // that came of all bodies which are being read; 503 beyond
    std::size_t unsent_bytes = std::size_t{1} << 20;    // of a streamed answer: a client that reads more slowly is cut off
    std::chrono::milliseconds request_timeout{
        10'000};  // for the TLS handshake; from a request's first byte, or the connection's start, to the end of its header
    std::chrono::milliseconds body_pause{10'000};       // from there, or from any part of its body, to the next part
    std::chrono::milliseconds body_timeout{60'000};     // from there to the end of its body
    std::chrono::milliseconds upload_timeout{600'000};  // the same for a body that is passed on as it comes
    std::chrono::milliseconds idle_timeout{120'000};    // from an answer to the next request
    // For an answer, or for what there is of a streamed one. About as long may a client be lost without a word.
    std::chrono::milliseconds write_timeout{10'000};
    std::optional<std::chrono::milliseconds> answer_timeout;  // from a request's end to the end of its answer
};

class HttpServer {
public:
    struct Options {
        std::string host;        // a name or an address; "" listens on all
        std::uint16_t port = 0;  // 0: any free one
        HttpHandler& handler;
        HttpLimits limits = {};
        const TlsIdentity* tls = nullptr;  // it outlives the server; nullptr: without TLS
    };
    // Descriptors that a server takes besides one for each connection: the listening socket and those of the event loop.
    static constexpr std::size_t descriptors_own = 4;

    // Listens. Throws std::system_error if it cannot listen there.
    explicit HttpServer(const Options& options);
    ~HttpServer();

    // Answers from now on.
    void start();
    // Closes all connections, those with complete answers after these are written, and calls the handler no more.
    void stop();
    std::uint16_t port() const;

    // Calls `work` on the network's thread, unless the server stops before. Any thread.
    void post(std::function<void()> work);

    // On the network's thread. They do nothing for a request whose connection has ended.
    void answer(HttpRequestId id, HttpAnswer answer);
    // A streamed answer: status and fields of `begin`, whose body is not sent; parts; and the end. The parts wait for the client in memory,
    // limits.unsent_bytes at most, or one part: the connection of a client that reads more slowly is closed. With a length the parts have
    // that many bytes together, otherwise they are sent in chunks.
    void begin(HttpRequestId id, HttpAnswer begin, std::optional<std::uint64_t> length = {});
    void write(HttpRequestId id, std::string_view bytes);
    void end(HttpRequestId id);
    // The part of a body was taken: the next may come.
    void go_on(HttpRequestId id);
    // Closes the connection at once.
    void drop(HttpRequestId id);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::ops
