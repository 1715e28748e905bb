// Reads the bodies of requests: whole, or in parts that the handler takes one by one.
#include <fmt/format.h>

#include "ops/http/server_state.h"

namespace lorry::ops {
namespace {

constexpr std::size_t part_bytes = 64 * 1024;  // of a body that is passed on as it comes

}  // namespace

// Of a client that waits for it.
asio::awaitable<void> HttpServer::State::invite_body(ClientStream& stream, const HttpRequest& request) {
    if (request.count("expect") == 0) co_return;
    stream.expires_after(limits.body_pause);
    constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const auto [failed, written] = co_await asio::async_write(stream, asio::buffer(go_on), as_result);
    if (failed) stream.close();
}

// Returns a refusal, or fills in the request's body. Closes the connection if the client went away or was too slow.
asio::awaitable<std::optional<HttpAnswer>> HttpServer::State::read_body(Connection& connection, HeaderParser& parser,
                                                                        HttpRequest& request) {
    ClientStream& stream = connection.stream;
    co_await invite_body(stream, request);
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
        if (error == http::error::body_limit) co_return handler.refusal(413, too_large(limits.body_bytes));
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

// A body that is passed on as it comes.
asio::awaitable<bool> HttpServer::State::serve_parts(Connection& connection, HeaderParser& header, HttpRequest request,
                                                     std::size_t bytes_max) {
    Exchange exchange = exchange_for(connection, request, header.get().version(), header.get().keep_alive());
    const Registration registration(*this, connection, exchange);
    co_await invite_body(connection.stream, request);
    PartParser parser(std::move(header));
    parser.body_limit(bytes_max);
    parser.eager(true);
    handler.begin(exchange.id, request);
    if (!co_await pass_parts(connection, exchange, parser)) {
        handler.on_client_gone(exchange.id);
        connection.stream.close();
        co_return false;
    }
    if (parser.is_done() && !exchange.answer) {
        if (limits.answer_timeout) exchange.changed.expires_after(*limits.answer_timeout);
        handler.handle(exchange.id, std::move(request));
    } else {
        exchange.keep_alive = false;  // the rest of the body is not read
    }
    co_return co_await finish(connection, exchange);
}

// False: the client went away or was too slow. True: all of the body was taken, or there is an answer before.
asio::awaitable<bool> HttpServer::State::pass_parts(Connection& connection, Exchange& exchange, PartParser& parser) {
    ClientStream& stream = connection.stream;
    const Clock::time_point deadline = Clock::now() + limits.upload_timeout;
    std::string part;
    while (!parser.is_done() || !part.empty()) {
        if (exchange.answer) co_return true;
        const std::size_t had = part.size();
        if (had < part_bytes && !parser.is_done()) {
            part.resize(part_bytes);
            parser.get().body() = {.data = part.data() + had, .size = part_bytes - had, .more = true};
            stream.expires_at(std::min(deadline, Clock::now() + limits.body_pause));
            const auto [error, consumed] = co_await http::async_read_some(stream, connection.buffer, parser, as_result);
            part.resize(part_bytes - parser.get().body().size);
            if (!error || error == http::error::need_buffer) continue;
            if (error == http::error::body_limit || is_syntax_error(error)) {
                const bool is_large = error == http::error::body_limit;
                exchange.answer = is_large ? handler.refusal(413, "A request's body has more bytes than it may have.")
                                           : handler.refusal(400, fmt::format("The body cannot be read: {}.", error.message()));
                exchange.has_ended = true;
                handler.on_client_gone(exchange.id);
                co_return true;
            }
            co_return false;
        }
        count_progress(connection);
        exchange.is_taking = true;
        handler.take_part(exchange.id, std::exchange(part, {}));
        while (exchange.is_taking && !exchange.answer && !exchange.is_dropped) co_await exchange.changed.async_wait(as_result);
        if (exchange.answer) co_return true;
        if (exchange.is_dropped) co_return false;
    }
    co_return true;
}

}  // namespace lorry::ops
