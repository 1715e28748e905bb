// Tokens of another library (tests/data/jwt), good and bad; what makes a file of keys unusable; and callers that are made of claims.
#include "ops/gateway/jwt.h"

#include <gmock/gmock.h>

#include <random>

#include <fmt/format.h>

#include "ops/gateway/authenticators.h"
#include "tests/support/fake_keys.h"
#include "tests/support/secret_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry::ops {
namespace {

using schema::Json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

const Json& vectors() {
    static const Json read = *Json::parse(tests::read_whole(std::string(LORRY_SOURCE_DIR) + "/tests/data/jwt/vectors.json"));
    return read;
}

std::string token_of(const std::string& name) { return *vectors().find("tokens")->find(name)->as_string(); }

schema::Timestamp vector_time() { return schema::Timestamp(std::chrono::seconds(*vectors().find("now")->as_integer())); }

// A verifier of a file that the test may change.
struct Keys {
    explicit Keys(const Json& keys = *vectors().find("keys")) { write(keys.dump()); }
    void write(const std::string& text) const { tests::write_secret(file, text); }
    JwtVerifier::Options options() const { return {.issuer = "https://issuer.example", .audience = "lorry", .keys = file}; }

    tests::TempFolder folder;
    std::string file = (folder / "keys.json").string();
};

std::string result_of(const JwtVerifier& verifier, const std::string& token, schema::Timestamp now = vector_time()) {
    const auto claims = verifier.claims_of(token, now);
    return claims ? "sub=" + *claims->find("sub")->as_string() : claims.error();
}

TEST(Jwt, TakesTokensOfEachAlgorithm) {
    const Keys keys;
    const JwtVerifier verifier(keys.options());
    EXPECT_EQ(verifier.count(), 3U) << "the key for encryption is not one";
    for (const char* name : {"RS256", "ES256", "HS256", "for long", "several audiences", "expired within the leeway", "real times"})
        EXPECT_EQ(result_of(verifier, token_of(name)), "sub=ada") << name;
}

TEST(Jwt, RefusesTokensThatAreNotGood) {
    const Keys keys;
    const JwtVerifier verifier(keys.options());
    for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
             {"expired", "it has expired"},
             {"no expiry", "does not say when it expires"},
             {"expiry is text", "does not say when it expires"},
             {"not yet", "not good yet (nbf)"},
             {"made in the future", "not good yet (iat)"},
             {"wrong audience", "another audience"},
             {"no audience", "another audience"},
             {"wrong issuer", "another issuer"},
             {"no issuer", "another issuer"},
             {"unknown key", "no key of that name"},
             {"no key named", "no key of that name"},
             {"a key for encryption", "no key of that name"},
             {"another's signature", "its signature is wrong"},
             {"another algorithm of the key", "signs with RS256 alone"},
             {"HS256 with the public key as the secret", "signs with RS256 alone"},
             {"HS256 with the modulus as the secret", "signs with RS256 alone"},
             {"alg none", "no JSON Web Token with a signature"},
             {"alg none with a signature", "signs with RS256 alone"},
             {"extensions", "extensions (crit)"},
             {"a key in the header", "no key of that name"},
             {"claims are a list", "no JSON object"},
             {"claims are no JSON", "no JSON object"},
         })
        EXPECT_THAT(result_of(verifier, token_of(name)), HasSubstr(why)) << name;
    for (const char* name : {"alg NONE", "two algorithms"})
        EXPECT_THAT(result_of(verifier, token_of(name)), Not(StartsWith("sub="))) << name;
}

TEST(Jwt, RefusesTokensWhoseBitsChanged) {
    const Keys keys;
    const JwtVerifier verifier(keys.options());
    const unsigned seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    std::mt19937 random(seed);
    for (const char* name : {"RS256", "ES256", "HS256"}) {
        const std::string token = token_of(name);
        for (int i = 0; i < 300; ++i) {
            std::string changed = token;
            // The last letter of a part has bits that are not part of a byte.
            const std::size_t place = random() % (token.size() - 1);
            changed[place] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."[random() % 65];
            if (changed[place] == token[place] || token[place + 1] == '.') continue;
            EXPECT_THAT(result_of(verifier, changed), Not(StartsWith("sub="))) << name << " seed " << seed << ": " << changed;
        }
    }
}

