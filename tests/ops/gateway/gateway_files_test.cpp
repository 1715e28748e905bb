// Files and batches over real sockets, with a store and a backend in memory.
#include <gmock/gmock.h>

#include <list>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "ops/gateway/gateway.h"
#include "ops/gateway/key_authenticator.h"
#include "tests/support/fake_batches.h"
#include "tests/support/fake_calls.h"
#include "tests/support/fake_daily_tokens.h"
#include "tests/support/fake_keys.h"
#include "tests/support/http_client.h"

namespace lorry::ops {
namespace {

using schema::Json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using tests::FakeKeys;
using tests::HttpClient;
using tests::HttpReply;

std::string key_field(int key) { return fmt::format("Authorization: Bearer {}\r\n", FakeKeys::text(key)); }

std::string request(std::string_view method, std::string_view path, int key = 1, std::string_view body = "",
                    std::string_view type = "application/json") {
    std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}", method, path, key_field(key));
    if (!body.empty()) head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", type, body.size());
    return fmt::format("{}\r\n{}", head, body);
}

constexpr const char* form_type = "multipart/form-data; boundary=b";
std::string field(std::string_view name, std::string_view value) {
    return fmt::format("--b\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", name, value);
}
std::string file(std::string_view name, std::string_view content) {
    return fmt::format(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: application/jsonl\r\n\r\n{}\r\n", name,
        content);
}
std::string form(std::string_view content, std::string_view name = "in.jsonl") {
    return field("purpose", "batch") + file(name, content) + "--b--\r\n";
}

std::string text_at(const HttpReply& reply, const char* name) {
    const auto body = Json::parse(reply.body);
    const Json* value = body ? body->find(name) : nullptr;
    return value == nullptr ? "none: " + reply.body : value->as_string() != nullptr ? *value->as_string() : value->dump();
}
std::string error_of(const HttpReply& reply) {
    const auto body = Json::parse(reply.body);
    const Json* error = body ? body->find("error") : nullptr;
    if (error == nullptr) return std::to_string(reply.status);
    const Json* param = error->find("param");
    return fmt::format("{} {}{}", reply.status, *error->find("code")->as_string(), param->is_null() ? "" : " " + *param->as_string());
}
std::vector<std::string> ids_in(const HttpReply& reply) {
    std::vector<std::string> ids;
    const auto body = Json::parse(reply.body);
    if (!body || body->find("data") == nullptr) return {reply.body};
    for (const Json& each : *body->find("data")->as_array()) ids.push_back(*each.find("id")->as_string());
    return ids;
}

struct FilesRig {
    explicit FilesRig(HttpLimits http_limits = {.body_bytes = 10'000}) : limits(http_limits) {
        keys.set(1, {.tenant = "search", .name = "all", .scopes = {.batches = true}});
        keys.set(2, {.tenant = "mails", .name = "all", .scopes = {.batches = true}});
        keys.set(3, {.tenant = "search", .name = "calls only"});
        keys.set(4, {.tenant = "search",
                     .name = "one model and url",
                     .scopes = {.models = {{"mail"}}, .endpoints = {{schema::Endpoint::completions}}, .batches = true}});
    }
    HttpReply ask(const std::string& text) {
        HttpClient client(gateway.port());
        client.send(text);
        return client.receive().value_or(HttpReply{});
    }
    HttpReply upload(const std::string& body, int key = 1) { return ask(request("POST", "/v1/files", key, body, form_type)); }
    std::string uploaded(const std::string& content, int key = 1) { return text_at(upload(form(content), key), "id"); }
    std::string content(const std::string& id, int key = 1) {
        HttpClient client(gateway.port());
        client.send(request("GET", "/v1/files/" + id + "/content", key));
        return client.receive().value_or(HttpReply{}).body;
    }
    HttpReply create(const std::string& body, int key = 1) { return ask(request("POST", "/v1/batches", key, body)); }
    static std::string batch_body(const std::string& file_id, const std::string& more = "") {
        return fmt::format(R"({{"input_file_id":"{}","endpoint":"/v1/completions","completion_window":"24h"{}}})", file_id, more);
    }

    const HttpLimits limits;
    std::mutex failures_mutex;
    std::vector<std::string> failures;  // guarded by failures_mutex
    tests::FakeCalls calls;
    FakeKeys keys;
    tests::MemoryStore store;
    tests::FakeBatches batches;
    tests::FakeDailyTokens daily{FakeKeys::id(5)};
    KeyAuthenticator authenticator{keys, [] { return schema::Timestamp(std::chrono::seconds(1)); }};
    Gateway gateway{{.host = "127.0.0.1",
                     .base_name = "tiny",
                     .authenticator = &authenticator,
                     .limits = limits,
                     .adapters = [] { return std::vector<std::string>{}; },
                     .health = [] { return HttpAnswer{.body = "running\n"}; },
                     .metrics = [] { return HttpAnswer{.body = "a 1\n"}; },
                     .daily_tokens = &daily,
                     .stored = StoredRequests::Backends{.files = store,
                                                        .batches = batches,
                                                        .file_bytes_max = 3'000'000,
                                                        .on_failure =
                                                            [this](const std::string& why) {
                                                                const std::lock_guard lock(failures_mutex);
                                                                failures.push_back(why);
                                                            }}},
                    calls};
};

TEST(GatewayFiles, AFileIsUploadedListedReadAndDeleted) {
    FilesRig rig;
    const HttpReply made = rig.upload(form("one\ntwo\n"));
    EXPECT_EQ(made.status, 200) << made.body;
    EXPECT_THAT(made.body, AllOf(HasSubstr(R"("object":"file")"), HasSubstr(R"("bytes":8)"), HasSubstr(R"("filename":"in.jsonl")"),
                                 HasSubstr(R"("purpose":"batch")")));
    EXPECT_THAT(made.body, Not(HasSubstr("tenant")));
    const std::string id = text_at(made, "id");
    EXPECT_THAT(rig.ask(request("GET", "/v1/files/" + id)).body, made.body);
    EXPECT_EQ(rig.content(id), "one\ntwo\n");
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/files"))), ElementsAre(id));
    const HttpReply deleted = rig.ask(request("DELETE", "/v1/files/" + id));
    EXPECT_EQ(text_at(deleted, "deleted"), "true");
    EXPECT_THAT(rig.store.contents(), IsEmpty());
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/files/" + id))), "404 file_not_found");
    EXPECT_EQ(error_of(rig.ask(request("DELETE", "/v1/files/" + id))), "404 file_not_found");
}

// Pins: uploads were collected in memory, or cut between parts.
TEST(GatewayFiles, ALargeFileGoesThroughInParts) {
    FilesRig rig;
    std::string content;
    for (int i = 0; content.size() < 2'900'000; ++i) content += fmt::format("line {}\r\n--", i);
    const std::string id = rig.uploaded(content);
    EXPECT_EQ(rig.content(id), content);
    // The same in chunks, by a client that waits for the invitation.
    HttpClient client(rig.gateway.port());
    client.send(
        fmt::format("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{}Content-Type: {}\r\nTransfer-Encoding: chunked\r\nExpect: "
                    "100-continue\r\n\r\n",
                    key_field(1), form_type));
    EXPECT_EQ(client.receive(false)->status, 100);
    const std::string body = form(content);
    for (std::size_t at = 0; at < body.size(); at += 70'001) {
        const std::string_view piece = std::string_view(body).substr(at, 70'001);
        client.send(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece));
    }
    client.send("0\r\n\r\n");
    const auto reply = client.receive();
    ASSERT_TRUE(reply);
    EXPECT_EQ(rig.content(text_at(*reply, "id")), content);
    client.send(request("GET", "/healthz"));
    EXPECT_EQ(client.receive()->status, 200) << "the connection goes on";
}

TEST(GatewayFiles, WhatIsNoUploadIsRefusedAndLeavesNothing) {
    FilesRig rig;
    const std::string purpose = field("purpose", "batch");
    const std::string in = file("in.jsonl", "x");
    const std::string end = "--b--\r\n";
    EXPECT_EQ(error_of(rig.upload(purpose + end)), "400 invalid_upload file");
    EXPECT_EQ(error_of(rig.upload(in + end)), "400 invalid_upload purpose");
    EXPECT_EQ(error_of(rig.upload(field("purpose", "fine-tune") + in + end)), "400 invalid_upload purpose");
    EXPECT_EQ(error_of(rig.upload(in + field("purpose", "fine-tune") + end)), "400 invalid_upload purpose");
    EXPECT_EQ(error_of(rig.upload(in + purpose + purpose + end)), "400 invalid_upload purpose");
    EXPECT_EQ(error_of(rig.upload(purpose + in + in + end)), "400 invalid_upload file");
    EXPECT_EQ(error_of(rig.upload(purpose + field("file", "x") + end)), "400 invalid_upload file");
    EXPECT_EQ(error_of(rig.upload(purpose + file("in.jsonl", "") + end)), "400 invalid_upload file");
    EXPECT_EQ(error_of(rig.upload(purpose + file(std::string(600, 'n'), "x") + end)), "400 invalid_upload file");
    EXPECT_EQ(error_of(rig.upload(field("expires_after[seconds]", "3600") + in + end)), "400 invalid_upload expires_after[seconds]");
    EXPECT_EQ(error_of(rig.upload(purpose + in)), "400 invalid_upload") << "it breaks off";
    EXPECT_EQ(error_of(rig.upload("not a form")), "400 invalid_upload");
    EXPECT_EQ(error_of(rig.ask(request("POST", "/v1/files", 1, "{}", "application/json"))), "415 unsupported_media_type");
    EXPECT_EQ(error_of(rig.ask(request("POST", "/v1/files", 1, "x", "multipart/form-data"))), "415 unsupported_media_type");
    EXPECT_EQ(error_of(rig.ask(request("POST", "/v1/files"))), "400 invalid_upload");
    EXPECT_EQ(error_of(rig.ask(request("PUT", "/v1/files"))), "405 method_not_allowed");
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/files/"))), "404 unknown_url");
    EXPECT_THAT(rig.store.contents(), IsEmpty());
}

TEST(GatewayFiles, AnUploadThatIsTooLargeIsRefused) {
    FilesRig rig;
    EXPECT_EQ(
        error_of(rig.ask(fmt::format("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{}Content-Type: {}\r\nContent-Length: 4000000\r\n\r\n",
                                     key_field(1), form_type))),
        "413 payload_too_large");
    HttpClient client(rig.gateway.port());
    client.send(fmt::format("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{}Content-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
                            key_field(1), form_type));
    const std::string piece(100'000, 'x');
    client.send(fmt::format("{:x}\r\n{}\r\n", form("").size() - 9, form("").substr(0, form("").size() - 9)));
    for (int i = 0; i < 50 && client.send(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece)); ++i) {
    }
    // The client may see the end of the connection before the answer, as it sends on.
    const auto reply = client.receive();
    EXPECT_EQ(reply ? error_of(*reply) : "413 payload_too_large", "413 payload_too_large");
    EXPECT_THAT(rig.store.contents(), IsEmpty());
}

TEST(GatewayFiles, AnUploadThatBreaksOffLeavesNothing) {
    FilesRig rig;
    {
        HttpClient client(rig.gateway.port());
        const std::string text = request("POST", "/v1/files", 1, form(std::string(300'000, 'x')), form_type);
        client.send(std::string_view(text).substr(0, 200'000));
    }
    EXPECT_EQ(rig.ask(request("GET", "/healthz")).status, 200);
    EXPECT_THAT(rig.store.contents(), IsEmpty());
}

// Pins: a path that leaves the folder, or an id of another form, reached the store.
TEST(GatewayFiles, AnUploadThatComesTooSlowlyEndsAndLeavesNothing) {
    FilesRig rig({.body_bytes = 10'000, .upload_timeout = std::chrono::milliseconds(200)});
    HttpClient slow(rig.gateway.port());
    const std::string whole = request("POST", "/v1/files", 1, form(std::string(1'000, 'x')), form_type);
    slow.send(whole.substr(0, whole.size() - 1'000));
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::steady_clock::now() - start; };
    while (slow.send("x") && passed() < std::chrono::seconds(5)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_LT(passed(), std::chrono::seconds(4)) << "no byte begins the time anew";
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/files"))), IsEmpty());
}

// Pins: a key could hold all connections by uploads that came byte by byte, so that others, and health checks, found none.
TEST(GatewayFiles, ATenantHasOnlySoManyUploadsAndDownloadsOpen) {
    FilesRig rig;
    const std::string whole = request("POST", "/v1/files", 1, form(std::string(1'000, 'x')), form_type);
    std::list<HttpClient> slow;
    for (std::size_t i = 0; i < StoredRequests::tenant_transfers_max; ++i)
        slow.emplace_back(rig.gateway.port()).send(whole.substr(0, whole.size() - 900));
    HttpReply refused;
    for (int i = 0; i < 500 && refused.status != 429; ++i) refused = rig.upload(form("a"));
    EXPECT_EQ(error_of(refused), "429 too_many_transfers");
    EXPECT_THAT(refused.header, HasSubstr("Retry-After: 1\r\n"));
    const std::string theirs = rig.uploaded("theirs", 2);
    EXPECT_EQ(rig.content(theirs, 2), "theirs") << "of another tenant";
    slow.clear();
    HttpReply taken;
    for (int i = 0; i < 500 && taken.status != 200; ++i) taken = rig.upload(form("a"));
    EXPECT_EQ(taken.status, 200U) << "once they have ended";
}

TEST(GatewayFiles, IdsAndNamesAreNoPaths) {
    FilesRig rig;
    for (const char* id : {"..", "%2e%2e%2fetc%2fpasswd", "../../etc/passwd", "file-", "file-00", "file-0000000000000000000000000000000g",
                           "file-0000000000000000000000000000000%30", "FILE-00000000000000000000000000000000"}) {
        for (const char* rest : {"", "/content"}) {
            const HttpReply reply = rig.ask(request("GET", fmt::format("/v1/files/{}{}", id, rest)));
            EXPECT_EQ(reply.status, 404) << id << rest << reply.body;
        }
    }
    const HttpReply made = rig.upload(form("x", "../../etc/pass\\\"wd"));
    EXPECT_EQ(text_at(made, "filename"), "../../etc/pass\"wd");
    ASSERT_THAT(rig.store.contents(), SizeIs(1));
    EXPECT_EQ(rig.store.contents().begin()->first, text_at(made, "id"));
}

TEST(GatewayFiles, ATenantSeesItsOwnFilesOnly) {
    FilesRig rig;
    const std::string own = rig.uploaded("a", 1);
    const std::string other = rig.uploaded("b", 2);
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/files", 1))), ElementsAre(own));
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/files", 2))), ElementsAre(other));
    for (const auto& [method, path] : {std::pair("GET", "/v1/files/" + other), std::pair("GET", "/v1/files/" + other + "/content"),
                                       std::pair("DELETE", "/v1/files/" + other)}) {
        EXPECT_EQ(error_of(rig.ask(request(method, path, 1))), "404 file_not_found") << path;
    }
    EXPECT_EQ(error_of(rig.create(FilesRig::batch_body(other), 1)), "400 invalid_value input_file_id");
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/files", 3))), "403 permission_denied") << "a key without --batches";
    EXPECT_EQ(error_of(rig.ask(request("POST", "/v1/batches", 3, "{}"))), "403 permission_denied");
    EXPECT_EQ(rig.content(other, 2), "b");
}

TEST(GatewayFiles, ListsComeInPages) {
    FilesRig rig;
    std::vector<std::string> ids;
    for (int i = 0; i < 5; ++i) ids.push_back(rig.uploaded("x"));
    const auto list = [&](const std::string& query) { return rig.ask(request("GET", "/v1/files" + query)); };
    EXPECT_THAT(ids_in(list("?limit=2")), ElementsAre(ids[4], ids[3]));
    EXPECT_EQ(text_at(list("?limit=2"), "has_more"), "true");
    EXPECT_EQ(text_at(list("?limit=2"), "last_id"), ids[3]);
    EXPECT_THAT(ids_in(list("?limit=2&order=asc&after=" + ids[2])), ElementsAre(ids[3], ids[4]));
    EXPECT_EQ(text_at(list("?limit=2&order=asc&after=" + ids[2]), "has_more"), "false");
    EXPECT_THAT(ids_in(list("?purpose=batch_output")), IsEmpty());
    EXPECT_THAT(ids_in(list("?purpose=b%61tch")), SizeIs(5));
    EXPECT_EQ(error_of(list("?limit=0")), "400 invalid_value limit");
    EXPECT_EQ(error_of(list("?limit=x")), "400 invalid_value limit");
    EXPECT_EQ(error_of(list("?limit=-1")), "400 invalid_value limit");
    EXPECT_EQ(error_of(list("?order=up")), "400 invalid_value order");
    EXPECT_EQ(error_of(list("?purpose=vision")), "400 invalid_value purpose");
    EXPECT_EQ(error_of(list("?after=../x")), "400 invalid_value after");
    EXPECT_EQ(error_of(list("?after=file-00000000000000000000000000000000")), "400 invalid_value after");
    EXPECT_EQ(error_of(list("?color=red")), "400 unsupported_field color");
}

TEST(GatewayFiles, AStoreOrBackendThatFailsIsAnErrorAndPasses) {
    FilesRig rig;
    rig.store.is_full = true;
    const HttpReply full = rig.upload(form("x"));
    EXPECT_EQ(error_of(full), "500 internal_error");
    EXPECT_THAT(full.body, Not(HasSubstr("no space left"))) << "what is in the log is nothing for clients";
    {
        const std::lock_guard lock(rig.failures_mutex);
        EXPECT_THAT(rig.failures, ElementsAre("no space left"));
    }
    rig.store.is_full = false;
    rig.batches.is_away = true;
    const HttpReply away = rig.upload(form("x"));
    EXPECT_EQ(error_of(away), "503 unavailable");
    EXPECT_THAT(away.header, HasSubstr("Retry-After"));
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/files"))), "503 unavailable");
    rig.batches.is_away = false;
    rig.batches.is_full = true;
    EXPECT_EQ(error_of(rig.upload(form("x"))), "429 too_many_objects");
    rig.batches.is_full = false;
    const std::string id = rig.uploaded("x");
    rig.batches.in_use = true;
    EXPECT_EQ(error_of(rig.ask(request("DELETE", "/v1/files/" + id))), "409 file_in_use");
    rig.store.remove(id);
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/files/" + id + "/content"))), "404 file_not_found");
}

TEST(GatewayBatches, ABatchIsCreatedShownListedAndCancelled) {
    FilesRig rig;
    const std::string input = rig.uploaded("x");
    const HttpReply made = rig.create(FilesRig::batch_body(input, R"(,"metadata":{"job":"nightly"})"));
    EXPECT_EQ(made.status, 200) << made.body;
    EXPECT_EQ(text_at(made, "status"), "validating");
    EXPECT_EQ(text_at(made, "metadata"), R"({"job":"nightly"})");
    EXPECT_EQ(text_at(made, "request_counts"), R"({"total":0,"completed":0,"failed":0})");
    EXPECT_THAT(made.body, Not(AnyOf(HasSubstr("tenant"), HasSubstr("owner"))));
    const std::string id = text_at(made, "id");
    EXPECT_EQ(rig.batches.batches()[0].expires - rig.batches.batches()[0].created, 24 * 3600);
    EXPECT_EQ(rig.ask(request("GET", "/v1/batches/" + id)).body, made.body);
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/batches?limit=1"))), ElementsAre(id));
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/batches?order=asc"))), "400 unsupported_field order");
    for (const char* rest : {"", "/cancel"}) {
        EXPECT_EQ(error_of(rig.ask(request(*rest == 0 ? "GET" : "POST", "/v1/batches/" + id + rest, 2))), "404 batch_not_found");
    }
    EXPECT_EQ(text_at(rig.ask(request("POST", "/v1/batches/" + id + "/cancel")), "status"), "cancelling");
    EXPECT_THAT(rig.batches.cancelled(), ElementsAre(id));
    rig.batches.set_state(schema::BatchState::completed);
    EXPECT_EQ(error_of(rig.ask(request("POST", "/v1/batches/" + id + "/cancel"))), "409 batch_has_ended");
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/batches/batch_1"))), "404 batch_not_found");
    EXPECT_EQ(error_of(rig.ask(request("GET", "/v1/batches/" + id + "/cancel"))), "405 method_not_allowed");
}

TEST(GatewayBatches, AKeyMayHaveSoManyJobsInItsBatches) {
    FilesRig rig;
    rig.keys.set(5, {.tenant = "search", .name = "small", .scopes = {.batches = true}, .limits = {.batch_jobs = 10}});
    const std::string body = FilesRig::batch_body(rig.uploaded("x"));
    EXPECT_EQ(rig.create(body, 5).status, 200);
    EXPECT_EQ(rig.batches.batches()[0].key_jobs_max, 10) << "for the owner, who counts the lines";
    rig.batches.set_lines(9);
    EXPECT_EQ(rig.create(body, 5).status, 200) << "one may still wait";
    rig.batches.set_lines(5);
    const HttpReply refused = rig.create(body, 5);
    EXPECT_EQ(error_of(refused), "429 rate_limit_exceeded");
    EXPECT_THAT(refused.header, HasSubstr("Retry-After: 60"));
    EXPECT_THAT(refused.body, HasSubstr("may have 10 jobs without a result"));
    EXPECT_EQ(rig.create(body, 1).status, 200) << "another key";
    rig.batches.set_state(schema::BatchState::completed);
    EXPECT_EQ(rig.create(body, 5).status, 200);
}

// Pins: an upload with an Idempotency-Key was taken as any other, so a client that relied on it had its file twice.
TEST(GatewayBatches, NeitherTheyNorUploadsCanBeRepeated) {
    FilesRig rig;
    const auto with_key = [&](std::string text) {
        text.insert(text.find("Host:"), "Idempotency-Key: order-17\r\n");
        return rig.ask(text);
    };
    const HttpReply upload = with_key(request("POST", "/v1/files", 1, form("x"), form_type));
    EXPECT_EQ(error_of(upload), "400 bad_request");
    EXPECT_THAT(upload.body, HasSubstr("leave out Idempotency-Key"));
    EXPECT_THAT(rig.store.contents(), IsEmpty());
    EXPECT_EQ(error_of(with_key(request("POST", "/v1/batches", 1, FilesRig::batch_body(rig.uploaded("x"))))), "400 bad_request");
    EXPECT_THAT(rig.batches.batches(), IsEmpty());
}

// Pins: only calls were held back, so a key took any number of tokens by batches.
TEST(GatewayBatches, TokensPerDayAreRefusedUntilMidnight) {
    FilesRig rig;
    rig.keys.set(5, {.tenant = "search", .name = "a day", .scopes = {.batches = true}, .limits = {.tokens_per_day = 500}});
    const std::string body = FilesRig::batch_body(rig.uploaded("x", 5));
    rig.daily.tokens = 499;
    EXPECT_EQ(rig.create(body, 5).status, 200);
    rig.daily.tokens = 500;
    const HttpReply refused = rig.create(body, 5);
    EXPECT_EQ(error_of(refused), "429 rate_limit_exceeded");
    EXPECT_THAT(refused.body, HasSubstr("its limit of tokens per day"));
    EXPECT_THAT(refused.header, testing::ContainsRegex("Retry-After: [0-9]+\r\n"));
    EXPECT_THAT(refused.header, HasSubstr("x-ratelimit-remaining-tokens-day: 0\r\n"));
    rig.daily.is_known = false;
    const HttpReply unknown = rig.create(body, 5);
    EXPECT_EQ(error_of(unknown), "503 unavailable");
    EXPECT_THAT(unknown.header, HasSubstr("Retry-After: 5\r\n"));
    EXPECT_THAT(rig.batches.batches(), SizeIs(1));
    EXPECT_THAT(ids_in(rig.ask(request("GET", "/v1/batches", 5))), SizeIs(1)) << "what takes no tokens goes on";
    EXPECT_EQ(rig.create(body, 1).status, 200) << "keys without the limit are not asked for";
}

TEST(GatewayBatches, AWrongBatchIsRefusedByTheFieldThatIsWrong) {
    FilesRig rig;
    const std::string input = rig.uploaded("x");
    const auto code = [&](const std::string& body, int key = 1) { return error_of(rig.create(body, key)); };
    EXPECT_EQ(code("x"), "400 invalid_json");
    EXPECT_EQ(code("[]"), "400 invalid_json");
    EXPECT_EQ(code("{}"), "400 missing_field input_file_id");
    EXPECT_EQ(code(R"({"input_file_id":1})"), "400 invalid_type input_file_id");
    EXPECT_EQ(code(R"({"input_file_id":"a","endpoint":"/v1/completions"})"), "400 missing_field completion_window");
    EXPECT_EQ(code(R"({"input_file_id":"../a","endpoint":"/v1/completions","completion_window":"24h"})"),
              "400 invalid_value input_file_id");
    EXPECT_EQ(code(fmt::format(R"({{"input_file_id":"{}","endpoint":"/v1/images","completion_window":"24h"}})", input)),
              "400 invalid_value endpoint");
    EXPECT_EQ(code(fmt::format(R"({{"input_file_id":"{}","endpoint":"/v1/completions","completion_window":"1h"}})", input)),
              "400 invalid_value completion_window");
    EXPECT_EQ(code(FilesRig::batch_body(input, R"(,"output_expires_after":{})")), "400 unsupported_field output_expires_after");
    EXPECT_EQ(code(FilesRig::batch_body(input, R"(,"metadata":[])")), "400 invalid_type metadata");
    EXPECT_EQ(code(FilesRig::batch_body(input, R"(,"metadata":{"a":1})")), "400 invalid_type metadata.a");
    EXPECT_EQ(code(FilesRig::batch_body(input, fmt::format(R"(,"metadata":{{"a":"{}"}})", std::string(513, 'x')))),
              "400 invalid_value metadata");
    EXPECT_EQ(code(FilesRig::batch_body(input, R"(,"metadata":null)"), 4), "200");
    ASSERT_TRUE(rig.batches.batches()[0].models);
    EXPECT_THAT(*rig.batches.batches()[0].models, ElementsAre("mail")) << "each line is checked against them";
    EXPECT_EQ(code(FilesRig::batch_body(input)), "200");
    EXPECT_FALSE(rig.batches.batches()[1].models) << "the base model alone";
    EXPECT_EQ(code(fmt::format(R"({{"input_file_id":"{}","endpoint":"/v1/embeddings","completion_window":"24h"}})", input), 4),
              "403 permission_denied endpoint");
    rig.batches.is_full = true;
    EXPECT_EQ(code(FilesRig::batch_body(input)), "429 too_many_objects");
}

}  // namespace
}  // namespace lorry::ops
