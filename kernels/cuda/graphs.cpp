// Following and capturing graphs (see graphs.h), and the steps that the backend runs at start to reserve memory and to record graphs.
#include "kernels/cuda/graphs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/cuda/backend.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

struct Run {
    const Multiplier& multiplier;
    cudaStream_t stream;

    void operator()(const EmbedTask& task) const { run_embed(task, stream); }
    void operator()(const NormTask& task) const { run_norm(task, stream); }
    void operator()(const MatmulTask& task) const {
        const bool is_done = multiplier.library != nullptr && multiplier.library->multiply(task, multiplier.scratch, stream);
        if (!is_done) run_matmul(task, stream);
    }
    void operator()(const LoraTask& task) const { run_lora(task, stream); }
    void operator()(const GroupBiasTask& task) const { run_group_bias(task, stream); }
    void operator()(const RopeTask& task) const { run_rope(task, stream); }
    void operator()(const AttentionTask& task) const { run_attention(task, stream); }
    void operator()(const ActivationTask& task) const { run_activation(task, stream); }
    void operator()(const ScaleTask& task) const { run_scale(task, stream); }
    void operator()(const GatherTask& task) const { run_gather(task, stream); }
    void operator()(const WidenTask& task) const { run_widen(task, stream); }
};

constexpr std::array names = {"embed",     "norm",       "matmul", "lora",        "group_bias", "rope_store",
                              "attention", "activation", "scale",  "gather_rows", "lora"};
static_assert(names.size() == std::variant_size_v<Task>);

// A step whose rows are each the first of a sequence; keys and values are not stored; the first rows sample.
struct BlankStep {
    BlankStep(std::int64_t rows, std::int64_t sample_rows)
        : zeros(static_cast<std::size_t>(rows)), rows_that_sample(static_cast<std::size_t>(sample_rows)) {
        std::iota(rows_that_sample.begin(), rows_that_sample.end(), 0);
        for (std::int64_t row = 0; row < rows; ++row)
            sequences.push_back({.row_begin = row, .row_count = 1, .position = 0, .blocks = block});
    }
    StepInputs inputs() const {
        return {.rows = std::ssize(zeros),
                .tokens = zeros,
                .positions = zeros,
                .rope_rows = zeros,
                .sequences = sequences,
                .sample_rows = rows_that_sample};
    }
    std::vector<std::int32_t> zeros;
    std::vector<std::int32_t> rows_that_sample;
    std::array<BlockId, 1> block{};
    std::vector<StepSequence> sequences;
};

}  // namespace

void run(const Task& task, const Multiplier& multiplier, cudaStream_t stream) {
    std::visit(Run{multiplier, stream}, task);
    check(cudaGetLastError(), names.at(task.index()));
}

void StepGraph::capture(const Multiplier& multiplier, const Stream& stream) {
    for (const bool with_adapters : {false, true}) {
        graphs_.emplace_back(stream, [&] {
            for (const Task& task : tasks_) {
                if (with_adapters || !is_of_adapters(task)) run(task, multiplier, stream.get());
            }
        });
    }
}

bool StepGraph::follow(const Task& task, Follower& follower) const {
    std::size_t at = follower.at;
    while (at < tasks_.size() && tasks_[at] != task && is_of_adapters(tasks_[at])) ++at;
    if (at == tasks_.size() || tasks_[at] != task) return false;
    follower.has_adapters = follower.has_adapters || is_of_adapters(task);
    follower.made.push_back(at);
    follower.at = at + 1;
    return true;
}

const LoraWork* StepGraph::place_of(LoraTask task, const Follower& follower) const {
    for (std::size_t at = follower.at; at < tasks_.size() && is_of_adapters(tasks_[at]); ++at) {
        const auto* const lora = std::get_if<LoraTask>(&tasks_[at]);
        if (lora == nullptr) continue;
        task.work = lora->work;
        if (task == *lora) return task.work;
    }
    return nullptr;
}

void StepGraph::launch(const Follower& follower, const Stream& stream) const { graphs_[follower.has_adapters ? 1 : 0].launch(stream); }

void StepGraph::run_made(const Follower& follower, const Multiplier& multiplier, const Stream& stream) const {
    for (const std::size_t at : follower.made) run(tasks_[at], multiplier, stream.get());
}

void CudaBackend::reserve_steps(const ReserveArgs& args) {
    CHECK(steps_finished_ == steps_begun_, "reserve_steps: no step is queued");
    const LargestStep& largest = args.largest;
    attention_sequences_ = largest.sequences;
    attention_context_ = largest.context;
    lora_sums_.of<float>(static_cast<std::size_t>(lora_sums_most(largest.rows, largest.sequences, reserved_rank_sum)));
    weight_scratch_.of<float>(static_cast<std::size_t>(largest.sample_rows * largest.vocabulary));
    for (Step& step : steps_) {
        step.tables.make_room(reserved_table_bytes);
        step.on_device.of<std::byte>(static_cast<std::size_t>(largest.sample_rows) * reserved_answer_bytes);
        step.on_host.of<std::byte>(static_cast<std::size_t>(largest.sample_rows) * reserved_answer_bytes);
    }
    // Run a step, because what else the ops need is known only when they are called.
    stores_nothing_ = true;
    const BlankStep blank(largest.rows, largest.sample_rows);
    begin_step(blank.inputs());
    args.ops(blank.inputs());
    finish_step();
    stores_nothing_ = false;
}

