// API keys: their form, their records, and what they permit.
#include "schema/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "schema/json.h"

namespace lorry::schema {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using namespace std::chrono_literals;

KeyRecord full_key() {
    return {
        .id = "0123456789abcdef",
        .tenant = "search",
        .name = "indexer",
        .hash = sha256_of("abc"),
        .created = Timestamp(1s),
        .expires = Timestamp(2s),
        .revoked = Timestamp(1500ms),
        .scopes = {.models = {{"mail", "base"}}, .endpoints = {{Endpoint::embeddings, Endpoint::classify}}, .batches = true, .admin = true},
        .limits = {.requests_per_minute = 60, .tokens_per_minute = 10'000, .calls_at_once = 4}};
}

// The record of full_key() with one member of it, or of an object in it, set to that JSON.
std::string with(const std::string& path, const std::string& value) {
    Json object = Json::parse(encode_key(full_key())).value();
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) {
        object.set(path, Json::parse(value).value());
    } else {
        Json inner = *object.find(path.substr(0, dot));
        inner.set(path.substr(dot + 1), Json::parse(value).value());
        object.set(path.substr(0, dot), inner);
    }
    return object.dump();
}

TEST(KeyTest, ADrawnKeyHasItsIdInItAndIsNeverTheSame) {
    std::set<std::string> keys;
    for (int i = 0; i < 100; ++i) {
        const NewKey key = draw_key();
        EXPECT_THAT(key.text, MatchesRegex("lorry-[0-9a-f]{16}-[0-9a-f]{64}"));
        EXPECT_EQ(key_id_of(key.text), key.id);
        keys.insert(key.text.substr(key.text.size() - 64));
        keys.insert(key.id);
    }
    EXPECT_EQ(keys.size(), 200U);
}

TEST(KeyTest, ATextOfAnotherFormHasNoId) {
    const std::string key = "lorry-0123456789abcdef-" + std::string(64, 'a');
    ASSERT_TRUE(key_id_of(key));
    for (const std::string& wrong :
         {std::string(), std::string("lorry-"), key + "a", key.substr(1), key.substr(0, key.size() - 1), "LORRY" + key.substr(5),
          "lorry-0123456789abcdef_" + std::string(64, 'a'), "lorry-0123456789ABCDEF-" + std::string(64, 'a'),
          "lorry-0123456789abcdef-" + std::string(64, 'g'), "lorry-0123456789abcdef-" + std::string(64, '\0')}) {
        EXPECT_EQ(key_id_of(wrong), std::nullopt) << wrong;
    }
}

TEST(KeyTest, HashesAreThoseOfSha256AndCompareAsValues) {
    const Sha256 hash = sha256_of("abc");
    EXPECT_EQ(to_hex(hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2, appendix B.1
    EXPECT_EQ(sha256_from_hex(to_hex(hash)), hash);
    for (const char* wrong : {"", "ba", "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"}) {
        EXPECT_EQ(sha256_from_hex(wrong), std::nullopt) << wrong;
    }
    EXPECT_TRUE(is_equal(hash, sha256_of("abc")));
    EXPECT_FALSE(is_equal(hash, sha256_of("abd")));
}

TEST(KeyTest, ARecordIsReadBackAsItWasWritten) {
    const std::string text = encode_key(full_key());
    EXPECT_EQ(text, R"({"id":"0123456789abcdef","tenant":"search","name":"indexer",)"
                    R"("sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",)"
                    R"("created_at":1000,"expires_at":2000,"revoked_at":1500,)"
                    R"("scopes":{"models":["mail","base"],"endpoints":["/v1/embeddings","/classify"],"batches":true,"admin":true},)"
                    R"("limits":{"requests_per_minute":60,"tokens_per_minute":10000,"calls_at_once":4}})");
    const auto read = parse_key(text);
    ASSERT_TRUE(read) << read.error();
    EXPECT_EQ(encode_key(*read), text);

    const std::string bare = encode_key({.id = "0123456789abcdef", .tenant = "t", .name = "n", .created = Timestamp()});
    const auto bare_read = parse_key(bare);
    ASSERT_TRUE(bare_read) << bare_read.error();
    EXPECT_EQ(encode_key(*bare_read), bare);
    // What newer versions added is there only where it restricts.
    KeyRecord newer = full_key();
    newer.limits.tokens_per_day = 1;
    newer.limits.batch_jobs = 2;
    const auto newer_read = parse_key(encode_key(newer));
    ASSERT_TRUE(newer_read) << newer_read.error();
    EXPECT_EQ(newer_read->limits.tokens_per_day, 1);
    EXPECT_EQ(newer_read->limits.batch_jobs, 2);
    EXPECT_FALSE(bare_read->expires || bare_read->revoked || bare_read->scopes.models || bare_read->scopes.endpoints);
}

TEST(KeyTest, ADescriptionHasAllButTheHash) {
    const std::string text = describe_key(full_key());
    EXPECT_THAT(text, Not(HasSubstr("sha256")));
    EXPECT_THAT(text, HasSubstr(R"("name":"indexer","created_at":1000)"));
}

// A key that is not understood must not be good: a member that was left out or misread could be what restricts it.
TEST(KeyTest, ARecordThatIsNotFullyUnderstoodIsRefusedWithTheReason) {
    struct Case {
        std::string record;
        const char* reason;
    };
    const std::vector<Case> cases = {
        {"nope", "not JSON"},
        {"[]", "not an object"},
        {with("id", R"("x")"), "no key's id"},
        {with("tenant", R"("")"), "'tenant' is missing"},
        {with("tenant", R"("a\nb")"), "cannot be a key's tenant"},
        {with("name", "7"), "'name' must be a string"},
        {with("sha256", R"("00")"), "'sha256' is no hash"},
        {with("expires_at", R"("soon")"), "'expires_at' must be an integer"},
        {with("expires_at", "-1"), "'expires_at' is no time"},
        {with("ip_ranges", "[]"), "'ip_ranges' is not known to this version"},
        {with("scopes", "null"), "'scopes' is missing"},
        {with("scopes", "[]"), "in 'scopes': it is array, not an object"},
        {with("scopes.files", "false"), "in 'scopes': field 'files' is not known"},
        {with("scopes.models", "[]"), "has 0 elements"},
        {with("scopes.models", "[7]"), "must be an array of strings"},
        {with("scopes.endpoints", R"(["/v1/audio"])"), "'/v1/audio', which this version does not know"},
        {with("scopes.batches", R"("no")"), "'batches' must be a boolean"},
        {with("limits", "7"), "in 'limits': it is integer"},
        {with("limits.tokens_per_year", "1"), "'tokens_per_year' is not known"},
        {with("limits.calls_at_once", "0"), "allowed are numbers from 1"},
    };
    for (const Case& each : cases) {
        const auto read = parse_key(each.record);
        ASSERT_FALSE(read) << each.record;
        EXPECT_THAT(read.error(), HasSubstr(each.reason));
    }
}

TEST(KeyTest, ScopesAllowTheModelsAndUrlsThatTheyName) {
    const KeyScopes plain;
    EXPECT_TRUE(allows_endpoint(plain, Endpoint::rerank));
    for (const char* base : {"base", "tiny"}) EXPECT_TRUE(allows_model(plain, base, "tiny")) << base;
    for (const char* model : {"anything", "", "*", "mail@0f3a"}) EXPECT_FALSE(allows_model(plain, model, "tiny")) << model;
    for (const KeyScopes& all : {KeyScopes{.models = {{"*"}}}, KeyScopes{.models = {{"mail", "*"}}}}) {
        EXPECT_TRUE(allows_all_models(all));
        for (const char* model : {"anything", "anything@0f3a", "base", "tiny"}) EXPECT_TRUE(allows_model(all, model, "tiny")) << model;
    }
    const KeyScopes some{.models = {{"mail", "base"}}, .endpoints = {{Endpoint::embeddings}}};
    for (const char* model : {"mail", "mail@0f3a", "base", "tiny"}) EXPECT_TRUE(allows_model(some, model, "tiny")) << model;
    for (const char* model : {"", "mai", "mail2", "@mail", "mail#1", "x@mail"}) EXPECT_FALSE(allows_model(some, model, "tiny")) << model;
    EXPECT_TRUE(allows_endpoint(some, Endpoint::embeddings));
    EXPECT_FALSE(allows_endpoint(some, Endpoint::completions));
    EXPECT_FALSE(allows_all_models(some) || allows_all_models(plain));
    EXPECT_TRUE(allows_model({.models = {{"tiny"}}}, "base", "tiny")) << "both are the base model's names";
    EXPECT_FALSE(allows_model({.models = {{"mail"}}}, "base", "tiny"));
}

TEST(KeyTest, APriorityBelowZeroGoesFirst) {
    const auto first = [](const char* body) { return goes_first(*Json::parse(body)); };
    for (const char* body :
         {R"({"priority":-1})", R"({"priority":-0.1})", R"({"priority":-1e300})", R"({"priority":0,"priority":-2147483647})"})
        EXPECT_TRUE(first(body)) << body;
    for (const char* body : {"{}", R"({"priority":0})", R"({"priority":7})", R"({"priority":"-1"})", R"({"priority":null})", "[-1]"})
        EXPECT_FALSE(first(body)) << body;
}

}  // namespace
}  // namespace lorry::schema
