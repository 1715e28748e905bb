// Runs requests step by step. Start reading at Engine::step().
#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "engine/batch.h"
#include "engine/draft_limits.h"
#include "engine/mask_time.h"
#include "engine/running_set.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_prefix.h"
#include "engine/step_cost.h"
#include "engine/step_memory.h"
#include "engine/tenant_turns.h"
#include "engine/waiting_queue.h"
#include "schema/check.h"

namespace lorry::engine {
namespace {

// The most tokens that fairness charges for an answer: max_tokens is often the whole context, but answers are rarely that long.
constexpr std::int64_t expected_output_max = 256;
// For so many steps the running sequences may leave a text too few rows. Then they miss one step: at most every ninth.
constexpr std::int64_t held_up_steps_max = 8;

std::int64_t kv_blocks(const EngineOptions& options, const kernels::Backend& backend, const Model& model) {
    // An encoder's sequences hold blocks for one step: as many as a step's rows take, and for each the unused end and one to grow into.
    if (model.config().is_encoder) return options.step_rows_max / backend.block_size() + 1 + 2 * options.sequences_max;
    const std::size_t block_bytes = backend.kv_block_bytes(model.kv_shape());
    const std::size_t blocks = options.kv_bytes / block_bytes;
    if (blocks == 0) {
        throw std::runtime_error("kv_bytes = " + std::to_string(options.kv_bytes) + " is less than one KV block of " +
                                 std::to_string(block_bytes) + " bytes; give the KV cache more memory");
    }
    return static_cast<std::int64_t>(blocks);
}

// Nothing that an encoder computed can be used again: each token depends on all of its text.
EngineOptions with_limits_of(EngineOptions options, const Model& model) {
    if (model.config().is_encoder) options.prefix_cache = false;
    return options;
}

TextRows text_rows_of(const Request& request, const ModelConfig& config) {
    TextRows rows;
    if (!request.pooling) return rows;
    if (*request.pooling == PoolingTask::embed || *request.pooling == PoolingTask::classify)
        rows.pooled = rows_of(*request.pooling, config);
    rows.whole = reads_whole_text(*request.pooling, config);
    return rows;
}

// What the next step does, and the sequences that it concerns. Kept between steps for the capacity of its vectors.
struct Plan {
    StepPlan step;                       // its indices refer to these:
    std::vector<Sequence*> running;      // all that run
    std::vector<RequestId> waiting;      // those that could start, in order
    std::vector<SharedPrefix> prefixes;  // of each of `waiting`
    std::vector<SequenceView> running_views;
    std::vector<SequenceView> waiting_views;

    // Nothing can run, and there is nothing to preempt.
    bool is_stuck() const { return step.empty() && step.preempt.empty(); }
};

}  // namespace

std::int64_t EngineOptions::sample_rows_max() const { return std::max<std::int64_t>(sequences_max, 64); }

void StepOutput::clear() {
    started.clear();
    deltas.clear();
    results.clear();
}

struct Engine::Implementation {
    Implementation(Model& the_model, kernels::Backend& the_backend, const Tokenizer& the_tokenizer, const EngineOptions& the_options)
        : model(the_model),
          backend(the_backend),
          tokenizer(the_tokenizer),
          options(with_limits_of(the_options, model)),
          cache(backend.make_kv_cache(model.kv_shape(), kv_blocks(options, backend, model), options.adapter_bytes)),
          pool(cache->blocks(), backend.block_size()),
          context_max(std::min(model.config().context_limit(),
                               model.config().is_encoder ? options.step_rows_max : pool.total() * pool.block_size())),
          limits{.rows = options.step_rows_max,
                 .sample_rows = options.sample_rows_max(),
                 .sequences = options.sequences_max,
                 .block_size = pool.block_size(),
                 .blocks = pool.total()},
          adapters(model, backend, *cache, pool, {.texts = options.texts}),
          running(backend, *cache, pool, adapters),
          waiting(options.fairness_patience),
          mask_time(options.mask_patience) {
        const std::int64_t count = std::clamp<std::int64_t>(options.steps_queued_max, 1, backend.steps_queued_max());
        for (std::int64_t i = 0; i < count; ++i) {
            batches.emplace_back(options.step_rows_max, options.sample_rows_max(), options.sequences_max);
        }
        make_step_graphs(model, backend, *cache, options);
    }

