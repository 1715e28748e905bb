// The errors that the gateway itself answers with, in the shape of OpenAI's error object. Those of jobs are in
// schema/error_code.h. Used by all of ops/gateway and by `lorry docs errors`.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "ops/http/server.h"
#include "schema/job.h"

namespace lorry::ops {

struct GatewayError {
    unsigned status;
    const char* code;
    const char* type;
    const char* help;  // what happened and what to do, for docs/errors.md
};
// By status.
std::span<const GatewayError> gateway_errors();

// {"error":{"message","type","param","code"}} of the first row of that status, or of the row of that code. There has to be one.
HttpAnswer gateway_error(unsigned status, const std::string& message);
HttpAnswer gateway_error(std::string_view code, const std::string& message, const std::string& param = {});
// The answer with Retry-After.
HttpAnswer with_retry(HttpAnswer answer, std::chrono::seconds after);

inline constexpr const char* json_type = "application/json";

// The error of a job, as an answer.
HttpAnswer answer_of(const schema::JobError& error);

}  // namespace lorry::ops
