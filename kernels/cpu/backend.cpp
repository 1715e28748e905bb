// make_cpu_backend, memory, and the ops that need only a loop over rows. The other ops are in attention.cpp, lora.cpp and matmul.cpp;
// sample.cpp has the sampler.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/views.h"
#include "kernels/processors.h"
#include "schema/check.h"

namespace lorry::kernels {

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
    if (const auto reason = obstacle(options.storage, DeviceKind::cpu)) throw std::runtime_error(*reason);
    const CpuIsa isa = cpu::usable_isa(options.isa);
    const int threads = options.threads > 0 ? options.threads : usable_processors();
    const cpu::CpuBackend::Parts parts{
        .kernels = cpu::kernels_of(isa),
        .dot = cpu::dot_kernels_of(isa, options.storage.quantize, options.storage.weights),
        .embedding_dot = cpu::dot_kernels_of(isa, weight_format(options.storage.quantize).embeddings, options.storage.weights),
        .int8_dot = &cpu::int8_kernels_of(isa),
        .int8_attention = options.storage.kv == KvFormat::int8 ? &cpu::int8_attention_of(isa) : nullptr};
    return std::make_unique<cpu::CpuBackend>(parts, threads, options.storage);
}

namespace cpu {

namespace {

// Changes whenever a kernel's results do; part of the fingerprint.
constexpr const char* kernels_version = "6";
// Bytes of the KV cache that are touched at start. Blocks are handed out in ascending order, so the first jobs use these.
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
    std::size_t used() const override { return place_.used(); }

private:
    std::unique_ptr<PackedWeight> do_pack_weight(std::span<const WeightPart> parts, WeightRole role) override {
        return backend_.pack_weight_at(place_, parts, role);
    }
    std::unique_ptr<PackedLora> do_pack_lora(std::span<const LoraPart> parts) override { return backend_.pack_lora_at(place_, parts); }

    const CpuBackend& backend_;
    SlotPlace place_;
};

}  // namespace

CpuBackend::CpuBackend(const Parts& parts, int threads, const StorageOptions& storage)
    : kernels_(parts.kernels),
      storage_(storage),
      dot_(parts.dot),
      embedding_dot_(parts.embedding_dot),
      int8_dot_(parts.int8_dot),
      int8_attention_(parts.int8_attention),
      lora_by_pairs_(storage.weights == Format::bfloat16 && parts.kernels.bfloat16_dot != nullptr),
      pool_(threads),
      sampler_(parts.kernels, pool_) {}

DeviceInfo CpuBackend::info() const {
    const std::string threads = std::to_string(pool_.threads()) + (pool_.threads() == 1 ? " thread" : " threads");
    const std::string matmuls = dot_ == nullptr ? "widened" : dot_->name;
    const std::string kv = int8_attention_ == nullptr ? "" : "-int8kv" + std::to_string(int8_attention_->lanes);
    return {.name = std::string("cpu (") + kernels_.name + ", " + matmuls + " matmuls, " + threads + ")",
            .fingerprint = std::string("cpu-") + kernels_version + "-" + kernels_.name + "-" + name_of(storage_.weights) + "-" + matmuls +
                           kv + "-" + chip_name(),
            .memory_total = machine_memory(),
            .step_rows = kernels_.step_rows};
}

std::unique_ptr<Buffer> CpuBackend::allocate(std::size_t bytes) { return std::make_unique<CpuBuffer>(Memory(bytes)); }

void CpuBackend::upload(void* to, std::span<const std::byte> from) { copy_in(to, from); }

void CpuBackend::read_back(std::span<std::byte> to, const void* from) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void CpuBackend::on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) {
    if (count < 2) return Backend::on_host(count, work);
    pool_.each(count, work);
}

std::unique_ptr<PackedWeight> CpuBackend::do_pack_weight(std::span<const WeightPart> parts, WeightRole role) {
    return pack_weight_at(weight_arena_, parts, role);
}

std::unique_ptr<PackedLora> CpuBackend::do_pack_lora(std::span<const LoraPart> parts) { return pack_lora_at(weight_arena_, parts); }

