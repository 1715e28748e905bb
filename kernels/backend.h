// The device's arithmetic: memory, weight packing and the ops of a step, as large as the largest fusion any backend makes.
// engine/model/model.cpp is written once over this interface; kernels/cpu and kernels/cuda implement it with the same file names.
//
// Contract of all ops:
// - Batch invariance: a row's result depends on its own inputs, the weights and the chip, never on which or how many other rows the step
//   has, nor on how a sequence was divided into steps.
// - The public functions CHECK their arguments (contract.h), then call the backend's virtual ones. A backend checks only what its own
//   kernels cannot do.
// - Ops may run asynchronously, in the order of the calls; read_back() and finish_step() wait. Memory that earlier ops use may be
//   overwritten by later ops or freed after the step's ops were called; the earlier ops still see the old contents.
// - A step is begin_step, its ops, sample if rows of logits are wanted, and finish_step. Up to steps_queued_max() steps may be begun
//   and not finished; they finish in order.
// - One thread, the engine's, makes all calls, except that one other thread may pack into slots at the same time.
// - Running out of device memory throws std::bad_alloc or std::runtime_error, with what was asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device_objects.h"
#include "kernels/ops.h"
#include "kernels/storage_format.h"
#include "kernels/tensor.h"

namespace lorry::kernels {

// Puts weights into device memory, laid out as ops read them.
class Packer {
public:
    virtual ~Packer() = default;
    virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
    virtual void upload(void* to, std::span<const std::byte> from) = 0;
    // Concatenates the parts along out_features (all of equal in_features) and packs them.
    std::unique_ptr<PackedWeight> pack_weight(std::span<const WeightPart> parts, WeightRole role);
    // The parts' outputs must not overlap.
    std::unique_ptr<PackedLora> pack_lora(std::span<const LoraPart> parts);

protected:
    virtual std::unique_ptr<PackedWeight> do_pack_weight(std::span<const WeightPart> parts, WeightRole role) = 0;
    virtual std::unique_ptr<PackedLora> do_pack_lora(std::span<const LoraPart> parts) = 0;
};

// Packs one piece after the other into an adapter's own part of a KV cache's memory, which outlives the pieces. A measuring slot has no
// memory and only adds up sizes.
class Slot : public Packer {
public:
    virtual std::size_t used() const = 0;  // bytes, including the padding that aligns the next piece
};

// The largest values that steps have.
struct LargestStep {
    std::int64_t rows = 0;
    std::int64_t sample_rows = 0;
    std::int64_t sequences = 0;
    std::int64_t context = 0;  // tokens of a sequence
    std::int64_t vocabulary = 0;
};
struct ReserveArgs {
    LargestStep largest;
    std::function<void(const StepInputs&)> ops{};  // as GraphArgs::ops; a cache of one block is enough
};

// Decoding steps (one row for each sequence, all of which sample) that are to be launched as graphs.
struct GraphArgs {
    std::int64_t rows_max = 0;  // of such a step
    std::size_t bytes = 0;      // of device memory, at most
    // Calls the ops of a step of these rows, except sample, with lora wherever an adapter might need it. The results are not used, and
    // nothing is stored in a KV cache.
    std::function<void(const StepInputs&)> ops{};
};

struct DeviceInfo {
    std::string name;              // "cpu (avx512bf16, int8 matmuls, 2 threads)"
    std::string fingerprint;       // kernels and chip kind: part of system_fingerprint
    std::string matmuls;           // which code multiplies and why, for people; empty: there is no choice
    bool wants_library = false;    // our own kernel does multiplications that a library, or table rows for it, could do faster
    bool has_own_memory = false;   // true: a GPU; false: the device uses the machine's memory
    std::size_t memory_total = 0;  // bytes of its own, or of the machine
    std::size_t memory_free = 0;   // bytes of its own that are free now
    double idle_seconds = 0.0;     // total time in which a GPU had no work between steps whose results were read
    std::int64_t step_rows = 512;  // default rows per step; with fewer, reading weights dominates
    std::int64_t graphs = 0;
    std::size_t graph_bytes = 0;    // of device memory that graphs take
    std::uint64_t graph_steps = 0;  // steps launched as a graph so far
};

// As a Packer it gives each piece memory of its own.
class Backend : public Packer {
public:
    virtual DeviceInfo info() const = 0;
    virtual void read_back(std::span<std::byte> to, const void* from) = 0;
    // Calls work(i) for each i in [0, count), in any order, and returns when all are done: for what the host computes between ops. Divides
    // it between the threads that the backend has on the host, if it has some. work must not throw.
    virtual void on_host(std::int64_t count, const std::function<void(std::int64_t)>& work);

