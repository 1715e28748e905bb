// make_cpu_backend, and the launchers that need no more than a loop; attention.cpp, lora.cpp and sample.cpp hold the others.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul_cut.h"
#include "kernels/cpu/processors.h"
#include "schema/check.h"

namespace lorry::kernels {

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
    if (options.weights != Format::float32 && options.weights != Format::bfloat16) {
        throw std::runtime_error("the CPU stores weights as float32 or bfloat16: choose one of these");
    }
    if (options.quantize == Quantization::fp8) throw std::runtime_error("the CPU has no fp8 weights: choose int8 or int4");
    if (options.kv == KvFormat::fp8) throw std::runtime_error("the CPU has no fp8 KV cache: choose int8");
    const CpuIsa isa = cpu::usable_isa(options.isa);
    const int threads = options.threads > 0 ? options.threads : cpu::usable_processors();
    const cpu::Kernels& kernels = cpu::kernels_of(isa);
    const cpu::DotKernels* dot = options.weights == Format::bfloat16 ? kernels.bfloat16_dot : nullptr;
    if (options.quantize == Quantization::int8) dot = &cpu::int8_kernels_of(isa);
    if (options.quantize == Quantization::int4) dot = &cpu::int4_kernels_of(isa);
    return std::make_unique<cpu::CpuBackend>(kernels, threads, options.weights, dot,
                                             options.kv == KvFormat::int8 ? cpu::int8_attention_of(isa) : nullptr);
}

namespace cpu {

namespace {

// Changes whenever a kernel's results do; part of the fingerprint.
constexpr const char* kernels_version = "5";
// What a piece of work must be worth to be handed to another thread: some microseconds of a core.
constexpr std::int64_t piece_elements = 20'000;
// Rows of an activation that one thread makes from end to end, and what they may take of the second-level cache.
constexpr std::int64_t whole_rows_max = 64;
constexpr std::int64_t whole_rows_least = 32;
constexpr std::int64_t whole_rows_bytes = std::int64_t{400} << 10;
// Of the KV cache, whose blocks are handed out low numbers first.
constexpr std::int64_t kv_touched_bytes = std::int64_t{512} << 20;
constexpr std::int64_t page_bytes = 4096;

class CpuBuffer final : public Buffer {
public:
    explicit CpuBuffer(std::size_t bytes) : memory_(bytes) {}
    void* data() override { return memory_.data(); }
    std::size_t bytes() const override { return memory_.bytes(); }

private:
    Memory memory_;
};

void check_memory(const Matrix& matrix) {
    CHECK(matrix.rows == 0 || (matrix.data != nullptr && matrix.stride >= matrix.columns), "a matrix has memory for its rows");
}

float* floats(const Matrix& matrix) {
    CHECK(matrix.format == Format::float32, "this matrix is float32");
    check_memory(matrix);
    return static_cast<float*>(matrix.data);
}

std::int64_t stride_bytes(const Matrix& matrix) { return matrix.stride * static_cast<std::int64_t>(bytes_of(matrix.format)); }

std::byte* row_of(const Matrix& matrix, std::int64_t row) { return static_cast<std::byte*>(matrix.data) + row * stride_bytes(matrix); }

const float* floats(const Vector& vector) { return vector.empty() ? nullptr : vector.data; }

void check_matmul(const Matrix& in, const PackedWeight& weight, const Vector& bias, const Matrix& out) {
    CHECK(in.columns == weight.in_features(), "matmul: in is [rows, in_features]");
    CHECK(in.format == weight.input_format(), "matmul: in is in the weight's input format");
    CHECK(out.columns == weight.out_features() && out.rows == in.rows, "matmul: out is [rows, out_features]");
    CHECK(bias.empty() || bias.size == weight.out_features(), "matmul: one bias per output");
    check_memory(in);
}

// Bytes of a panel once it is unpacked, where it is.
std::int64_t unpacked_bytes(const CpuWeight& weight) {
    return weight.dot()->unpacked == nullptr ? 0 : weight.panels().stretches() * int4_stretch * weight.panels().width;
}

Activation kind_of(ActivationKind kind) {
    switch (kind) {
        case ActivationKind::silu: return Activation::silu;
        case ActivationKind::gelu: return Activation::gelu;
        case ActivationKind::gelu_tanh: return Activation::gelu_tanh;
        case ActivationKind::relu: return Activation::relu;
    }
    return Activation::relu;
}

}  // namespace

CpuBackend::CpuBackend(const Kernels& kernels, int threads, Format weights, const DotKernels* dot,
                       void (*int8_attention)(const AttentionTask&))
    : kernels_(kernels),
      weights_(weights),
      dot_(dot),
      int8_attention_(int8_attention),
      lora_by_pairs_(weights == Format::bfloat16 && kernels.bfloat16_dot != nullptr),
      pool_(threads),
      sampler_(kernels, pool_) {}

DeviceInfo CpuBackend::info() const {
    const std::string threads = std::to_string(pool_.threads()) + (pool_.threads() == 1 ? " thread" : " threads");
    const std::string matmuls = dot_ == nullptr ? "widened" : dot_->name;
    return {.name = std::string("cpu (") + kernels_.name + ", " + matmuls + " matmuls, " + threads + ")",
            .fingerprint = std::string("cpu-") + kernels_version + "-" + kernels_.name + "-" + name_of(weights_) + "-" + matmuls +
                           (int8_attention_ == nullptr ? "" : "-int8kv") + "-" + chip_name(),
            .memory_total = machine_memory_total(),
            .memory_free = machine_memory_free()};
}

std::unique_ptr<Buffer> CpuBackend::allocate(std::size_t bytes) { return std::make_unique<CpuBuffer>(bytes); }

void CpuBackend::upload(void* to, std::span<const std::byte> from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void CpuBackend::read_back(std::span<std::byte> to, const void* from) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

std::unique_ptr<PackedWeight> CpuBackend::pack_weight(std::span<const WeightPart> parts, WeightRole role) {
    const Storage stored = weights_ == Format::float32 ? Storage::float32 : Storage::bfloat16;
    // Where an input row would not have room for its scale, int8 is not worth it either.
    const bool narrow = dot_ != nullptr && parts.front().in_features >= dot_->group;
    const PackOptions options{.arena = &weight_arena_};
    if (!narrow)
        return std::make_unique<CpuWeight>(pack_panels(parts, {.storage = stored, .width = kernels_.panel_width}, options), nullptr);
    const DotKernels* const dot = role == WeightRole::embedding && dot_->unpacked != nullptr ? dot_->unpacked : dot_;
    const PanelShape shape{.storage = dot->storage, .width = dot->panel_width, .group = dot->group};
    return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), dot);
}

