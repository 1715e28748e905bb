// A connection to a client, with TLS or without: for Boost.Beast a stream as any other. Used by server.cpp, on its thread.
#pragma once

#include <openssl/ssl.h>
#include <openssl/sslerr.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "ops/http/tls.h"

namespace lorry::ops {

class ClientStream {
public:
    using executor_type = boost::beast::tcp_stream::executor_type;
    using Error = boost::beast::error_code;

    // tls: nullptr: without. Otherwise handshake() is the first call.
    ClientStream(boost::asio::ip::tcp::socket socket, const TlsIdentity* tls) : tcp_(std::move(socket)) {
        if (tls == nullptr) return;
        // The stream's own handle keeps OpenSSL's context.
        boost::asio::ssl::context context(tls->context().release());
        tls_.emplace(tcp_, context);
    }
    ClientStream(const ClientStream&) = delete;
    ClientStream& operator=(const ClientStream&) = delete;

    executor_type get_executor() noexcept { return tcp_.get_executor(); }
    boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
    bool has_tls() const { return tls_.has_value(); }
    bool is_open() { return tcp_.socket().is_open(); }
    void close() { tcp_.close(); }
    // Of all that follows but read_now().
    void expires_after(std::chrono::milliseconds time) { tcp_.expires_after(time); }
    void expires_at(std::chrono::steady_clock::time_point time) { tcp_.expires_at(time); }

    boost::asio::awaitable<Error> handshake() {
        if (!tls_) co_return Error();
        const auto [error] = co_await tls_->async_handshake(boost::asio::ssl::stream_base::server, as_result);
        co_return error;
    }
    // Whether a handshake failed because the client has sent HTTP.
    static bool is_plain_http(const Error& error) {
        return error.category() == boost::asio::error::get_ssl_category() &&
               ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
    }
    // Goes on without TLS, after such a handshake.
    void become_plain() { tls_.reset(); }

    // Says that nothing more will be sent. With TLS it waits for the client to say the same, or anything else.
    boost::asio::awaitable<void> end_sending() {
        if (tls_) co_await tls_->async_shutdown(as_result);
        Error ignored;
        tcp_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    }
    // What the client still sends, after end_sending().
    template <typename Buffers, typename Token>
    auto async_read_waste(const Buffers& buffers, Token&& token) {
        return tcp_.async_read_some(buffers, std::forward<Token>(token));
    }

    // Reads what has come, without waiting. The error would_block: nothing has.
    template <typename Buffers>
    std::size_t read_now(const Buffers& buffers, Error& error) {
        return tls_ ? tls_->read_some(buffers, error) : tcp_.socket().read_some(buffers, error);
    }

    template <typename Buffers, typename Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& into) {
                tls_ ? tls_->async_read_some(into, std::move(handler)) : tcp_.async_read_some(into, std::move(handler));
            },
            token, buffers);
    }
    template <typename Buffers, typename Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& from) {
                tls_ ? tls_->async_write_some(from, std::move(handler)) : tcp_.async_write_some(from, std::move(handler));
            },
            token, buffers);
    }

private:
    static constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

    boost::beast::tcp_stream tcp_;
    std::optional<boost::beast::ssl_stream<boost::beast::tcp_stream&>> tls_;  // over tcp_
};

}  // namespace lorry::ops
