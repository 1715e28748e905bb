// A call as a job, in the form of a record's value. Used by consumer/kafka/calls.
#pragma once

#include <string>

#include <fmt/format.h>

#include "consumer/call_backend.h"

namespace lorry::consumer {

// One line of an OpenAI Batch input file. The body is one JSON object, so it cannot add members here.
inline std::string job_line_of(const Call& call) {
    return fmt::format(R"({{"custom_id":{},"method":"POST","url":{},"body":{}}})", schema::Json(call.id).dump(),
                       schema::Json(call.url).dump(), call.body);
}

}  // namespace lorry::consumer