std::unique_ptr<PackedLora> CpuBackend::pack_lora(std::span<const LoraPart> parts) {
    const Storage stored = weights_ == Format::float32 ? Storage::float32 : Storage::bfloat16;
    if (!lora_by_pairs_) {
        return std::make_unique<CpuLora>(parts, PanelShape{.storage = stored, .width = kernels_.shrink_width},
                                         PanelShape{.storage = stored, .width = kernels_.panel_width}, lora_arena_);
    }
    const DotKernels& a = *kernels_.bfloat16_shrink;
    const DotKernels& b = *kernels_.bfloat16_dot;
    return std::make_unique<CpuLora>(parts, PanelShape{.storage = stored, .width = a.panel_width, .group = a.group},
                                     PanelShape{.storage = stored, .width = b.panel_width, .group = b.group}, lora_arena_);
}

KvLayout CpuBackend::kv_layout(const KvShape& shape) const {
    if (int8_attention_ != nullptr) return KvLayout::int8;
    if (weights_ == Format::float32) return KvLayout::float32;
    return kernels_.attends_pairs && shape.head_dim % 2 == 0 ? KvLayout::bfloat16_pairs : KvLayout::bfloat16;
}

std::size_t CpuBackend::kv_block_bytes(const KvShape& shape) const {
    return static_cast<std::size_t>(shape.layers * shape.kv_heads * CpuKvCache::head_bytes(shape, kv_layout(shape)));
}

