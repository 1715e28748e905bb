// An HTTP client that sends any bytes, right or wrong, and shows what comes back. Used by tests of ops and a fuzz target.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lorry::tests {

struct HttpReply {
    int status = 0;
    std::string header;  // status line and fields, each with its CRLF
    std::string body;
};

// A connection to a server on 127.0.0.1. Throws std::runtime_error when the server does nothing for a minute.
class HttpClient {
public:
    // from: the client's own address, in 127.0.0.0/8
    explicit HttpClient(int port, const std::string& from = "127.0.0.1");
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    // False if the server has closed the connection.
    bool send(std::string_view bytes);
    // The next reply. Nothing if the connection ends before it, or in the middle. The reply to HEAD has no body.
    std::optional<HttpReply> receive(bool with_body = true);
    HttpReply get(std::string_view path);
    // Says that nothing more will be sent.
    void end_sending();
    // Waits for the end of the connection. Returns the bytes that came before it, or how many they are.
    std::string receive_all();
    std::size_t wait_for_end() { return receive_all().size(); }
    // Whether the connection ended with a reset: what the server had sent may be lost.
    bool was_reset() const { return was_reset_; }

private:
    bool read_more();

    int socket_ = -1;
    bool was_reset_ = false;
    std::string received_;
};

// A whole request with a body of JSON. fields: further ones, each with its CRLF.
std::string post(std::string_view path, std::string_view body, std::string_view fields = "");

// Another of 127.0.0.0/8 each time, for very many connections: an address has too few ports for all that ended lately.
std::string next_address();

}  // namespace lorry::tests
