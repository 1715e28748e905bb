// The GPU's Backend: launchers that check shapes, put work lists on the device and queue the kernels on one stream. Made by
// make_cuda_backend. Weights are loaded on a stream of their own, so that an adapter's copies do not stand in the batch's way.
//
// Built twice from the same sources: for a GPU, and on the emulated device of kernels/cuda/emulation for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/library_matmul.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/pool.h"

namespace lorry::kernels::cuda {

class CudaBackend final : public Backend {
public:
    // weights: float32 or bfloat16, also of the KV cache and of what matmuls read. fp8: projections and what they read are fp8 instead.
    // Throws std::runtime_error when no GPU can be used.
    explicit CudaBackend(Format weights, MatmulChoice matmuls = {}, bool fp8 = false);

    DeviceInfo info() const override;
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
    void upload(void* to, std::span<const std::byte> from) override;
    void read_back(std::span<std::byte> to, const void* from) override;

    std::unique_ptr<PackedWeight> pack_weight(std::span<const WeightPart> parts, WeightRole role) override;
    std::unique_ptr<PackedLora> pack_lora(std::span<const LoraPart> parts) override;
    void reserve_adapters(std::size_t bytes) override { pool_.reserve(bytes); }

    std::int64_t block_size() const override { return kv_block_size; }
    std::size_t kv_block_bytes(const KvShape& shape) const override;
    std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, std::int64_t blocks) override;
    void copy_block(KvCache& cache, BlockId from, BlockId to) override;

    void begin_step(const StepInputs& step) override;
    void embed(const EmbedArgs& args) override;
    void norm(const NormArgs& args) override;
    void matmul(const MatmulArgs& args) override;
    void lora(const LoraArgs& args) override;
    void group_bias(const GroupBiasArgs& args) override;
    void rope_store(const RopeStoreArgs& args) override;
    void attention(const AttentionArgs& args) override;
    void activation(const ActivationArgs& args) override;
    void gather_rows(const GatherRowsArgs& args) override;
    void sample(const SampleArgs& args) override;

private:
    // The step's tables on the device.
    struct Step {
        std::int64_t rows = 0;
        const TokenId* tokens = nullptr;
        const std::int32_t* positions = nullptr;
        const std::int32_t* rope_rows = nullptr;
        const std::int32_t* sample_rows = nullptr;
        const std::int32_t* blocks = nullptr;        // of all sequences, one after the other
        const std::int32_t* block_of_row = nullptr;  // that holds the row's own token
        const std::int32_t* slot_of_row = nullptr;   // its place there
    };
    // Attention's work list, which all layers of one window share.
    struct PlannedAttention {
        std::int64_t group = 0;
        std::optional<std::int64_t> window;
        AttentionPlan plan;
        const AttentionPiece* narrow = nullptr;
        const AttentionPiece* wide = nullptr;
        const AttentionMerge* merges = nullptr;
    };

    void check_step(const StepInputs& step) const;
    const PlannedAttention& planned_attention(const AttentionArgs& args);
    View widened(const Matrix& in);
    static void check_launch(const char* op);

    const std::string name_;
    const Format weights_;
    const bool fp8_;
    const MatmulChoice matmuls_;
    Stream stream_;
    Stream loads_;
    DevicePool pool_{loads_, stream_};
    Tables tables_;
    Step step_;
    std::vector<std::unique_ptr<PlannedAttention>> planned_;  // of this step
    Scratch lora_scratch_;
    Scratch widened_scratch_;
    Scratch attention_scratch_;
    Scratch weight_scratch_;
    Scratch result_scratch_;
    // Kept between steps for their capacity.
    std::vector<std::int32_t> row_blocks_;
    std::vector<std::int32_t> row_slots_;
    std::vector<std::int32_t> sequence_blocks_;
};

}  // namespace lorry::kernels::cuda