// What the first jobs fill is the process's own from here on: a system takes its time to give memory out, and would do so in their steps.
std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvShape& shape, std::int64_t blocks) {
    auto cache = std::make_unique<CpuKvCache>(shape, blocks, kv_layout(shape));
    const std::int64_t bytes = std::min(blocks * cache->layer_block_bytes(), kv_touched_bytes / shape.layers);
    pool_.run(shape.layers, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t layer = begin; layer < end; ++layer) {
            for (std::int64_t at = 0; at < bytes; at += page_bytes) cache->layer(layer)[at] = std::byte{0};
        }
    });
    return cache;
}

void CpuBackend::copy_block(KvCache& cache, BlockId from, BlockId to) {
    auto& kv = static_cast<CpuKvCache&>(cache);
    CHECK(from >= 0 && to >= 0 && from < kv.blocks() && to < kv.blocks(), "copied blocks lie in the cache");
    const std::int64_t bytes = kv.layer_block_bytes();
    for (std::int64_t layer = 0; layer < kv.shape().layers; ++layer) {
        std::memcpy(kv.layer(layer) + to * bytes, kv.layer(layer) + from * bytes, static_cast<std::size_t>(bytes));
    }
}

void CpuBackend::begin_step(const StepInputs& step) {
    CHECK(static_cast<std::int64_t>(step.tokens.size()) == step.rows, "a step has one token per row");
    CHECK(static_cast<std::int64_t>(step.positions.size()) == step.rows, "a step has one position per row");
    CHECK(step.drawn.empty(), "the step before was read");
    row_blocks_.resize(static_cast<std::size_t>(step.rows));
    row_slots_.resize(static_cast<std::size_t>(step.rows));
    std::size_t row = 0;
    for (const StepSequence& sequence : step.sequences) {
        CHECK(sequence.row_begin == static_cast<std::int64_t>(row), "sequences cover a step's rows in order");
        CHECK(static_cast<std::int64_t>(sequence.blocks.size()) * kv_block_size >= sequence.position + sequence.row_count,
              "a sequence has blocks for all its tokens");
        for (std::int64_t i = 0; i < sequence.row_count; ++i, ++row) {
            const std::int64_t position = sequence.position + i;
            row_blocks_[row] = sequence.blocks[static_cast<std::size_t>(position / kv_block_size)];
            row_slots_[row] = static_cast<std::int32_t>(position % kv_block_size);
        }
    }
    CHECK(static_cast<std::int64_t>(row) == step.rows, "sequences cover a step's rows");
}

template <class Work>
void CpuBackend::run_rows(std::int64_t rows, std::int64_t row_cost, const Work& work) {
    const std::int64_t piece =
        std::clamp<std::int64_t>(piece_elements / std::max<std::int64_t>(row_cost, 1), 1, std::max<std::int64_t>(rows, 1));
    pool_.run(rows, piece, work);
}

template <class Task>
void CpuBackend::run_row_kernel(void (*kernel)(const Task&, std::int64_t, std::int64_t), Task task, const Matrix& out,
                                std::int64_t row_cost) {
    check_memory(out);
    if (out.format == Format::float32) {
        task.out = floats(out);
        task.out_stride = out.stride;
        run_rows(out.rows, row_cost, [&](std::int64_t begin, std::int64_t end, int) { kernel(task, begin, end); });
        return;
    }
    const std::int64_t stride = (out.columns + 15) / 16 * 16;
    float* const scratch = row_scratch_.floats(pool_.threads() * stride);
    run_rows(out.rows, row_cost * 2, [&](std::int64_t begin, std::int64_t end, int thread) {
        Task one = task;
        one.out = scratch + thread * stride;
        one.out_stride = 0;
        for (std::int64_t row = begin; row < end; ++row) {
            kernel(one, row, row + 1);
            store_row(out, row, one.out);
        }
    });
}

void CpuBackend::store_row(const Matrix& out, std::int64_t row, const float* from) const {
    std::byte* const to = row_of(out, row);
    switch (out.format) {
        case Format::float32: std::memcpy(to, from, static_cast<std::size_t>(out.columns) * sizeof(float)); return;
        case Format::bfloat16: return kernels_.to_bfloat16(from, to, out.columns);
        case Format::int8_rows: return kernels_.to_int8(from, to, out.columns);
        case Format::float16:
        case Format::fp8_rows: break;
    }
    CHECK(false, "the CPU's matmuls read no float16 and no fp8");
}

