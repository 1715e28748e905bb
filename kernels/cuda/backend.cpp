// Memory, steps, and the ops that need no work list. The other ops are in lora.cpp, attention.cpp and sample.cpp.
#include "kernels/cuda/backend.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <variant>

#include "kernels/cuda/devices.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/views.h"
#include "kernels/processors.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// Changes whenever a kernel's results do; part of the fingerprint.
constexpr const char* kernels_version = "5";

class CudaBuffer final : public Buffer {
public:
    CudaBuffer(Place& place, std::size_t bytes) : memory_(place.take_piece(bytes)) {
        if (memory_.data() != nullptr) place.uploads().clear(memory_.data(), bytes);
    }
    void* data() override { return memory_.data(); }
    std::size_t bytes() const override { return memory_.bytes(); }

private:
    Piece memory_;
};

class CudaSlot final : public Slot {
public:
    CudaSlot(const CudaBackend& backend, Uploads& uploads, std::byte* begin, std::size_t bytes)
        : backend_(backend), place_(uploads, begin, bytes) {}
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return std::make_unique<CudaBuffer>(place_, bytes); }
    void upload(void* to, std::span<const std::byte> from) override {
        if (to != nullptr) place_.uploads().copy(static_cast<std::byte*>(to), from);
    }
    std::size_t used() const override { return place_.used(); }

private:
    std::unique_ptr<PackedWeight> do_pack_weight(std::span<const WeightPart> parts, WeightRole role) override {
        return backend_.pack_weight_at(place_, parts, role);
    }
    std::unique_ptr<PackedLora> do_pack_lora(std::span<const LoraPart> parts) override { return backend_.pack_lora_at(place_, parts); }

    const CudaBackend& backend_;
    SlotPlace place_;
};

}  // namespace

View view_of(const Matrix& matrix) {
    CHECK(matrix.format == Format::float32 || matrix.format == Format::bfloat16 || matrix.format == Format::fp8_rows,
          "the GPU has no activations of float16 or int8");
    if (matrix.format != Format::fp8_rows) return {matrix.data, matrix.format, matrix.stride};
    return {matrix.data, matrix.format, matrix.stride * static_cast<std::int64_t>(bytes_of(matrix.format)), matrix.row_scales};
}

int int_of(std::int64_t x) {
    CHECK(x >= 0 && x <= std::numeric_limits<int>::max(), "sizes fit into 32 bits");
    return static_cast<int>(x);
}

CudaBackend::CudaBackend(const CudaOptions& options, MatmulChoice matmuls)
    : name_(choose_device()),
      processors_(chip_of_device().processors),
      weights_(options.storage.weights),
      quantize_(options.storage.quantize),
      kv_(cache_format(options.storage.kv).elements.value_or(options.storage.weights)),
      matmuls_(std::move(matmuls)) {
    CHECK(!obstacle(options.storage, DeviceKind::gpu), *obstacle(options.storage, DeviceKind::gpu));
}

DeviceInfo CudaBackend::info() const {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for its memory");
    const std::string library = matmuls_.library == nullptr ? "" : "-" + matmuls_.library->fingerprint();
    return {.name = "cuda (" + name_ + ")",
            .fingerprint = std::string("cuda-") + kernels_version + "-" + kernels::name_of(weights_) +
                           (quantize_ == Quantization::none ? "" : std::string("-") + kernels::name_of(quantize_)) +
                           (kv_ == Format::fp8_rows ? "-fp8kv-" : "-") + name_ + library,
            .matmuls = matmuls_.note,
            .wants_library = matmuls_.wants_library,
            .has_own_memory = true,
            .memory_total = total,
            .memory_free = free,
            .idle_seconds = idle_seconds_,
            .graphs = std::ssize(steps_.front().graphs),
            .graph_bytes = graph_bytes_,
            .graph_steps = graph_steps_};
}

std::unique_ptr<Buffer> CudaBackend::allocate(std::size_t bytes) { return std::make_unique<CudaBuffer>(own_place_, bytes); }

void CudaBackend::upload(void* to, std::span<const std::byte> from) { uploads_.copy(static_cast<std::byte*>(to), from); }

void CudaBackend::read_back(std::span<std::byte> to, const void* from) {
    if (to.empty()) return;
    settle();
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_.get()), "copying from it");
    stream_.wait();
}

