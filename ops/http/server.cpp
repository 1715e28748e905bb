// The server on Boost.Beast, one coroutine per connection. All coroutines run on one thread, so nothing here is locked; other threads meet
// it only in post().
#include "ops/http/server.h"

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

#include <fmt/format.h>

#include "ops/http/client_stream.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using HeaderParser = http::request_parser<http::empty_body>;
using BodyParser = http::request_parser<http::string_body>;
using Response = http::response<http::string_body>;
using Clock = std::chrono::steady_clock;

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);  // errors are values

// Between two attempts to accept a connection when the process has no descriptor left.
constexpr std::chrono::milliseconds accept_pause{100};
// What a refused client may still send: closing at once would reset the connection, and the client might lose the answer (RFC 9112, 9.6).
constexpr std::chrono::milliseconds linger_timeout{1'000};
// At the end: for answers that are complete.
constexpr std::chrono::milliseconds closing_patience{1'000};
constexpr std::size_t linger_bytes = 64 * 1024;

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
    std::string unsent;
    bool has_ended = false;  // the answer is complete, but perhaps not written
    bool is_dropped = false;

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

bool is_syntax_error(const beast::error_code& error) {
    return error.category() == http::make_error_code(http::error::bad_value).category() && error != http::error::end_of_stream &&
           error != http::error::partial_message;
}

HttpRequest request_of(const HeaderParser& parser) {
    const auto& header = parser.get();
    HttpRequest request{.method = header.method_string(), .target = header.target(), .fields = {}, .body = {}};
    for (const auto& field : header) request.fields.emplace_back(schema::lower_case(field.name_string()), field.value());
    request.has_body = parser.content_length().value_or(0) > 0 || header.count(http::field::transfer_encoding) > 0;
    return request;
}

Response response_of(HttpAnswer answer, unsigned version, bool keep_alive) {
    // Of an older version, the end of the connection would go without saying, and some clients wait for it to be said.
    Response response(static_cast<http::status>(answer.status), keep_alive ? version : 11);
    response.set(http::field::content_type, answer.type);
    for (const auto& [name, value] : answer.fields) response.set(name, value);
    response.body() = std::move(answer.body);
    response.keep_alive(keep_alive);
    return response;
}

}  // namespace

const std::string* HttpRequest::field(std::string_view name) const {
    const auto place = std::ranges::find(fields, name, [](const HttpField& each) { return std::string_view(each.first); });
    return place == fields.end() ? nullptr : &place->second;
}

std::size_t HttpRequest::count(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::count(fields, name, [](const HttpField& each) { return std::string_view(each.first); }));
}

