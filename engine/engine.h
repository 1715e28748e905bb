// The engine: keeps a continuous batch full. The caller submits and cancels requests between steps; each step() plans a step, launches it
// on the device, reads a step that is done, and hands out what finished. If the device takes two steps, the next one is launched before the
// previous one is read, so that the device does not wait for the host. Knows nothing of Kafka, files or JSON. One thread calls everything;
// consumer/generator.cpp does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/mask_time.h"
#include "engine/model/model.h"
#include "engine/request.h"
#include "engine/text/model_text.h"
#include "engine/text/tokenizer.h"

namespace lorry::engine {

struct EngineOptions {
    std::int64_t sequences_max = 64;         // running at a time
    std::int64_t step_rows_max = 512;        // tokens per step; longer prompts are computed in chunks
    std::size_t kv_bytes = 0;                // memory for the KV cache
    std::size_t adapter_bytes = 0;           // memory for adapters; on a GPU they may also borrow unused blocks of the KV cache
    std::size_t graph_bytes = 0;             // memory for graphs of decoding steps, on a device that has them; 0: no graphs
    std::int64_t fairness_patience = 16384;  // tokens of other adapters that may pass a waiting adapter by
    std::int64_t prefetch_max = 8;           // adapters loaded ahead of their turn
    bool prefix_cache = true;
    std::int64_t steps_queued_max = 2;  // on a device that takes more than one; 1 for comparisons
    bool lend_blocks = true;            // to adapters, on a device that can; false for comparisons
    bool force_together = true;         // computes the tokens that a grammar forces in one step; false for comparisons
    std::int64_t drafts_max = 0;        // guesses of the next tokens per sequence and step (prompt_lookup.h); 0: none
    // A guess is made if it is right with at least this chance. nullopt: where its row takes less time than a token, as measured. Set for
    // comparisons.
    std::optional<double> draft_chance_least = std::nullopt;
    std::optional<MaskPatience> mask_patience = std::nullopt;  // nullopt: a step waits until all its rows may be drawn
    // Of the base and its adapters, whose folders are checked; outlives the engine. nullptr: their tokenizer files are not read, for tests
    // of models that have none.
    const ModelTexts* texts = nullptr;
    bool group_adapters = true;  // requests whose adapter is in the batch start first; false for comparisons

    std::int64_t sample_rows_max() const;  // rows of logits per step
};

// What a step hands out.
struct StepOutput {
    std::vector<RequestId> started;  // requests that run for the first time
    std::vector<Delta> deltas;
    std::vector<Result> results;
    void clear();
};

class Engine {
public:
    // model, backend and tokenizer, the base's, outlive the engine. Throws std::runtime_error when kv_bytes is less than a block or the
    // device does not have enough memory.
    Engine(Model& model, kernels::Backend& backend, const Tokenizer& tokenizer, const EngineOptions& options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    const EngineOptions& options() const;
    // The most prompt and drawn tokens of one request: the model's context or, if that is smaller, the whole KV cache.
    std::int64_t context_max() const;

    // The prompt must be non-empty, at most context_max() long, and its ids within the vocabulary (intake refuses others). Drawing ends at
    // context_max() at the latest. Nothing runs before the next step().
    void submit(Request request);
    // Drops a request, whether it waits or runs: later steps hand out nothing for it. Unknown ids are ignored.
    void cancel(RequestId id);
    // Launches one step if anything can run. Reads the oldest queued step, and hands out its results, if nothing was launched or
    // steps_queued_max steps are queued. Returns false when there was nothing to do: all requests are done, or all wait for adapters
    // (then call wait_for_adapters).
    bool step(StepOutput& output);
    // True while requests wait or run.
    bool has_work() const;
    void wait_for_adapters(std::chrono::milliseconds timeout);
    EngineStats stats() const;
    // CHECKs the block pool against the blocks of all sequences. Time is linear in the blocks of the cache. In every build the engine does
    // it when its last request has ended or was cancelled and as many rows as the cache has blocks were computed since the last time. At
    // other such times it only CHECKs that no block is held. Tests do it after each step.
    void check_integrity() const;

private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace lorry::engine
