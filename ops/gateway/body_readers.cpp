// Parses bodies, and counts their bytes.
#include "ops/gateway/body_readers.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "schema/json.h"
#include "schema/json_fault.h"
#include "schema/key.h"

namespace lorry::ops {
namespace {

// A job's record has the body as a member, one level deeper. Without many brackets there are not many levels.
bool is_too_deep(std::string_view body) {
    const auto is_opening = [](char each) { return each == '{' || each == '['; };
    return std::ranges::count_if(body, is_opening) >= 100 && !schema::Json::parse(fmt::format("[{}]", body));
}

std::string fault_of(const std::string& body, const Expected<schema::Json, std::string>& parsed) {
    if (body.empty()) return "it is empty";
    if (parsed) return fmt::format("it is not an object, but {}", parsed->kind());
    const auto fault = schema::find_json_fault(body);
    if (!fault) return parsed.error();
    const bool is_quoted = body.starts_with('\'');
    return fmt::format("{}, near: {}{}", fault->error, fault->around,
                       is_quoted ? "; the single quotes around it are the shell's, and cmd.exe knows double ones only" : "");
}

}  // namespace

schema::JobError body_error(const std::string& body, const Expected<schema::Json, std::string>& parsed) {
    return {.code = schema::ErrorCode::invalid_json,
            .param = {},
            .message = fmt::format("the request's body has to be a JSON object: {}", fault_of(body, parsed))};
}

Expected<ReadBody, schema::JobError> read_body(const std::string& body) {
    auto parsed = schema::Json::parse(body);
    if (parsed && is_too_deep(body)) parsed = unexpected(std::string("nested too deeply"));
    if (parsed && parsed->is_object()) {
        const schema::Json* model = parsed->find("model");
        const std::string* name = model == nullptr ? nullptr : model->as_string();
        const schema::Json* stream = parsed->find("stream");
        return ReadBody{.text = parsed->dump(),
                        .model = name == nullptr ? std::nullopt : std::optional(*name),
                        .is_stream = stream != nullptr && stream->as_bool().value_or(false),
                        .goes_first = schema::goes_first(*parsed)};
    }
    return unexpected(body_error(body, parsed));
}

BodyReaders::BodyReaders(Options options) : options_(std::move(options)), threads_(options_.threads) {}

bool BodyReaders::read(std::string body, std::function<void(Body)> done) {
    const std::size_t bytes = body.size();
    if (bytes_ + bytes > options_.bytes_max) return false;
    bytes_ += bytes;
    threads_.post([this, bytes, body = std::move(body), done = std::move(done)] {
        done(options_.read(body));
        bytes_ -= bytes;
    });
    return true;
}

}  // namespace lorry::ops
