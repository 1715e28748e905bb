// The CPU's Backend: launchers that divide the work of an op into pieces for threads and call the kernels of one instruction set.
// Made by make_cpu_backend; tests pass it their own kernels.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_cut.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/sample.h"
#include "kernels/thread_pool.h"

namespace lorry::kernels::cpu {

class CpuBackend final : public Backend {
public:
    // The kernels to call; they must outlive the backend.
    struct Parts {
        const Kernels& kernels;
        const DotKernels* dot = nullptr;                      // for projections; null: their weights are widened to float32
        const DotKernels* embedding_dot = nullptr;            // for embeddings and the head, which may be stored in more bits
        const DotKernels* int8_dot = nullptr;                 // for checkpoints in int8 that round inputs; null: inputs are not rounded
        const Int8AttentionKernel* int8_attention = nullptr;  // for an int8 KV cache
    };
    CpuBackend(const Parts& parts, int threads, const StorageOptions& storage);

    DeviceInfo info() const override;
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
    void upload(void* to, std::span<const std::byte> from) override;
    void read_back(std::span<std::byte> to, const void* from) override;
    void on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) override;

    std::int64_t row_stride(Format format, std::int64_t columns) const override;
    std::int64_t block_size() const override { return kv_block_size; }
    std::size_t kv_block_bytes(const KvShape& shape) const override;
    std::unique_ptr<Slot> make_measuring_slot() override;

    // As pack_weight and pack_lora, into a place that outlives what is packed. Called by slots, from any thread.
    std::unique_ptr<PackedWeight> pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const;
    std::unique_ptr<PackedLora> pack_lora_at(Place& place, std::span<const LoraPart> parts) const;

