// Reads the fields of jobs for embeddings, classes and scores. Called by the field table of codec_body.cpp.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

// A text that is not empty.
Expected<std::string, JobError> read_text(std::string_view field, const Json& value);
// A string or a list of strings, none empty.
Expected<std::vector<std::string>, JobError> read_texts(std::string_view field, const Json& value);
// A list of strings or of objects with the member `text`, none empty.
Expected<std::vector<std::string>, JobError> read_documents(const Json& value);

// A text with {}, where a choice goes.
Expected<std::string, JobError> read_hypothesis_template(const Json& value);
// "float" or "base64"; true for the latter.
Expected<bool, JobError> read_is_base64(const Json& value);
// "right" or "left"; true for the latter, which cuts the beginning.
Expected<bool, JobError> read_keeps_end(const Json& value);
Expected<Aggregation, JobError> read_aggregation(const Json& value);
// A number of tokens, 1 or more, or -1: nullopt, as many as the model takes.
Expected<std::optional<std::int64_t>, JobError> read_truncation_tokens(const Json& value);

}  // namespace lorry::schema
