// The lower half of a connection: sockets and TLS, for the one type of buffers and of handlers that ClientStream hands down.
#include "ops/http/client_stream.h"

#include <openssl/ssl.h>
#include <openssl/sslerr.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

namespace lorry::ops {
namespace {

constexpr auto as_values = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace

struct ClientStream::Tls {
    Tls(boost::beast::tcp_stream& tcp, boost::asio::ssl::context context) : stream(tcp, context) {}

    boost::beast::ssl_stream<boost::beast::tcp_stream&> stream;  // its own handle keeps OpenSSL's context
};

ClientStream::ClientStream(boost::asio::ip::tcp::socket socket, const TlsIdentity* tls) : tcp_(std::move(socket)) {
    if (tls != nullptr) tls_ = std::make_unique<Tls>(tcp_, boost::asio::ssl::context(tls->context().release()));
}

ClientStream::~ClientStream() = default;

boost::asio::awaitable<ClientStream::Error> ClientStream::handshake() {
    if (!tls_) co_return Error();
    const auto [error] = co_await tls_->stream.async_handshake(boost::asio::ssl::stream_base::server, as_values);
    co_return error;
}

bool ClientStream::is_plain_http(const Error& error) {
    return error.category() == boost::asio::error::get_ssl_category() &&
           ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

void ClientStream::become_plain() { tls_.reset(); }

boost::asio::awaitable<void> ClientStream::end_sending() {
    if (tls_) co_await tls_->stream.async_shutdown(as_values);
    Error ignored;
    tcp_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
}

std::size_t ClientStream::read_now(boost::asio::mutable_buffer into, Error& error) {
    return tls_ ? tls_->stream.read_some(into, error) : tcp_.socket().read_some(into, error);
}

void ClientStream::read_some(const ReadBuffers& into, StreamHandler handler) {
    tls_ ? tls_->stream.async_read_some(into, std::move(handler)) : tcp_.async_read_some(into, std::move(handler));
}

void ClientStream::write_some(const WriteBuffers& from, StreamHandler handler) {
    tls_ ? tls_->stream.async_write_some(from, std::move(handler)) : tcp_.async_write_some(from, std::move(handler));
}

}  // namespace lorry::ops
