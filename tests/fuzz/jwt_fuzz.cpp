// A token that a client sends in `Authorization: Bearer`, with the keys of tests/data/jwt. Nothing but the tokens that were signed there
// gives claims, and errors are messages.
#include <algorithm>
#include <string>
#include <string_view>

#include "ops/gateway/jwt.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/secret_file.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using schema::Json;

const Json& vectors() {
    static const Json read = *Json::parse(tests::read_whole(std::string(LORRY_SOURCE_DIR) + "/tests/data/jwt/vectors.json"));
    return read;
}

const JwtVerifier& verifier() {
    static const tests::TempFolder folder;
    static const std::string file = (folder / "keys.json").string();
    tests::write_secret(file, vectors().find("keys")->dump());
    static const JwtVerifier made({.issuer = "https://issuer.example", .audience = "lorry", .keys = file});
    return made;
}

// What a signature is over.
std::string_view signed_part(std::string_view token) { return token.substr(0, token.rfind('.')); }

bool was_signed(std::string_view token) {
    return std::ranges::any_of(*vectors().find("tokens")->as_object(),
                               [&](const auto& each) { return signed_part(*each.second.as_string()) == signed_part(token); });
}

}  // namespace
}  // namespace lorry::ops

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lorry;
    const std::string_view token = fuzz::text_of(data, size);
    static const ops::JwtVerifier& verifier = ops::verifier();
    static const schema::Timestamp now{std::chrono::seconds(*ops::vectors().find("now")->as_integer())};
    const auto claims = verifier.claims_of(token, now);
    if (claims)
        CHECK(ops::was_signed(token), "only what was signed is believed");
    else
        fuzz::check_message(claims.error());
    return 0;
}