std::unique_ptr<PackedWeight> CpuBackend::pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const {
    const PackOptions options{.place = &place, .apart = role == WeightRole::gate_up};
    if (role == WeightRole::exact) {
        const PanelShape shape{.storage = Storage::float32, .width = kernels_.panel_width};
        return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), nullptr, Format::float32);
    }
    if (storage_.quantize == Quantization::none && share_codes(parts)) return pack_codes_at(parts, options);
    const bool is_embedding = role == WeightRole::embedding;
    const DotKernels* const dot = is_embedding ? embedding_dot_ : dot_;
    // An input row of fewer elements than a group has no room for its scale, and int8 would not pay off either.
    if (dot == nullptr || parts.front().in_features < dot->group) {
        const PanelShape shape{.storage = storage_of(storage_.weights), .width = kernels_.panel_width};
        return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), nullptr, Format::float32);
    }
    const WeightFormat& chosen = weight_format(storage_.quantize);
    const WeightFormat& format = is_embedding ? weight_format(chosen.embeddings) : chosen;
    const PanelShape shape{
        .storage = dot->storage, .width = dot->panel_width, .group = dot->group, .pairs_parts = dot->activated != nullptr};
    return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), dot, format.input.value_or(Format::bfloat16));
}

std::unique_ptr<PackedWeight> CpuBackend::pack_codes_at(std::span<const WeightPart> parts, const PackOptions& options) const {
    if (parts.front().coded->rounds_inputs && int8_dot_ != nullptr && parts.front().in_features >= int8_dot_->group) {
        const PanelShape shape{.storage = int8_dot_->storage,
                               .width = int8_dot_->panel_width,
                               .group = int8_dot_->group,
                               .pairs_parts = int8_dot_->activated != nullptr};
        return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), int8_dot_, Format::int8_rows);
    }
    const DotKernels* const dot = parts.front().in_features < 2 ? nullptr : dot_;
    const PanelShape shape{.storage = Storage::codes,
                           .width = dot == nullptr ? kernels_.panel_width : dot->panel_width,
                           .group = dot == nullptr ? 1 : dot->group,
                           .lanes = kernels_.shrink_width};
    return std::make_unique<CpuWeight>(pack_panels(parts, shape, options), dot, dot == nullptr ? Format::float32 : Format::bfloat16);
}

std::unique_ptr<PackedLora> CpuBackend::pack_lora_at(Place& place, std::span<const LoraPart> parts) const {
    const Storage stored = storage_of(storage_.weights);
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
    if (storage_.weights == Format::float32) return KvLayout::float32;
    return kernels_.attends_pairs && shape.head_dim % 2 == 0 ? KvLayout::bfloat16_pairs : KvLayout::bfloat16;
}

// Rows of matmul inputs lie close together and begin at cache lines. They are an odd number of lines apart, so that a column is spread
// over the sets of a cache.
std::int64_t CpuBackend::row_stride(Format format, std::int64_t columns) const {
    if (format != Format::bfloat16 && format != Format::int8_rows) return columns;
    const auto element_bytes = static_cast<std::int64_t>(bytes_of(format));
    return (cache_lines_of(stride_least(format, columns) * element_bytes) | 1) * cache_line_bytes / element_bytes;
}

std::size_t CpuBackend::kv_block_bytes(const KvShape& shape) const {
    return static_cast<std::size_t>(shape.layers * shape.kv_heads * CpuKvCache::head_bytes(shape, kv_layout(shape)));
}

// Touches the memory that the first jobs will fill: otherwise the kernel would map it page by page during their steps.
std::unique_ptr<KvCache> CpuBackend::do_make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) {
    auto cache = std::make_unique<CpuKvCache>(shape, blocks, kv_layout(shape), slot_bytes);
    const std::int64_t bytes = std::min(blocks * cache->layer_block_bytes(), kv_touched_bytes / shape.layers);
    pool_.each(shape.layers, [&](std::int64_t layer) {
        for (std::int64_t at = 0; at < bytes; at += page_bytes) cache->layer(layer)[at] = std::byte{0};
    });
    return cache;
}

std::unique_ptr<Slot> CpuBackend::do_make_slot(KvCache& cache, const SlotRange& range) {
    const auto& kv = static_cast<const CpuKvCache&>(cache);
    return std::make_unique<CpuSlot>(*this, kv.slot(range), range.end - range.begin);
}

