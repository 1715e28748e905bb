// The server on Boost.Beast, one coroutine per connection. All coroutines run on one thread, so nothing here is locked. The pages' threads
// meet it only in asio::post.
#include "ops/http/server.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
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

#include <fmt/format.h>

namespace lorry::ops {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Request = http::request_parser<http::empty_body>;

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);  // errors are values

// Between two attempts to accept a connection when the process has no descriptor left.
constexpr std::chrono::milliseconds accept_pause{100};
// What a refused client may still send: closing at once would reset the connection, and the client might lose the answer (RFC 9112, 9.6).
constexpr std::chrono::milliseconds linger_timeout{1'000};
constexpr std::size_t linger_bytes = 64 * 1024;

struct Connection {
    beast::tcp_stream stream;
    asio::ip::address address;
    std::uint64_t progress = 0;  // grows with each step of any connection: the smallest was quiet for longest
};
using Connections = std::list<Connection>;

struct PageThread {
    explicit PageThread(HttpPage served) : page(std::move(served)) {}
    HttpPage page;
    std::size_t waiting = 0;  // the network thread's
    asio::thread_pool thread{1};
};

bool is_syntax_error(const beast::error_code& error) {
    return error.category() == http::make_error_code(http::error::bad_value).category() && error != http::error::end_of_stream &&
           error != http::error::partial_message;
}

// The answer to a request that no page gets to see.
std::optional<HttpAnswer> refusal_of(const beast::error_code& error, const Request& request, const HttpLimits& limits) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
        return HttpAnswer{.status = 431, .body = fmt::format("A request's header may have {} bytes.\n", limits.header_bytes)};
    if (error) return HttpAnswer{.status = 400, .body = fmt::format("This is not an HTTP/1.1 request: {}.\n", error.message())};
    const http::verb method = request.get().method();
    if (method != http::verb::get && method != http::verb::head)
        return HttpAnswer{.status = 405, .body = "Pages are read with GET or HEAD.\n"};
    if (request.content_length().value_or(0) > 0 || request.get().count(http::field::transfer_encoding) > 0)
        return HttpAnswer{.status = 413, .body = "A request for a page has no body.\n"};
    return std::nullopt;
}

http::response<http::string_body> response_of(HttpAnswer answer, unsigned version, bool keep_alive) {
    http::response<http::string_body> response(static_cast<http::status>(answer.status), version);
    response.set(http::field::content_type, answer.type);
    if (response.result() == http::status::method_not_allowed) response.set(http::field::allow, "GET, HEAD");
    response.body() = std::move(answer.body);
    response.keep_alive(keep_alive);
    response.prepare_payload();
    return response;
}

}  // namespace

struct HttpServer::State {
    explicit State(Options given);
    ~State();

    void listen();
    asio::awaitable<void> accept_clients();
    void start(tcp::socket socket);
    void close_one();
    asio::awaitable<void> serve(Connection& connection);
    asio::awaitable<bool> serve_request(Connection& connection, beast::flat_buffer& buffer, std::chrono::milliseconds patience);
    asio::awaitable<HttpAnswer> answer_of(std::string_view path);
    asio::awaitable<HttpAnswer> ask(PageThread& page);
    HttpAnswer make(const HttpPage& page) const;
    asio::awaitable<void> linger(Connection& connection);
    void count_progress(Connection& connection) { connection.progress = ++progress; }

    const Options options;
    std::uint16_t port = 0;  // constant after construction

    // The network thread's.
    asio::io_context context{1};
    tcp::acceptor acceptor{context};
    asio::steady_timer pause{context};
    Connections connections;  // those that were closed stay until their coroutine has ended
    std::uint64_t progress = 0;
    std::list<PageThread> pages;

    std::thread thread;
};

HttpServer::State::State(Options given) : options(std::move(given)) {
    listen();
    port = acceptor.local_endpoint().port();
    for (const HttpPage& page : options.pages) pages.emplace_back(page);
    asio::co_spawn(context, accept_clients(), [](const std::exception_ptr& failed) {
        if (failed) std::rethrow_exception(failed);
    });
    thread = std::thread([this] { context.run(); });
}

HttpServer::State::~State() {
    asio::post(context, [this] {
        acceptor.close();
        pause.cancel();
        for (Connection& connection : connections) connection.stream.close();
    });
    thread.join();
}