    // The parts of a step, in the order of Engine::step().
    void finish_complete(StepOutput& output);
    void tend_adapters(StepOutput& output);
    void make_plan(Plan& plan) const;
    bool relieve(const Plan& plan);
    bool can_launch(const Plan& plan) const;
    void launch(const Plan& plan, StepOutput& output);
    void read(StepOutput& output);

    std::size_t steps_queued() const { return steps_launched - steps_read; }
    bool queue_is_full() const { return steps_queued() == batches.size(); }

    void start(Sequence& sequence, const SharedPrefix& prefix, StepOutput& output);
    void forward(Batch& batch);
    void take_texts(Batch& batch);
    void take_results(const BatchEntry& entry, StepOutput& output);
    void draft(Sequence& sequence) const;
    bool release_blocks_of_waiting();
    void fail_waiting(const std::string& adapter, const std::string& reason, StepOutput& output);

    // From submit() to its end, a sequence waits in the queue, waits for its leader (a fork), or runs.
    Sequence& at(RequestId id) { return sequences.at(id); }
    void submit(Request request);
    void wait(const Sequence& sequence);
    void fork_followers(Sequence& leader);
    void begin_pooling(Sequence& sequence);
    void check_whole(Sequence& sequence) const;
    void hand_out_delta(Sequence& sequence, bool ended, StepOutput& output);
    void finish(Sequence& sequence, StepOutput& output);
    void forget(RequestId id);
    void check_idle();
    void check_integrity() const;

    Model& model;
    kernels::Backend& backend;
    const Tokenizer& tokenizer;
    const EngineOptions options;
    std::unique_ptr<kernels::KvCache> cache;
    BlockPool pool;
    const std::int64_t context_max;
    const StepLimits limits;
    AdapterCache adapters;
    RunningSet running;
    WaitingQueue waiting;
    std::unordered_map<RequestId, Sequence> sequences;  // all unfinished; nodes do not move
    std::vector<RequestId> complete_at_submit;          // there is nothing to compute for them
    std::set<RequestId> forks_waiting;                  // those that hold blocks
    std::array<TenantTurns, 2> tenants;                 // of jobs, and of calls