std::unique_ptr<Slot> CpuBackend::make_measuring_slot() { return std::make_unique<CpuSlot>(*this, nullptr, 0); }

void CpuBackend::do_copy_block(KvCache& cache, BlockId from, BlockId to) {
    auto& kv = static_cast<CpuKvCache&>(cache);
    const std::int64_t bytes = kv.layer_block_bytes();
    for (std::int64_t layer = 0; layer < kv.shape().layers; ++layer) {
        std::memcpy(kv.layer(layer) + to * bytes, kv.layer(layer) + from * bytes, static_cast<std::size_t>(bytes));
    }
}

void CpuBackend::do_begin_step(const StepInputs& step) {
    row_blocks_.resize(static_cast<std::size_t>(step.rows));
    row_slots_.resize(static_cast<std::size_t>(step.rows));
    std::size_t row = 0;
    for (const StepSequence& sequence : step.sequences) {
        for (std::int64_t i = 0; i < sequence.row_count; ++i, ++row) {
            const std::int64_t position = sequence.position + i;
            row_blocks_[row] = sequence.blocks[static_cast<std::size_t>(position / kv_block_size)];
            row_slots_[row] = static_cast<std::int32_t>(position % kv_block_size);
        }
    }
}

void CpuBackend::do_run(const Op& op) {
    std::visit([this](const auto* args) { execute(*args); }, op);
}

template <class Task>
void CpuBackend::run_row_kernel(void (*kernel)(const Task&, std::int64_t, std::int64_t), Task task, const Matrix& out,
                                std::int64_t row_cost) {
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
    CHECK(false, "the CPU has no activations of float16 or fp8");
}

// Converts whole rows of float32 to the format of `to`.
void CpuBackend::store_rows(const Matrix& from, const Matrix& to) {
    run_rows(to.rows, to.columns * 2, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) store_row(to, row, floats(from) + row * from.stride);
    });
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
    CHECK(false, "the CPU has no activations of float16 or fp8");
}

void CpuBackend::execute(const EmbedArgs& args) {
    const Panels& tokens = static_cast<const CpuWeight&>(args.tokens).panels();
    float* const out = floats(args.out);
    const auto panels_of = [](const PackedWeight* table) {
        return table == nullptr ? nullptr : &static_cast<const CpuWeight&>(*table).panels();
    };
    const Panels* const positions = panels_of(args.positions);
    const Panels* const types = panels_of(args.types);
    const std::span<const std::int32_t> type_of = args.step.token_types;
    run_rows(args.out.rows, args.out.columns * 4, [&](std::int64_t begin, std::int64_t end, int) {
        auto own = std::ranges::lower_bound(args.own, begin, {}, &OwnEmbedding::row);
        for (std::int64_t row = begin; row < end; ++row) {
            const auto at = static_cast<std::size_t>(row);
            float* const to = out + row * args.out.stride;
            if (own != args.own.end() && own->row == row) {
                unpack_row(*panels_of(own->table), own->index, to, false);
                ++own;
            } else {
                unpack_row(tokens, args.step.tokens[at], to, false);
            }
            if (types != nullptr) unpack_row(*types, type_of.empty() ? 0 : type_of[at], to, true);
            if (positions != nullptr) unpack_row(*positions, args.step.positions[at], to, true);
        }
    });
}

void CpuBackend::execute(const NormArgs& args) {
    if (args.kind == NormKind::none) return store_rows(args.in, args.out);
    const NormTask task{.subtract_mean = args.kind == NormKind::layer,
                        .in = floats(args.in),
                        .in_stride = args.in.stride,
                        .weight = floats(args.weight),
                        .bias = floats(args.bias),
                        .epsilon = args.epsilon,
                        .columns = args.in.columns};
    if (!args.in_place) return run_row_kernel(kernels_.norm, task, args.out, args.in.columns);
    run_row_kernel(kernels_.norm, task, args.in, args.in.columns);
    store_rows(args.in, args.out);
}

