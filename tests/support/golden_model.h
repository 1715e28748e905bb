// The golden checkpoints and adapters of tests/data/models, and a driver that packs sequences into steps of a model without an engine.
// Used by tests/engine/model/model_test.cpp and adapter_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace lorry::tests {

// tests/data of the source tree, or the folder in LORRY_TEST_DATA if the program runs on another machine.
std::filesystem::path data_folder();
std::filesystem::path golden_folder();  // its models
// Names of the folders and files in golden_folder()/kind, sorted. kind: "checkpoints", "adapters", "refused_adapters", ….
std::vector<std::string> golden_names(const std::string& kind);
// Of what kind a checkpoint is: dense ones, those with experts and those in codes ("quantized").
enum class BaseKind : std::uint8_t { dense, experts, quantized };
// The "checkpoints" of one kind, and the "adapters" of such bases. They look for a key only: programs ask when they start.
std::vector<std::string> checkpoint_names(BaseKind kind);
std::vector<std::string> adapter_names(BaseKind kind);

struct GoldenCase {
    std::vector<kernels::TokenId> prompt;
    std::vector<kernels::TokenId> greedy;  // 64
    std::vector<float> logits;             // [prompt, vocabulary]
    std::vector<float> last;               // [vocabulary], the logits that chose the last greedy token
};
struct Golden {
    std::string base;                     // of an adapter
    std::vector<std::string> may_refuse;  // an adapter may be refused with a message that has these words
    std::int64_t vocabulary = 0;
    std::vector<GoldenCase> cases;
};
Golden read_golden(const std::filesystem::path& folder);

// A CPU backend; a GPU backend (emulated, if the program is linked with the emulation) for fp8 and if LORRY_TEST_DEVICE=cuda is set, which
// cannot quantize to integers. LORRY_TEST_MATMUL_TABLE names a file of rows for cuBLASLt.
std::unique_ptr<kernels::Backend> make_backend(kernels::Format weights, kernels::Quantization quantize = kernels::Quantization::none,
                                               kernels::KvFormat kv = kernels::KvFormat::as_weights);
std::unique_ptr<kernels::Backend> float32_backend();

// Reads an adapter and packs it into memory of its own.
Expected<std::unique_ptr<engine::Adapter>, engine::AdapterError> load_adapter(const std::filesystem::path& folder,
                                                                              const engine::Model& model, kernels::Backend& backend);

// One token sequence that a model runs.
struct Sequence {
    std::vector<kernels::TokenId> tokens;  // prompt, then what was generated
    std::int64_t prompt_tokens = 0;
    std::optional<std::int64_t> rope_length;  // of the prompt and, once it generates, of all that it will have
    const engine::Adapter* adapter = nullptr;
    std::int64_t computed = 0;
    std::vector<kernels::BlockId> blocks;
    std::vector<std::vector<float>> logits;  // of each row that sampled, in order
};

// Runs sequences through a model with its own KV cache. Rows of a step are sorted by adapter, as in the engine.
class StepDriver {
public:
    static constexpr std::int64_t rows_max = 512;

    enum class Samples : std::uint8_t { every_row, where_tokens_end };  // where_tokens_end: as in the engine

    StepDriver(engine::Model& model, kernels::Backend& backend, Samples samples = Samples::every_row);
    Sequence begin(std::vector<kernels::TokenId> prompt, const engine::Adapter* adapter = nullptr) const;
    // Computes up to `chunk` next tokens of each sequence in one step.
    void step(const std::vector<Sequence*>& sequences, std::int64_t chunk);
    // Steps until every sequence has generated `tokens` tokens greedily.
    void generate(const std::vector<Sequence*>& sequences, std::int64_t tokens, std::int64_t chunk = rows_max);

private:
    engine::Model& model_;
    kernels::Backend& backend_;
    const Samples samples_;
    std::unique_ptr<kernels::KvCache> cache_;
    kernels::BlockId next_block_ = 0;
};

// "" if all elements are within the tolerance, otherwise where and by how much they differ.
std::string difference(std::span<const float> actual, std::span<const float> expected, float tolerance);

}  // namespace lorry::tests
