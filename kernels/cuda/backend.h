// The GPU's Backend: launchers that check shapes, put work lists on the device and queue the kernels on one stream. Made by
// make_cuda_backend. Weights are loaded on a stream of their own, so that an adapter's copies do not stand in the batch's way.
//
// Built twice from the same sources: for a GPU, and on the emulated device of kernels/cuda/emulation for tests.
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

namespace lorry::kernels::cuda {

class CudaBackend final : public Backend {
public:
    // As wide as weights are the KV cache and what matmuls read, where the options do not say fp8. Throws std::runtime_error when no GPU
    // can be used.
    explicit CudaBackend(const CudaOptions& options, MatmulChoice matmuls = {});

    DeviceInfo info() const override;
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
    void upload(void* to, std::span<const std::byte> from) override;
    void read_back(std::span<std::byte> to, const void* from) override;

    std::int64_t block_size() const override { return kv_block_size; }
    std::size_t kv_block_bytes(const KvShape& shape) const override;
    std::unique_ptr<Slot> make_measuring_slot() override;

    // As pack_weight and pack_lora, at a place that outlives what is packed.
    std::unique_ptr<PackedWeight> pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const;
    std::unique_ptr<PackedLora> pack_lora_at(Place& place, std::span<const LoraPart> parts) const;

    void reserve_steps(const ReserveArgs& args) override;
    void make_graphs(const GraphArgs& args) override;
    std::int64_t steps_in_flight_max() const override { return std::ssize(steps_); }
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
    void execute(const SampleArgs& args);

    static constexpr std::int64_t attention_works_most = 8;  // different ones of a model
    // What is reserved for a step: for the low-rank updates of q, k and v of rank 256; for tables, most of which are those of penalties and
    // grammars; for a row's answer, which is some 500 log-probabilities.
    static constexpr std::int64_t reserved_rank_sum = 3 * 256;
    static constexpr std::size_t reserved_table_bytes = std::size_t{32} << 20;
    static constexpr std::size_t reserved_answer_bytes = 4096;

    // Attention's work list, which all layers of one window share.
    struct PlannedAttention {
        AttentionHeads heads;
        std::optional<std::int64_t> window;
        std::optional<std::int64_t> step;  // whose it is
        AttentionPlan plan;
        AttentionSize size;
        const AttentionWork* work = nullptr;
        Scratch workspace;
    };

    // What a step has on the device and in pinned memory until it is finished, so that the next one can be queued behind it.
    struct Step {
        explicit Step(const Stream& stream) : tables(stream) {}

        Tables tables;
        Event begin;
        Event end;  // recorded behind what is sampled, else where the next step begins or where this one is waited for
        bool has_end = false;
        bool end_is_exact = false;      // it was recorded behind what is sampled
        bool gap_is_counted = false;    // the device's time without work before this step
        bool is_open = true;            // something was queued
        std::vector<StepGraph> graphs;  // of steps in this place; ascending by rows
        std::int64_t rows = 0;
        std::int64_t rows_sampled = 0;
        TokenId* tokens = nullptr;
        const std::int32_t* positions = nullptr;
        const std::int32_t* rope_rows = nullptr;
        const std::int32_t* sample_rows = nullptr;
        const std::int32_t* blocks = nullptr;        // of all sequences, one after the other
        const std::int32_t* block_of_row = nullptr;  // that holds the row's own token
        const std::int32_t* slot_of_row = nullptr;   // its place there
        RowProgress* row_progress = nullptr;
        const DrawnTable* drawn = nullptr;
        int drawn_count = 0;
        // Of a step that follows a graph: what the graph's launches read, zeros where there is nothing to do.
        Tables::Place<AttentionWork> attention_works;
        Tables::Place<LoraWork> lora_works;
        std::int64_t lora_places = 0;
        std::int64_t loras = 0;  // low-rank updates so far

        // Results, top tokens and targets of what is sampled, in one piece of memory, so that they come back in one copy.
        std::vector<DrawTable> draws;
        std::size_t tops_begin = 0;     // bytes
        std::size_t targets_begin = 0;  // bytes
        Scratch on_device;
        PinnedScratch on_host;
        std::span<SampleResult> results;
    };

    // What the rows of a draw list, one row's after the other's.
    struct DrawLists {
        std::vector<LogitChange> changes;
        std::vector<TokenId> counted;
        std::vector<std::uint32_t> allowed;
        std::vector<TokenId> targets;
    };

    // Steps are counted from 1; ops are of the step that was begun last.
    Step& step_at(std::int64_t count) { return steps_[static_cast<std::size_t>(count) % steps_.size()]; }
    Step& step() { return step_at(steps_begun_); }
    void put_rows(const StepInputs& inputs);
    void put_drawn_tokens(const StepInputs& inputs);

    // Launches go through launch(): one that the step's graph makes as well waits until the graph is complete and launched, or left.
    std::optional<std::size_t> make_graphs_of(std::int64_t rows, const GraphArgs& args);  // bytes; none: the device has no more
    const StepGraph* graph_for(const StepInputs& inputs);
    Multiplier multiplier() { return {matmuls_.library.get(), makes_graphs_ ? graph_scratch_ : matmul_scratch_}; }
    bool has_works() const { return graph_ != nullptr || taken_down_ != nullptr; }
    std::int64_t rows_of(const Matrix& a, const Matrix& b);  // that an op is launched for: those of the graph, where memory is spare
    std::int64_t step_rows() { return graph_ != nullptr ? graph_->rows() : step().rows; }
    bool put_in_place(LoraTask& task, const LoraWork& work, const LoraSize& size);  // false: the step has no place for it
    void launch(const Task& task);
    void launch_graph();
    void leave_graph();
    void settle();  // nothing waits any more
    void open_step();
    void note_end(Step& step);
    void count_gap(const Step& before, Step& after);
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
    Event slot_is_free_;  // of the ops, where nothing reads any more what lay in the slot that was made last
    Stream loads_;
    Uploads uploads_{loads_};
    OwnPlace own_place_{uploads_};
    std::array<Step, 2> steps_{Step(stream_), Step(stream_)};  // in turn
    double idle_seconds_ = 0.0;  // of the device, from the end of a step that sampled to the begin of the next
    std::int64_t steps_begun_ = 0;
    std::int64_t steps_finished_ = 0;
    const StepGraph* graph_ = nullptr;  // that the step follows
    StepGraph::Follower follower_;
    std::vector<Task>* taken_down_ = nullptr;  // what the step launches, instead of launching it
    bool makes_graphs_ = false;
    bool stores_nothing_ = false;           // a step's keys and values
    std::int64_t attention_sequences_ = 0;  // that partial results are reserved for, and their tokens
    std::int64_t attention_context_ = 0;
    std::int64_t lora_places_ = 0;
    std::size_t graph_bytes_ = 0;
    std::uint64_t graph_steps_ = 0;
    std::vector<PlannedAttention> planned_;
    MatmulScratch matmul_scratch_;
    MatmulScratch graph_scratch_;  // of what graphs launch: prefills, which take more, leave it where it is
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
};

}  // namespace lorry::kernels::cuda
