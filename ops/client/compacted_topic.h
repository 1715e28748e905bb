// Reads a compacted topic as it is now. Used by `lorry adapters` and `lorry keys`.
#pragma once

#include <map>
#include <string>

#include "ops/settings.h"

namespace lorry::ops {

// The last value of each key, without those whose last record is a tombstone. Throws consumer::KafkaError if the topic cannot be read to
// its end within deadline_start.
std::map<std::string, std::string> read_compacted(const Settings& settings, const std::string& topic);

}  // namespace lorry::ops