void CpuBackend::execute(const GroupBiasArgs& args) {
    const std::int64_t columns = args.out.columns;
    for (const BiasGroup& group : args.groups) {
        run_rows(group.row_count, columns * 2, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t row = begin; row < end; ++row) {
                float* const to = floats(args.out) + (group.row_begin + row) * args.out.stride;
                for (std::int64_t i = 0; i < group.scale.size; ++i) to[i] *= group.scale.data[i];
                for (std::int64_t i = 0; i < group.bias.size; ++i) to[i] += group.bias.data[i];
            }
        });
    }
}

void CpuBackend::execute(const RopeStoreArgs& args) {
    const auto& cache = static_cast<const CpuKvCache&>(args.cache);
    const bool rotates = args.rope_table.rows > 0;
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
    // Large pieces: most of a prompt's tokens fill blocks, which are stored faster whole.
    const std::int64_t piece = std::clamp<std::int64_t>(args.qkv.rows / pool_.threads(), 1, 8 * kv_block_size);
    pool_.run(args.qkv.rows, piece, [&](std::int64_t begin, std::int64_t end, int) { kernels_.rope(task, begin, end); });
}

void CpuBackend::execute(const ActivationArgs& args) {
    const ActivationTask task{.kind = kind_of(args.kind),
                              .gated = args.gated,
                              .in = floats(args.in),
                              .in_stride = args.in.stride,
                              .width = args.out.columns,
                              .accumulate = args.accumulate};
    run_row_kernel(kernels_.activation, task, args.out, args.in.columns * 2);
}

// g * sigmoid(alpha * g) is silu(alpha * g) / alpha.
void CpuBackend::execute(const ClampedGateArgs& args) {
    const std::int64_t width = args.out.columns;
    float* const scratch = row_scratch_.floats(pool_.threads() * width);
    run_rows(args.out.rows, width * 8, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* const gated = scratch + thread * width;
        for (std::int64_t row = begin; row < end; ++row) {
            const float* const gate = floats(args.in) + row * args.in.stride;
            const float* const up = gate + width;
            // Comparisons in this order keep NaN.
            for (std::int64_t i = 0; i < width; ++i) gated[i] = (gate[i] > args.limit ? args.limit : gate[i]) * args.alpha;
            kernels_.activation({.kind = Activation::silu, .in = gated, .out = gated, .width = width}, 0, 1);
            for (std::int64_t i = 0; i < width; ++i) {
                const float within = up[i] > args.limit ? args.limit : up[i] < -args.limit ? -args.limit : up[i];
                gated[i] = gated[i] / args.alpha * (within + 1.0F);
            }
            store_row(args.out, row, gated);
        }
    });
}

void CpuBackend::execute(const ScaleArgs& args) {
    const std::int64_t columns = args.in.columns;
    const float factor = args.cap ? args.scale / *args.cap : args.scale;
    const bool needs_scratch = args.cap && args.accumulate;
    float* const scratch = row_scratch_.floats(needs_scratch ? pool_.threads() * columns : 0);
    run_rows(args.out.rows, columns * (args.cap ? 6 : 2), [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* from = floats(args.in) + row * args.in.stride;
            float* const to = floats(args.out) + row * args.out.stride;
            float last = factor;
            if (args.cap) {
                float* const capped = needs_scratch ? scratch + thread * columns : to;
                for (std::int64_t i = 0; i < columns; ++i) capped[i] = from[i] * factor;
                kernels_.activation({.kind = Activation::tanh, .in = capped, .out = capped, .width = columns}, 0, 1);
                from = capped;
                last = *args.cap;
            }
            if (args.accumulate) {
                for (std::int64_t i = 0; i < columns; ++i) to[i] += from[i] * last;
            } else {
                for (std::int64_t i = 0; i < columns; ++i) to[i] = from[i] * last;
            }
        }
    });
}