void CudaBackend::make_graphs(const GraphArgs& args) {
    CHECK(steps_finished_ == steps_begun_, "make_graphs: no step is queued");
    stream_.wait();
    for (Step& step : steps_) step.graphs.clear();
    graph_bytes_ = 0;
    if (args.bytes == 0) return;
    makes_graphs_ = stores_nothing_ = true;
    // The largest first: full batches use it.
    for (const std::int64_t rows : graph_rows(args.rows_max)) {
        const std::optional<std::size_t> bytes = make_graphs_of(rows, args);
        if (bytes && graph_bytes_ + *bytes <= args.bytes) {
            graph_bytes_ += *bytes;
            continue;
        }
        for (Step& step : steps_) std::erase_if(step.graphs, [&](const StepGraph& graph) { return graph.rows() == rows; });
        break;
    }
    makes_graphs_ = stores_nothing_ = false;
    for (Step& step : steps_) std::ranges::reverse(step.graphs);
}

std::optional<std::size_t> CudaBackend::make_graphs_of(std::int64_t rows, const GraphArgs& args) {
    const BlankStep blank(rows, rows);
    // Run it once: kernels are loaded and scratch memory grows, which is not allowed during a capture.
    begin_step(blank.inputs());
    args.ops(blank.inputs());
    lora_places_ = step().loras;
    finish_step();
    std::optional<std::size_t> bytes = 0;
    for (std::size_t i = 0; bytes && i < steps_.size(); ++i) {
        std::vector<Task> tasks;
        taken_down_ = &tasks;
        begin_step(blank.inputs());
        args.ops(blank.inputs());
        taken_down_ = nullptr;
        const std::size_t free = info().memory_free;
        try {
            step().graphs.emplace_back(rows, std::move(tasks)).capture(multiplier(), stream_);
            *bytes += free - std::min(free, info().memory_free);
        } catch (const OutOfMemory&) {
            bytes.reset();
        }
        finish_step();
    }
    return bytes;
}

const StepGraph* CudaBackend::graph_for(const StepInputs& inputs) {
    const auto& graphs = step().graphs;
    const auto has_room = [&](const StepGraph& graph) { return graph.rows() >= inputs.rows; };
    const auto found = std::ranges::find_if(graphs, has_room);
    if (makes_graphs_ || inputs.rows == 0 || found == graphs.end()) return nullptr;
    const bool decodes = std::ranges::all_of(inputs.sequences, [](const StepSequence& sequence) { return sequence.row_count == 1; }) &&
                         std::ssize(inputs.sample_rows) == inputs.rows;
    // The step needs the tables that a graph reads: a caller may omit rope_rows for a model without rope.
    const bool has_tables = std::ssize(inputs.rope_rows) == inputs.rows;
    return decodes && has_tables ? &*found : nullptr;
}

std::int64_t CudaBackend::rows_of(const Matrix& a, const Matrix& b) {
    const std::int64_t more = graph_ != nullptr && a.rows == step().rows ? graph_->rows() - a.rows : 0;
    return a.rows + std::min({more, a.spare_rows, b.spare_rows});
}

void CudaBackend::launch(const Task& task) {
    if (taken_down_ != nullptr) return taken_down_->push_back(task);
    if (graph_ != nullptr) {
        if (!graph_->follow(task, follower_)) {
            leave_graph();
        } else {
            if (graph_->is_complete(follower_)) launch_graph();
            return;
        }
    }
    open_step();
    step().tables.copy();
    cuda::run(task, multiplier(), stream_.get());
}

void CudaBackend::launch_graph() {
    open_step();
    std::exchange(graph_, nullptr)->launch(follower_, stream_);
    ++graph_steps_;
}

void CudaBackend::leave_graph() {
    open_step();
    std::exchange(graph_, nullptr)->run_made(follower_, multiplier(), stream_);
}

void CudaBackend::settle() {
    if (graph_ != nullptr) leave_graph();
    open_step();
}

void CudaBackend::open_step() {
    Step& opened = step();
    if (std::exchange(opened.is_open, true)) return;
    // lora_sums_ may have moved since the first of them was written.
    for (std::int64_t i = 0; i < opened.lora_places; ++i) opened.lora_works.host[i].sums = lora_sums_.of<float>(0);
    opened.begin.record(stream_);
    opened.tables.copy();
    if (opened.drawn_count == 0) return;
    run_take_drawn({.tokens = opened.tokens,
                    .drawn = opened.drawn,
                    .results = step_at(steps_begun_ - 1).on_device.of<DrawResult>(0),
                    .count = opened.drawn_count},
                   stream_.get());
    check(cudaGetLastError(), "begin_step");
}

}  // namespace lorry::kernels::cuda
