// Ids of batches: what `lorry submit` makes up when none is given. They sort by time and tell where in the topics to begin reading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schema/job.h"

namespace lorry::ops {

// "20261121T101530Z-4f7a2c": UTC to the second, and the low 24 bits of `random`.
std::string make_batch_id(schema::Timestamp at, std::uint32_t random);
// The same with the clock's time and the system's randomness.
std::string make_batch_id();

// The time in an id of that form; nullopt for any other.
std::optional<schema::Timestamp> time_of_batch_id(std::string_view id);

// Why this cannot be a batch's id, or nullopt: 1 to 512 bytes of UTF-8 without '/' (it ends the batch's part of a job's id) and without
// control characters.
std::optional<std::string> batch_id_error(std::string_view id);

}  // namespace lorry::ops