TEST(Jwt, RefusesGarbage) {
    const Keys keys;
    const JwtVerifier verifier(keys.options());
    const std::string good = token_of("RS256");
    for (const std::string& token :
         {std::string(), std::string("."), std::string(".."), std::string("a.b.c"), std::string("e30.e30.e30"), good + ".", good + ".x",
          "." + good, good.substr(0, good.rfind('.')), good + "=", good + "\n", std::string(10'000, 'a'), "a.b." + std::string(8'000, 'c'),
          std::string("e30.") + std::string(10'000, 'A') + ".AA", std::string("bnVsbA.e30.AA"), std::string("W10.e30.AA")})
        EXPECT_THAT(result_of(verifier, token), Not(StartsWith("sub="))) << token;
}

TEST(Jwt, ASingleKeyNeedsNoName) {
    const Json& all = *vectors().find("keys");
    const Keys keys(Json::object({{"keys", Json::array({all.find("keys")->as_array()->front()})}}));
    const JwtVerifier verifier(keys.options());
    EXPECT_EQ(result_of(verifier, token_of("no key named")), "sub=ada");
}

TEST(Jwt, TakesKeysThatWereRotatedWithoutAnEnd) {
    const Keys keys;
    JwtVerifier verifier(keys.options());
    EXPECT_FALSE(verifier.refresh());
    keys.write("{}");
    EXPECT_THAT(tests::thrown_by([&] { verifier.refresh(); }), HasSubstr("this is no JWKS"));
    EXPECT_FALSE(verifier.refresh()) << "it is said once";
    EXPECT_EQ(result_of(verifier, token_of("RS256")), "sub=ada");
    keys.write(Json::object({{"keys", Json::array({vectors().find("keys")->find("keys")->as_array()->at(1)})}}).dump());
    EXPECT_TRUE(verifier.refresh());
    EXPECT_THAT(result_of(verifier, token_of("RS256")), HasSubstr("no key of that name"));
    EXPECT_EQ(result_of(verifier, token_of("ES256")), "sub=ada");
}

TEST(Jwt, RefusesFilesThatCannotVerify) {
    const Keys keys;
    const auto refusal = [&](const std::string& text) {
        keys.write(text);
        return tests::thrown_by([&] { const JwtVerifier verifier(keys.options()); });
    };
    const std::string secret = R"({"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"})";
    EXPECT_EQ(refusal(fmt::format(R"({{"keys":[{}]}})", secret)), "accepted");
    // Pins: a secret that every user of the machine could read, and so make tokens with, was taken.
    std::filesystem::permissions(keys.file, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
    EXPECT_THAT(tests::thrown_by([&] { const JwtVerifier verifier(keys.options()); }), HasSubstr("run chmod o-r"));
    EXPECT_EQ(refusal("no JSON"), keys.file + ": this is no JWKS: it has to be a JSON object with an array 'keys'");
    EXPECT_THAT(refusal(R"({"keys":[]})"), HasSubstr("none of its keys signs"));
    EXPECT_THAT(refusal(R"({"keys":[1,{"kty":"OKP","crv":"Ed25519","x":"AA"}]})"), HasSubstr("none of its keys signs"));
    EXPECT_THAT(refusal(R"({"keys":[{"kty":"oct","k":"AAAA"}]})"), HasSubstr("too short"));
    EXPECT_THAT(refusal(R"({"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]})"), HasSubstr("key 'a': it is too short"));
    EXPECT_THAT(refusal(R"({"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]})"), HasSubstr("are no key"));
    EXPECT_THAT(refusal(R"({"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA"}]})"), HasSubstr("a private key"));
    EXPECT_THAT(refusal(fmt::format(R"({{"keys":[{0},{0}]}})", secret)), HasSubstr("a 'kid' of its own"));
    EXPECT_THAT(refusal(std::string(2'000'000, ' ')), HasSubstr("has more than"));
    JwtVerifier::Options nowhere = keys.options();
    nowhere.keys += "x";
    EXPECT_THAT(tests::thrown_by([&] { const JwtVerifier verifier(nowhere); }), HasSubstr("cannot be read"));
}

std::string scopes_of(const std::vector<std::string>& words) {
    Caller caller;
    for (const std::string& word : words) {
        if (const auto applied = apply_scope_word(word, caller); !applied) return applied.error();
    }
    schema::KeyRecord record{.scopes = caller.scopes, .limits = caller.limits};
    const Json described = *Json::parse(schema::describe_key(record));
    return described.find("scopes")->dump() + described.find("limits")->dump();
}

TEST(JwtAuthenticator, ReadsScopesAndLimits) {
    EXPECT_EQ(scopes_of({"openid", "email"}), R"({"models":null,"endpoints":null,"batches":false,"admin":false})"
                                              R"({"requests_per_minute":null,"tokens_per_minute":null,"calls_at_once":null})");
    EXPECT_EQ(scopes_of({"lorry:batches", "lorry:admin", "lorry:model:mail", "lorry:model:base", "lorry:url:/v1/completions",
                         "lorry:requests-per-minute:60", "lorry:tokens-per-minute:6000", "lorry:calls-at-once:4", "lorry:batch-jobs:1000"}),
              R"({"models":["mail","base"],"endpoints":["/v1/completions"],"batches":true,"admin":true})"
              R"({"requests_per_minute":60,"tokens_per_minute":6000,"calls_at_once":4,"batch_jobs":1000})");
    EXPECT_THAT(scopes_of({"lorry:model:*"}), HasSubstr(R"("models":["*"])")) << "all, as --models '*' of a key";
    for (const char* word : {"lorry:", "lorry:batch", "lorry:model:", "lorry:url:/v1/nothing", "lorry:calls-at-once:0",
                             "lorry:calls-at-once:many", "lorry:calls-at-once:99999999999999999999", "lorry:read-only"})
        EXPECT_EQ(scopes_of({word}), fmt::format("its scope '{}' is not known", word));
}

// Tokens that a test makes itself would need a key; so the claims of the vectors are taken as others than they are meant for.
struct Ways {
    HttpRequest request(const std::string& token) const {
        return {.method = "GET", .target = "/v1/models", .fields = {{"authorization", "Bearer " + token}}};
    }
    std::string who(const HttpRequest& asked) const {
        const auto caller = all.identify(asked);
        return caller ? fmt::format("{} of {}", caller->id, caller->tenant)
                      : fmt::format("{} {}", caller.error().status, caller.error().body);
    }
    Keys files;
    JwtVerifier verifier{files.options()};
    tests::FakeKeys directory;
    KeyAuthenticator keys{directory, vector_time};
    JwtAuthenticator tokens{{.verifier = verifier, .tenant_claim = "sub", .scope_claim = "scope", .now = vector_time}};
    ProxyAuthenticator proxy{{.field = "x-forwarded-user", .proxies = *AddressRanges::parse("10.0.0.0/8,::1")}};
    Authenticators all{{.keys = keys, .tokens = &tokens, .proxy = &proxy}};
};

TEST(Authenticators, KeysTokensAndProxiesWorkSideBySide) {
    Ways ways;
    ways.directory.set(1, {.tenant = "search", .name = "all"});
    EXPECT_EQ(ways.who(ways.request(token_of("ES256"))), "jwt:ada of ada");
    EXPECT_EQ(ways.who(ways.request(tests::FakeKeys::text(1))), "1111111111111111 of search");
    EXPECT_THAT(ways.who(ways.request(tests::FakeKeys::text(2))), HasSubstr("the API key is not known"));
    EXPECT_THAT(ways.who(ways.request(token_of("expired"))), StartsWith("401"));
    EXPECT_THAT(ways.who(ways.request("sk-secret")), Not(HasSubstr("sk-secret")));
    HttpRequest proxied{.method = "GET", .target = "/v1/models", .fields = {{"x-forwarded-user", "grace"}}, .from = "10.1.2.3"};
    EXPECT_EQ(ways.who(proxied), "proxy:grace of grace");
}

TEST(Authenticators, TheFieldOfAProxyCountsFromTrustedAddressesOnly) {
    Ways ways;
    const auto from = [&](const std::string& address, const std::vector<HttpField>& fields) {
        return ways.who({.method = "GET", .target = "/v1/models", .fields = fields, .from = address});
    };
    EXPECT_EQ(from("::1", {{"x-forwarded-user", "grace"}}), "proxy:grace of grace");
    for (const char* address : {"11.0.0.1", "9.255.255.255", "::2", "", "127.0.0.1"})
        EXPECT_THAT(from(address, {{"x-forwarded-user", "grace"}}), StartsWith("401")) << address;
    EXPECT_THAT(from("10.0.0.1", {}), StartsWith("401"));
    EXPECT_THAT(from("10.0.0.1", {{"x-forwarded-user", "grace"}, {"x-forwarded-user", "root"}}), HasSubstr("once"));
    EXPECT_THAT(from("10.0.0.1", {{"x-forwarded-user", ""}}), HasSubstr("1 to 200 bytes"));
    // Who is no proxy, and has a token, is who the token says.
    EXPECT_EQ(from("11.0.0.1", {{"x-forwarded-user", "root"}, {"authorization", "Bearer " + token_of("RS256")}}), "jwt:ada of ada");
}

}  // namespace
}  // namespace lorry::ops
