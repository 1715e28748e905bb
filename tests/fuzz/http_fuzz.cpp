// What a client sends to the HTTP server of a worker, over a loopback socket; record separators divide it into pieces that are sent one by
// one. The server answers in whole HTTP messages, ends the connection after a refusal, answers plain requests as a second reader expects,
// and still serves others afterwards. A client that has sent all ends its side, so that nothing waits.
#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "ops/http/pages.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using tests::HttpClient;

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view header_end = "\r\n\r\n";
constexpr std::size_t input_bytes_max = 32 << 10;  // the server reads so much of what follows a refused request

const PageServer& server() {
    static const PageServer running({.host = "127.0.0.1",
                                     .pages = {{.path = "/healthz", .answer = [] { return HttpAnswer{.body = "running\n"}; }},
                                               {.path = "/broken", .answer = []() -> HttpAnswer { throw std::runtime_error("no"); }}}});
    return running;
}

HttpClient connect() { return HttpClient(server().port(), tests::next_address()); }

bool is_visible(std::string_view text) {
    return std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter <= '~'; });
}

// A header field that changes neither the length of the request nor what becomes of the connection.
bool is_plain_field(std::string_view line) {
    const std::size_t colon = line.find(": ");
    if (colon == 0 || colon == line.npos) return false;
    std::string name(line.substr(0, colon));
    for (char& letter : name) {
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter + ('a' - 'A'));
        if (letter < 'a' || letter > 'z') return false;
    }
    return name != "connection" && name != "expect" && name != "upgrade" && is_visible(line.substr(colon + 2));
}

// The status of the first answer, if the input begins with a GET request of the plainest kind.
std::optional<int> status_of_plain(std::string_view input) {
    constexpr std::size_t header_bytes_max = 4'000;
    constexpr std::string_view method = "GET ";
    constexpr std::string_view version = " HTTP/1.1";
    const std::size_t end = input.find(header_end);
    if (end > header_bytes_max) return std::nullopt;
    std::string_view lines = input.substr(0, end + line_end.size());
    const auto next_line = [&] {
        const std::string_view line = lines.substr(0, lines.find(line_end));
        lines.remove_prefix(line.size() + line_end.size());
        return line;
    };
    std::string_view target = next_line();
    if (!target.starts_with(method) || !target.ends_with(version)) return std::nullopt;
    target = target.substr(method.size(), target.size() - method.size() - version.size());
    if (!target.starts_with('/') || !is_visible(target)) return std::nullopt;
    while (!lines.empty()) {
        if (!is_plain_field(next_line())) return std::nullopt;
    }
    const std::string_view path = target.substr(0, target.find('?'));
    return path == "/healthz" ? 200 : path == "/broken" ? 500 : 404;
}

struct Answer {
    int status = 0;
    bool closes = false;
};

std::size_t number_after(std::string_view header, std::string_view field) {
    const std::size_t place = header.find(field);
    CHECK(place != header.npos, "an answer's header has the field");
    const std::size_t begin = place + field.size();
    std::size_t number = 0;
    for (const char letter : header.substr(begin, header.find(line_end, begin) - begin)) {
        CHECK(letter >= '0' && letter <= '9', "the field is a number");
        number = 10 * number + static_cast<std::size_t>(letter - '0');
    }
    return number;
}

// Takes an answer off the front of what was received.
Answer take_answer(std::string_view& received) {
    CHECK(received.starts_with("HTTP/1.0 ") || received.starts_with("HTTP/1.1 "), "an answer begins with its version");
    const std::size_t end = received.find(header_end);
    CHECK(end != received.npos, "an answer's header ends");
    const std::string_view header = received.substr(0, end + line_end.size());
    received.remove_prefix(end + header_end.size());
    Answer answer;
    for (const char digit : header.substr(9, 3)) answer.status = 10 * answer.status + (digit - '0');
    const bool keeps_old = header.find("\r\nConnection: keep-alive\r\n") != header.npos;
    answer.closes = header.find("\r\nConnection: close\r\n") != header.npos || (header.starts_with("HTTP/1.0 ") && !keeps_old);
    const std::size_t length = number_after(header, "\r\nContent-Length: ");
    CHECK(length > 0, "each answer has a text");
    // The answer to HEAD has no body, and no body begins like an answer.
    if (received.empty() || received.starts_with("HTTP/1.")) return answer;
    CHECK(received.size() >= length, "a body is complete");
    received.remove_prefix(length);
    return answer;
}

void check_answers(std::string_view input, std::string_view received) {
    constexpr std::array statuses = {200, 400, 404, 405, 413, 431, 500};
    constexpr std::size_t request_bytes_min = std::string_view("GET / HTTP/1.1\r\n\r\n").size();
    std::size_t answers = 0;
    Answer answer;
    const std::optional<int> first = status_of_plain(input);
    CHECK(!first || !received.empty(), "a plain request is answered");
    for (; !received.empty(); ++answers) {
        CHECK(!answer.closes, "the answer that ends a connection is the last one");
        answer = take_answer(received);
        CHECK(std::ranges::find(statuses, answer.status) != statuses.end(), "the server has no other answers");
        CHECK(answer.closes || answer.status == 200 || answer.status == 404 || answer.status == 500, "a refusal ends the connection");
        CHECK(answers > 0 || !first || (answer.status == *first && !answer.closes), "a plain request is answered as it should be");
    }
    CHECK(answers <= 1 + input.size() / request_bytes_min, "each answer is to a request");
}

}  // namespace
}  // namespace lorry::ops

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lorry;
    std::string input(fuzz::text_of(data, std::min(size, ops::input_bytes_max)));
    tests::HttpClient client = ops::connect();
    for (std::size_t begin = 0; begin < input.size();) {
        const std::size_t end = std::min(input.find(fuzz::separator, begin), input.size());
        if (!client.send(std::string_view(input).substr(begin, end - begin))) break;
        begin = end + 1;
    }
    client.end_sending();
    std::erase(input, fuzz::separator);
    ops::check_answers(input, client.receive_all());
    static unsigned inputs = 0;
    if (++inputs % 256 == 0) CHECK(ops::connect().get("/healthz").status == 200, "other clients are served");
    return 0;
}
