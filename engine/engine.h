// The engine: keeps a continuous batch full. submit() and cancel() between steps; step() runs plan -> batch -> forward -> advance and
// hands out what finished. Where the device works by itself, a step is launched before the one before it is read, so that the device need
// not wait for the host. Knows nothing of Kafka, files or JSON. One thread calls everything.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_cache.h"
#include "engine/block_pool.h"
#include "engine/model.h"
#include "engine/request.h"
#include "engine/text/tokenizer.h"

namespace lorry::engine {

struct EngineOptions {
    std::int64_t sequences_max = 64;         // that run at a time
    std::int64_t step_rows_max = 512;        // tokens per step; longer prompts are computed in chunks
    std::size_t kv_bytes = 0;                // memory for the KV cache
    std::size_t adapter_bytes = 0;           // memory for adapters; a GPU's may also borrow blocks of the KV cache that nobody needs
    std::size_t graph_bytes = 0;             // memory for graphs of decoding steps, on a device that has them; 0: none
    std::int64_t fairness_patience = 16384;  // tokens of others that may pass a waiting adapter by
    std::int64_t prefetch_max = 8;           // adapters loaded ahead of their turn
    bool prefix_cache = true;
    std::int64_t steps_in_flight = 2;  // at most, on a device that takes more than one; 1 is for comparison
    bool lend_blocks = true;           // to adapters, on a device that can; false is for comparison
    bool group_adapters = true;        // requests whose adapter is in the batch go first; false is for comparison

    std::int64_t sample_rows_max() const;  // rows of logits per step
};

// Sets aside what steps of an engine with these options compute with, so that what is free afterwards is free. kv_bytes and graph_bytes
// count for nothing. At start, before an engine is made.
void reserve_steps(Model& model, kernels::Backend& backend, const EngineOptions& options);

// Counts since start, and the state after the last step; for metrics and benchmarks.
struct EngineStats {
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;  // computed, recomputation included
    std::uint64_t drawn_tokens = 0;
    std::uint64_t cached_tokens = 0;  // taken from the prefix index
    std::uint64_t preemptions = 0;
    std::uint64_t rows = 0;             // computed
    std::uint64_t sampled_rows = 0;     // of these, with logits
    std::uint64_t attended_tokens = 0;  // that the rows saw, added up
    std::uint64_t context_tokens = 0;   // of the sequences of each step, added up: what was read of the KV cache at least
    // Of each step, added up: its different adapters, their elements, and these times their rows (the last layer counts in full, although
    // only rows that sample go through all of it).
    std::uint64_t adapter_groups = 0;
    std::uint64_t adapter_elements = 0;
    std::uint64_t adapter_products = 0;
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    std::int64_t last_rows = 0;      // of the last step
    std::int64_t last_adapters = 0;  // different adapters in the last step
    std::int64_t kv_blocks = 0;
    std::int64_t kv_blocks_used = 0;
    std::int64_t kv_blocks_lent = 0;  // to adapters
    AdapterCache::Stats adapters;
};

// What a step hands out.
struct StepOutput {
    std::vector<RequestId> started;  // admitted to a batch for the first time
    std::vector<Delta> deltas;
    std::vector<Result> results;
    void clear();
};

class Engine {
public:
    // model, backend and tokenizer outlive the engine. Throws std::runtime_error when kv_bytes is too small for a single block or the
    // device has not enough memory.
    Engine(Model& model, kernels::Backend& backend, const Tokenizer& tokenizer, const EngineOptions& options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Prompt and drawn tokens of one request together: the model's context or, if smaller, the whole KV cache.
    std::int64_t context_max() const;

    // The prompt must be non-empty, at most context_max() long, and its ids within the vocabulary (intake sees to it). Drawing ends at
    // context_max() at the latest. Nothing runs before the next step().
    void submit(Request request);
    // Drops a request wherever it is; nothing more is said of it. Unknown ids are ignored.
    void cancel(RequestId id);
    // Launches one step if there is anything to run, and hands out the oldest in flight once they are as many as may be, or if nothing was
    // launched. Returns false when there was nothing to do (all done, or only adapters to wait for: wait_for_adapters).
    bool step(StepOutput& output);
    // True while requests wait or run.
    bool has_work() const;
    void wait_for_adapters(std::chrono::milliseconds timeout);
    EngineStats stats() const;
    // CHECKs the block pool against all sequences; for tests and when idle.
    void check_integrity() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::engine
