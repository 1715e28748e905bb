// What `lorry serve` and `lorry up` share: a gateway's limits from settings, its log, and its start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ops/gateway/gateway.h"
#include "ops/settings.h"

namespace lorry::ops {

// Raises the process's limit of descriptors as far as it may, so that there is a connection for each call.
HttpLimits http_limits_of(const Settings& settings);

// Seconds since the epoch, of models that a gateway shows.
std::int64_t start_time();

// Logs the end of a request, with neither prompts nor answers.
void log_request(const RequestReport& report);

// Throws std::runtime_error if it cannot listen there. flag: where the user said it, for the message.
std::unique_ptr<Gateway> listen(const Gateway::Options& options, consumer::CallBackend& calls, const std::string& flag);

}  // namespace lorry::ops
