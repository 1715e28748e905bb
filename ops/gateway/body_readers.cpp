// Parses bodies, and counts their bytes.
#include "ops/gateway/body_readers.h"

#include <fmt/format.h>

#include "schema/json.h"
#include "schema/key.h"

namespace lorry::ops {

Expected<ReadBody, schema::JobError> read_body(const std::string& body) {
    const auto parsed = schema::Json::parse(body);
    if (parsed && parsed->is_object()) {
        const schema::Json* model = parsed->find("model");
        const std::string* name = model == nullptr ? nullptr : model->as_string();
        const schema::Json* stream = parsed->find("stream");
        return ReadBody{.text = parsed->dump(),
                        .model = name == nullptr ? std::nullopt : std::optional(*name),
                        .is_stream = stream != nullptr && stream->as_bool().value_or(false),
                        .goes_first = schema::goes_first(*parsed)};
    }
    const std::string what = body.empty() ? "is empty" : parsed ? fmt::format("is not an object, but {}", parsed->kind()) : parsed.error();
    return unexpected(schema::JobError{.code = schema::ErrorCode::invalid_json,
                                       .param = {},
                                       .message = fmt::format("the request's body has to be a JSON object: {}", what)});
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
