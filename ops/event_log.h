// The worker's log: one JSON object per line on stderr, for events of ours and for what the libraries' code says. Through spdlog, set up
// once by command_worker.
#pragma once

#include <string>

#include "schema/json.h"

namespace lorry::ops {

// Makes spdlog write JSON lines: {"time","level","event",…}; a plain message becomes the event "message". level: debug, info, warn, error.
void start_event_log(const std::string& level);

// An event with its members. Any thread.
void log_event(const char* event, schema::Json::Object members);

}  // namespace lorry::ops