void CpuBackend::load_row(const Matrix& in, std::int64_t row, float* to) const {
    const std::byte* const from = row_of(in, row);
    switch (in.format) {
        case Format::float32: std::memcpy(to, from, static_cast<std::size_t>(in.columns) * sizeof(float)); return;
        case Format::bfloat16: return kernels_.from_bfloat16(from, to, in.columns);
        case Format::int8_rows: return kernels_.from_int8(from, to, in.columns);
        case Format::float16:
        case Format::fp8_rows: break;
    }
    CHECK(false, "the CPU's matmuls read no float16 and no fp8");
}

void CpuBackend::embed(const EmbedArgs& args) {
    const Panels& tokens = static_cast<const CpuWeight&>(args.tokens).panels();
    float* const out = floats(args.out);
    CHECK(args.out.rows == args.step.rows && args.out.columns == tokens.in_features, "embed: out is [rows, hidden]");
    const Panels* const positions = args.positions == nullptr ? nullptr : &static_cast<const CpuWeight&>(*args.positions).panels();
    CHECK(positions == nullptr || positions->in_features == tokens.in_features, "embed: positions are as wide as tokens");
    run_rows(args.out.rows, args.out.columns * 4, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t token = args.step.tokens[static_cast<std::size_t>(row)];
            CHECK(token >= 0 && token < tokens.out_features, "embed: a token is in the vocabulary");
            unpack_row(tokens, token, out + row * args.out.stride, false);
            if (positions == nullptr) continue;
            const std::int64_t position = args.step.positions[static_cast<std::size_t>(row)];
            CHECK(position >= 0 && position < positions->out_features, "embed: a position is in the table");
            unpack_row(*positions, position, out + row * args.out.stride, true);
        }
    });
}

void CpuBackend::norm(const NormArgs& args) {
    CHECK(args.out.rows == args.in.rows && args.out.columns == args.in.columns, "norm: out is shaped as in");
    CHECK(args.weight.size == args.in.columns, "norm: one weight per column");
    CHECK(args.bias.empty() || args.bias.size == args.in.columns, "norm: one bias per column");
    const NormTask task{.subtract_mean = args.kind == NormKind::layer,
                        .in = floats(args.in),
                        .in_stride = args.in.stride,
                        .weight = floats(args.weight),
                        .bias = floats(args.bias),
                        .epsilon = args.epsilon,
                        .columns = args.in.columns};
    run_row_kernel(kernels_.norm, task, args.out, args.in.columns);
}

template <class Work>
void CpuBackend::cut_matmul(std::int64_t rows, const Panels& panels, std::int64_t panels_together, const Work& work) {
    const MatmulCut cut = cut_of_matmul(rows, panels, panels_together, pool_.threads());
    pool_.run(cut.chunks * cut.runs, cut.piece, [&](std::int64_t begin, std::int64_t end, int thread) {
        while (begin < end) {
            const std::int64_t chunk = begin / cut.runs;
            const std::int64_t chunk_end = std::min(end, (chunk + 1) * cut.runs);
            const std::int64_t row_begin = rows * chunk / cut.chunks;
            work(MatmulPiece{.row_begin = row_begin,
                             .rows = rows * (chunk + 1) / cut.chunks - row_begin,
                             .begin = begin - chunk * cut.runs,
                             .end = chunk_end - chunk * cut.runs,
                             .thread = thread,
                             .ends_share = cut.chunks == 1 && chunk_end == ThreadPool::share_begin(cut.runs, thread + 1, pool_.threads())});
            begin = chunk_end;
        }
    });
}

const std::byte* CpuBackend::first_weights(const Upcoming& next, int thread) const {
    if (next.weight == nullptr) return nullptr;
    const Panels& panels = static_cast<const CpuWeight&>(*next.weight).panels();
    return panels.panel(ThreadPool::share_begin(panels.count() / (next.gated ? 2 : 1), thread, pool_.threads()));
}

void CpuBackend::make_unpacked_scratch(const CpuWeight& weight) {
    unpacked_scratch_.make(static_cast<std::size_t>(pool_.threads() * unpacked_bytes(weight)));
}

