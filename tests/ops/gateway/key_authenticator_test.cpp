// Which keys are good, and what the others are answered.
#include "ops/gateway/key_authenticator.h"

#include <gmock/gmock.h>

#include "schema/json.h"
#include "tests/support/fake_keys.h"

namespace lorry::ops {
namespace {

using schema::Json;
using schema::Timestamp;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::FakeKeys;
using namespace std::chrono_literals;

struct KeyRig {
    KeyRig() {
        keys.set(1, {.tenant = "search", .name = "indexer", .scopes = {.models = {{"mail"}}}, .limits = {.calls_at_once = 3}});
        keys.set(2, {.tenant = "search", .name = "late", .expires = Timestamp(100s)});
        keys.set(3, {.tenant = "search", .name = "gone", .revoked = Timestamp(1s)});
    }
    // "401 message" or "tenant/id".
    std::string ending_of(const std::string& authorization) { return ending_of_fields({{"authorization", authorization}}); }
    std::string ending_of_fields(std::vector<HttpField> fields) {
        const auto caller = authenticator.identify({.method = "POST", .target = "/", .fields = std::move(fields)});
        if (caller) return caller->tenant + "/" + caller->id;
        challenge = caller.error().fields.at(0).second;
        EXPECT_EQ(caller.error().fields.at(0).first, "WWW-Authenticate");
        const Json body = Json::parse(caller.error().body).value();
        EXPECT_EQ(*body.find("error")->find("code")->as_string(), "invalid_api_key");
        return std::to_string(caller.error().status) + " " + *body.find("error")->find("message")->as_string();
    }

    FakeKeys keys;
    Timestamp time{99s};
    std::string challenge;
    KeyAuthenticator authenticator{keys, [this] { return time; }};
};

TEST(KeyAuthenticator, KnowsAKeyAndWhatItMay) {
    KeyRig rig;
    EXPECT_EQ(rig.ending_of("Bearer " + FakeKeys::text(1)), "search/1111111111111111");
    EXPECT_EQ(rig.ending_of("bEARER   " + FakeKeys::text(1)), "search/1111111111111111") << "RFC 9110, 11.1";
    const auto caller = rig.authenticator.identify({.fields = {{"authorization", "Bearer " + FakeKeys::text(1)}}});
    EXPECT_EQ(caller->scopes.models->at(0), "mail");
    EXPECT_EQ(caller->limits.calls_at_once, 3);
}

TEST(KeyAuthenticator, ARequestWithoutAKeyIsAskedForOne) {
    KeyRig rig;
    const std::string bearer = "Bearer " + FakeKeys::text(1);
    EXPECT_THAT(rig.ending_of_fields({}), HasSubstr("401 send one API key, as Authorization: Bearer"));
    EXPECT_EQ(rig.challenge, R"(Bearer realm="lorry")");
    EXPECT_THAT(rig.ending_of_fields({{"authorization", bearer}, {"authorization", bearer}}), HasSubstr("send one API key"));
    for (const std::string& other : {std::string(), std::string("Bearer"), "Basic " + FakeKeys::text(1), FakeKeys::text(1)}) {
        EXPECT_THAT(rig.ending_of(other), HasSubstr("401 send one API key")) << other;
    }
}

TEST(KeyAuthenticator, WrongAndUnknownKeysGetOneAnswerThatRepeatsNothing) {
    KeyRig rig;
    std::string wrong = FakeKeys::text(1);
    wrong.back() = '2';
    const std::string unknown = rig.ending_of("Bearer " + FakeKeys::text(9));
    EXPECT_EQ(unknown, "401 the API key is not known");
    EXPECT_EQ(rig.challenge, R"(Bearer realm="lorry", error="invalid_token")");
    EXPECT_EQ(rig.ending_of("Bearer " + wrong), unknown);
    EXPECT_EQ(rig.ending_of("Bearer lorry-3333333333333333-" + std::string(64, '4')), unknown) << "not that the key was revoked";
    for (const std::string& malformed : {std::string("sk-secret"), FakeKeys::text(1) + " ", FakeKeys::text(1) + "0", std::string()}) {
        EXPECT_THAT(rig.ending_of("Bearer " + malformed), HasSubstr("401 the API key is not one of Lorry's")) << malformed;
        EXPECT_THAT(rig.ending_of("Bearer " + malformed), Not(HasSubstr("secret")));
    }
}

TEST(KeyAuthenticator, ExpiredAndRevokedKeysAreRefusedFromThatMoment) {
    KeyRig rig;
    EXPECT_EQ(rig.ending_of("Bearer " + FakeKeys::text(2)), "search/2222222222222222");
    rig.time = Timestamp(100s);
    EXPECT_EQ(rig.ending_of("Bearer " + FakeKeys::text(2)), "401 the API key has expired: ask for another");
    EXPECT_EQ(rig.ending_of("Bearer " + FakeKeys::text(3)), "401 the API key was revoked: ask for another");
}

// Otherwise a gateway that cannot read the topic would take a revoked key for as long as that lasts.
TEST(KeyAuthenticator, NoKeyIsGoodWhileRevocationsMayBeMissed) {
    KeyRig rig;
    rig.keys.current = false;
    const auto caller = rig.authenticator.identify({.fields = {{"authorization", "Bearer " + FakeKeys::text(1)}}});
    ASSERT_FALSE(caller);
    EXPECT_EQ(caller.error().status, 503U);
    EXPECT_THAT(caller.error().fields, ::testing::Contains(HttpField("Retry-After", "5")));
    EXPECT_THAT(rig.ending_of_fields({}), HasSubstr("401 send one API key")) << "who has no key has none, whatever else is wrong";
    rig.keys.current = true;
    EXPECT_EQ(rig.ending_of("Bearer " + FakeKeys::text(1)), "search/1111111111111111");
}

}  // namespace
}  // namespace lorry::ops
