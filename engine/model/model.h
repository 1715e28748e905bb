// The transformer, written once over kernels::Backend for all families: loads a checkpoint and runs the rows of one step. engine.cpp calls
// it on one thread; adapter.cpp packs adapters for its shapes.
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace lorry::engine {

class Adapter;
class Checkpoint;
struct ModelLayout;

// Rows [row_begin, row_begin + row_count) of a step run with this adapter; rows of no group run on the base alone.
struct AdapterRows {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    const Adapter* adapter = nullptr;
};

// A text of a step that is pooled instead of continued. row_begin and row_count index step.sample_rows, not the step's rows.
struct PooledText {
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    PoolingTask task = PoolingTask::embed;  // embed, classify or token_classify
    const Adapter* adapter = nullptr;       // whose head classifies, if it has one; nullptr: the base's
    // Set by forward(), valid until the next call: embed [1, dimensions], classify [1, labels], token_classify [row_count, labels].
    kernels::Matrix out = {};
};

struct ForwardArgs {
    const kernels::StepInputs& step;
    std::span<const AdapterRows> adapters;  // ascending, not overlapping
    std::span<PooledText> texts = {};       // likewise
};

// Which rows of a text a task needs.
enum class PooledRows : std::uint8_t { first, last, all };
constexpr PooledRows rows_of(PoolingMode mode) {
    switch (mode) {
        case PoolingMode::cls: return PooledRows::first;
        case PoolingMode::last: return PooledRows::last;
        case PoolingMode::mean:
        case PoolingMode::mean_sqrt_len:
        case PoolingMode::max:
        case PoolingMode::weighted_mean: break;
    }
    return PooledRows::all;
}
PooledRows rows_of(PoolingTask task, const ModelConfig& config);
// Whether one step must compute all tokens of a text for the task.
bool reads_whole_text(PoolingTask task, const ModelConfig& config);

class Model {
public:
    // Reads config.json and the safetensors files of a folder and packs the weights into the backend. Throws std::runtime_error that names
    // file, key and value if anything is unsupported or broken. Allocates activations for rows_max rows per step and sample_rows_max rows
    // of logits, and a table of positions for at most context_max tokens, to which the context is limited. pooling: as ModelConfig::load.
    static std::unique_ptr<Model> load(const std::filesystem::path& folder, kernels::Backend& backend, std::int64_t rows_max,
                                       std::int64_t sample_rows_max, std::int64_t context_max = std::numeric_limits<std::int64_t>::max(),
                                       std::optional<PoolingMode> pooling = std::nullopt);
    virtual ~Model() = default;

    virtual const ModelConfig& config() const = 0;
    virtual kernels::KvShape kv_shape() const = 0;
    virtual std::size_t weight_bytes() const = 0;  // of all that was loaded, and of the tables of rope
    // The least that a step with `rows` rows and `sample_rows` rows of logits reads of the weights: each matrix once, and a row of each
    // table (embeddings, positions, rope) for each row. Norms, biases, and what only encoders have are left out.
    virtual std::size_t step_bytes(std::int64_t rows, std::int64_t sample_rows) const;
    // xxh128 (hex) of config.json, generation_config.json and the weight files' headers and sizes: part of system_fingerprint.
    virtual const std::string& fingerprint() const = 0;
    // Adapters are checked and packed against these. Constant: any thread may read. Only a loaded model has them (a test's model has none,
    // and takes no adapters).
    virtual const ModelLayout& layout() const;
    virtual const Checkpoint& checkpoint() const;
    // Names of tensors that are in the files, but not used.
    virtual std::span<const std::string> unused_tensors() const;

    // The length of a sequence that its rope's frequencies are for, where they are not those of all sequences. With dynamic NTK: the
    // prompt's length, if it exceeds the original context. With longrope: some length beyond it, if tokens_max exceeds it. tokens_max: the
    // prompt and all tokens that may be drawn. Fixed when a request is admitted. Sequences of different lengths must not share KV blocks.
    virtual std::optional<std::int64_t> rope_length(std::int64_t /*prompt_tokens*/, std::int64_t /*tokens_max*/) const {
        return std::nullopt;
    }
    // The rope table's row for the token at `position` of a sequence. The row stays valid for the next 2 * rows_max calls. See rope.h.
    virtual std::int32_t rope_row(std::int64_t position, std::optional<std::int64_t> rope_length) = 0;

    // Whether the device has kernels for pooling and for heads other than the vocabulary's.
    virtual bool pools() const { return true; }
    // The labels with which the adapter, or the base for nullptr, does a task: classify or token_classify. nullptr: it cannot.
    virtual std::shared_ptr<const Labels> labels_for(PoolingTask task, const Adapter* adapter) const;

    // Runs the rows through all layers, writes their KV entries, and returns logits, valid until the next call: [rows of
    // step.sample_rows that belong to no text, the largest vocabulary of the base and the step's adapters]. Columns after a row's own
    // vocabulary hold anything. Sets `out` of the texts. Call begin_step with the same inputs first.
    virtual kernels::Matrix forward(const ForwardArgs& args, kernels::KvCache& cache) = 0;
};

// What `lorry check-model` reports about a folder without loading its weights.
struct ModelReport {
    ModelConfig config;
    std::int64_t parameters = 0;              // elements of all tensors that the model uses; a tied head counts once
    std::int64_t embedding_parameters = 0;    // of these, those that are packed as embeddings
    std::int64_t coded_parameters = 0;        // of the others, those that the files have as codes
    std::size_t coded_bytes = 0;              // that these take in memory, with their scales
    std::vector<std::string> unused_tensors;  // in the files, but not used by the model
};

// Reads config.json and the headers of the weight files; of a tied model with a head of its own, also the head and the embedding. Throws as
// Model::load does.
ModelReport inspect_model(const std::filesystem::path& folder, std::optional<PoolingMode> pooling = std::nullopt);

kernels::KvShape kv_shape_of(const ModelConfig& config);

}  // namespace lorry::engine
