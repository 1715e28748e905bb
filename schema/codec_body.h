// Reads a job's body by a table of fields. Called by codec_job.cpp alone.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

// Fills model, prompt, choices, sampling and the rest of `job` from its body; job.endpoint is set already. The first field that is
// wrong, unknown or missing is the error; job.model is read first, so that it is there even then.
FieldError read_body(const Json& body, Job& job);

}  // namespace lorry::schema
