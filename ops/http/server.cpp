// The server on Boost.Beast, one coroutine per connection. All coroutines run on one thread, so nothing here is locked; other threads meet
// it only in post(). This file has connections and headers; bodies.cpp reads bodies, and answers.cpp writes answers.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "ops/http/server_state.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

// Between two attempts to accept a connection when the process has no descriptor left.
constexpr std::chrono::milliseconds accept_pause{100};
// At the end: for answers that are complete.
constexpr std::chrono::milliseconds closing_patience{1'000};

constexpr int keepalive_idle_seconds = 15;  // of silence before the first question
constexpr int keepalive_pause_seconds = 5;  // between two

HttpRequest request_of(const HeaderParser& parser) {
    const auto& header = parser.get();
    HttpRequest request{.method = header.method_string(), .target = header.target(), .fields = {}, .body = {}};
    for (const auto& field : header) request.fields.emplace_back(schema::lower_case(field.name_string()), field.value());
    request.has_body = parser.content_length().value_or(0) > 0 || header.count(http::field::transfer_encoding) > 0;
    return request;
}

// Has the system ask clients that are silent whether they are still there, so that those that vanished without a word, as by a broken
// network, end within about `patience`. Without that, an answer that is long in coming would hold their connection meanwhile, and a call
// would run for nobody.
void notice_lost_clients(tcp::socket& socket, std::chrono::milliseconds patience) {
    beast::error_code gone;
    socket.set_option(asio::socket_base::keep_alive(true), gone);
    const auto set = [&](int name, int value) { setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value); };
    set(TCP_KEEPIDLE, keepalive_idle_seconds);
    set(TCP_KEEPINTVL, keepalive_pause_seconds);
    // Also for what was sent and not acknowledged. It takes the place of the number of questions that may stay unanswered.
    set(TCP_USER_TIMEOUT, static_cast<int>(patience.count()));
}

}  // namespace

bool is_syntax_error(const beast::error_code& error) {
    return error.category() == http::make_error_code(http::error::bad_value).category() && error != http::error::end_of_stream &&
           error != http::error::partial_message;
}

const std::string* HttpRequest::field(std::string_view name) const {
    const auto place = std::ranges::find(fields, name, [](const HttpField& each) { return std::string_view(each.first); });
    return place == fields.end() ? nullptr : &place->second;
}

std::size_t HttpRequest::count(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::count(fields, name, [](const HttpField& each) { return std::string_view(each.first); }));
}

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
    notice_lost_clients(socket, limits.write_timeout);
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
        if (const auto bytes_max = handler.streamed_bytes_max(request))
            co_return co_await serve_parts(connection, parser, std::move(request), *bytes_max);
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
    // RFC 9112, 6.1: a proxy that knows HTTP/1.0 only may have taken the body for the next request.
    if (encoding != nullptr && parser.get().version() < 11)
        return handler.refusal(400, "HTTP/1.0 has no transfer encodings: send Content-Length, or HTTP/1.1.");
    if (encoding != nullptr && (request.count("transfer-encoding") > 1 || schema::lower_case(*encoding) != "chunked"))
        return handler.refusal(501, "Use the transfer encoding chunked; no other is supported.");
    const std::string* expected = request.field("expect");
    if (expected != nullptr && schema::lower_case(*expected) != "100-continue")
        return handler.refusal(417, "Leave Expect out, or send 100-continue; nothing else is supported.");
    const std::size_t bytes = parser.content_length() ? static_cast<std::size_t>(*parser.content_length()) : 0;
    const std::size_t bytes_max = handler.streamed_bytes_max(request).value_or(limits.body_bytes);
    if (bytes > bytes_max) return handler.refusal(413, too_large(bytes_max));
    return std::nullopt;
}

std::string HttpServer::State::too_large(std::size_t bytes_max) { return fmt::format("A request's body may have {} bytes.", bytes_max); }

Exchange HttpServer::State::exchange_for(Connection& connection, const HttpRequest& request, unsigned version, bool keep_alive) {
    return {.id = ++last_request,
            .stream = connection.stream,
            .version = version,
            .only_header = request.method == "HEAD",
            .keep_alive = keep_alive,
            .changed = asio::steady_timer(context, asio::steady_timer::time_point::max()),
            .answer = std::nullopt,
            .unsent = {}};
}

asio::awaitable<bool> HttpServer::State::serve_whole(Connection& connection, HttpRequest request, unsigned version, bool keep_alive) {
    Exchange exchange = exchange_for(connection, request, version, keep_alive);
    const Registration registration(*this, connection, exchange);
    if (limits.answer_timeout) exchange.changed.expires_after(*limits.answer_timeout);
    handler.handle(exchange.id, std::move(request));
    co_return co_await finish(connection, exchange);
}

asio::awaitable<bool> HttpServer::State::finish(Connection& connection, Exchange& exchange) {
    const bool goes_on = co_await converse(connection, exchange);
    count_progress(connection);
    if (!goes_on && !exchange.has_ended) handler.on_client_gone(exchange.id);
    co_return goes_on&& exchange.keep_alive;
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

void HttpServer::begin(HttpRequestId id, HttpAnswer begin, std::optional<std::uint64_t> length) {
    state_->change(id, [&](Exchange& exchange) {
        exchange.answer = std::move(begin);
        exchange.length = length;
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

void HttpServer::go_on(HttpRequestId id) {
    state_->change(id, [](Exchange& exchange) { exchange.is_taking = false; });
}

void HttpServer::drop(HttpRequestId id) {
    state_->change(id, [](Exchange& exchange) { exchange.drop(); });
}

}  // namespace lorry::ops
