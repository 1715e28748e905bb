// The GPU's Backend: launchers that copy work lists to the device and queue the kernels on one stream. Made by make_cuda_backend. Weights
// are copied on a stream of their own, so that the batch does not wait while an adapter is loaded.
//
// Built twice from the same sources: for a GPU, and for the emulated device of kernels/cuda/emulation, which tests use.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/library_matmul.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/place.h"
#include "kernels/thread_pool.h"

namespace lorry::kernels::cuda {

// Model::load refuses what needs these ops.
inline constexpr const char* no_experts = "the GPU has no kernels for mixtures of experts yet";
inline constexpr const char* no_pooling = "the GPU has no kernels for encoders and pooling yet";

class CudaBackend final : public Backend {
public:
    // The KV cache and the inputs of matmuls have the format of the weights unless the options say fp8. Throws std::runtime_error if no GPU
    // can be used.
    explicit CudaBackend(const CudaOptions& options, MatmulChoice matmuls = {});

    DeviceInfo info() const override;
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
    void upload(void* to, std::span<const std::byte> from) override;
    void read_back(std::span<std::byte> to, const void* from) override;
    void on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) override;

    std::int64_t block_size() const override { return kv_block_size; }
    std::size_t kv_block_bytes(const KvShape& shape) const override;
    std::unique_ptr<Slot> make_measuring_slot() override;

    // As pack_weight and pack_lora, into a place that outlives what is packed. Called by slots, from any thread.
    std::unique_ptr<PackedWeight> pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const;
    std::unique_ptr<PackedLora> pack_lora_at(Place& place, std::span<const LoraPart> parts) const;

