// What a client sends to the gateway, over a loopback socket; record separators divide it into pieces that are sent one by one. The gateway
// answers in whole HTTP messages; each error is OpenAI's error object; the backend gets JSON objects and urls of the table only; and other
// clients are still served afterwards. Calls are answered at once, streams with two chunks.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "ops/gateway/gateway.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using schema::Json;
using tests::HttpClient;

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view header_end = "\r\n\r\n";
constexpr std::size_t input_bytes_max = 32 << 10;  // the server reads so much of what follows a refused request

class EndedCalls final : public consumer::CallBackend {
public:
    std::optional<consumer::CallRefusal> submit(consumer::Call call, consumer::CallListener& listener) override {
        const auto body = Json::parse(call.body);
        CHECK(body && body->is_object(), "a call's body is a JSON object");
        const auto endpoint = schema::endpoint_at(call.url);
        CHECK(endpoint && schema::row_of(*endpoint).url == call.url, "a call's url is one of the table");
        const Json* stream = body->find("stream");
        if (stream != nullptr && stream->as_bool().value_or(false)) {
            for (const char* chunk : {R"({"n":1})", R"({"n":2})"}) listener.on_chunk(call.id, chunk);
        }
        listener.on_end(call.id, consumer::CallResult{.body = R"({"object":"fuzz"})"});
        return std::nullopt;
    }
    void cancel(const std::string&) override {}
};

const Gateway& gateway() {
    static EndedCalls calls;
    static const Gateway running({.host = "127.0.0.1",
                                  .base_name = "base",
                                  .limits = {.header_bytes = 4096, .body_bytes = 8192},
                                  .adapters = [] { return std::vector<std::string>{"mail"}; },
                                  .health = [] { return HttpAnswer{.body = "running\n"}; },
                                  .metrics = [] { return HttpAnswer{.body = "a 1\n"}; }},
                                 calls);
    return running;
}

bool has_field(std::string_view header, std::string_view field) { return header.find(field) != header.npos; }

std::size_t length_of(std::string_view header) {
    constexpr std::string_view field = "\r\nContent-Length: ";
    const std::size_t place = header.find(field);
    CHECK(place != header.npos, "an answer says how long it is");
    std::size_t length = 0;
    std::from_chars(header.data() + place + field.size(), header.data() + header.size(), length);
    return length;
}

// An answer in chunks. A client that has ended its side counts as gone, so the last answer may break off.
void take_chunks(std::string_view& received) {
    for (std::size_t length = 1; length > 0;) {
        const char* const begin = received.data();
        const auto [end, error] = std::from_chars(begin, begin + received.size(), length, 16);
        const auto digits = static_cast<std::size_t>(end - begin);
        if (error != std::errc() || received.size() < digits + length + 2 * line_end.size()) {
            CHECK(received.find("HTTP/1.") == received.npos, "nothing follows an answer that broke off");
            received = {};
            return;
        }
        received.remove_prefix(digits);
        CHECK(received.starts_with(line_end), "a chunk's length is a line");
        received.remove_prefix(line_end.size());
        CHECK(received.substr(length, line_end.size()) == line_end, "a chunk ends");
        CHECK(length == 0 || received.starts_with("data: "), "a chunk is an event");
        received.remove_prefix(length + line_end.size());
    }
}

void check_error(std::string_view body) {
    const auto parsed = Json::parse(body);
    CHECK(parsed, "an error is JSON");
    const Json* error = parsed->find("error");
    CHECK(error != nullptr && error->find("code") != nullptr && error->find("code")->is_string(), "an error has a code");
    CHECK(error->find("message") != nullptr && error->find("message")->is_string(), "an error has a message");
    fuzz::check_message(*error->find("message")->as_string());
}

// Takes an answer off the front of what was received. True if it ends the connection.
bool take_answer(std::string_view& received) {
    constexpr std::array statuses = {100, 200, 400, 403, 404, 405, 413, 415, 417, 431, 501};
    CHECK(received.starts_with("HTTP/1.0 ") || received.starts_with("HTTP/1.1 "), "an answer begins with its version");
    const std::size_t end = received.find(header_end);
    CHECK(end != received.npos, "an answer's header ends");
    const std::string_view header = received.substr(0, end + line_end.size());
    received.remove_prefix(end + header_end.size());
    int status = 0;
    std::from_chars(header.data() + 9, header.data() + 12, status);
    CHECK(std::ranges::find(statuses, status) != statuses.end(), "the gateway has no other answers");
    if (status == 100) return false;
    const bool closes = has_field(header, "\r\nConnection: close\r\n") ||
                        (header.starts_with("HTTP/1.0 ") && !has_field(header, "\r\nConnection: keep-alive\r\n"));
    if (has_field(header, "\r\nContent-Type: text/event-stream")) {
        // Without chunks, the end of the connection is the end of the answer.
        if (has_field(header, "\r\nTransfer-Encoding: chunked\r\n"))
            take_chunks(received);
        else
            received = {};
        return closes;
    }
    const std::size_t length = length_of(header);
    // The answer to HEAD has no body, and no body begins like an answer.
    if (received.empty() || received.starts_with("HTTP/1.")) return closes;
    CHECK(received.size() >= length, "a body is complete");
    if (status >= 400) check_error(received.substr(0, length));
    received.remove_prefix(length);
    return closes;
}

}  // namespace
}  // namespace lorry::ops

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lorry;
    const std::string input(fuzz::text_of(data, std::min(size, ops::input_bytes_max)));
    ops::HttpClient client(ops::gateway().port(), tests::next_address());
    for (std::size_t begin = 0; begin < input.size();) {
        const std::size_t end = std::min(input.find(fuzz::separator, begin), input.size());
        if (!client.send(std::string_view(input).substr(begin, end - begin))) break;
        begin = end + 1;
    }
    client.end_sending();
    const std::string received = client.receive_all();
    std::string_view left = received;
    bool has_ended = false;
    while (!left.empty()) {
        CHECK(!has_ended, "the answer that ends a connection is the last one");
        has_ended = ops::take_answer(left);
    }
    static unsigned inputs = 0;
    if (++inputs % 256 == 0) {
        ops::HttpClient other(ops::gateway().port(), tests::next_address());
        CHECK(other.get("/healthz").status == 200, "other clients are served");
    }
    return 0;
}
