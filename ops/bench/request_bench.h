// Runs requests that another program makes up: ops/bench-peers uses it to give Lorry the same token ids as other engines. Called by `lorry
// bench requests`.
#pragma once

#include <iosfwd>

#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

// Prints {"engine", "load_seconds", "settings"}, then answers each line
//     {"batch": 8, "requests": [{"prompt": [17, 4], "output_tokens": 64, "adapter": "lora-0"}, …]}
// with {"seconds", "outputs": [[…], …], "peak_memory_bytes"}. At most `batch` requests run at a time, the next starts when one ends, and
// each draws `output_tokens` greedily. A request with a "schema", the text of a JSON schema, draws an answer that matches it instead, of at
// most `output_tokens`. A request without "adapter" is for the base model. With a "task" in the line, nothing is drawn and
// requests have no "output_tokens": an output of "embed" is the vector (not normalized), of "classify" the logits, of "token_classify" the
// likeliest label of each token. `load_seconds` is the time it took to make `setup`. Throws std::runtime_error for any other line.
void answer_request_lines(EngineSetup& setup, const AdapterFolders& folders, double load_seconds, std::istream& in, std::ostream& out);

}  // namespace lorry::ops