void CudaBackend::on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) {
    if (count < 2) return Backend::on_host(count, work);
    if (host_threads_ == nullptr) host_threads_ = std::make_unique<ThreadPool>(usable_processors());
    host_threads_->each(count, work);
}

std::unique_ptr<PackedWeight> CudaBackend::do_pack_weight(std::span<const WeightPart> parts, WeightRole role) {
    return pack_weight_at(own_place_, parts, role);
}

std::unique_ptr<PackedLora> CudaBackend::do_pack_lora(std::span<const LoraPart> parts) { return pack_lora_at(own_place_, parts); }

std::unique_ptr<PackedWeight> CudaBackend::pack_weight_at(Place& place, std::span<const WeightPart> parts, WeightRole role) const {
    CHECK(role != WeightRole::exact, no_pooling);
    const Quantization stored = role == WeightRole::embedding ? weight_format(quantize_).embeddings : quantize_;
    return std::make_unique<CudaWeight>(parts, weight_format(stored).input.value_or(weights_), place);
}

std::unique_ptr<PackedLora> CudaBackend::pack_lora_at(Place& place, std::span<const LoraPart> parts) const {
    return std::make_unique<CudaLora>(parts, weights_, place);
}

std::size_t CudaBackend::kv_block_bytes(const KvShape& shape) const {
    return static_cast<std::size_t>(shape.layers) * kv_layer_block_bytes(shape, kv_);
}

std::unique_ptr<KvCache> CudaBackend::do_make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) {
    return std::make_unique<CudaKvCache>(shape, blocks, kv_, slot_bytes);
}

void CudaBackend::do_copy_block(KvCache& cache, BlockId from, BlockId to) {
    const auto& kv = static_cast<const CudaKvCache&>(cache);
    settle();
    check(cudaMemcpyAsync(kv.block(to), kv.block(from), kv.block_bytes(), cudaMemcpyDeviceToDevice, stream_.get()), "copying a block");
}

std::unique_ptr<Slot> CudaBackend::do_make_slot(KvCache& cache, const SlotRange& range) {
    const auto& kv = static_cast<const CudaKvCache&>(cache);
    settle();
    slot_is_free_.record(stream_);
    slot_is_free_.hold_back(loads_);
    return std::make_unique<CudaSlot>(*this, uploads_, kv.data() + range.begin, range.end - range.begin);
}

std::unique_ptr<Slot> CudaBackend::make_measuring_slot() { return std::make_unique<CudaSlot>(*this, uploads_, nullptr, 0); }

void CudaBackend::do_begin_step(const StepInputs& inputs) {
    row_blocks_.clear();
    row_slots_.clear();
    sequence_blocks_.clear();
    for (const StepSequence& sequence : inputs.sequences) {
        for (std::int64_t position = sequence.position; position < sequence.position + sequence.row_count; ++position) {
            row_blocks_.push_back(sequence.blocks[static_cast<std::size_t>(position / kv_block_size)]);
            row_slots_.push_back(static_cast<std::int32_t>(position % kv_block_size));
        }
        sequence_blocks_.insert(sequence_blocks_.end(), sequence.blocks.begin(), sequence.blocks.end());
    }
    CHECK(steps_begun_ - steps_finished_ < steps_queued_max(), "begin_step: at most steps_queued_max() steps are begun and not finished");
    settle();
    if (steps_finished_ < steps_begun_) note_end(step());
    ++steps_begun_;
    Step& begun = step();
    begun.has_end = false;
    begun.end_is_exact = false;
    begun.gap_is_counted = false;
    begun.is_open = false;
    begun.rows = inputs.rows;
    begun.rows_sampled = std::ssize(inputs.sample_rows);
    begun.draws.clear();
    begun.results = {};
    begun.loras = 0;
    graph_ = graph_for(inputs);
    follower_.at = 0;
    follower_.made.clear();
    follower_.has_adapters = false;
    put_rows(inputs);
    put_drawn_tokens(inputs);
}

