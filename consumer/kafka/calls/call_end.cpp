// Parses a result's record and keeps where it is.
#include "consumer/kafka/calls/call_end.h"

#include <utility>

#include "schema/codec_error.h"

namespace lorry::consumer {

CallEnd call_failed(schema::ErrorCode code, std::string message) {
    const schema::JobError error{.code = code, .param = {}, .message = std::move(message)};
    return CallResult{.status = error.status_code(), .body = schema::error_body(error).dump()};
}

CallEnd call_end_of(const schema::JobRecord& record) {
    auto answer = schema::parse_answer(record.value.value_or(""));
    if (!answer) return call_failed(schema::ErrorCode::result_unreadable, answer.error());
    if (answer->failure) return *answer->failure;
    return CallResult{.status = answer->status_code,
                      .body = answer->body.dump(),
                      .place = record.source,
                      .failed_tokens = schema::find_number<std::int64_t>(record.headers, schema::tokens_header).value_or(0)};
}

}  // namespace lorry::consumer