DotTask CpuBackend::dot_task(const CpuWeight& weight, const Matrix& in, const Vector& bias, std::int64_t panel, int thread) const {
    const Panels& panels = weight.panels();
    const std::int64_t output = panel * panels.width;
    return {.in = row_of(in, 0),
            .in_stride = stride_bytes(in),
            .panels = panels.panel(panel),
            .scales = panels.scales.empty() ? nullptr : panels.scales.data() + output,
            .offsets = panels.offsets.empty() ? nullptr : panels.offsets.data() + output,
            .scratch = unpacked_scratch_.data() + thread * unpacked_bytes(weight),
            .bias = bias.empty() ? nullptr : bias.data + output,
            .rows = in.rows,
            .in_features = panels.in_features,
            .out_features = panels.out_features - output};
}

void CpuBackend::matmul(const MatmulArgs& args) {
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    check_matmul(args.in, weight, args.bias, args.out);
    float* const out = floats(args.out);
    if (args.in.rows == 0) return;
    if (const DotKernels* const dot = weight.dot()) {
        make_unpacked_scratch(weight);
        cut_matmul(args.in.rows, panels, 1, [&](const MatmulPiece& piece) {
            DotTask task = dot_task(weight, args.in.slice_rows(piece.row_begin, piece.rows), args.bias, 0, piece.thread);
            if (piece.ends_share) task.next = first_weights(args.next, piece.thread);
            task.out = out + piece.row_begin * args.out.stride;
            task.out_stride = args.out.stride;
            task.accumulate = args.accumulate;
            dot->matmul(task, piece.begin, piece.end);
        });
        return;
    }
    const float* const in = floats(args.in);
    cut_matmul(args.in.rows, panels, 1, [&](const MatmulPiece& piece) {
        kernels_.matmul({.in = in + piece.row_begin * args.in.stride,
                         .in_stride = args.in.stride,
                         .panels = panels.memory.data(),
                         .bfloat16 = panels.storage == Storage::bfloat16,
                         .bias = floats(args.bias),
                         .out = out + piece.row_begin * args.out.stride,
                         .out_stride = args.out.stride,
                         .accumulate = args.accumulate,
                         .rows = piece.rows,
                         .in_features = panels.in_features,
                         .out_features = panels.out_features},
                        piece.begin, piece.end);
    });
}

void CpuBackend::group_bias(const GroupBiasArgs& args) {
    float* const out = floats(args.out);
    for (const BiasGroup& group : args.groups) {
        if (group.bias.empty()) continue;
        CHECK(group.bias.size == args.out.columns, "group_bias: one bias per column");
        CHECK(group.row_begin >= 0 && group.row_begin + group.row_count <= args.out.rows, "group_bias: a group lies in the rows");
        for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
            float* const to = out + row * args.out.stride;
            for (std::int64_t i = 0; i < args.out.columns; ++i) to[i] += group.bias.data[i];
        }
    }
}