void CpuBackend::execute(const UnfoldArgs& args) {
    const std::int64_t columns = args.in.columns;
    float* const scratch = row_scratch_.floats(pool_.threads() * args.out.columns);
    for (const StepSequence& sequence : args.step.sequences) {
        run_rows(sequence.row_count, args.out.columns, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* const whole = scratch + thread * args.out.columns;
            for (std::int64_t row = begin; row < end; ++row) {
                for (std::int64_t i = 0; i < args.width; ++i) {
                    const std::int64_t from = row + i - args.width / 2;
                    float* const to = whole + i * columns;
                    if (from < 0 || from >= sequence.row_count) {
                        std::fill_n(to, columns, 0.0F);
                    } else {
                        std::copy_n(floats(args.in) + (sequence.row_begin + from) * args.in.stride, columns, to);
                    }
                }
                store_row(args.out, sequence.row_begin + row, whole);
            }
        });
    }
}

void CpuBackend::execute(const GatherRowsArgs& args) {
    const auto bytes = static_cast<std::size_t>(stride_least(args.in.format, args.in.columns)) * bytes_of(args.in.format);
    for (std::int64_t row = 0; row < args.out.rows; ++row) {
        const std::int64_t from = args.step.sample_rows[static_cast<std::size_t>(row)];
        std::memcpy(row_of(args.out, row), row_of(args.in, from), bytes);
    }
}

void CpuBackend::execute(const PickRowsArgs& args) {
    const auto bytes = static_cast<std::size_t>(stride_least(args.in.format, args.in.columns)) * bytes_of(args.in.format);
    run_rows(args.out.rows, args.in.columns, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row)
            std::memcpy(row_of(args.out, row), row_of(args.in, args.rows[static_cast<std::size_t>(row)]), bytes);
    });
}

void CpuBackend::execute(const MixRowsArgs& args) {
    const std::int64_t columns = args.out.columns;
    const std::int64_t each = args.out.rows == 0 ? 0 : std::ssize(args.places) / args.out.rows;
    float* const scratch = row_scratch_.floats(pool_.threads() * columns);
    run_rows(args.out.rows, columns * (each + 2), [&](std::int64_t begin, std::int64_t end, int thread) {
        float* const sums = scratch + thread * columns;
        const auto add = [&](const Matrix& matrix, std::int64_t row, float factor) {
            const float* const from = floats(matrix) + row * matrix.stride;
            for (std::int64_t i = 0; i < columns; ++i) sums[i] += from[i] * factor;
        };
        for (std::int64_t row = begin; row < end; ++row) {
            std::fill_n(sums, columns, 0.0F);
            for (std::int64_t j = row * each; j < (row + 1) * each; ++j)
                add(args.in, args.places[static_cast<std::size_t>(j)], args.factors[static_cast<std::size_t>(j)]);
            if (args.shared.rows > 0)
                add(args.shared, row, 1.0F / (1.0F + std::exp(-floats(args.shared_scores)[row * args.shared_scores.stride])));
            float* const to = floats(args.out) + row * args.out.stride;
            for (std::int64_t i = 0; i < columns; ++i) to[i] += sums[i];
        }
    });
}

void CpuBackend::execute(const PoolArgs& args) {
    const std::int64_t columns = args.in.columns;
    run_rows(args.out.rows, args.in.rows / std::max<std::int64_t>(args.out.rows, 1) * columns,
             [&](std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t at = begin; at < end; ++at) {
                     const PoolSegment& segment = args.segments[static_cast<std::size_t>(at)];
                     float* const to = floats(args.out) + at * args.out.stride;
                     const float* from = floats(args.in) + segment.row_begin * args.in.stride;
                     std::copy_n(from, columns, to);
                     for (std::int64_t row = 1; row < segment.row_count; ++row) {
                         from += args.in.stride;
                         const float weight = args.kind == PoolKind::weighted_sum ? static_cast<float>(row + 1) : 1.0F;
                         if (args.kind == PoolKind::max) {
                             for (std::int64_t i = 0; i < columns; ++i) to[i] = std::max(to[i], from[i]);
                         } else {
                             for (std::int64_t i = 0; i < columns; ++i) to[i] += from[i] * weight;
                         }
                     }
                     const float factor = args.factors[static_cast<std::size_t>(at)];
                     for (std::int64_t i = 0; i < columns; ++i) to[i] *= factor;
                 }
             });
}

void CpuBackend::execute(const SampleArgs& args) {
    sampler_.run(floats(args.logits), args.logits.stride, args.logits.columns, args.rows, args.results);
}

}  // namespace cpu

}  // namespace lorry::kernels
