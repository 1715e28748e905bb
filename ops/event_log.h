// The worker's log: one JSON object per line on stderr, for events of ours and for what the libraries' code says. Through spdlog, set up
// once by command_worker.
#pragma once

#include <string>

#include "schema/json.h"

namespace lorry::ops {

// For all other commands: standard output is for data and what a command has to say it says itself, so libraries only complain of what is
// broken. Called first thing; a worker goes on with the log below.
void start_plain_log();

// Makes spdlog write JSON lines: {"time","level","event",…}; a plain message becomes the event "message". level: debug, info, warn, error.
void start_event_log(const std::string& level);

// An event with its members. Any thread.
void log_event(const char* event, schema::Json::Object members);
// The same for what somebody should look at: level warning.
void log_warning(const char* event, schema::Json::Object members);

}  // namespace lorry::ops
