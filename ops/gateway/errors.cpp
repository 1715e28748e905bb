// The table of the gateway's errors.
#include "ops/gateway/errors.h"

#include <algorithm>
#include <array>

#include "schema/check.h"
#include "schema/codec.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr const char* wrong = "invalid_request_error";
constexpr const char* failing = "server_error";

constexpr std::array rows = {
    GatewayError{400, "bad_request", wrong,
                 "The request breaks HTTP/1.1, or has a field or body that it may not have. The message says which."},
    GatewayError{400, "invalid_upload", wrong,
                 "The upload is not a form with a file and its purpose. The message says what is wrong with it."},
    GatewayError{401, "invalid_api_key", wrong,
                 "The request has no API key, or one that is unknown, expired or revoked. Send a key that `lorry keys create` made, as "
                 "`Authorization: Bearer KEY`."},
    GatewayError{403, "host_not_allowed", wrong,
                 "The field `Host` names another machine: perhaps a page in a browser sent the request. Use an address or `localhost`."},
    GatewayError{403, "cross_site", wrong,
                 "A page of another site in a browser has sent the request (`Sec-Fetch-Site`, `Origin`). Send it from a program."},
    GatewayError{403, "permission_denied", wrong,
                 "The API key may not do this: its scopes lack the model, the url or the right that the message names. Use another key."},
    GatewayError{404, "unknown_url", wrong, "There is nothing at this url. Use one of those that the message names."},
    GatewayError{404, "file_not_found", wrong, "The caller's tenant has no file of this id."},
    GatewayError{404, "batch_not_found", wrong, "The caller's tenant has no batch of this id."},
    GatewayError{404, "not_kept", wrong,
                 "`lorry serve` keeps files, batches and usage only if settings say where; `lorry up` keeps no usage. The message says "
                 "what is needed."},
    GatewayError{405, "method_not_allowed", wrong, "The url takes another method; the field `Allow` names it."},
    GatewayError{409, "cancelled", wrong, "The call was cancelled by somebody else. Send it again if it is still wanted."},
    GatewayError{409, "call_running", wrong,
                 "A call with the same `Idempotency-Key` has not ended. Send it again after the seconds that `Retry-After` gives."},
    GatewayError{409, "file_in_use", wrong, "A batch that has not ended reads the file. Cancel the batch, or wait for its end."},
    GatewayError{409, "batch_has_ended", wrong, "The batch has ended or is about to, so it cannot be cancelled."},
    GatewayError{
        413, "payload_too_large", wrong,
        "The body has more bytes than `job_bytes_max` allows, or the upload more than `file_bytes_max`. Send less, or raise the setting."},
    GatewayError{
        415, "unsupported_media_type", wrong,
        "The body is not sent as plain JSON, or an upload not as a form. Send `Content-Type: application/json`, or for `/v1/files` "
        "`multipart/form-data` with its boundary, uncompressed."},
    GatewayError{417, "expectation_failed", wrong, "`Expect` has another value than `100-continue`. Leave the field out."},
    GatewayError{422, "idempotency_key_reused", wrong,
                 "The same `Idempotency-Key` came with another url or body within the last 24 hours. Use a new key for each call."},
    GatewayError{429, "too_many_calls", "rate_limit_error",
                 "Too many calls wait or run (`calls_max`), or their bodies are too large. Send the call again after the seconds that "
                 "`Retry-After` gives."},
    GatewayError{429, "rate_limit_exceeded", "rate_limit_error",
                 "The API key has used up one of its limits, which the message names. Send the call again after the seconds that "
                 "`Retry-After` gives."},
    GatewayError{429, "too_many_transfers", "rate_limit_error",
                 "The tenant has 32 uploads and downloads open. Send the request again when one has ended."},
    GatewayError{429, "too_many_objects", "rate_limit_error",
                 "There are too many files, or too many batches (200,000). Delete files; batches are forgotten 30 days after their end."},
    GatewayError{431, "header_too_large", wrong, "The header has too many bytes. Send fewer or shorter fields."},
    GatewayError{500, "internal_error", failing, "The gateway could not make this answer. Its log says why."},
    GatewayError{501, "unsupported_encoding", wrong, "The body is sent in a transfer encoding other than `chunked`. Use `chunked`."},
    GatewayError{503, "unavailable", failing,
                 "Nothing can run the call at the moment. Send it again after the seconds that `Retry-After` gives."},
    GatewayError{
        504, "request_timeout", failing,
        "The call took longer than `call_timeout` or `job_timeout`, or waited beyond its deadline. Ask for less, or raise the setting."},
};

HttpAnswer answer_of(const GatewayError& row, const std::string& message, const std::string& param) {
    const Json error = Json::object({{"message", schema::repair_utf8(message)},
                                     {"type", row.type},
                                     {"param", param.empty() ? Json() : Json(param)},
                                     {"code", row.code}});
    return {.status = row.status, .type = json_type, .body = Json::object({{"error", error}}).dump()};
}

}  // namespace

std::span<const GatewayError> gateway_errors() { return rows; }

HttpAnswer gateway_error(unsigned status, const std::string& message) {
    const auto row = std::ranges::find(rows, status, &GatewayError::status);
    CHECK(row != rows.end(), "the status has a row");
    return answer_of(*row, message, {});
}

HttpAnswer gateway_error(std::string_view code, const std::string& message, const std::string& param) {
    const auto row = std::ranges::find(rows, code, [](const GatewayError& each) { return std::string_view(each.code); });
    CHECK(row != rows.end(), "the code has a row");
    return answer_of(*row, message, param);
}

HttpAnswer with_retry(HttpAnswer answer, std::chrono::seconds after) {
    answer.fields.emplace_back("Retry-After", std::to_string(after.count()));
    return answer;
}

HttpAnswer answer_of(const schema::JobError& error) {
    return {.status = static_cast<unsigned>(error.status_code()), .type = json_type, .body = schema::error_body(error).dump()};
}

}  // namespace lorry::ops