    void finish_step() override {}  // ops return when they are done

private:
    std::unique_ptr<PackedWeight> do_pack_weight(std::span<const WeightPart> parts, WeightRole role) override;
    std::unique_ptr<PackedLora> do_pack_lora(std::span<const LoraPart> parts) override;
    // Of parts that share codes.
    std::unique_ptr<PackedWeight> pack_codes_at(std::span<const WeightPart> parts, const PackOptions& options) const;
    std::unique_ptr<KvCache> do_make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) override;
    void do_copy_block(KvCache& cache, BlockId from, BlockId to) override;
    std::unique_ptr<Slot> do_make_slot(KvCache& cache, const SlotRange& range) override;
    void do_begin_step(const StepInputs& step) override;
    void do_run(const Op& op) override;
    void execute(const EmbedArgs& args);
    void execute(const NormArgs& args);
    void execute(const MatmulArgs& args);
    void execute(const LoraArgs& args);
    void execute(const GroupBiasArgs& args);
    void execute(const RopeStoreArgs& args);
    void execute(const DisentangledBiasArgs& args);
    void execute(const AttentionArgs& args);
    void execute(const ActivationArgs& args);
    void execute(const ScaleArgs& args);
    void execute(const UnfoldArgs& args);
    void execute(const ActivatedMatmulArgs& args);
    void execute(const GatherRowsArgs& args);
    void execute(const ClampedGateArgs& args);
    void execute(const PickRowsArgs& args);
    void execute(const MixRowsArgs& args);
    void execute(const PoolArgs& args);
    void execute(const SampleArgs& args);

    // Rows [row_begin, row_begin + rows) and panels [panel_begin, panel_end) of one low-rank product.
    struct LoraPiece {
        const Panels* panels = nullptr;       // A of all parts, or B of one
        const CpuLora::Part* part = nullptr;  // that one
        std::int64_t row_begin = 0;
        std::int64_t rows = 0;
        std::int64_t panel_begin = 0;
        std::int64_t panel_end = 0;
    };
    // How low-rank products are divided into pieces.
    struct LoraCut {
        std::int64_t rows_max = 0;       // of a piece
        std::int64_t multiply_adds = 0;  // that are worth a thread
    };
    // What adapters add to a matmul's outputs, before B is applied.
    struct LoraUpdates {
        std::span<const LoraGroup> groups;
        Matrix shrunk;  // A x; without columns if there are no updates
        Matrix all;     // [rows, outputs of all parts] if all updates were computed in advance; otherwise without rows
    };
    // Panels from `panel` on of each part's B, and rows from `row_begin` on.
    struct LoraColumns {
        std::int64_t row_begin = 0;
        std::int64_t panel = 0;
        std::int64_t panels = 1;
        std::int64_t width = 0;  // of a panel
        std::int64_t parts = 0;
        std::int64_t part_features = 0;  // outputs from one part to the next
    };
    // A matmul's inputs in the form that the weight's kernel reads, and that kernel.
    struct Factors {
        Matrix in;                               // the op's own, or a widened copy
        DotMatmulKernel dot = nullptr;           // null where inputs are float32
        ActivatedDotKernel activated = nullptr;  // null: an activation is an op of its own
        CacheBlock block = {};
        std::int64_t scratch_bytes = 0;  // per thread, for a panel's weights
        std::int64_t parked_bytes = 0;   // per thread, for sums that wait for the next inputs
        std::int64_t sums = 0;           // floats per thread, for the input of an activation or for updates that are added to it
        LoraUpdates updates = {};        // added before an activation
    };
    // The part of a matmul that one thread computes at a time.
    struct MatmulPiece {
        std::int64_t row_begin = 0;
        std::int64_t rows = 0;
        std::int64_t begin = 0;  // in runs of panels that are multiplied together
        std::int64_t end = 0;
        int thread = 0;
        bool ends_share = false;  // it is the last piece of the thread's own share of the weight
    };
    // The query rows that one thread computes at a time.
    struct AttentionPiece {
        const StepSequence* sequence = nullptr;
        std::int64_t kv_head = 0;
        std::int64_t row_begin = 0;  // within the sequence's rows
        std::int64_t rows = 0;
    };

    // One head of one sequence.
    struct BiasPiece {
        const StepSequence* sequence = nullptr;
        std::int64_t head = 0;
    };

    // Calls work(begin, end, thread) for pieces of rows that are worth a thread; row_cost is in elements touched.
    template <class Work>
    void run_rows(std::int64_t rows, std::int64_t row_cost, const Work& work) {
        constexpr std::int64_t piece_elements = 20'000;  // some microseconds of a core
        const std::int64_t piece =
            std::clamp<std::int64_t>(piece_elements / std::max<std::int64_t>(row_cost, 1), 1, std::max<std::int64_t>(rows, 1));
        pool_.run(rows, piece, work);
    }
    // Runs a kernel that writes rows of float32. If `out` has another format, each row is computed in scratch memory and converted.
    template <class Task>
    void run_row_kernel(void (*kernel)(const Task&, std::int64_t, std::int64_t), Task task, const Matrix& out, std::int64_t row_cost);
    void store_row(const Matrix& out, std::int64_t row, const float* from) const;
    void store_rows(const Matrix& from, const Matrix& to);
    void load_row(const Matrix& in, std::int64_t row, float* to) const;
    // Calls work(MatmulPiece) for pieces of a matmul that are worth a thread, in runs of `panels_together` panels.
    template <class Work>
    void cut_matmul(const Factors& factors, const Panels& panels, std::int64_t panels_together, const Work& work);
    // The most rows of a piece of A x.
    std::int64_t shrink_rows() const;
    // Adds the pieces of a group's product with `panels`.
    static void cut_lora(std::vector<LoraPiece>& pieces, const LoraGroup& group, const CpuLora::Part* part, const Panels& panels,
                         const LoraCut& cut);
    // A x of all groups, as B's kernel reads it: [in.rows, widest rank sum], or no columns if no group has an adapter. Valid until the next
    // call.
    Matrix shrink_all(const Matrix& in, std::span<const LoraGroup> groups);
    // Whether each update adds to the outputs of one part alone, of `width` outputs each, from its first on.
    static bool are_of_parts(std::span<const LoraGroup> groups, std::int64_t width);
    // Computes B (A x) of all groups, and stores it in `out` or adds it.
    void expand_groups(const LoraUpdates& updates, const Matrix& out, bool accumulate);
    // Computes the updates of all rows: out [rows, parts * width]. Rows and parts without one become zeros.
    void expand_all(const LoraUpdates& updates, std::int64_t width, const Matrix& out);
    std::int64_t panel_width_of_b() const;
    // How many outputs of a part get their updates together before they are activated: whole panels of B, and enough for the panels that
    // share each pass over inputs.
    std::int64_t updates_together(const Panels& panels, const Factors& factors) const;
    // Computes the updates of some rows and columns: out [rows, parts * columns.panels * columns.width].
    void expand_columns(const LoraUpdates& updates, const LoraColumns& columns, const Matrix& out) const;
    // next: the weights of the piece that comes after this one, or null.
    void shrink(const LoraPiece& piece, const Matrix& in, const Matrix& out, const std::byte* next, int thread);
    void expand(const LoraPiece& piece, const Matrix& in, const Matrix& out, bool accumulate, const std::byte* next) const;
    // Where the thread's own share of the weight begins; null if there is no next weight.
    const std::byte* first_weights(const PackedWeight* next, int thread) const;
    Factors factors_of(const Matrix& in, const CpuWeight& weight);
    std::byte* unpacked_scratch(const Factors& factors, int thread) const;
    float* sums_scratch(const Factors& factors, int thread) const;
    // Panels [begin, end) with the rows of a piece. The caller adds where outputs go, and what comes next.
    PanelProduct product_of(const Panels& panels, const Vector& bias, const Factors& factors, const MatmulPiece& piece, std::int64_t begin,
                            std::int64_t end) const;
    // dot: null where inputs are float32.
    void multiply(const PanelProduct& product, DotMatmulKernel dot) const;
    // The same with panels of codes.
    void multiply_codes(const PanelProduct& product, DotMatmulKernel dot) const;
    // A piece of activated_matmul. out: [piece.rows, width] float32 or bfloat16.
    void run_activated_piece(const ActivatedMatmulArgs& args, const Factors& factors, const MatmulPiece& piece, const Matrix& out);
    // The same by a kernel that activates.
    void run_activated_kernel(const ActivatedMatmulArgs& args, const Factors& factors, const MatmulPiece& piece, const Matrix& out);
    // activated_matmul into int8 rows: each thread computes up to rows_max whole rows at a time.
    void run_activated_rows(const ActivatedMatmulArgs& args, const Factors& factors, std::int64_t rows_max);
    template <class Work>
    void run_lora(std::span<const LoraPiece> pieces, const Work& work);
    // `in` in the format that A's kernel reads: itself, or converted in the thread's scratch memory.
    Matrix shrink_inputs(const Matrix& in, int thread);
    // scratch: this thread's.
    void run_bias_piece(const DisentangledBiasArgs& args, const BiasPiece& piece, float* scratch) const;
    void cut_attention(const AttentionArgs& args);
    // The part of a task that the op and the piece determine; longest: tokens of the longest context. The caller adds outputs and scratch.
    static AttentionTask attention_task(const AttentionArgs& args, const AttentionPiece& piece, std::int64_t longest);
    KvLayout kv_layout(const KvShape& shape) const;

    const Kernels& kernels_;
    const StorageOptions storage_;
    const DotKernels* const dot_;
    const DotKernels* const embedding_dot_;
    const DotKernels* const int8_dot_;
    const Int8AttentionKernel* const int8_attention_;  // null: the KV cache has the format of the weights
    const bool lora_by_pairs_;  // adapters use the kernels of bfloat16 pairs, whatever the format of the base's weights
    ThreadPool pool_;
    Sampler sampler_;
    Arena weight_arena_;  // holds the weights, which therefore must not outlive the backend
    // Scratch that keeps its capacity from step to step.
    std::vector<std::int32_t> row_blocks_;  // [rows] the KV block of each row of the step
    std::vector<std::int32_t> row_slots_;   // [rows] the row's position in that block
    std::vector<LoraPiece> lora_shrink_;
    std::vector<LoraPiece> lora_expand_;
    Scratch lora_scratch_;  // [rows, widest rank sum] A x, as B's kernel reads it
    Scratch lora_sums_;     // [threads, rows of a piece, widest rank sum]
    Scratch lora_inputs_;   // [threads, rows of a piece, in_features] float32 or bfloat16
    std::vector<AttentionPiece> attention_pieces_;
    Scratch row_scratch_;       // [threads, a row]
    Scratch attended_scratch_;  // before conversion to bfloat16: [threads, a piece]; to int8 rows: [rows, heads * head_dim]
    Scratch score_scratch_;     // [threads, rows of a piece, longest context]
    std::vector<BiasPiece> bias_pieces_;
    Scratch bias_scratch_;       // [threads, positions and products of a piece]
    Scratch unpacked_scratch_;   // [threads, a panel] int8, or widened to 16 bits
    Scratch parked_scratch_;     // [threads, DotTask::parked]
    Scratch widened_scratch_;    // [rows, in_features] int8 widened to 16 bits, and the rows' scales
    Scratch sums_scratch_;       // [threads, Factors::sums]
    Scratch activated_scratch_;  // [threads, rows of a piece, width] before conversion to int8 rows
};

}  // namespace lorry::kernels::cpu
