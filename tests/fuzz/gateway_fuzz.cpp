// What a client sends to a gateway, over a loopback socket; record separators divide it into pieces that are sent one by one. What has a
// field Authorization goes to a gateway with keys, the rest to one without. The gateways answer in whole HTTP messages; each error is
// OpenAI's error object; the backend gets JSON objects and urls of the table only; stored contents and records of files belong together;
// and other clients are still served afterwards. Calls are answered at once, streams with two chunks; files and batches are kept in memory.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "ops/gateway/gateway.h"
#include "ops/gateway/key_authenticator.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/fake_batches.h"
#include "tests/support/fake_keys.h"
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

// Two gateways with the same files and batches, among them one of each whose id an input can name.
struct Rig {
    Rig() {
        keys.set(1, {.tenant = tenant, .name = "all", .scopes = {.batches = true, .admin = true}});
        keys.set(2, {.tenant = "mails",
                     .name = "one model and url",
                     .scopes = {.models = {{"mail"}}, .endpoints = {{schema::Endpoint::completions}}}});
        fill();
    }

    void fill() {
        store.clear();
        batches.clear();
        const std::string content = "a file that is known\n";
        store.put(file_id, content);
        batches.add_file({.id = file_id, .tenant = tenant, .name = "in.jsonl", .bytes = std::ssize(content)});
        batches.add_batch({.id = batch_id, .tenant = tenant, .input_file = file_id, .state = schema::BatchState::in_progress});
    }

    // Contents and records of files are the same ones. Not while a request is carried out.
    bool is_consistent() const {
        const auto contents = store.contents();
        const auto files = batches.files();
        return store.open_readers == 0 && contents.size() == files.size() &&
               std::ranges::all_of(files, [&](const schema::FileRecord& file) {
                   const auto place = contents.find(file.id);
                   return place != contents.end() && std::ssize(place->second) == file.bytes;
               });
    }

    Gateway::Options options(const Authenticator* callers) {
        return {.host = "127.0.0.1",
                .base_name = "base",
                .authenticator = callers,
                .limits = {.header_bytes = 4096, .body_bytes = 8192},
                .adapters = [] { return std::vector<std::string>{"mail"}; },
                .health = [] { return HttpAnswer{.body = "running\n"}; },
                .metrics = [] { return HttpAnswer{.body = "a 1\n"}; },
                .stored = StoredRequests::Backends{.files = store, .batches = batches, .file_bytes_max = 4096}};
    }

    const std::string tenant = "search";
    const std::string file_id = "file-" + std::string(32, '1');
    const std::string batch_id = "batch_" + std::string(32, '1');
    EndedCalls calls;
    tests::FakeKeys keys;
    tests::MemoryStore store;
    tests::FakeBatches batches;
    KeyAuthenticator authenticator{keys, [] { return schema::Timestamp(std::chrono::seconds(1)); }};
    Gateway open{options(nullptr), calls};
    Gateway keyed{options(&authenticator), calls};
};

Rig& rig() {
    static Rig running;
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
    constexpr std::array statuses = {100, 200, 400, 401, 403, 404, 405, 413, 415, 417, 431, 501};
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
    if (has_field(header, "\r\nContent-Type: application/octet-stream\r\n") && received.size() < length) {
        received = {};  // a download, whose client counts as gone
        return closes;
    }
    CHECK(received.size() >= length, "a body is complete");
    if (status >= 400) check_error(received.substr(0, length));
    received.remove_prefix(length);
    return closes;
}

// After many inputs: other clients are served, and what requests have left behind is consistent once their threads are done.
void check_gateways() {
    constexpr std::chrono::seconds patience(20);
    for (const Gateway* each : {&rig().open, &rig().keyed}) {
        HttpClient other(each->port(), tests::next_address());
        CHECK(other.get("/healthz").status == 200, "other clients are served");
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!rig().is_consistent()) {
        CHECK(std::chrono::steady_clock::now() < deadline, "a stored content has a record, and a record has its content");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rig().fill();
}

}  // namespace
}  // namespace lorry::ops

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lorry;
    const std::string input(fuzz::text_of(data, std::min(size, ops::input_bytes_max)));
    const bool has_key = input.find("Authorization:") != input.npos;
    ops::HttpClient client((has_key ? ops::rig().keyed : ops::rig().open).port(), tests::next_address());
    for (std::size_t begin = 0; begin < input.size();) {
        const std::size_t end = std::min(input.find(fuzz::separator, begin), input.size());
        if (!client.send(std::string_view(input).substr(begin, end - begin))) break;
        begin = end + 1;
    }
    // A client that has ended its side counts as gone; files are written and read on other threads, which take a moment.
    if (has_key) client.wait_for_bytes(std::chrono::milliseconds(1));
    client.end_sending();
    const std::string received = client.receive_all();
    std::string_view left = received;
    bool has_ended = false;
    while (!left.empty()) {
        CHECK(!has_ended, "the answer that ends a connection is the last one");
        has_ended = ops::take_answer(left);
    }
    static unsigned inputs = 0;
    if (++inputs % 256 == 0) ops::check_gateways();
    return 0;
}