void CpuBackend::rope_store(const RopeStoreArgs& args) {
    const auto& cache = static_cast<const CpuKvCache&>(args.cache);
    CHECK(args.qkv.columns == (args.heads + 2 * args.kv_heads) * args.head_dim, "rope_store: qkv is [rows, q | k | v]");
    CHECK(args.qkv.rows == args.step.rows && row_blocks_.size() == static_cast<std::size_t>(args.step.rows),
          "rope_store: begin_step was told these rows");
    CHECK(cache.shape().kv_heads == args.kv_heads && cache.shape().head_dim == args.head_dim, "rope_store: the cache has this shape");
    CHECK(args.layer >= 0 && args.layer < cache.shape().layers, "rope_store: the cache has this layer");
    CHECK(args.q_norm.empty() || args.q_norm.size == args.head_dim, "rope_store: one q_norm weight per dimension");
    CHECK(args.k_norm.empty() || args.k_norm.size == args.head_dim, "rope_store: one k_norm weight per dimension");
    const bool rotates = args.rope_table.rows > 0;
    if (rotates) {
        CHECK(args.head_dim % 2 == 0 && args.rope_table.columns == args.head_dim,
              "rope_store: the table is [entries, head_dim], head_dim even");
        CHECK(args.step.rope_rows.size() == static_cast<std::size_t>(args.step.rows), "rope_store: one row of the table per row");
        for (const std::int32_t row : args.step.rope_rows) CHECK(row >= 0 && row < args.rope_table.rows, "rope_store: a row of the table");
    }
    for (const std::int32_t block : row_blocks_) CHECK(block >= 0 && block < cache.blocks(), "rope_store: a block of the cache");
    const RopeTask task{.qkv = floats(args.qkv),
                        .stride = args.qkv.stride,
                        .heads = args.heads,
                        .kv_heads = args.kv_heads,
                        .head_dim = args.head_dim,
                        .table = rotates ? floats(args.rope_table) : nullptr,
                        .table_stride = args.rope_table.stride,
                        .table_rows = args.step.rope_rows.data(),
                        .q_norm = floats(args.q_norm),
                        .k_norm = floats(args.k_norm),
                        .epsilon = args.norm_epsilon,
                        .keys = cache.layer(args.layer),
                        .block_bytes = cache.layer_block_bytes(),
                        .head_bytes = cache.head_bytes(),
                        .value_offset = cache.value_offset(),
                        .value_stride = cache.value_stride(),
                        .layout = cache.layout(),
                        .row_blocks = row_blocks_.data(),
                        .row_slots = row_slots_.data()};
    run_rows(args.qkv.rows, args.qkv.columns, [&](std::int64_t begin, std::int64_t end, int) { kernels_.rope(task, begin, end); });
}

void CpuBackend::activation(const ActivationArgs& args) {
    CHECK(args.in.rows == args.out.rows && args.in.columns == args.out.columns * (args.gated ? 2 : 1),
          "activation: in is as wide as it needs");
    const ActivationTask task{
        .kind = kind_of(args.kind), .gated = args.gated, .in = floats(args.in), .in_stride = args.in.stride, .width = args.out.columns};
    run_row_kernel(kernels_.activation, task, args.out, args.in.columns * 2);
}

void CpuBackend::activated_matmul(const ActivatedMatmulArgs& args) {
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    const DotKernels* const dot = weight.dot();
    const std::int64_t width = args.out.columns;
    // A gate's panel and that of the same columns of `up` are multiplied in turn: neither may hold parts of both.
    if (dot == nullptr || (args.gated && width % panels.width != 0)) return Backend::activated_matmul(args);
    const std::int64_t parts = args.gated ? 2 : 1;
    check_matmul(args.in, weight, args.bias, args.sums);
    CHECK(panels.out_features == parts * width && args.out.rows == args.in.rows, "activated_matmul: out is [rows, width]");
    check_memory(args.out);
    if (args.in.rows == 0) return;

    make_unpacked_scratch(weight);
    sums_scratch_.floats(pool_.threads() * row_chunk * parts * panels.width);
    if (args.out.format != Format::int8_rows) {
        cut_matmul(args.in.rows, panels, parts,
                   [&](const MatmulPiece& piece) { run_activated_piece(args, piece, args.out.slice_rows(piece.row_begin, piece.rows)); });
        return;
    }
    // The scale of an int8 row is known when all of it is: until then it is float32. Where a thread has rows of its own, and some of them
    // fit into its cache, it makes all of these; but weights that are unpacked first should meet more rows at a time than that.
    const std::int64_t rows_max = std::min(whole_rows_max, whole_rows_bytes / (width * static_cast<std::int64_t>(sizeof(float))));
    if (rows_max >= whole_rows_least && dot->unpacked == nullptr && cut_of_matmul(args.in.rows, panels, parts, pool_.threads()).own_rows) {
        run_activated_rows(args, rows_max);
        return;
    }
    const Matrix activated = args.sums.slice_columns(0, width);
    cut_matmul(args.in.rows, panels, parts,
               [&](const MatmulPiece& piece) { run_activated_piece(args, piece, activated.slice_rows(piece.row_begin, piece.rows)); });
    run_rows(args.out.rows, width * 2, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) store_row(args.out, row, reinterpret_cast<const float*>(row_of(activated, row)));
    });
}

