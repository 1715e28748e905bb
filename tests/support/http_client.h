// An HTTP client that sends any bytes, right or wrong, and shows what comes back. Used by tests of ops and a fuzz target.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lorry::tests {

struct HttpReply {
    int status = 0;
    std::string header;  // status line and fields, each with its CRLF
    std::string body;
};

// A blocking socket, connected to a server on 127.0.0.1. It waits for a minute at most. Throws std::system_error.
class ClientSocket {
public:
    // from: its own address, in 127.0.0.0/8
    explicit ClientSocket(int port, const std::string& from = "127.0.0.1");
    ~ClientSocket();
    ClientSocket(const ClientSocket&) = delete;
    ClientSocket& operator=(const ClientSocket&) = delete;
    int number() const { return number_; }

private:
    const int number_;
};

// HTTP over some connection.
class HttpConnection {
public:
    virtual ~HttpConnection() = default;

    // False if the server has closed the connection.
    virtual bool send(std::string_view bytes) = 0;
    // The next reply. Nothing if the connection ends before it, or in the middle. The reply to HEAD has no body.
    std::optional<HttpReply> receive(bool with_body = true);
    HttpReply get(std::string_view path);
    // Waits for the end of the connection. Returns the bytes that came before it, or how many they are.
    std::string receive_all();
    std::size_t wait_for_end() { return receive_all().size(); }

protected:
    // host: what requests say
    explicit HttpConnection(std::string host) : host_(std::move(host)) {}
    // Appends what comes next. False at the connection's end.
    virtual bool read_more(std::string& received) = 0;

private:
    const std::string host_;
    std::string received_;
};

// Without TLS. Throws std::runtime_error when the server does nothing for a minute.
class HttpClient final : public HttpConnection {
public:
    // from: the client's own address, in 127.0.0.0/8
    explicit HttpClient(int port, const std::string& from = "127.0.0.1");

    bool send(std::string_view bytes) override;
    // Waits until there is something to receive, or the connection has ended, or that time is over.
    void wait_for_bytes(std::chrono::milliseconds patience) const;
    // Says that nothing more will be sent.
    void end_sending();
    // Whether the connection ended with a reset: what the server had sent may be lost.
    bool was_reset() const { return was_reset_; }

private:
    bool read_more(std::string& received) override;

    const ClientSocket socket_;
    bool was_reset_ = false;
};

// A whole request with a body of JSON. fields: further ones, each with its CRLF.
std::string post(std::string_view path, std::string_view body, std::string_view fields = "");

// Another of 127.0.0.0/8 each time, for very many connections: an address has too few ports for all that ended lately.
std::string next_address();

}  // namespace lorry::tests
