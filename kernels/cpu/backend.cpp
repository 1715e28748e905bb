// make_cpu_backend, and the launchers that need no more than a loop; attention.cpp, lora.cpp, matmul.cpp and sample.cpp hold the others.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/processors.h"
#include "kernels/cpu/views.h"
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
                                             options.kv == KvFormat::int8 ? &cpu::int8_attention_of(isa) : nullptr);
}

namespace cpu {

namespace {

// Changes whenever a kernel's results do; part of the fingerprint.
constexpr const char* kernels_version = "5";
// Of the KV cache, whose blocks are handed out low numbers first.
constexpr std::int64_t kv_touched_bytes = std::int64_t{512} << 20;
constexpr std::int64_t page_bytes = 4096;

class CpuBuffer final : public Buffer {
public:
    explicit CpuBuffer(Memory memory) : memory_(std::move(memory)) {}
    void* data() override { return memory_.data(); }
    std::size_t bytes() const override { return memory_.bytes(); }

private:
    Memory memory_;
};

void copy_in(void* to, std::span<const std::byte> from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

class CpuSlot final : public Slot {
public:
    CpuSlot(const CpuBackend& backend, std::byte* begin, std::size_t bytes) : backend_(backend), place_(begin, bytes) {}
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return std::make_unique<CpuBuffer>(place_.take_piece(bytes)); }
    void upload(void* to, std::span<const std::byte> from) override {
        if (to != nullptr) copy_in(to, from);
    }
    std::unique_ptr<PackedWeight> pack_weight(std::span<const WeightPart> parts, WeightRole role) override {
        return backend_.pack_weight_at(place_, parts, role);
    }
    std::unique_ptr<PackedLora> pack_lora(std::span<const LoraPart> parts) override { return backend_.pack_lora_at(place_, parts); }
    std::size_t used() const override { return place_.used(); }

private:
    const CpuBackend& backend_;
    SlotPlace place_;
};

}  // namespace

CpuBackend::CpuBackend(const Kernels& kernels, int threads, Format weights, const DotKernels* dot,
                       const Int8AttentionKernel* int8_attention)
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
    const std::string kv = int8_attention_ == nullptr ? "" : "-int8kv" + std::to_string(int8_attention_->lanes);
    return {.name = std::string("cpu (") + kernels_.name + ", " + matmuls + " matmuls, " + threads + ")",
            .fingerprint = std::string("cpu-") + kernels_version + "-" + kernels_.name + "-" + name_of(weights_) + "-" + matmuls + kv +
                           "-" + chip_name()};
}

std::unique_ptr<Buffer> CpuBackend::allocate(std::size_t bytes) { return std::make_unique<CpuBuffer>(Memory(bytes)); }

void CpuBackend::upload(void* to, std::span<const std::byte> from) { copy_in(to, from); }

void CpuBackend::read_back(std::span<std::byte> to, const void* from) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

std::unique_ptr<PackedWeight> CpuBackend::pack_weight(std::span<const WeightPart> parts, WeightRole role) {
    return pack_weight_at(weight_arena_, parts, role);
}

std::unique_ptr<PackedLora> CpuBackend::pack_lora(std::span<const LoraPart> parts) { return pack_lora_at(weight_arena_, parts); }

std::unique_ptr<PackedWeight> CpuBackend::pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const {
    const Storage stored = weights_ == Format::float32 ? Storage::float32 : Storage::bfloat16;
    // Where an input row would not have room for its scale, int8 is not worth it either.
    const bool narrow = dot_ != nullptr && parts.front().in_features >= dot_->group;
    const PackOptions options{.place = &place, .apart = role == WeightRole::gate_up};
    if (!narrow)
        return std::make_unique<CpuWeight>(pack_panels(parts, {.storage = stored, .width = kernels_.panel_width}, options), nullptr);
    const DotKernels* const dot = role == WeightRole::embedding && dot_->unpacked != nullptr ? dot_->unpacked : dot_;
    const PanelShape shape{.storage = dot->storage, .width = dot->panel_width, .group = dot->group};
    return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), dot);
}

std::unique_ptr<PackedLora> CpuBackend::pack_lora_at(Place& place, std::span<const LoraPart> parts) const {
    const Storage stored = weights_ == Format::float32 ? Storage::float32 : Storage::bfloat16;
    if (!lora_by_pairs_) {
        return std::make_unique<CpuLora>(parts, PanelShape{.storage = stored, .width = kernels_.shrink_width},
                                         PanelShape{.storage = stored, .width = kernels_.panel_width}, place);
    }
    const DotKernels& a = *kernels_.bfloat16_shrink;
    const DotKernels& b = *kernels_.bfloat16_dot;
    return std::make_unique<CpuLora>(parts, PanelShape{.storage = stored, .width = a.panel_width, .group = a.group},
                                     PanelShape{.storage = stored, .width = b.panel_width, .group = b.group}, place);
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
std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) {
    auto cache = std::make_unique<CpuKvCache>(shape, blocks, kv_layout(shape), slot_bytes);
    const std::int64_t bytes = std::min(blocks * cache->layer_block_bytes(), kv_touched_bytes / shape.layers);
    pool_.run(shape.layers, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t layer = begin; layer < end; ++layer) {
            for (std::int64_t at = 0; at < bytes; at += page_bytes) cache->layer(layer)[at] = std::byte{0};
        }
    });
    return cache;
}

std::unique_ptr<Slot> CpuBackend::make_slot(KvCache& cache, const SlotRange& range) {
    const auto& kv = static_cast<const CpuKvCache&>(cache);
    CHECK(range.begin <= range.end && range.end <= kv.slots().end, "a slot lies in the slots' memory");
    return std::make_unique<CpuSlot>(*this, kv.slot(range), range.end - range.begin);
}

std::unique_ptr<Slot> CpuBackend::make_measuring_slot() { return std::make_unique<CpuSlot>(*this, nullptr, 0); }

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