// The tables that a graph reads come first, so that they are at the same addresses in every step.
void CudaBackend::put_rows(const StepInputs& inputs) {
    Step& begun = step();
    Tables& tables = begun.tables;
    tables.clear();
    const std::int64_t padding = step_rows() - inputs.rows;
    const auto put = [&]<class T>(std::span<const T> rows) {
        const auto place = tables.reserve<T>(rows.size() + static_cast<std::size_t>(padding));
        std::ranges::copy(rows, place.host);
        return place;
    };
    begun.tokens = put(inputs.tokens).device;
    begun.positions = put(inputs.positions).device;
    begun.rope_rows = put(inputs.rope_rows).device;
    begun.sample_rows = put(inputs.sample_rows).device;
    begun.slot_of_row = put(std::span<const std::int32_t>(row_slots_)).device;
    const auto blocks = put(std::span<const std::int32_t>(row_blocks_));
    std::fill_n(blocks.host + (stores_nothing_ ? 0 : inputs.rows), stores_nothing_ ? inputs.rows : padding, -1);
    begun.block_of_row = blocks.device;
    begun.row_progress = tables.reserve<RowProgress>(row_blocks_.size() + static_cast<std::size_t>(padding)).device;
    begun.lora_places = has_works() ? lora_places_ : 0;
    begun.lora_works = tables.reserve<LoraWork>(static_cast<std::size_t>(begun.lora_places));
    begun.attention_works = tables.reserve<AttentionWork>(has_works() ? static_cast<std::size_t>(attention_works_most) : 0);
    begun.blocks = tables.put(sequence_blocks_);
}

void CudaBackend::put_drawn_tokens(const StepInputs& inputs) {
    Step& before = step_at(steps_begun_ - 1);
    drawn_.clear();
    for (const DrawnRow& each : inputs.drawn) {
        CHECK(each.sample_row >= 0 && each.sample_row < std::ssize(before.draws), "begin_step: the step before draws from sample_row");
        drawn_.push_back({.row = int_of(each.row), .sample_row = int_of(each.sample_row)});
    }
    step().drawn = step().tables.put(drawn_);
    step().drawn_count = int_of(std::ssize(drawn_));
}

void CudaBackend::note_end(Step& step) {
    if (!step.has_end) step.end.record(stream_);
    step.has_end = true;
}

// `after` is already queued in the stream, so waiting for its beginning does not hang.
void CudaBackend::count_gap(const Step& before, Step& after) {
    if (!before.end_is_exact || std::exchange(after.gap_is_counted, true)) return;
    after.begin.wait();
    idle_seconds_ += after.begin.seconds_since(before.end);
}

void CudaBackend::finish_step() {
    CHECK(steps_finished_ < steps_begun_, "finish_step: a step was begun and not finished");
    settle();
    Step& oldest = step_at(++steps_finished_);
    note_end(oldest);
    oldest.end.wait();
    if (steps_finished_ < steps_begun_) {
        count_gap(oldest, step_at(steps_finished_ + 1));
    } else if (steps_finished_ > 1) {
        count_gap(step_at(steps_finished_ - 1), oldest);
    }
    hand_out_results(oldest);
}

void CudaBackend::do_run(const Op& op) {
    std::visit([this](const auto* args) { execute(*args); }, op);
}

void CudaBackend::execute(const EmbedArgs& args) {
    const auto& tokens = static_cast<const CudaWeight&>(args.tokens);
    const auto* const positions = static_cast<const CudaWeight*>(args.positions);
    CHECK(tokens.input_format() == weights_, "embed: tables are not quantized");
    CHECK(args.types == nullptr, no_pooling);
    CHECK(args.own.empty(), "the GPU has no kernels for embeddings of adapters yet");
    if (args.out.rows == 0) return;
    launch(EmbedTask{.out = view_of(args.out),
                     .tokens = tokens.view(),
                     .positions = positions == nullptr ? View{} : positions->view(),
                     .token_of_row = step().tokens,
                     .position_of_row = step().positions,
                     .rows = int_of(rows_of(args.out, args.out)),
                     .hidden = int_of(args.out.columns)});
}

void CudaBackend::execute(const NormArgs& args) {
    CHECK(!args.in_place, no_pooling);
    if (args.in.rows == 0) return;
    launch(NormTask{.kind = args.kind,
                    .out = view_of(args.out),
                    .in = view_of(args.in),
                    .weight = args.weight.empty() ? nullptr : args.weight.data,
                    .bias = args.bias.empty() ? nullptr : args.bias.data,
                    .epsilon = args.epsilon,
                    .rows = int_of(rows_of(args.out, args.in)),
                    .columns = int_of(args.in.columns)});
}

