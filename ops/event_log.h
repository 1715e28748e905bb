// The worker's log: one JSON object per line on stderr, for our events and for the messages that consumer/ writes to spdlog.
// `lorry worker` sets it up; all other commands keep the plain log.
#pragma once

#include <string>

#include "schema/json.h"

namespace lorry::ops {

// The log of all commands but the worker: errors only, as plain lines on stderr, because commands print their own messages. main() calls it
// first.
void start_plain_log();

// Makes spdlog write JSON lines: {"time","level","event",…}; a plain message becomes the event "message". level: debug, info, warn, error.
void start_event_log(const std::string& level);

// Logs an event with its members. Any thread.
void log_event(const char* event, schema::Json::Object members);
// The same at level warning, for what an operator should look at.
void log_warning(const char* event, schema::Json::Object members);

}  // namespace lorry::ops
