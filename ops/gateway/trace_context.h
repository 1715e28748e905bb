// The trace that a request belongs to, of its fields traceparent and tracestate (W3C Trace Context). Used by gateway.cpp. A pure function.
#pragma once

#include <vector>

#include "ops/http/server.h"

namespace lorry::ops {

// What a job passes on to its result: traceparent and, if there is one, tracestate. Empty if there is no valid traceparent (3.2), or
// several: then tracestate counts for nothing, too.
std::vector<HttpField> trace_of(const HttpRequest& request);

}  // namespace lorry::ops
