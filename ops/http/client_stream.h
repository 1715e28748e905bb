// A connection to a client, with TLS or without: for Boost.Beast a stream as any other. Used by server.cpp, on its thread.
#pragma once

#include <array>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "ops/http/tls.h"

namespace lorry::ops {

// A handler of Asio, of any type: what an operation calls once, when it has ended. All of a server's run on its one thread, so the
// executors that they are bound to need not be asked.
class StreamHandler {
public:
    template <typename Handler>
    explicit StreamHandler(Handler handler) : handler_(std::make_unique<Of<Handler>>(std::move(handler))) {}

    void operator()(boost::beast::error_code error, std::size_t bytes) { std::exchange(handler_, nullptr)->run(error, bytes); }

private:
    struct Any {
        virtual ~Any() = default;
        virtual void run(boost::beast::error_code error, std::size_t bytes) = 0;
    };
    template <typename Handler>
    struct Of final : Any {
        explicit Of(Handler handler) : handler_(std::move(handler)) {}
        void run(boost::beast::error_code error, std::size_t bytes) override { std::move(handler_)(error, bytes); }
        Handler handler_;
    };

    std::unique_ptr<Any> handler_;
};

class ClientStream {
public:
    using executor_type = boost::beast::tcp_stream::executor_type;
    using Error = boost::beast::error_code;

    // tls: nullptr: without. Otherwise handshake() is the first call.
    ClientStream(boost::asio::ip::tcp::socket socket, const TlsIdentity* tls);
    ~ClientStream();
    ClientStream(const ClientStream&) = delete;
    ClientStream& operator=(const ClientStream&) = delete;

    executor_type get_executor() noexcept { return tcp_.get_executor(); }
    boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
    bool has_tls() const { return tls_ != nullptr; }
    bool is_open() { return tcp_.socket().is_open(); }
    void close() { tcp_.close(); }
    // Of all that follows but read_now().
    void expires_after(std::chrono::milliseconds time) { tcp_.expires_after(time); }
    void expires_at(std::chrono::steady_clock::time_point time) { tcp_.expires_at(time); }

    boost::asio::awaitable<Error> handshake();
    // Whether a handshake failed because the client has sent HTTP.
    static bool is_plain_http(const Error& error);
    // Goes on without TLS, after such a handshake.
    void become_plain();

    // Says that nothing more will be sent. With TLS it waits for the client to say the same, or anything else.
    boost::asio::awaitable<void> end_sending();
    // What the client still sends, after end_sending(). A call of its own: with TLS its bytes are no longer decrypted.
    template <typename Token>
    auto async_read_waste(boost::asio::mutable_buffer into, Token&& token) {
        return tcp_.async_read_some(into, std::forward<Token>(token));
    }

    // Reads what has come, without waiting. The error would_block: nothing has.
    std::size_t read_now(boost::asio::mutable_buffer into, Error& error);

    // As Asio's concept AsyncStream has them. What they do once they are called is compiled in client_stream.cpp alone, for all buffers and
    // handlers of their callers: a call reads into the first buffer that has room, and writes the first buffers that are not empty.
    template <typename Buffers, typename Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& into) { read_some(first_of<ReadBuffers>(into), StreamHandler(std::move(handler))); }, token,
            buffers);
    }
    template <typename Buffers, typename Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& from) { write_some(first_of<WriteBuffers>(from), StreamHandler(std::move(handler))); },
            token, buffers);
    }

private:
    using ReadBuffers = std::array<boost::asio::mutable_buffer, 1>;
    using WriteBuffers = std::array<boost::asio::const_buffer, 8>;

    template <typename Firsts, typename Buffers>
    static Firsts first_of(const Buffers& buffers) {
        Firsts firsts;
        std::size_t count = 0;
        for (auto each = boost::asio::buffer_sequence_begin(buffers);
             each != boost::asio::buffer_sequence_end(buffers) && count < firsts.size(); ++each) {
            const typename Firsts::value_type buffer(*each);
            if (buffer.size() > 0) firsts[count++] = buffer;
        }
        return firsts;
    }
    void read_some(const ReadBuffers& into, StreamHandler handler);
    void write_some(const WriteBuffers& from, StreamHandler handler);

    struct Tls;

    boost::beast::tcp_stream tcp_;
    std::unique_ptr<Tls> tls_;  // over tcp_
};

}  // namespace lorry::ops