    void reserve_steps(const ReserveArgs& args) override;
    void make_graphs(const GraphArgs& args) override;
    std::int64_t steps_queued_max() const override { return std::ssize(steps_); }
    void finish_step() override;

private:
    std::unique_ptr<PackedWeight> do_pack_weight(std::span<const WeightPart> parts, WeightRole role) override;
    std::unique_ptr<PackedLora> do_pack_lora(std::span<const LoraPart> parts) override;
    std::unique_ptr<KvCache> do_make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) override;
    void do_copy_block(KvCache& cache, BlockId from, BlockId to) override;
    std::unique_ptr<Slot> do_make_slot(KvCache& cache, const SlotRange& range) override;
    void do_begin_step(const StepInputs& inputs) override;
    void do_run(const Op& op) override;
    void execute(const EmbedArgs& args);
    void execute(const NormArgs& args);
    void execute(const MatmulArgs& args);
    void execute(const LoraArgs& args);
    void execute(const GroupBiasArgs& args);
    void execute(const RopeStoreArgs& args);
    void execute(const AttentionArgs& args);
    void execute(const ActivationArgs& args);
    void execute(const ActivatedMatmulArgs& args) { run_matmul_then_activation(args); }
    void execute(const GatherRowsArgs& args);
    void execute(const ClampedGateArgs& args);
    void execute(const PickRowsArgs& args);
    void execute(const MixRowsArgs& args);
    void execute(const PoolArgs& args);
    void execute(const DisentangledBiasArgs& args);
    void execute(const ScaleArgs& args);
    void execute(const UnfoldArgs& args);
    void execute(const SampleArgs& args);

    static constexpr std::int64_t attention_works_most = 8;  // different work lists of a model
    // Reserved for a step: low-rank updates of q, k and v of rank 256; tables, mostly those of penalties and grammars; and, for a sampled
    // row's results, some 500 log-probabilities.
    static constexpr std::int64_t reserved_rank_sum = 3 * 256;
    static constexpr std::size_t reserved_table_bytes = std::size_t{32} << 20;
    static constexpr std::size_t reserved_answer_bytes = 4096;

    // A work list of attention, shared by all layers with the same window.
    struct PlannedAttention {
        AttentionHeads heads;
        std::optional<std::int64_t> window;
        std::optional<std::int64_t> step;  // the step it was made for
        AttentionPlan plan;
        AttentionSize size;
        const AttentionWork* work = nullptr;
        Scratch workspace;
    };

    // A step's data on the device and in pinned memory, kept until it is finished, so that the next step can be queued after it.
    struct Step {
        explicit Step(const Stream& stream) : tables(stream) {}

        Tables tables;
        Event begin;
        Event end;  // recorded after sampling; without sampling, where the next step begins or this one is waited for
        bool has_end = false;
        bool end_is_exact = false;      // it was recorded after sampling
        bool gap_is_counted = false;    // the device's idle time before this step was added to idle_seconds_
        bool is_open = true;            // its beginning is recorded and the copy of its tables is queued
        std::vector<StepGraph> graphs;  // for steps with these tables; ascending by rows
        std::int64_t rows = 0;
        std::int64_t rows_sampled = 0;
        TokenId* tokens = nullptr;
        const std::int32_t* positions = nullptr;
        const std::int32_t* rope_rows = nullptr;
        const std::int32_t* sample_rows = nullptr;
        const std::int32_t* blocks = nullptr;        // of all sequences, one after the other
        const std::int32_t* block_of_row = nullptr;  // that stores the row's own token
        const std::int32_t* slot_of_row = nullptr;   // the token's position in that block
        RowProgress* row_progress = nullptr;
        const DrawnTable* drawn = nullptr;
        int drawn_count = 0;
        // For a step that follows a graph: the work lists that the graph's launches read; zeros mean no work.
        Tables::Place<AttentionWork> attention_works;
        Tables::Place<LoraWork> lora_works;
        std::int64_t lora_places = 0;
        std::int64_t loras = 0;  // low-rank updates launched so far

        // The results, top tokens, targets and their ranks of sampling, in one piece of memory, so that one copy reads them back.
        std::vector<DrawTable> draws;
        std::size_t tops_begin = 0;     // bytes
        std::size_t targets_begin = 0;  // bytes
        std::size_t ranks_begin = 0;    // bytes
        Scratch on_device;
        PinnedScratch on_host;
        std::span<SampleResult> results;
    };

    // The lists of all rows of a draw, one row after the other.
    struct DrawLists {
        std::vector<LogitChange> changes;
        std::vector<TokenId> counted;
        std::vector<std::uint32_t> allowed;
        std::vector<TokenId> targets;
    };

    // Steps are counted from 1; ops belong to the step that was begun last.
    Step& step_at(std::int64_t count) { return steps_[static_cast<std::size_t>(count) % steps_.size()]; }
    Step& step() { return step_at(steps_begun_); }
    void put_rows(const StepInputs& inputs);
    void put_drawn_tokens(const StepInputs& inputs);

    // All launches go through launch(). While they match those of the step's graph they are held back, until the graph is complete and
    // launched, or left.
    std::optional<std::size_t> make_graphs_of(std::int64_t rows, const GraphArgs& args);  // bytes; nullopt: out of device memory
    const StepGraph* graph_for(const StepInputs& inputs);
    Multiplier multiplier() { return {matmuls_.library.get(), makes_graphs_ ? graph_scratch_ : matmul_scratch_}; }
    bool has_works() const { return graph_ != nullptr || taken_down_ != nullptr; }
    std::int64_t rows_of(const Matrix& a, const Matrix& b);  // to launch an op for: the graph's, as far as there are spare rows
    std::int64_t step_rows() { return graph_ != nullptr ? graph_->rows() : step().rows; }
    bool put_in_place(LoraTask& task, const LoraWork& work, const LoraSize& size);  // false: the step has no place for it
    void launch(const Task& task);
    void launch_graph();
    void leave_graph();
    void settle();  // queues all launches that are held back
    void open_step();
    void note_end(Step& step);
    void count_gap(const Step& before, Step& after);
    std::int64_t list_draws(const SampleArgs& args, Step& sampled);
    static void hand_out_results(Step& step);
    const PlannedAttention& planned_attention(const AttentionArgs& args, int padded_head_dim);
    View widened(const Matrix& in);

    const std::string name_;
    const int processors_;
    const Format weights_;
    const Quantization quantize_;
    const Format kv_;
    const MatmulChoice matmuls_;
    Stream stream_;
    Event slot_is_free_;  // after the last op that may read what was in the newest slot's memory before
    Stream loads_;
    Uploads uploads_{loads_};
    OwnPlace own_place_{uploads_};
    std::array<Step, 2> steps_{Step(stream_), Step(stream_)};  // used in turn
    double idle_seconds_ = 0.0;  // of the device, from the end of a step that sampled to the beginning of the next
    std::int64_t steps_begun_ = 0;
    std::int64_t steps_finished_ = 0;
    const StepGraph* graph_ = nullptr;  // the graph that the step follows
    StepGraph::Follower follower_;
    std::vector<Task>* taken_down_ = nullptr;  // records the step's launches instead of launching them
    bool makes_graphs_ = false;
    bool stores_nothing_ = false;           // steps store no keys and values
    std::int64_t attention_sequences_ = 0;  // for which partial results are reserved, and their tokens
    std::int64_t attention_context_ = 0;
    std::int64_t lora_places_ = 0;
    std::size_t graph_bytes_ = 0;
    std::uint64_t graph_steps_ = 0;
    std::vector<PlannedAttention> planned_;
    MatmulScratch matmul_scratch_;
    MatmulScratch graph_scratch_;  // for graphs: it must not move, so prefills, which need more, do not use it
    Scratch lora_sums_;
    Scratch widened_scratch_;
    Scratch weight_scratch_;
    // Kept between steps for their capacity.
    std::vector<std::int32_t> row_blocks_;
    std::vector<std::int32_t> row_slots_;
    std::vector<std::int32_t> sequence_blocks_;
    std::vector<DrawnTable> drawn_;
    std::vector<BiasTable> bias_groups_;
    std::vector<LoraShape> lora_shapes_;
    LoraPlan lora_plan_;
    std::vector<LoraTable> lora_tables_;
    DrawLists draw_lists_;
    std::unique_ptr<ThreadPool> host_threads_;  // from the first on_host() on that divides something
};

}  // namespace lorry::kernels::cuda
