// Makes, parses and checks batch ids. `lorry submit` makes one when none is given; made ids sort by time and show where in the topics to
// start reading. Called by submit, collect, cancel and job_search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schema/job.h"

namespace lorry::ops {

// "20261121T101530Z-4f7a2c": UTC to the second, and the low 24 bits of `random`.
std::string make_batch_id(schema::Timestamp at, std::uint32_t random);
// The same with the current time and system randomness.
std::string make_batch_id();

// The time in an id of that form; nullopt for any other id.
std::optional<schema::Timestamp> time_of_batch_id(std::string_view id);

// Why this is not a valid batch id, or nullopt. Valid are 1 to 512 bytes of UTF-8 without '/' (it ends the batch's part of a job's id) and
// without control characters.
std::optional<std::string> batch_id_error(std::string_view id);

}  // namespace lorry::ops
