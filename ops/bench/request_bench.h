// Requests that another program makes up: how ops/bench-peers gives Lorry the same token ids as other engines. Called by
// `lorry bench requests`.
#pragma once

#include <iosfwd>

#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

// Says {"engine", "load_seconds", "settings"}, then answers each line
//     {"batch": 8, "requests": [{"prompt": [17, 4], "output_tokens": 64, "adapter": "lora-0"}, …]}
// with {"seconds", "outputs": [[…], …], "peak_memory_bytes"}: at most `batch` requests run at a time, the next starts when one ends, each
// draws `output_tokens` greedily. A request without "adapter" is the base model's. `load_seconds`: what it took to make `setup`.
// Throws std::runtime_error for a line that is none of these.
void answer_request_lines(EngineSetup& setup, const AdapterFolders& folders, double load_seconds, std::istream& in, std::ostream& out);

}  // namespace lorry::ops
