// Reads a job's body by a table of fields. Called by codec_job.cpp only.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

// Fills model, prompt, choices, sampling and the rest of `job` from its body; job.endpoint must be set. Returns the error of the first
// field that is wrong, unknown or missing. job.model is read first, so that it is known even when another field is wrong.
FieldError read_body(const Json& body, Job& job);

}  // namespace lorry::schema