struct HttpServer::State {
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
    asio::awaitable<bool> converse(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> wait(Connection& connection, Exchange& exchange, bool watches);
    bool take_early(Connection& connection, const Exchange& exchange);
    asio::awaitable<bool> write(Connection& connection, Response response, bool only_header);
    asio::awaitable<bool> write_begin(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> write_part(Connection& connection, Exchange& exchange);
    asio::awaitable<bool> write_end(Connection& connection, const Exchange& exchange);
    asio::awaitable<void> linger(Connection& connection);
    std::string too_large() const;
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

HttpServer::State::State(const Options& given)
    : handler(given.handler), limits(given.limits), tls(given.tls), host(given.host), wanted_port(given.port) {
    listen();
    port = acceptor.local_endpoint().port();
}

void HttpServer::State::stop() {
    if (!thread.joinable()) return;
    asio::post(context, [this] {
        acceptor.close();
        pause.cancel();
        for (Connection& connection : connections) {
            if (connection.waits()) {
                connection.exchange->drop();
                connection.exchange->changed.cancel();
            } else if (connection.exchange == nullptr) {
                connection.stream.close();
            }
        }
        if (connections.empty()) return;
        closing.expires_after(closing_patience);
        closing.async_wait([this](const beast::error_code&) {
            for (Connection& connection : connections) connection.stream.close();
        });
    });
    thread.join();
}

void HttpServer::State::listen() {
    beast::error_code error;
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(host, std::to_string(wanted_port), tcp::resolver::passive, error);
    for (const auto& entry : found) {
        const tcp::endpoint endpoint = entry.endpoint();
        acceptor.close();
        acceptor.open(endpoint.protocol(), error);
        // SO_REUSEADDR, but not SO_REUSEPORT: with that, two processes could share the port and a client would get one or the other.
        if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor.bind(endpoint, error);
        if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
        if (!error) acceptor.non_blocking(true, error);
        if (!error) return;
    }
    throw std::system_error(error);
}

asio::awaitable<void> HttpServer::State::accept_clients() {
    while (acceptor.is_open()) {
        const auto [stopped] = co_await acceptor.async_wait(tcp::acceptor::wait_read, as_result);
        if (stopped) co_return;
        const auto open = std::ranges::count_if(connections, [](Connection& each) { return each.stream.is_open(); });
        const bool has_room = static_cast<std::size_t>(open) < limits.connections || close_one();
        beast::error_code error;
        tcp::socket socket(context);
        acceptor.accept(socket, error);
        if (!error) {
            if (has_room) start(std::move(socket));
        } else if (error != asio::error::would_block && error != asio::error::connection_aborted) {
            // Mostly: the process has no descriptors left. One of our own makes room for the client that waits.
            close_one();
            pause.expires_after(accept_pause);
            co_await pause.async_wait(as_result);
        }
    }
}

void HttpServer::State::start(tcp::socket socket) {
    beast::error_code gone;
    // Otherwise the end of a long answer waits for the client's acknowledgement, for 40 ms.
    socket.set_option(tcp::no_delay(true), gone);
    socket.non_blocking(true, gone);
    connections.emplace_back(std::move(socket), tls, limits.header_bytes);
    const auto place = std::prev(connections.end());
    count_progress(*place);
    // An exception, as for lack of memory, ends only this connection.
    asio::co_spawn(context, serve(*place), [this, place](const std::exception_ptr&) {
        connections.erase(place);
        if (connections.empty()) closing.cancel();
    });
}

// False if none could be closed.
bool HttpServer::State::close_one() {
    std::map<asio::ip::address, std::int64_t> of_address;
    std::vector<Connection*> quiet;
    for (Connection& connection : connections) {
        if (!connection.stream.is_open()) continue;
        ++of_address[connection.address];
        if (!connection.waits()) quiet.push_back(&connection);
    }
    if (quiet.empty()) return false;
    const auto order = [&](const Connection* each) { return std::pair(-of_address[each->address], each->progress); };
    (*std::ranges::min_element(quiet, {}, order))->stream.close();
    return true;
}

asio::awaitable<void> HttpServer::State::serve(Connection& connection) {
    connection.stream.expires_after(limits.request_timeout);
    const beast::error_code failed = co_await connection.stream.handshake();
    if (ClientStream::is_plain_http(failed)) {
        connection.stream.become_plain();
        co_await write(connection, response_of(handler.refusal(400, "This port speaks TLS: write https:// in the url."), 11, false), false);
        co_return co_await linger(connection);
    }
    if (failed) co_return connection.stream.close();
    count_progress(connection);
    std::chrono::milliseconds patience = limits.request_timeout;
    while (acceptor.is_open() && co_await serve_request(connection, patience)) patience = limits.idle_timeout;
    if (connection.stream.is_open()) co_await linger(connection);
}

// Reads a request, whose first byte must come within `patience`, and answers it. False if the connection is to end.
asio::awaitable<bool> HttpServer::State::serve_request(Connection& connection, std::chrono::milliseconds patience) {
    ClientStream& stream = connection.stream;
    beast::flat_buffer& buffer = connection.buffer;
    if (buffer.size() == 0) {
        stream.expires_after(patience);
        const auto [ended, bytes] = co_await stream.async_read_some(buffer.prepare(buffer.max_size()), as_result);
        if (ended) co_return false;
        buffer.commit(bytes);
    }
    stream.expires_after(limits.request_timeout);
    HeaderParser parser;
    parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    parser.body_limit(boost::none);  // refusal_of() and read_body() look at it
    const auto [error, consumed] = co_await http::async_read_header(stream, buffer, parser, as_result);
    if (error && !is_syntax_error(error)) co_return false;
    count_progress(connection);

    const bool only_header = parser.get().method() == http::verb::head;
    const bool keep_alive = parser.get().keep_alive();
    const unsigned version = parser.get().version();
    HttpRequest request = error ? HttpRequest() : request_of(parser);
    request.from = connection.address.to_string();
    std::optional<HttpAnswer> refused = refusal_of(error, parser, request);
    if (!refused && request.has_body) {
        refused = co_await read_body(connection, parser, request);
        if (!refused && !stream.is_open()) co_return false;
    }
    if (refused) {
        co_await write(connection, response_of(std::move(*refused), version, false), only_header);
        co_return false;
    }
    co_return co_await serve_whole(connection, std::move(request), version, keep_alive);
}

// The answer to a request whose body is not read.
std::optional<HttpAnswer> HttpServer::State::refusal_of(const beast::error_code& error, const HeaderParser& parser,
                                                        const HttpRequest& request) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
        return handler.refusal(431, fmt::format("A request's header may have {} bytes.", limits.header_bytes));
    if (error) return handler.refusal(400, fmt::format("This is not an HTTP/1.1 request: {}.", error.message()));
    if (auto refused = handler.refuse(request)) return refused;
    const std::string* encoding = request.field("transfer-encoding");
    if (encoding != nullptr && (request.count("transfer-encoding") > 1 || schema::lower_case(*encoding) != "chunked"))
        return handler.refusal(501, "Use the transfer encoding chunked; no other is supported.");
    const std::string* expected = request.field("expect");
    if (expected != nullptr && schema::lower_case(*expected) != "100-continue")
        return handler.refusal(417, "Leave Expect out, or send 100-continue; nothing else is supported.");
    const std::size_t bytes = parser.content_length() ? static_cast<std::size_t>(*parser.content_length()) : 0;
    if (bytes > limits.body_bytes) return handler.refusal(413, too_large());
    return std::nullopt;
}

// Returns a refusal, or fills in the request's body. Closes the connection if the client went away or was too slow.
asio::awaitable<std::optional<HttpAnswer>> HttpServer::State::read_body(Connection& connection, HeaderParser& parser,
                                                                        HttpRequest& request) {
    ClientStream& stream = connection.stream;
    stream.expires_after(limits.body_pause);
    if (request.count("expect") > 0) {
        constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const auto [failed, written] = co_await asio::async_write(stream, asio::buffer(go_on), as_result);
        if (failed) stream.close();
    }
    const Clock::time_point deadline = Clock::now() + limits.body_timeout;
    BodyParser whole(std::move(parser));
    whole.body_limit(limits.body_bytes);
    whole.eager(true);
    struct Reservation {
        std::size_t& of;
        std::size_t bytes = 0;
        ~Reservation() { of -= bytes; }
    } reservation{bodies_bytes};
    while (!whole.is_done()) {
        stream.expires_at(std::min(deadline, Clock::now() + limits.body_pause));
        const auto [error, consumed] = co_await http::async_read_some(stream, connection.buffer, whole, as_result);
        if (error == http::error::body_limit) co_return handler.refusal(413, too_large());
        if (error && is_syntax_error(error)) co_return handler.refusal(400, fmt::format("The body cannot be read: {}.", error.message()));
        if (error) {
            stream.close();
            co_return std::nullopt;
        }
        // What was announced counts when it comes: a client may announce much and send nothing.
        bodies_bytes += whole.get().body().size() - std::exchange(reservation.bytes, whole.get().body().size());
        if (bodies_bytes > limits.bodies_bytes) co_return handler.refusal(503, "Too many large requests are being read; try again later.");
    }
    request.body = std::move(whole.get().body());
    count_progress(connection);
    co_return std::nullopt;
}

std::string HttpServer::State::too_large() const { return fmt::format("A request's body may have {} bytes.", limits.body_bytes); }

asio::awaitable<bool> HttpServer::State::serve_whole(Connection& connection, HttpRequest request, unsigned version, bool keep_alive) {
    Exchange exchange{.id = ++last_request,
                      .stream = connection.stream,
                      .version = version,
                      .only_header = request.method == "HEAD",
                      .keep_alive = keep_alive,
                      .changed = asio::steady_timer(
                          context, limits.answer_timeout ? Clock::now() + *limits.answer_timeout : asio::steady_timer::time_point::max()),
                      .answer = std::nullopt,
                      .unsent = {}};
    struct Registration {
        State& state;
        Connection& connection;
        const HttpRequestId id;
        ~Registration() {
            state.exchanges.erase(id);
            connection.exchange = nullptr;
        }
    } const registration{*this, connection, exchange.id};
    exchanges.emplace(exchange.id, &exchange);
    connection.exchange = &exchange;
    handler.handle(exchange.id, std::move(request));
    const bool goes_on = co_await converse(connection, exchange);
    count_progress(connection);
    if (!goes_on && !exchange.has_ended) handler.on_client_gone(exchange.id);
    co_return goes_on&& keep_alive;
}

// Writes what the handler answers, as it comes. False if the connection is to end.
asio::awaitable<bool> HttpServer::State::converse(Connection& connection, Exchange& exchange) {
    bool watches = true;
    while (!exchange.is_dropped) {
        if (exchange.answer && !exchange.is_stream) {
            co_return co_await write(connection, response_of(std::move(*exchange.answer), exchange.version, exchange.keep_alive),
                                     exchange.only_header);
        }
        if (exchange.answer) {
            if (!co_await write_begin(connection, exchange)) co_return false;
        } else if (!exchange.unsent.empty()) {
            if (!co_await write_part(connection, exchange)) co_return false;
        } else if (exchange.has_ended) {
            co_return co_await write_end(connection, exchange);
        } else {
            watches = co_await wait(connection, exchange, watches);
        }
    }
    co_return false;
}

// Until the exchange changes. `watches`: also until the client goes away, and keeps what it sends meanwhile; false on return: it has ended
// its side, or has sent more than is kept.
asio::awaitable<bool> HttpServer::State::wait(Connection& connection, Exchange& exchange, bool watches) {
    const auto look = [&](const beast::error_code& ended) {
        if (ended) return;
        exchange.changed.expires_at(asio::steady_timer::time_point::max());
        handler.on_overdue(exchange.id);
    };
    if (!watches) {
        const auto [ended] = co_await exchange.changed.async_wait(as_result);
        look(ended);
        co_return false;
    }
    // What came together with the request may be in the stream already, where it makes no socket readable.
    if (connection.stream.has_tls() && !take_early(connection, exchange)) co_return false;
    const auto [order, changed, readable] =
        co_await asio::experimental::make_parallel_group(exchange.changed.async_wait(asio::deferred),
                                                         connection.stream.socket().async_wait(tcp::socket::wait_read, asio::deferred))
            .async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
    if (order[0] == 0) {
        look(changed);
        co_return true;
    }
    co_return take_early(connection, exchange);
}

// Takes what the client has sent before its answer. False as for wait().
bool HttpServer::State::take_early(Connection& connection, const Exchange& exchange) {
    beast::flat_buffer& buffer = connection.buffer;
    const std::size_t room = buffer.max_size() - buffer.size();
    if (room == 0) return false;
    // Does not wait: what made the socket readable may have been read before.
    beast::error_code ended;
    buffer.commit(connection.stream.read_now(buffer.prepare(room), ended));
    if (!ended || ended == asio::error::would_block) return true;
    handler.on_client_gone(exchange.id);
    return false;
}

asio::awaitable<bool> HttpServer::State::write(Connection& connection, Response response, bool only_header) {
    response.prepare_payload();
    http::response_serializer<http::string_body> serializer(response);
    connection.stream.expires_after(limits.write_timeout);
    const auto [failed, written] = only_header ? co_await http::async_write_header(connection.stream, serializer, as_result)
                                               : co_await http::async_write(connection.stream, serializer, as_result);
    co_return !failed;
}

// A client of HTTP/1.0 knows no chunks: there the end of the connection is the end of the answer.
asio::awaitable<bool> HttpServer::State::write_begin(Connection& connection, Exchange& exchange) {
    const bool has_chunks = exchange.version >= 11;
    const Response described = response_of(std::move(*exchange.answer), exchange.version, exchange.keep_alive && has_chunks);
    exchange.answer.reset();
    http::response<http::empty_body> response(described.base());
    response.chunked(has_chunks);
    http::response_serializer<http::empty_body> serializer(response);
    connection.stream.expires_after(limits.write_timeout);
    const auto [failed, written] = co_await http::async_write_header(connection.stream, serializer, as_result);
    co_return !failed;
}

asio::awaitable<bool> HttpServer::State::write_part(Connection& connection, Exchange& exchange) {
    const std::string part = std::exchange(exchange.unsent, {});
    count_progress(connection);
    connection.stream.expires_after(limits.write_timeout);
    if (exchange.version < 11) {
        const auto [failed, written] = co_await asio::async_write(connection.stream, asio::buffer(part), as_result);
        co_return !failed;
    }
    const auto [failed, written] =
        co_await asio::async_write(connection.stream, http::make_chunk(asio::const_buffer(part.data(), part.size())), as_result);
    co_return !failed;
}

asio::awaitable<bool> HttpServer::State::write_end(Connection& connection, const Exchange& exchange) {
    if (exchange.version < 11) co_return false;
    connection.stream.expires_after(limits.write_timeout);
    const auto [failed, written] = co_await asio::async_write(connection.stream, http::make_chunk_last(), as_result);
    co_return !failed;
}

asio::awaitable<void> HttpServer::State::linger(Connection& connection) {
    connection.stream.expires_after(linger_timeout);
    co_await connection.stream.end_sending();
    std::array<char, 4096> waste;
    for (std::size_t left = linger_bytes; left > 0;) {
        const auto [ended, bytes] = co_await connection.stream.async_read_waste(asio::buffer(waste), as_result);
        if (ended) break;
        left -= std::min(left, bytes);
    }
    connection.stream.close();
}

template <typename Change>
void HttpServer::State::change(HttpRequestId id, Change change) {
    const auto place = exchanges.find(id);
    if (place == exchanges.end()) return;
    change(*place->second);
    place->second->changed.cancel();
}

HttpServer::HttpServer(const Options& options) : state_(std::make_unique<State>(options)) {}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start() {
    State& state = *state_;
    asio::co_spawn(state.context, state.accept_clients(), [](const std::exception_ptr& failed) {
        if (failed) std::rethrow_exception(failed);
    });
    state.thread = std::thread([&state] { state.context.run(); });
}

void HttpServer::stop() { state_->stop(); }

std::uint16_t HttpServer::port() const { return state_->port; }

void HttpServer::post(std::function<void()> work) { asio::post(state_->context, std::move(work)); }

void HttpServer::answer(HttpRequestId id, HttpAnswer answer) {
    state_->change(id, [&](Exchange& exchange) {
        exchange.answer = std::move(answer);
        exchange.has_ended = true;
    });
}

void HttpServer::begin(HttpRequestId id, HttpAnswer begin) {
    state_->change(id, [&](Exchange& exchange) {
        exchange.answer = std::move(begin);
        exchange.is_stream = true;
    });
}

void HttpServer::write(HttpRequestId id, std::string_view bytes) {
    const std::size_t most = state_->limits.unsent_bytes;
    state_->change(id, [&](Exchange& exchange) {
        // A single part may be larger.
        if (!exchange.unsent.empty() && exchange.unsent.size() + bytes.size() > most) exchange.drop();
        if (!exchange.is_dropped) exchange.unsent += bytes;
    });
}

void HttpServer::end(HttpRequestId id) {
    state_->change(id, [](Exchange& exchange) { exchange.has_ended = true; });
}

void HttpServer::drop(HttpRequestId id) {
    state_->change(id, [](Exchange& exchange) { exchange.drop(); });
}

}  // namespace lorry::ops
