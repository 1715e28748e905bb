// One PEFT LoRA adapter: what its folder says (AdapterInfo), and its weights packed for a model (Adapter). An adapter is identified by the
// hash of its content; its name is only a label. Reading and packing run on the adapter cache's thread; a packed Adapter never changes.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/model_layout.h"
#include "engine/model/model_weights.h"
#include "kernels/backend.h"
#include "schema/check.h"

namespace lorry::engine {

// How many tokens an adapter may have more than its base.
inline constexpr std::int64_t added_tokens_max = 1 << 16;

struct AdapterInfo {
    // xxh128 (hex) over adapter_config.json, adapter_model.safetensors, config.json if it classifies, and text_hash if it is not empty.
    std::string hash;
    std::string text_hash;        // of the tokenizer and the chat template of its own; empty: it uses the base's
    std::string text_difference;  // from the base's, as ModelText::difference
    std::string base;             // base_model_name_or_path of the config, verbatim
    std::int64_t rank_max = 0;
    std::vector<std::string> targets;          // names of the modules that the adapter changes, sorted, such as "q_proj"
    std::size_t bytes = 0;                     // of the files
    std::int64_t elements = 0;                 // of all A and B: multiply-adds per row
    std::shared_ptr<const Labels> labels;      // of its own head; nullptr: it has none
    PoolingTask head = PoolingTask::classify;  // which head that is
    // How many tokens there are for it: rows of its embedding and its head. nullopt: as many as for the base.
    std::optional<std::int64_t> vocabulary = {};
};

// Reads a folder and checks it against a model without keeping the weights: config keys, tensor names, shapes, dtypes, ranks, NaN and
// infinities. The error names file, key and value ("adapter_config.json: use_qalora = true is not supported; …"). text_hash: as
// AdapterInfo's; inspect_adapter() of engine/adapter_folder.h finds it.
Expected<AdapterInfo, std::string> inspect_adapter(const std::filesystem::path& folder, const ModelConfig& config,
                                                   const std::string& text_hash = {});

// A module that the adapter replaces (modules_to_save): rows [out_begin, out_begin + weight->out_features()) of a projection.
struct ReplacedLinear {
    std::unique_ptr<kernels::PackedWeight> weight;
    kernels::Vector bias;  // or empty
    std::int64_t out_begin = 0;
};

// What an adapter changes in one projection of one layer. Applied in this order.
struct AdapterProjection {
    std::optional<ReplacedLinear> whole;        // replaces the base's projection
    std::vector<ReplacedLinear> parts;          // replace some of its columns
    std::unique_ptr<kernels::PackedLora> lora;  // added; nullptr: none
    kernels::Vector scale;                      // multiplied to the outputs (DoRA); may be empty
    kernels::Vector inverse_scale;              // 1 / scale, where outputs are added to the residual; else empty
    kernels::Vector bias;                       // added: the difference from the base's bias; may be empty
};

// What an adapter changes in the embedding of tokens: some or all tokens have vectors of their own, and it adds b · a[token] and scales the
// sums.
struct AdapterEmbedding {
    struct Vector {
        const kernels::PackedWeight* table = nullptr;
        std::int64_t index = 0;
    };
    std::unique_ptr<kernels::PackedWeight> a;      // [vocabulary, rank], looked up as an embedding is; nullptr: nothing is added
    std::unique_ptr<kernels::PackedWeight> b;      // [width, rank], times the scale
    kernels::Vector scale;                         // [width] multiplied to the sums (DoRA); may be empty
    std::unique_ptr<kernels::PackedWeight> table;  // [vocabulary, width], in place of the base's; nullptr: the base's
    std::unique_ptr<kernels::PackedWeight> rows;   // [tokens, width], in place of those of the table; nullptr: there are none
    std::vector<std::int64_t> tokens;              // that have rows in `rows`, ascending

    // The vector of a token; nullopt: the base's.
    std::optional<Vector> find(std::int64_t token) const {
        const auto found = std::ranges::lower_bound(tokens, token);
        if (found != tokens.end() && *found == token) return Vector{.table = rows.get(), .index = found - tokens.begin()};
        return table == nullptr ? std::nullopt : std::optional(Vector{.table = table.get(), .index = token});
    }
};

// Why an adapter was not loaded.
struct AdapterError {
    std::string reason;
    bool may_pass = false;  // a retry may succeed: files are unreadable, or not those that were registered (perhaps half copied)
};

class Adapter {
public:
    virtual ~Adapter() = default;
    virtual const AdapterInfo& info() const = 0;
    // What this adapter changes there; nullptr: nothing. The head and the final norm count as layer 0.
    virtual const AdapterProjection* at(std::int64_t layer, Projection projection) const = 0;
    // The same for gate_up or down of one expert.
    virtual const AdapterProjection* at_expert(std::int64_t layer, std::int64_t expert, Projection projection) const = 0;
    virtual const Norm* norm_at(std::int64_t layer, NormSite site) const = 0;  // replaces the base's
    virtual const AdapterEmbedding* embedding() const { return nullptr; }      // nullptr: it changes nothing there
    virtual const Classifier* classifier() const { return nullptr; }           // its own head; nullptr: it has none
};

// An adapter's files in host memory, read and checked, before the adapter has a slot on the device.
class AdapterFiles {
public:
    // Makes the checks of inspect_adapter and refuses NaN and infinities. The folder's content must hash to expected_hash, unless that is
    // empty. The model outlives the files.
    static Expected<std::unique_ptr<AdapterFiles>, AdapterError> read(const std::filesystem::path& folder, const std::string& expected_hash,
                                                                      const Model& model, const std::string& text_hash = {});
    virtual ~AdapterFiles() = default;
    // The packer's memory outlives the adapter. With a measuring slot, only the slot's size is meaningful afterwards.
    virtual std::unique_ptr<Adapter> pack(kernels::Packer& packer) const = 0;
    // Bytes of a slot for this adapter, rounded up by slot_aligned.
    std::size_t slot_bytes(kernels::Backend& backend) const;
};

}  // namespace lorry::engine