    // The elements from one row to the next in activations that ops read fastest; at least stride_least().
    virtual std::int64_t row_stride(Format format, std::int64_t columns) const { return stride_least(format, columns); }
    // Allocates what ops of such steps compute with, which would otherwise be allocated when they first need it. Called at start, with no
    // step begun.
    virtual void reserve_steps(const ReserveArgs& /*args*/) {}

    virtual std::int64_t block_size() const = 0;  // tokens
    virtual std::size_t kv_block_bytes(const KvShape& shape) const = 0;
    std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes);
    void copy_block(KvCache& cache, BlockId from, BlockId to);  // all layers
    // The range is in the cache's slots() or in lent blocks. Ops that were called before may still read the old contents.
    std::unique_ptr<Slot> make_slot(KvCache& cache, const SlotRange& range);
    virtual std::unique_ptr<Slot> make_measuring_slot() = 0;

    virtual std::int64_t steps_queued_max() const { return 1; }
    void begin_step(const StepInputs& step);
    // Waits for the oldest step that is not finished.
    virtual void finish_step() = 0;
    void embed(const EmbedArgs& args) { run(&args); }
    void norm(const NormArgs& args) { run(&args); }
    void matmul(const MatmulArgs& args) { run(&args); }
    void lora(const LoraArgs& args) { run(&args); }
    void group_bias(const GroupBiasArgs& args) { run(&args); }
    void rope_store(const RopeStoreArgs& args) { run(&args); }
    void disentangled_bias(const DisentangledBiasArgs& args) { run(&args); }
    void attention(const AttentionArgs& args) { run(&args); }
    void activation(const ActivationArgs& args) { run(&args); }
    void clamped_gate(const ClampedGateArgs& args) { run(&args); }
    void scale(const ScaleArgs& args) { run(&args); }
    void unfold(const UnfoldArgs& args) { run(&args); }
    void activated_matmul(const ActivatedMatmulArgs& args) { run(&args); }
    void gather_rows(const GatherRowsArgs& args) { run(&args); }
    void pick_rows(const PickRowsArgs& args) { run(&args); }
    void mix_rows(const MixRowsArgs& args) { run(&args); }
    void pool(const PoolArgs& args) { run(&args); }
    void sample(const SampleArgs& args) { run(&args); }
    // Any of these ops.
    void run(const Op& op);

    // Called at start, with no step begun; replaces earlier graphs. From then on a step that launches what a graph does is launched as that
    // graph, with the same results, bit for bit.
    virtual void make_graphs(const GraphArgs& /*args*/) {}

protected:
    virtual std::unique_ptr<KvCache> do_make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) = 0;
    virtual void do_copy_block(KvCache& cache, BlockId from, BlockId to) = 0;
    virtual std::unique_ptr<Slot> do_make_slot(KvCache& cache, const SlotRange& range) = 0;
    virtual void do_begin_step(const StepInputs& step) = 0;
    virtual void do_run(const Op& op) = 0;
    // Runs activated_matmul as a matmul, the adapters' updates and an activation.
    void run_matmul_then_activation(const ActivatedMatmulArgs& args);

private:
    // Of the step that was begun last.
    std::int64_t step_rows_ = 0;
    std::span<const StepSequence> step_sequences_;
};

// Which instruction set the CPU kernels use; the machine must support it (else std::runtime_error).
// avx512amx: as avx512, with matrix tiles for what is multiplied in bfloat16, int8 or int4.
enum class CpuIsa : std::uint8_t { scalar, avx2, avx512, avx512bf16, avx512amx };

struct CpuOptions {
    int threads = 0;            // 0: the cores this process may use
    std::optional<CpuIsa> isa;  // nullopt: by the rules of kernels/cpu/isa.cpp
    StorageOptions storage;
};

// Throws std::runtime_error with the obstacle if the CPU lacks the storage format or the instruction set.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

struct CudaOptions {
    StorageOptions storage;
    // A file of rows (kernels/cuda/cublaslt/matmul_table.h) that replaces the committed ones; empty: the committed ones.
    std::string matmul_table = {};
};

// Why no GPU can be used, for people (built without CUDA, no driver, no device); nullopt if one can.
std::optional<std::string> cuda_obstacle();

// Uses the first GPU. Throws std::runtime_error with the obstacle if there is no GPU or it lacks the storage format, or with what is wrong
// with the table.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace lorry::kernels
