// A blocking socket and as much of HTTP as the replies need.
#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lorry::tests {
namespace {

sockaddr_in endpoint_of(const std::string& address, int port) {
    sockaddr_in endpoint{};
    endpoint.sin_family = AF_INET;
    endpoint.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, address.c_str(), &endpoint.sin_addr) != 1) throw std::runtime_error(address + " is not an address");
    return endpoint;
}

void require(bool done, const char* what) {
    if (!done) throw std::system_error(errno, std::generic_category(), what);
}

bool is_closed() { return errno == ECONNRESET || errno == EPIPE; }

std::size_t number_after(std::string_view text, std::string_view field) {
    std::size_t number = 0;
    if (const std::size_t begin = text.find(field); begin != std::string_view::npos)
        std::from_chars(text.data() + begin + field.size(), text.data() + text.size(), number);
    return number;
}

}  // namespace

ClientSocket::ClientSocket(int port, const std::string& from) : number_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    require(number_ >= 0, "socket");
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    require(setsockopt(number_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0, "SO_RCVTIMEO");
    require(setsockopt(number_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0, "SO_SNDTIMEO");
    const sockaddr_in own = endpoint_of(from, 0);
    require(bind(number_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
    const sockaddr_in server = endpoint_of("127.0.0.1", port);
    require(connect(number_, reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0, "connect");
}

ClientSocket::~ClientSocket() { close(number_); }

HttpClient::HttpClient(int port, const std::string& from) : HttpConnection("127.0.0.1"), socket_(port, from) {}

bool HttpClient::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && is_closed()) return false;
        require(sent > 0, "send");
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

bool HttpClient::read_more(std::string& received) {
    std::array<char, 65536> bytes;
    const ssize_t count = recv(socket_.number(), bytes.data(), bytes.size(), 0);
    was_reset_ = count < 0 && is_closed();
    if (count == 0 || was_reset_) return false;
    require(count > 0, "recv");
    received.append(bytes.data(), static_cast<std::size_t>(count));
    return true;
}

std::optional<HttpReply> HttpConnection::receive(bool with_body) {
    constexpr std::string_view blank_line = "\r\n\r\n";
    while (received_.find(blank_line) == std::string::npos) {
        if (!read_more(received_)) return std::nullopt;
    }
    const std::size_t end = received_.find(blank_line) + blank_line.size();
    HttpReply reply{.header = received_.substr(0, end)};
    reply.status = static_cast<int>(number_after(reply.header, " "));
    const std::size_t length = with_body ? number_after(reply.header, "Content-Length: ") : 0;
    while (received_.size() < end + length) {
        if (!read_more(received_)) return std::nullopt;
    }
    reply.body = received_.substr(end, length);
    received_.erase(0, end + length);
    return reply;
}

HttpReply HttpConnection::get(std::string_view path) {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path, host_));
    auto reply = receive();
    if (!reply) throw std::runtime_error(fmt::format("the server closed the connection instead of answering GET {}", path));
    return std::move(*reply);
}

void HttpClient::wait_for_bytes(std::chrono::milliseconds patience) const {
    pollfd socket{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    require(poll(&socket, 1, static_cast<int>(patience.count())) >= 0, "poll");
}

void HttpClient::end_sending() { shutdown(socket_.number(), SHUT_WR); }

std::string HttpConnection::receive_all() {
    while (read_more(received_)) continue;
    return std::exchange(received_, {});
}

std::string post(std::string_view path, std::string_view body, std::string_view fields) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
                       body.size(), fields, body);
}

std::string next_address() {
    static std::atomic<unsigned> last = 0;
    const unsigned number = ++last;
    return fmt::format("127.{}.{}.{}", 1 + (number >> 14) % 200, (number >> 7) % 128, 1 + number % 128);
}

}  // namespace lorry::tests