// Panel by panel, so that what the activation reads never leaves the cache.
void CpuBackend::run_activated_piece(const ActivatedMatmulArgs& args, const MatmulPiece& piece, const Matrix& out) {
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    const std::int64_t parts = args.gated ? 2 : 1;
    const std::int64_t part_panels = panels.count() / parts;
    const std::int64_t sums_stride = parts * panels.width;
    const Matrix in = args.in.slice_rows(piece.row_begin, piece.rows);
    float* const sums = reinterpret_cast<float*>(sums_scratch_.data()) + piece.thread * row_chunk * sums_stride;
    for (std::int64_t panel = piece.begin; panel < piece.end; ++panel) {
        const std::int64_t column = panel * panels.width;
        const std::int64_t columns = std::min(panels.width, out.columns - column);
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t index = part * part_panels + panel;
            DotTask task = dot_task(weight, in, args.bias, index, piece.thread);
            task.next = panels.panel(part + 1 < parts ? index + part_panels : (panel + 1) % part_panels);
            if (part + 1 == parts && panel + 1 == piece.end && piece.ends_share) task.next = first_weights(args.next, piece.thread);
            task.out = sums + part * panels.width;
            task.out_stride = sums_stride;
            task.out_features = columns;
            weight.dot()->matmul(task, 0, 1);
        }
        const Matrix to = out.slice_columns(column, columns);
        ActivationTask task{.kind = kind_of(args.kind),
                            .gated = args.gated,
                            .in = sums,
                            .in_stride = sums_stride,
                            .out = sums,
                            .out_stride = sums_stride,
                            .width = columns};
        if (to.format == Format::float32) {
            task.out = floats(to);
            task.out_stride = to.stride;
        }
        kernels_.activation(task, 0, piece.rows);
        if (to.format == Format::float32) continue;
        for (std::int64_t i = 0; i < piece.rows; ++i) store_row(to, i, sums + i * sums_stride);
    }
}

void CpuBackend::run_activated_rows(const ActivatedMatmulArgs& args, std::int64_t rows_max) {
    const std::int64_t rows = args.in.rows;
    const std::int64_t width = args.out.columns;
    const std::int64_t panels = static_cast<const CpuWeight&>(args.weight).panels().count() / (args.gated ? 2 : 1);
    const std::int64_t blocks = (rows + rows_max * pool_.threads() - 1) / (rows_max * pool_.threads()) * pool_.threads();
    float* const activated_of_all = activated_scratch_.floats(pool_.threads() * rows_max * width);
    pool_.run(blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t block = begin; block < end; ++block) {
            const std::int64_t row = rows * block / blocks;
            const Matrix activated{.data = activated_of_all + thread * rows_max * width,
                                   .format = Format::float32,
                                   .rows = rows * (block + 1) / blocks - row,
                                   .columns = width,
                                   .stride = width};
            run_activated_piece(args, {.row_begin = row, .rows = activated.rows, .begin = 0, .end = panels, .thread = thread}, activated);
            for (std::int64_t i = 0; i < activated.rows; ++i) {
                store_row(args.out, row + i, reinterpret_cast<const float*>(row_of(activated, i)));
            }
        }
    });
}

void CpuBackend::gather_rows(const GatherRowsArgs& args) {
    CHECK(static_cast<std::size_t>(args.out.rows) == args.step.sample_rows.size() && args.out.columns == args.in.columns,
          "gather_rows: out is [sample rows, columns]");
    CHECK(args.out.format == args.in.format, "gather_rows: in has the format of out");
    check_memory(args.in);
    check_memory(args.out);
    const std::size_t bytes = static_cast<std::size_t>(args.in.columns) * bytes_of(args.in.format);
    for (std::int64_t row = 0; row < args.out.rows; ++row) {
        const std::int64_t from = args.step.sample_rows[static_cast<std::size_t>(row)];
        CHECK(from >= 0 && from < args.in.rows, "gather_rows: a sample row is a row");
        std::memcpy(row_of(args.out, row), row_of(args.in, from), bytes);
    }
}

void CpuBackend::sample(const SampleArgs& args) {
    CHECK(static_cast<std::int64_t>(args.rows.size()) == args.logits.rows && args.results.size() == args.rows.size(),
          "sample: one request and one result per row of logits");
    sampler_.run(floats(args.logits), args.logits.stride, args.logits.columns, args.rows, args.results);
}

}  // namespace cpu

}  // namespace lorry::kernels