void HttpServer::State::listen() {
    beast::error_code error;
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
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
        const auto open = std::ranges::count_if(connections, [](Connection& each) { return each.stream.socket().is_open(); });
        if (static_cast<std::size_t>(open) >= options.limits.connections) close_one();
        beast::error_code error;
        tcp::socket socket(context);
        acceptor.accept(socket, error);
        if (!error) {
            start(std::move(socket));
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
    const asio::ip::address address = socket.remote_endpoint(gone).address();
    // Otherwise the end of a long page waits for the client's acknowledgement, for 40 ms.
    socket.set_option(tcp::no_delay(true), gone);
    connections.push_back({.stream = beast::tcp_stream(std::move(socket)), .address = address});
    const auto place = std::prev(connections.end());
    count_progress(*place);
    // An exception, as for lack of memory, ends only this connection.
    asio::co_spawn(context, serve(*place), [this, place](const std::exception_ptr&) { connections.erase(place); });
}

void HttpServer::State::close_one() {
    std::map<asio::ip::address, std::int64_t> of_address;
    std::vector<Connection*> open;
    for (Connection& connection : connections) {
        if (!connection.stream.socket().is_open()) continue;
        ++of_address[connection.address];
        open.push_back(&connection);
    }
    if (open.empty()) return;
    const auto order = [&](const Connection* each) { return std::pair(-of_address[each->address], each->progress); };
    (*std::ranges::min_element(open, {}, order))->stream.close();
}

asio::awaitable<void> HttpServer::State::serve(Connection& connection) {
    beast::flat_buffer buffer(options.limits.header_bytes);
    std::chrono::milliseconds patience = options.limits.request_timeout;
    while (co_await serve_request(connection, buffer, patience)) patience = options.limits.idle_timeout;
    if (connection.stream.socket().is_open()) co_await linger(connection);
}

// Reads a request, whose first byte must come within `patience`, and answers it. False if the connection is to end.
asio::awaitable<bool> HttpServer::State::serve_request(Connection& connection, beast::flat_buffer& buffer,
                                                       std::chrono::milliseconds patience) {
    beast::tcp_stream& stream = connection.stream;
    if (buffer.size() == 0) {
        stream.expires_after(patience);
        const auto [ended, bytes] = co_await stream.async_read_some(buffer.prepare(buffer.max_size()), as_result);
        if (ended) co_return false;
        buffer.commit(bytes);
    }
    stream.expires_after(options.limits.request_timeout);
    Request request;
    request.header_limit(static_cast<std::uint32_t>(options.limits.header_bytes));
    request.body_limit(boost::none);  // refusal_of() looks at it
    const auto [error, consumed] = co_await http::async_read_header(stream, buffer, request, as_result);
    if (error && !is_syntax_error(error)) co_return false;
    count_progress(connection);

    std::optional<HttpAnswer> answer = refusal_of(error, request, options.limits);
    const bool keep_alive = !answer && request.get().keep_alive();
    if (!answer) answer = co_await answer_of(request.get().target());
    const http::response<http::string_body> response =
        response_of(std::move(*answer), keep_alive ? request.get().version() : 11, keep_alive);
    http::response_serializer<http::string_body> serializer(response);
    stream.expires_after(options.limits.write_timeout);
    const bool only_header = request.get().method() == http::verb::head;
    const auto [failed, written] = only_header ? co_await http::async_write_header(stream, serializer, as_result)
                                               : co_await http::async_write(stream, serializer, as_result);
    count_progress(connection);
    co_return !failed && keep_alive;
}

asio::awaitable<HttpAnswer> HttpServer::State::answer_of(std::string_view target) {
    const std::string_view path = target.substr(0, target.find('?'));
    const auto page = std::ranges::find(pages, path, [](const PageThread& each) { return std::string_view(each.page.path); });
    if (page == pages.end()) co_return HttpAnswer{.status = 404, .body = "There is no such page.\n"};
    co_return co_await ask(*page);
}

asio::awaitable<HttpAnswer> HttpServer::State::ask(PageThread& page) {
    if (page.waiting == options.limits.waiting)
        co_return HttpAnswer{.status = 503, .body = "Too many requests wait for this page; try again later.\n"};
    ++page.waiting;
    std::optional<HttpAnswer> answer;
    asio::steady_timer ready(context, asio::steady_timer::time_point::max());
    // Both outlive the page's work: this coroutine ends only with an answer.
    asio::post(page.thread, [&] {
        asio::post(context, [&, made = make(page.page)]() mutable {
            answer = std::move(made);
            ready.cancel();
        });
    });
    while (!answer) co_await ready.async_wait(as_result);
    --page.waiting;
    co_return std::move(*answer);
}

// On the page's thread.
HttpAnswer HttpServer::State::make(const HttpPage& page) const {
    try {
        return page.answer();
    } catch (const std::exception& error) {
        if (options.on_failure) options.on_failure(page.path, error.what());
        return {.status = 500, .body = "The page could not be made; the log says why.\n"};
    }
}

asio::awaitable<void> HttpServer::State::linger(Connection& connection) {
    beast::error_code ignored;
    connection.stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    connection.stream.expires_after(linger_timeout);
    std::array<char, 4096> waste;
    for (std::size_t left = linger_bytes; left > 0;) {
        const auto [ended, bytes] = co_await connection.stream.async_read_some(asio::buffer(waste), as_result);
        if (ended) break;
        left -= std::min(left, bytes);
    }
    connection.stream.close();
}

HttpServer::HttpServer(Options options) : state_(std::make_unique<State>(std::move(options))) {}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return state_->port; }

}  // namespace lorry::ops
