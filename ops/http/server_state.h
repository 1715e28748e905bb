// The server's state and its coroutines, which server.cpp, bodies.cpp and answers.cpp share. Included by them alone.
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <list>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "ops/http/client_stream.h"
#include "ops/http/server.h"

namespace lorry::ops {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using HeaderParser = http::request_parser<http::empty_body>;
using BodyParser = http::request_parser<http::string_body>;
using PartParser = http::request_parser<http::buffer_body>;
using Response = http::response<http::string_body>;
using Clock = std::chrono::steady_clock;

inline constexpr auto as_result = asio::as_tuple(asio::use_awaitable);  // errors are values

// From a whole request to the end of its answer.
struct Exchange {
    HttpRequestId id;
    ClientStream& stream;
    unsigned version = 11;
    bool only_header = false;  // HEAD
    bool keep_alive = false;
    asio::steady_timer changed;  // expires when the answer is overdue, and is cancelled when one of the others changes

    std::optional<HttpAnswer> answer;  // of a streamed one: what it begins with
    bool is_stream = false;
    std::optional<std::uint64_t> length = {};  // of a stream, if it is known
    std::string unsent;
    bool has_ended = false;  // the answer is complete, but perhaps not written
    bool is_taking = false;  // a part of its body
    bool is_dropped = false;

    bool has_chunks() const { return version >= 11 && !length; }
    // Also ends a write that waits for a slow client.
    void drop() {
        is_dropped = true;
        stream.close();
    }
};

struct Connection {
    Connection(tcp::socket socket, const TlsIdentity* tls, std::size_t buffer_bytes)
        : stream(std::move(socket), tls), buffer(buffer_bytes) {
        beast::error_code gone;
        address = stream.socket().remote_endpoint(gone).address();
        // Of a socket for both versions.
        if (address.is_v6() && address.to_v6().is_v4_mapped()) address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
    }

    ClientStream stream;
    asio::ip::address address;
    beast::flat_buffer buffer;     // what came and was not used yet
    std::uint64_t progress = 0;    // grows with each step of any connection: the smallest was quiet for longest
    Exchange* exchange = nullptr;  // while there is one

    bool waits() const { return exchange != nullptr && !exchange->has_ended; }
};
using Connections = std::list<Connection>;

bool is_syntax_error(const beast::error_code& error);
Response response_of(HttpAnswer answer, unsigned version, bool keep_alive);

struct HttpServer::State {
    struct Registration;
    explicit State(const Options& given);

    void listen();
    void stop();
    asio::awaitable<void> accept_clients();
    void start(tcp::socket socket);
    bool close_one();
    asio::awaitable<void> serve(Connection& connection);
    asio::awaitable<bool> serve_request(Connection& connection, std::chrono::milliseconds patience);
    std::optional<HttpAnswer> refusal_of(const beast::error_code& error, const HeaderParser& parser, const HttpRequest& request);
    asio::awaitable<std::optional<HttpAnswer>> read_body(Connection& connection, HeaderParser& parser, HttpRequest& request);
    asio::awaitable<bool> serve_whole(Connection& connection, HttpRequest request, unsigned version, bool keep_alive);
    asio::awaitable<bool> serve_parts(Connection& connection, HeaderParser& parser, HttpRequest request, std::size_t bytes_max);
    asio::awaitable<bool> pass_parts(Connection& connection, Exchange& exchange, PartParser& parser);
    asio::awaitable<bool> finish(Connection& connection, Exchange& exchange);
    Exchange exchange_for(Connection& connection, const HttpRequest& request, unsigned version, bool keep_alive);
    asio::awaitable<void> invite_body(ClientStream& stream, const HttpRequest& request);
    asio::awaitable<bool> converse(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> wait(Connection& connection, Exchange& exchange, bool watches);
    bool take_early(Connection& connection, const Exchange& exchange);
    asio::awaitable<bool> write(Connection& connection, Response response, bool only_header);
    asio::awaitable<bool> write_begin(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> write_part(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> write_end(Connection& connection, const Exchange& exchange);
    asio::awaitable<void> linger(Connection& connection);
    static std::string too_large(std::size_t bytes_max);
    void note_written(const Exchange& exchange) {
        if (exchange.unsent.empty() && !exchange.has_ended) handler.on_written(exchange.id);
    }
    void count_progress(Connection& connection) { connection.progress = ++progress; }
    // Calls `change` with the exchange, if it is still there.
    template <typename Change>
    void change(HttpRequestId id, Change change);

    HttpHandler& handler;
    const HttpLimits limits;
    const TlsIdentity* const tls;  // nullptr: without
    const std::string host;
    const std::uint16_t wanted_port;
    std::uint16_t port = 0;  // constant after construction

    // The network thread's.
    asio::io_context context{1};
    tcp::acceptor acceptor{context};
    asio::steady_timer pause{context};
    asio::steady_timer closing{context};
    Connections connections;  // those that were closed stay until their coroutine has ended
    std::uint64_t progress = 0;
    HttpRequestId last_request = 0;
    std::unordered_map<HttpRequestId, Exchange*> exchanges;
    std::size_t bodies_bytes = 0;  // that came of bodies which are being read

    std::thread thread;
};

// Others find the exchange while this exists.
struct HttpServer::State::Registration {
    Registration(State& the_state, Connection& the_connection, Exchange& exchange)
        : state(the_state), connection(the_connection), id(exchange.id) {
        state.exchanges.emplace(id, &exchange);
        connection.exchange = &exchange;
    }
    ~Registration() {
        state.exchanges.erase(id);
        connection.exchange = nullptr;
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    State& state;
    Connection& connection;
    const HttpRequestId id;
};

template <typename Change>
void HttpServer::State::change(HttpRequestId id, Change change) {
    const auto place = exchanges.find(id);
    if (place == exchanges.end()) return;
    change(*place->second);
    place->second->changed.cancel();
}

}  // namespace lorry::ops