    Plan next_plan;
    std::vector<Batch> batches;  // one for each step that may be queued, used in turn
    std::size_t steps_launched = 0;
    std::size_t steps_read = 0;
    StepCost cost;
    MaskTime mask_time;
    EngineStats counts;
    struct HeldUp {
        RequestId id;
        std::int64_t steps = 0;
    };
    std::optional<HeldUp> held_up;    // the text for which steps had too few rows
    std::uint64_t rows_at_check = 0;  // counts.rows at the last whole check
};

Engine::Engine(Model& model, kernels::Backend& backend, const Tokenizer& tokenizer, const EngineOptions& options)
    : implementation_(std::make_unique<Implementation>(model, backend, tokenizer, options)) {}

// Queued steps write to the batches, so they are finished first.
Engine::~Engine() {
    try {
        for (; implementation_->steps_queued() > 0; ++implementation_->steps_read) implementation_->backend.finish_step();
    } catch (const std::exception&) {
        // The device has failed and does not write any more.
    }
}

bool Engine::step(StepOutput& output) {
    Implementation& my = *implementation_;
    Plan& plan = my.next_plan;
    output.clear();
    my.finish_complete(output);
    my.tend_adapters(output);

    my.make_plan(plan);
    while ((plan.is_stuck() || plan.step.lacks_blocks) && my.relieve(plan)) my.make_plan(plan);

    const bool launches = my.can_launch(plan);
    if (launches) my.launch(plan, output);
    const bool reads = launches ? my.queue_is_full() : my.steps_queued() > 0;
    if (reads) my.read(output);
    return launches || reads || !output.results.empty();
}

// Hands out the results of requests for which there is nothing to compute.
void Engine::Implementation::finish_complete(StepOutput& output) {
    for (const RequestId id : std::exchange(complete_at_submit, {})) {
        const auto place = sequences.find(id);
        if (place == sequences.end()) continue;
        hand_out_delta(place->second, true, output);
        finish(place->second, output);
    }
}

// Takes over adapters that were loaded, ends the requests of those that failed, and loads ahead.
void Engine::Implementation::tend_adapters(StepOutput& output) {
    adapters.poll(options.lend_blocks && !running.empty());
    if (const auto without_room = adapters.needs_room(); without_room && !waiting.waits_for(*without_room)) adapters.give_up_room();
    std::set<std::string> ahead;
    std::set<std::string> failed;
    for (const WaitingQueue::Turns* const turns : {&waiting.calls(), &waiting.firsts()}) {
        for (const WaitingEntry* first : *turns) {
            if (std::ssize(ahead) == options.prefetch_max) break;
            if (first->adapter.empty() || ahead.contains(first->adapter)) continue;
            const AdapterCache::State state = adapters.state(first->adapter);
            if (state == AdapterCache::State::ready || state == AdapterCache::State::retrying) continue;
            if (state == AdapterCache::State::failed) {
                failed.insert(first->adapter);
                continue;
            }
            adapters.prefetch(*at(first->id).request().adapter);
            ahead.insert(first->adapter);
        }
    }
    for (const std::string& hash : failed) fail_waiting(hash, adapters.failure(hash), output);
}

// Decides what runs next. Changes nothing.
void Engine::Implementation::make_plan(Plan& plan) const {
    plan.running.assign(running.sequences().begin(), running.sequences().end());
    running.view(options.prefix_cache, plan.running_views);

    plan.waiting.clear();
    const bool to_calls =
        !waiting.calls().empty() || std::ranges::any_of(plan.running, [](const Sequence* sequence) { return sequence->request().is_call; });
    // While there are calls, all other jobs count as large: they get at most half of the step, and give places up.
    if (to_calls) {
        for (std::size_t i = 0; i < plan.running.size(); ++i) plan.running_views[i].large |= !plan.running[i]->request().is_call;
    }
    const std::int64_t large = std::ranges::count(plan.running_views, true, &SequenceView::large);
    // How many more may start within their share; negative if they have to give places up.
    const std::int64_t large_left = limits.of_large().sequences - large;
    const bool has_others = waiting.has_others(to_calls);
    const std::int64_t places = limits.sequences - std::ssize(plan.running) + (has_others ? std::max<std::int64_t>(0, -large_left) : 0);
    if (places > 0 && !waiting.empty()) {
        const auto yielding_max = static_cast<std::size_t>(std::max<std::int64_t>(0, large_left));
        const WaitingQueue::Context context{
            .is_ready = [&](std::string_view hash) { return hash.empty() || adapters.state(hash) == AdapterCache::State::ready; },
            .is_live = [&](std::string_view hash) { return running.uses_adapter(hash); },
            .needs_room = adapters.needs_room(),
            .to_calls = to_calls,
            .yielding_max = yielding_max,
            .groups = options.group_adapters};
        // The step may have no rows for large jobs, whose places others then take.
        const std::size_t passed = has_others ? std::min(yielding_max, waiting.yielding(to_calls)) : 0;
        plan.waiting = waiting.candidates(static_cast<std::size_t>(places) + passed, context);
    }
    // Lent blocks count as available, unless a sequence that starts has its adapter there.
    const std::int64_t lent = pool.lent() > 0 ? adapters.blocks_to_take_back() : 0;
    std::int64_t left = lent;
    plan.prefixes.clear();
    plan.waiting_views.clear();
    for (const RequestId id : plan.waiting) {
        const Sequence& sequence = sequences.at(id);
        SequenceView& view =
            plan.waiting_views.emplace_back(view_waiting(sequence, pool, options.prefix_cache, plan.prefixes.emplace_back()));
        if (lent > 0) left = std::min(left, adapters.lent_blocks_before(sequence.adapter_hash()));
        view.large |= to_calls && !sequence.request().is_call;
        view.blocks_kept = lent - left;
        view.overdue = view.whole && held_up && held_up->id == id && held_up->steps >= held_up_steps_max;
    }
    plan_step(plan.running_views, plan.waiting_views, pool.available() + lent, limits, plan.step);
}

// Frees blocks for a plan that lacks some. False if there are none to free, or if queued steps may still free some.
bool Engine::Implementation::relieve(const Plan& plan) {
    if (steps_queued() > 0 || (plan.is_stuck() && plan.waiting.empty())) return false;
    // Waiting forks hold blocks of their leaders. They give them back, and take them from the prefix index or compute them again.
    if (release_blocks_of_waiting()) return true;
    if (!plan.is_stuck()) return false;
    // The slot of an adapter may be over the blocks that its own request needs. The adapter is loaded again elsewhere.
    const std::int64_t lent = pool.lent();
    if (!running.empty() || lent == 0) return false;
    adapters.take_back_for(at(plan.waiting.front()).adapter_hash());
    return pool.lent() < lent;
}

// Queued steps may end sequences, which frees blocks, so they are read before a sequence is preempted.
bool Engine::Implementation::can_launch(const Plan& plan) const {
    return steps_queued() > 0 ? !plan.step.empty() && plan.step.preempt.empty() : !plan.is_stuck();
}

// Carries out a plan and launches its step on the device. A plan that only preempts launches no step.
void Engine::Implementation::launch(const Plan& plan, StepOutput& output) {
    Batch& batch = batches[steps_launched % batches.size()];
    batch.clear();
    if (plan.step.held_up) {
        const RequestId id = plan.waiting[*plan.step.held_up];
        if (!held_up || held_up->id != id) held_up = HeldUp{.id = id};
        ++held_up->steps;
    }
    // Preempted sequences first, because others get their blocks. Then shared prefixes are held, before an allocation could drop them.
    for (const std::size_t index : plan.step.preempt) {
        running.preempt(*plan.running[index]);
        wait(*plan.running[index]);
        ++counts.preemptions;
    }
    for (const PlannedRows& planned : plan.step.starting) start(at(plan.waiting[planned.index]), plan.prefixes[planned.index], output);
    for (const PlannedRows& planned : plan.step.running) {
        Sequence& sequence = *plan.running[planned.index];
        running.grow(sequence, planned.new_blocks);
        sequence.drafts.resize(static_cast<std::size_t>(planned.drafts));
        batch.add(sequence, planned.rows, planned.drafts);
    }
    for (const PlannedRows& planned : plan.step.starting) {
        Sequence& sequence = at(plan.waiting[planned.index]);
        running.grow_started(sequence, plan.prefixes[planned.index], planned.new_blocks);
        sequence.drafts.clear();
        batch.add(sequence, planned.rows, 0);
    }
    if (batch.entries().empty()) return;
    batch.build(model);
    forward(batch);
    ++steps_launched;
}

// Moves a sequence from the waiting queue to the running set.
void Engine::Implementation::start(Sequence& sequence, const SharedPrefix& prefix, StepOutput& output) {
    waiting.start(sequence.id());
    tenants.at(sequence.request().is_call).start(sequence.id());
    forks_waiting.erase(sequence.id());
    running.start(sequence, prefix);
    const std::int64_t of_prompt = std::min(sequence.computed, sequence.prompt_tokens());
    counts.cached_tokens += static_cast<std::uint64_t>(of_prompt);
    if (sequence.result.started != Clock::time_point{}) return;
    if (sequence.request().pooling) begin_pooling(sequence);
    sequence.result.started = Clock::now();
    sequence.result.cached_tokens = of_prompt;
    output.started.push_back(sequence.id());
}

void Engine::Implementation::forward(Batch& batch) {
    const bool decodes = batch.step().rows == std::ssize(batch.step().sample_rows);
    cost.launched({.rows = batch.step().rows, .decodes = decodes, .begun = Clock::now()});
    backend.begin_step(batch.step());
    const kernels::Matrix logits = model.forward({.step = batch.step(), .adapters = batch.adapters(), .texts = batch.texts()}, *cache);
    take_texts(batch);
    batch.allow_tokens(backend, mask_time);
    if (!batch.sample_rows().empty()) {
        backend.sample({.logits = logits, .rows = batch.sample_rows(), .results = batch.sample_results()});
    }
    batch.count(counts);
    for (const BatchEntry& entry : batch.entries()) {
        Sequence& sequence = *entry.sequence;
        sequence.queued.rows += entry.rows;
        if (!entry.draws) continue;
        counts.drafted_tokens += static_cast<std::uint64_t>(entry.drafts);
        ++sequence.queued.draws;
        sequence.queued.draw_row = entry.final_sample_row();
    }
}

// Only its adapter says which labels a sequence has.
void Engine::Implementation::begin_pooling(Sequence& sequence) {
    const PoolingTask task = *sequence.request().pooling;
    // Its base would embed, and the answer would look like one of its head.
    if (task == PoolingTask::embed && sequence.adapter != nullptr && sequence.adapter->classifier() != nullptr) {
        sequence.result.error =
            schema::JobError{.code = schema::ErrorCode::unsupported_by_model,
                             .param = "model",
                             .message = "this adapter has a classification head and makes no embeddings; use /classify or /token_classify"};
        return;
    }
    if (task != PoolingTask::classify && task != PoolingTask::token_classify) return;
    sequence.result.labels = model.labels_for(task, sequence.adapter);
    if (sequence.result.labels != nullptr) return;
    sequence.result.error = schema::JobError{
        .code = schema::ErrorCode::unsupported_by_model,
        .param = "model",
        .message = std::string("this ") + (sequence.adapter == nullptr ? "model" : "adapter") + " has no head for " + name_of(task).data() +
                   "; use a model or an adapter that was trained for it (task_type SEQ_CLS or TOKEN_CLS)"};
}

// What the step computes of its texts.
void Engine::Implementation::take_texts(Batch& batch) {
    for (const BatchEntry& entry : batch.entries()) {
        if (!entry.text) continue;
        const kernels::Matrix& out = batch.texts()[*entry.text].out;
        CHECK(out.stride == out.columns, "results are packed");
        std::vector<float>& pooled = entry.sequence->result.pooled;
        pooled.resize(static_cast<std::size_t>(out.rows * out.columns));
        backend.read_back(std::as_writable_bytes(std::span(pooled)), out.data);
    }
}

// Waits for the oldest queued step and takes its results.
void Engine::Implementation::read(StepOutput& output) {
    backend.finish_step();
    mask_time.step_took(cost.read(Clock::now()));
    Batch& batch = batches[steps_read++ % batches.size()];
    batch.hand_results(backend);
    for (const BatchEntry& entry : batch.entries()) {
        if (entry.sequence != nullptr) take_results(entry, output);
    }
}

void Engine::Implementation::take_results(const BatchEntry& entry, StepOutput& output) {
    Sequence& sequence = *entry.sequence;
    counts.drawn_tokens += entry.counts.drawn;
    counts.forced_tokens += entry.counts.forced;
    counts.accepted_tokens += entry.counts.accepted;
    counts.held_back += entry.held_back ? 1 : 0;
    if (entry.outcome == Outcome::failed) return finish(sequence, output);
    const bool ended = entry.outcome == Outcome::ended;
    if (entry.draws && !ended) draft(sequence);
    if (options.prefix_cache) index_full_blocks(sequence, pool);
    fork_followers(sequence);
    hand_out_delta(sequence, ended, output);
    if (ended) finish(sequence, output);
}

// Guesses what comes next, where that takes less time than drawing it. A step has no rows with logits for more than is spare.
void Engine::Implementation::draft(Sequence& sequence) const {
    if (options.drafts_max == 0) return;
    const DraftRoom room{.drafts_max = options.drafts_max,
                         .sample_rows = limits.sample_rows,
                         .sequences = std::ssize(running.sequences()),
                         .mask_patience = options.mask_patience,
                         .chance_least = options.draft_chance_least};
    sequence.draft(draft_limits(sequence, room, cost));
}

bool Engine::Implementation::release_blocks_of_waiting() {
    for (const RequestId id : forks_waiting) running.release_blocks(at(id));
    return !std::exchange(forks_waiting, {}).empty();
}

void Engine::Implementation::fail_waiting(const std::string& adapter, const std::string& reason, StepOutput& output) {
    for (const RequestId id : waiting.requests_of(adapter)) {
        Sequence& sequence = at(id);
        sequence.result.error = schema::JobError{.code = schema::ErrorCode::adapter_failed, .param = "model", .message = reason};
        finish(sequence, output);
    }
}

void Engine::Implementation::submit(Request request) {
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    CHECK(prompt_tokens > 0 && prompt_tokens <= context_max, "intake refuses prompts that do not fit");
    CHECK(!request.fork || request.fork->tokens < prompt_tokens, "a fork computes at least its last prompt token itself");
    // If the prompt fills the context, one token is drawn all the same.
    request.max_tokens = std::min(request.max_tokens, std::max<std::int64_t>(1, context_max - prompt_tokens));
    const RequestId id = request.id;
    const std::string_view adapter = request.adapter ? std::string_view(request.adapter->hash) : std::string_view();
    const std::int64_t tokens_max = prompt_tokens + request.tokens_allowed.value_or(request.max_tokens);
    const auto rope_length = model.rope_length(prompt_tokens, tokens_max);
    const BlockHash root = root_hash(adapter, request.prefix_scope, rope_length.value_or(0));
    const TextRows text_rows = text_rows_of(request, model.config());
    const std::int64_t tokens = prompt_tokens + std::min(request.max_tokens, expected_output_max);
    const std::uint64_t turn = tenants.at(request.is_call).arrive({.id = id, .tenant = request.tenant, .cost = tokens});
    const auto [place, fresh] = sequences.try_emplace(id, std::move(request), turn, root, tokenizer, text_rows, options.force_together);
    CHECK(fresh, "request ids are unique");
    Sequence& sequence = place->second;
    sequence.rope_length = rope_length;
    counts.forced_tokens += static_cast<std::uint64_t>(sequence.output().size());
    if (sequence.is_whole()) check_whole(sequence);
    if (sequence.is_complete() || sequence.result.error) {
        complete_at_submit.push_back(id);
        return;
    }
    if (sequence.request().fork) {
        const auto leader = sequences.find(sequence.request().fork->leader);
        if (leader != sequences.end() && leader->second.root() == root && leader->second.computed < sequence.request().fork->tokens) {
            leader->second.followers.push_back(id);
            return;
        }
    }
    wait(sequence);
}

// A text that one step must compute and cannot.
void Engine::Implementation::check_whole(Sequence& sequence) const {
    const auto refuse = [&](std::string message) {
        sequence.result.error =
            schema::JobError{.code = schema::ErrorCode::context_length_exceeded, .param = {}, .message = std::move(message)};
    };
    const std::int64_t masks = std::ssize(sequence.request().mask_positions);
    if (sequence.prompt_tokens() > limits.rows) {
        refuse("the text has " + std::to_string(sequence.prompt_tokens()) + " tokens; this model pools up to " +
               std::to_string(limits.rows) + " (step_tokens): shorten it or raise the setting");
    } else if (masks > limits.sample_rows) {
        refuse("the text has " + std::to_string(masks) + " masks; a step fills up to " + std::to_string(limits.sample_rows) + ": split it");
    }
}

void Engine::Implementation::wait(const Sequence& sequence) {
    const Request& request = sequence.request();
    waiting.push({.id = request.id,
                  .adapter = sequence.adapter_hash(),
                  .priority = request.priority,
                  .turn = sequence.turn,
                  .cost = sequence.known() + std::min(request.max_tokens, expected_output_max),
                  .large = request.large,
                  .is_call = request.is_call});
}

// Once a leader's shared tokens are computed, its forks take them over and wait to run.
void Engine::Implementation::fork_followers(Sequence& leader) {
    std::erase_if(leader.followers, [&](RequestId id) {
        const auto place = sequences.find(id);
        if (place == sequences.end()) return true;
        Sequence& follower = place->second;
        if (leader.computed < follower.request().fork->tokens) return false;
        running.fork(leader, follower);
        if (!follower.blocks.empty()) forks_waiting.insert(id);
        wait(follower);
        return true;
    });
}

void Engine::Implementation::hand_out_delta(Sequence& sequence, bool ended, StepOutput& output) {
    if (!sequence.request().stream) return;
    Delta delta = sequence.take_delta(ended);
    if (!delta.empty()) output.deltas.push_back(std::move(delta));
}

void Engine::Implementation::finish(Sequence& sequence, StepOutput& output) {
    output.results.push_back(sequence.take_result());
    forget(sequence.id());
}

// Drops a sequence, whether it waits or runs. Forks that wait for it then compute their whole prompts themselves.
void Engine::Implementation::forget(RequestId id) {
    const auto place = sequences.find(id);
    if (place == sequences.end()) return;
    Sequence& sequence = place->second;
    running.remove(sequence);
    for (Batch& batch : batches) batch.drop(sequence);
    waiting.remove(id);
    tenants.at(sequence.request().is_call).leave(id);
    forks_waiting.erase(id);
    running.release_blocks(sequence);
    for (const RequestId follower : sequence.followers) {
        if (sequences.contains(follower)) wait(at(follower));
    }
    sequences.erase(place);
    if (sequences.empty()) check_idle();
}

// The whole check takes time for each block, so it waits until as many rows were computed since the last one: a small, fixed share of the
// engine's time, however large the cache and however short the jobs.
void Engine::Implementation::check_idle() {
    CHECK(pool.held() == 0, "no block is held without a sequence");
    if (counts.rows - rows_at_check < static_cast<std::uint64_t>(pool.total())) return;
    check_integrity();
    rows_at_check = counts.rows;
}

void Engine::Implementation::check_integrity() const {
    std::vector<std::span<const BlockId>> tables;
    for (const auto& [id, sequence] : sequences) tables.emplace_back(sequence.blocks);
    pool.check_integrity(tables);
}

const EngineOptions& Engine::options() const { return implementation_->options; }

std::int64_t Engine::context_max() const { return implementation_->context_max; }

void Engine::submit(Request request) { implementation_->submit(std::move(request)); }

void Engine::cancel(RequestId id) { implementation_->forget(id); }

bool Engine::has_work() const { return !implementation_->sequences.empty(); }

void Engine::wait_for_adapters(std::chrono::milliseconds timeout) { implementation_->adapters.wait(timeout); }

EngineStats Engine::stats() const {
    const Implementation& my = *implementation_;
    EngineStats stats = my.counts;
    stats.running = static_cast<std::int64_t>(my.running.size());
    stats.waiting = static_cast<std::int64_t>(my.sequences.size() - my.running.size());
    stats.kv_blocks = my.pool.total();
    stats.kv_blocks_used = my.pool.held();
    stats.kv_blocks_lent = my.pool.lent();
    stats.adapters = my.adapters.stats();
    return stats;
}

void Engine::check_integrity() const { implementation_->check_integrity(); }

}  // namespace lorry::engine
