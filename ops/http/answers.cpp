// Writes answers, whole or as they come, and watches the client meanwhile.
#include "ops/http/server_state.h"

namespace lorry::ops {
namespace {

// What a refused client may still send: closing at once would reset the connection, and the client might lose the answer (RFC 9112, 9.6).
constexpr std::chrono::milliseconds linger_timeout{1'000};
constexpr std::size_t linger_bytes = 64 * 1024;

}  // namespace

Response response_of(HttpAnswer answer, unsigned version, bool keep_alive) {
    // Of an older version, the end of the connection would go without saying, and some clients wait for it to be said.
    Response response(static_cast<http::status>(answer.status), keep_alive ? version : 11);
    response.set(http::field::content_type, answer.type);
    for (const auto& [name, value] : answer.fields) response.set(name, value);
    response.body() = std::move(answer.body);
    response.keep_alive(keep_alive);
    return response;
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
            note_written(exchange);
        } else if (!exchange.unsent.empty()) {
            if (!co_await write_part(connection, exchange)) co_return false;
            note_written(exchange);
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
    const bool keep_alive = exchange.keep_alive && (exchange.has_chunks() || exchange.length);
    const Response described = response_of(std::move(*exchange.answer), exchange.version, keep_alive);
    exchange.answer.reset();
    http::response<http::empty_body> response(described.base());
    response.chunked(exchange.has_chunks());
    if (exchange.length) response.content_length(*exchange.length);
    http::response_serializer<http::empty_body> serializer(response);
    connection.stream.expires_after(limits.write_timeout);
    const auto [failed, written] = co_await http::async_write_header(connection.stream, serializer, as_result);
    co_return !failed;
}

asio::awaitable<bool> HttpServer::State::write_part(Connection& connection, Exchange& exchange) {
    const std::string part = std::exchange(exchange.unsent, {});
    count_progress(connection);
    connection.stream.expires_after(limits.write_timeout);
    if (!exchange.has_chunks()) {
        const auto [failed, written] = co_await asio::async_write(connection.stream, asio::buffer(part), as_result);
        co_return !failed;
    }
    const auto [failed, written] =
        co_await asio::async_write(connection.stream, http::make_chunk(asio::const_buffer(part.data(), part.size())), as_result);
    co_return !failed;
}

asio::awaitable<bool> HttpServer::State::write_end(Connection& connection, const Exchange& exchange) {
    if (exchange.length) co_return true;
    if (!exchange.has_chunks()) co_return false;
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

}  // namespace lorry::ops