void CudaBackend::execute(const MatmulArgs& args) {
    const auto& weight = static_cast<const CudaWeight&>(args.weight);
    if (args.in.rows == 0) return;
    const std::int64_t rows = rows_of(args.out, args.in);
    const MatmulTask task{.out = view_of(args.out),
                          .in = view_of(args.in),
                          .weight = weight.view(),
                          .weight_scales = weight.scales(),
                          .bias = args.bias.empty() ? nullptr : args.bias.data,
                          .accumulate = args.accumulate,
                          .rows = int_of(rows),
                          .in_features = int_of(weight.in_features()),
                          .out_features = int_of(weight.out_features()),
                          .spare_rows = int_of(std::min(args.in.spare_rows, args.out.spare_rows) - (rows - args.in.rows))};
    launch(task);
}

void CudaBackend::execute(const GroupBiasArgs& args) {
    std::vector<BiasTable>& groups = bias_groups_;
    groups.clear();
    for (const BiasGroup& group : args.groups) {
        if (group.scale.empty() && group.bias.empty()) continue;
        groups.push_back({group.scale.data, group.bias.data, int_of(group.row_begin), int_of(group.row_count)});
    }
    if (groups.empty()) return;
    launch(GroupBiasTask{.out = view_of(args.out),
                         .groups = step().tables.put(groups),
                         .group_count = int_of(std::ssize(groups)),
                         .columns = int_of(args.out.columns)});
}

void CudaBackend::execute(const RopeStoreArgs& args) {
    const auto& cache = static_cast<const CudaKvCache&>(args.cache);
    const bool rotates = args.rope_table.rows > 0;
    if (args.qkv.rows == 0) return;
    launch(RopeTask{.qkv = view_of(args.qkv),
                    .rows = int_of(rows_of(args.qkv, args.qkv)),
                    .heads = int_of(args.heads),
                    .head_dim = int_of(args.head_dim),
                    .table = rotates ? static_cast<const float*>(view_of(args.rope_table).data) : nullptr,
                    .table_stride = args.rope_table.stride,
                    .table_row = step().rope_rows,
                    .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.data,
                    .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.data,
                    .epsilon = args.norm_epsilon,
                    .cache = cache.layer(args.layer),
                    .block_of_row = step().block_of_row,
                    .slot_of_row = step().slot_of_row});
}

void CudaBackend::execute(const ActivationArgs& args) {
    CHECK(!args.accumulate, no_pooling);
    if (args.out.rows == 0) return;
    launch(ActivationTask{.kind = args.kind,
                          .gated = args.gated,
                          .out = view_of(args.out),
                          .in = view_of(args.in),
                          .rows = int_of(rows_of(args.out, args.in)),
                          .width = int_of(args.out.columns)});
}

void CudaBackend::execute(const ScaleArgs& args) {
    if (args.out.rows == 0) return;
    launch(ScaleTask{.out = view_of(args.out),
                     .in = view_of(args.in),
                     .scale = args.scale,
                     .has_cap = args.cap.has_value(),
                     .cap = args.cap.value_or(0.0F),
                     .accumulate = args.accumulate,
                     .rows = int_of(rows_of(args.out, args.in)),
                     .columns = int_of(args.out.columns)});
}

void CudaBackend::execute(const ClampedGateArgs&) { CHECK(false, no_experts); }
void CudaBackend::execute(const PickRowsArgs&) { CHECK(false, no_experts); }
void CudaBackend::execute(const MixRowsArgs&) { CHECK(false, no_experts); }
void CudaBackend::execute(const PoolArgs&) { CHECK(false, no_pooling); }
void CudaBackend::execute(const DisentangledBiasArgs&) { CHECK(false, no_pooling); }
void CudaBackend::execute(const UnfoldArgs&) { CHECK(false, no_pooling); }

void CudaBackend::execute(const GatherRowsArgs& args) {
    if (args.out.rows == 0) return;
    launch(GatherTask{.out = view_of(args.out),
                      .in = view_of(args.in),
                      .row_of = step().sample_rows,
                      .rows = int_of(rows_of(args.out, args.out)),
                      .columns = int_of(args.out.columns)});
}

}  // namespace lorry::kernels::cuda
