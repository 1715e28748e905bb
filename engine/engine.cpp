// The step: plan -> batch -> forward -> advance. Read step() first.
#include "engine/engine.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "engine/batch.h"
#include "engine/blank_adapter.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_prefix.h"
#include "engine/waiting_queue.h"
#include "schema/check.h"

namespace lorry::engine {
namespace {

// What fairness charges for an answer at most: limits are often the whole context, answers hardly ever.
constexpr std::int64_t expected_output_max = 256;

std::int64_t kv_blocks(const EngineOptions& options, const kernels::Backend& backend, const kernels::KvShape& shape) {
    const std::size_t block_bytes = backend.kv_block_bytes(shape);
    const std::size_t blocks = options.kv_bytes / block_bytes;
    if (blocks == 0) {
        throw std::runtime_error("kv_bytes = " + std::to_string(options.kv_bytes) + " holds not a single KV block of " +
                                 std::to_string(block_bytes) + " bytes; give the KV cache more memory");
    }
    return static_cast<std::int64_t>(blocks);
}

// The ops of a step of anybody's rows, for what they take and not for what they give.
void forward_blank(const kernels::StepInputs& step, const BlankAdapter& blank, Model& model, kernels::KvCache& cache) {
    const AdapterRows all{.row_begin = 0, .row_count = step.rows, .adapter = &blank};
    model.forward({.step = step, .adapters = {&all, 1}}, cache);
}

}  // namespace

std::int64_t EngineOptions::sample_rows_max() const { return std::max<std::int64_t>(sequences_max, 64); }

void StepOutput::clear() {
    started.clear();
    deltas.clear();
    results.clear();
}

struct Engine::State {
    State(Model& the_model, kernels::Backend& the_backend, const Tokenizer& the_tokenizer, const EngineOptions& the_options)
        : model(the_model),
          backend(the_backend),
          tokenizer(the_tokenizer),
          options(the_options),
          cache(backend.make_kv_cache(model.kv_shape(), kv_blocks(options, backend, model.kv_shape()), options.adapter_bytes)),
          pool(cache->blocks(), backend.block_size()),
          adapters(model, backend, *cache, pool, {}),
          waiting(options.fairness_patience),
          context_max(std::min(model.config().max_positions, pool.total() * pool.block_size())) {
        const std::int64_t count = std::clamp<std::int64_t>(options.steps_in_flight, 1, backend.steps_in_flight_max());
        for (std::int64_t i = 0; i < count; ++i) {
            batches.emplace_back(options.step_rows_max, options.sample_rows_max(), options.sequences_max);
        }
        make_graphs();
    }

    void make_graphs();

    // The four parts of a step. plan: whether it is to be carried out.
    bool plan();
    void form_batch(Batch& batch, StepOutput& output);
    void forward(Batch& batch);
    void advance(const Batch& batch, StepOutput& output);

    // Launching is the first three of them, reading the fourth.
    void launch(StepOutput& output);
    void read(StepOutput& output);
    std::size_t in_flight() const { return launched - finished; }
    void count_work(const Batch& batch);

    // Adapters that are ready, failed, or to be loaded ahead.
    void tend_adapters(StepOutput& output);
    void fail_waiting(const std::string& adapter, const std::string& reason, StepOutput& output);

    Sequence& at(RequestId id) { return sequences.at(id); }
    void wait(Sequence& sequence);
    void admit(Sequence& sequence, const SharedPrefix& prefix, StepOutput& output);
    void leave_batch(Sequence& sequence);
    void preempt(Sequence& sequence);
    void finish(Sequence& sequence, StepOutput& output);
    void forget(RequestId id);

    void allocate(Sequence& sequence, std::int64_t blocks);
    void copy_start(const Sequence& sequence, const SharedPrefix& prefix);
    void release_blocks(Sequence& sequence);
    bool release_blocks_of_waiting();
    void fork_followers(Sequence& leader);
    void fork(const Sequence& leader, Sequence& follower);
    void hand_out_delta(Sequence& sequence, bool ended, StepOutput& output);
    static bool has_finite_results(const Batch& batch, const BatchEntry& entry);
    static void take_log_probabilities(const Batch& batch, const BatchEntry& entry);

    Model& model;
    kernels::Backend& backend;
    const Tokenizer& tokenizer;
    const EngineOptions options;
    std::unique_ptr<kernels::KvCache> cache;
    BlockPool pool;
    AdapterCache adapters;
    WaitingQueue waiting;
    std::unordered_map<RequestId, Sequence> sequences;  // all unfinished; nodes do not move
    std::vector<Sequence*> running;
    std::vector<Sequence*> candidates;                               // waiting ones in this step's order of admission
    std::vector<SharedPrefix> prefixes;                              // of each of them
    std::map<std::string, std::int64_t, std::less<>> live_adapters;  // running sequences per adapter
    std::vector<RequestId> complete_at_submit;                       // nothing is to be computed for them
    std::uint64_t arrivals = 0;

    const std::int64_t context_max;
    std::vector<SequenceView> running_views;
    std::vector<SequenceView> waiting_views;
    StepPlan step_plan;
    std::vector<Batch> batches;  // as many as steps may be in flight, in turn
    std::size_t launched = 0;    // steps
    std::size_t finished = 0;    // of them
    EngineStats counts;
};

Engine::Engine(Model& model, kernels::Backend& backend, const Tokenizer& tokenizer, const EngineOptions& options)
    : state_(std::make_unique<State>(model, backend, tokenizer, options)) {}

// What is in flight would be written to batches that are gone.
Engine::~Engine() {
    try {
        for (; state_->in_flight() > 0; ++state_->finished) state_->backend.finish_step();
    } catch (const std::exception&) {
        // The device has failed, and writes nothing any more.
    }
}

void Engine::State::make_graphs() {
    if (options.graph_bytes == 0) return backend.make_graphs({});
    const BlankAdapter blank(model, backend);
    backend.make_graphs({.rows_max = options.sequences_max, .bytes = options.graph_bytes, .ops = [&](const kernels::StepInputs& step) {
                             forward_blank(step, blank, model, *cache);
                         }});
}

void reserve_steps(Model& model, kernels::Backend& backend, const EngineOptions& options) {
    const BlankAdapter blank(model, backend);
    const auto cache = backend.make_kv_cache(model.kv_shape(), 1, 0);
    backend.reserve_steps({.largest = {.rows = options.step_rows_max,
                                       .sample_rows = std::min(options.step_rows_max, options.sample_rows_max()),
                                       .sequences = options.sequences_max,
                                       .context = model.config().max_positions,
                                       .vocabulary = model.config().vocabulary},
                           .ops = [&](const kernels::StepInputs& step) { forward_blank(step, blank, model, *cache); }});
}

bool Engine::step(StepOutput& output) {
    State& state = *state_;
    output.clear();
    for (const RequestId id : std::exchange(state.complete_at_submit, {})) {
        const auto place = state.sequences.find(id);
        if (place == state.sequences.end()) continue;
        state.hand_out_delta(place->second, true, output);
        state.finish(place->second, output);
    }
    state.tend_adapters(output);
    const bool goes_on = state.plan();
    if (!goes_on && state.in_flight() == 0) return !output.results.empty();
    if (goes_on) state.launch(output);
    if (!goes_on || state.in_flight() == state.batches.size()) state.read(output);
    return true;
}

void Engine::State::launch(StepOutput& output) {
    Batch& batch = batches[launched % batches.size()];
    form_batch(batch, output);
    if (batch.entries().empty()) return;
    forward(batch);
    ++launched;
}

void Engine::State::read(StepOutput& output) {
    backend.finish_step();
    advance(batches[finished++ % batches.size()], output);
}

bool Engine::State::plan() {
    const auto places =
        static_cast<std::size_t>(options.sequences_max) - std::min(running.size(), static_cast<std::size_t>(options.sequences_max));
    candidates.clear();
    if (places > 0 && !waiting.empty()) {
        const WaitingQueue::Context context{
            .is_ready = [&](std::string_view hash) { return hash.empty() || adapters.state(hash) == AdapterCache::State::ready; },
            .is_live = [&](std::string_view hash) { return live_adapters.contains(hash); },
            .needs_room = adapters.needs_room(),
            .groups = options.group_adapters};
        for (const RequestId id : waiting.candidates(places, context)) candidates.push_back(&at(id));
    }
    const StepLimits limits{.rows = options.step_rows_max,
                            .sample_rows = options.sample_rows_max(),
                            .sequences = options.sequences_max,
                            .block_size = pool.block_size()};
    const auto plan_once = [&] {
        running_views.clear();
        waiting_views.clear();
        for (Sequence* sequence : running) {
            SequenceView& view = running_views.emplace_back(sequence->view());
            view.blocks_sole = std::ranges::count_if(sequence->blocks, [&](BlockId block) { return pool.references(block) == 1; });
            if (!options.prefix_cache) continue;
            view.blocks_ahead = sequence->blocks_between(view.computed, view.known, pool.block_size());
            view.blocks_in_flight = sequence->blocks_between(sequence->computed, view.computed, pool.block_size());
        }
        prefixes.clear();
        // Lent blocks count as available, as long as nobody who is admitted has its adapter there.
        const std::int64_t lent = pool.lent() > 0 ? adapters.blocks_to_take_back() : 0;
        std::int64_t left = lent;
        for (Sequence* sequence : candidates) {
            SequenceView& view = waiting_views.emplace_back(view_waiting(*sequence, pool, options.prefix_cache, prefixes.emplace_back()));
            if (lent > 0) left = std::min(left, adapters.lent_blocks_before(sequence->adapter_hash()));
            view.blocks_kept = lent - left;
        }
        plan_step(running_views, waiting_views, pool.available() + lent, limits, step_plan);
    };
    plan_once();
    // Steps in flight may end sequences, which gives room back: they are read before anybody is preempted for it.
    if (in_flight() > 0) return !step_plan.empty() && step_plan.preempt.empty();
    // Forks that wait hold blocks; when these are all that keeps the step empty, they start without.
    if (step_plan.empty() && step_plan.preempt.empty() && !candidates.empty() && release_blocks_of_waiting()) plan_once();
    // And when it is blocks in which their own adapters lie, these are loaded again elsewhere.
    if (step_plan.empty() && running.empty() && !candidates.empty() && pool.lent() > 0) {
        const std::int64_t lent = pool.lent();
        adapters.take_back_for(candidates.front()->adapter_hash());
        if (pool.lent() < lent) return plan();
    }
    return !step_plan.empty() || !step_plan.preempt.empty();
}

void Engine::State::form_batch(Batch& batch, StepOutput& output) {
    batch.clear();
    // Victims first, their blocks are what the others get; then the shared prefixes are held, before allocation could drop them.
    for (const std::size_t index : step_plan.preempt) preempt(*running[index]);
    for (const PlannedRows& planned : step_plan.admissions) admit(*candidates[planned.index], prefixes[planned.index], output);
    for (const PlannedRows& planned : step_plan.running) {
        allocate(*running[planned.index], planned.new_blocks);
        batch.add(*running[planned.index], planned.rows);
    }
    for (const PlannedRows& planned : step_plan.admissions) {
        Sequence& sequence = *candidates[planned.index];
        allocate(sequence, planned.new_blocks);
        copy_start(sequence, prefixes[planned.index]);
        batch.add(sequence, planned.rows);
        running.push_back(&sequence);
    }
    std::erase_if(running, [](const Sequence* sequence) { return !sequence->running; });
    batch.build(model);
}

void Engine::State::forward(Batch& batch) {
    backend.begin_step(batch.step());
    const kernels::Matrix logits = model.forward({.step = batch.step(), .adapters = batch.adapters()}, *cache);
    if (!batch.sample_rows().empty()) {
        backend.sample({.logits = logits, .rows = batch.sample_rows(), .results = batch.sample_results()});
    }
    count_work(batch);
    for (const BatchEntry& entry : batch.entries()) {
        Sequence& sequence = *entry.sequence;
        sequence.in_flight.rows += entry.rows;
        if (!entry.draws) continue;
        ++sequence.in_flight.draws;
        sequence.in_flight.draw_row = entry.final_sample_row();
    }
}

void Engine::State::count_work(const Batch& batch) {
    ++counts.steps;
    counts.rows += static_cast<std::uint64_t>(batch.step().rows);
    counts.sampled_rows += batch.step().sample_rows.size();
    for (const BatchEntry& entry : batch.entries()) {
        const std::int64_t prompt_left = std::max<std::int64_t>(0, entry.sequence->prompt_tokens() - entry.sequence->launched());
        counts.prompt_tokens += static_cast<std::uint64_t>(std::min(prompt_left, entry.rows));
    }
    for (const kernels::StepSequence& sequence : batch.step().sequences) {
        const std::int64_t end = sequence.position + sequence.row_count;
        counts.context_tokens += static_cast<std::uint64_t>(end);
        counts.attended_tokens += static_cast<std::uint64_t>(sequence.row_count * (sequence.position + 1 + end) / 2);
    }
    for (const AdapterRows& group : batch.adapters()) {
        const auto elements = static_cast<std::uint64_t>(group.adapter->info().elements);
        ++counts.adapter_groups;
        counts.adapter_elements += elements;
        counts.adapter_products += elements * static_cast<std::uint64_t>(group.row_count);
    }
    counts.last_rows = batch.step().rows;
    counts.last_adapters = static_cast<std::int64_t>(batch.adapters().size());
}

void Engine::State::advance(const Batch& batch, StepOutput& output) {
    for (const BatchEntry& entry : batch.entries()) {
        if (entry.sequence == nullptr) continue;
        Sequence& sequence = *entry.sequence;
        sequence.computed += entry.rows;
        sequence.in_flight.rows -= entry.rows;
        if (!has_finite_results(batch, entry)) {
            sequence.result.error = schema::JobError{
                .code = schema::ErrorCode::non_finite_logits,
                .param = "model",
                .message = "the model's output overflowed for this prompt: " +
                           (sequence.adapter_hash().empty() ? std::string("the base model") : "adapter " + sequence.adapter_hash()) +
                           " gives no usable numbers; check how it was trained and its lora_alpha"};
            finish(sequence, output);
            continue;
        }
        take_log_probabilities(batch, entry);
        if (options.prefix_cache) index_full_blocks(sequence, pool);
        fork_followers(sequence);
        bool ended = sequence.is_complete();
        if (entry.draws) {
            --sequence.in_flight.draws;
            if (sequence.output().empty()) sequence.result.first_token = Clock::now();
            ended = sequence.accept(batch.result(entry.final_sample_row()));
            ++counts.drawn_tokens;
        }
        hand_out_delta(sequence, ended, output);
        if (ended) finish(sequence, output);
    }
}

void Engine::State::hand_out_delta(Sequence& sequence, bool ended, StepOutput& output) {
    if (!sequence.request().stream) return;
    Delta delta = sequence.take_delta(ended);
    if (!delta.empty()) output.deltas.push_back(std::move(delta));
}

bool Engine::State::has_finite_results(const Batch& batch, const BatchEntry& entry) {
    const std::int64_t end = entry.final_sample_row() + (entry.final_row ? 1 : 0);
    for (std::int64_t row = entry.sample_begin; row < end; ++row) {
        if (!batch.result(row).is_finite) return false;
    }
    return true;
}

// The scores of prompt tokens and of the wanted successors, from this step's rows.
void Engine::State::take_log_probabilities(const Batch& batch, const BatchEntry& entry) {
    Sequence& sequence = *entry.sequence;
    for (std::int64_t i = 0; i < entry.score_rows; ++i) {
        const kernels::SampleResult& scored = batch.result(entry.sample_begin + i);
        const std::size_t next = static_cast<std::size_t>(*sequence.request().score_begin) + sequence.result.scores.size() + 1;
        sequence.result.scores.push_back({sequence.tokens[next], scored.targets.front(), scored.top});
    }
    if (entry.final_row && sequence.output().empty() && !sequence.request().final_targets.empty()) {
        sequence.result.final_targets = batch.result(entry.final_sample_row()).targets;
    }
}

void Engine::State::tend_adapters(StepOutput& output) {
    adapters.poll(options.lend_blocks && !running.empty());
    if (const auto homeless = adapters.needs_room(); homeless && !waiting.waits_for(*homeless)) adapters.give_up_room();
    std::int64_t ahead = 0;
    std::vector<std::string> failed;
    for (const WaitingEntry* first : waiting.firsts()) {
        if (ahead == options.prefetch_max) break;
        const AdapterCache::State state = adapters.state(first->adapter);
        if (state == AdapterCache::State::ready || state == AdapterCache::State::retrying) continue;
        if (state == AdapterCache::State::failed) {
            failed.push_back(first->adapter);
            continue;
        }
        adapters.prefetch(*at(first->id).request().adapter);
        ++ahead;
    }
    for (const std::string& hash : failed) fail_waiting(hash, adapters.failure(hash), output);
}

void Engine::State::fail_waiting(const std::string& adapter, const std::string& reason, StepOutput& output) {
    for (const RequestId id : waiting.requests_of(adapter)) {
        Sequence& sequence = at(id);
        sequence.result.error = schema::JobError{.code = schema::ErrorCode::adapter_failed, .param = "model", .message = reason};
        finish(sequence, output);
    }
}

void Engine::State::wait(Sequence& sequence) {
    const Request& request = sequence.request();
    waiting.push({.id = request.id,
                  .adapter = sequence.adapter_hash(),
                  .priority = request.priority,
                  .arrival = sequence.arrival,
                  .cost = sequence.known() + std::min(request.max_tokens, expected_output_max)});
}

// Takes a waiting sequence into the batch with what its prefix shares. What is to be copied is held until copy_start().
void Engine::State::admit(Sequence& sequence, const SharedPrefix& prefix, StepOutput& output) {
    if (sequence.blocks.empty()) {
        sequence.blocks = prefix.blocks;
        for (const BlockId block : prefix.blocks) pool.share(block);
        if (prefix.start) pool.share(prefix.start->block);
        sequence.computed = prefix.tokens(pool.block_size());
        sequence.indexed = std::ssize(prefix.blocks);
    }
    const std::int64_t of_prompt = std::min(sequence.computed, sequence.prompt_tokens());
    if (sequence.result.started == Clock::time_point{}) {
        sequence.result.started = Clock::now();
        sequence.result.cached_tokens = of_prompt;
        output.started.push_back(sequence.id());
    }
    counts.cached_tokens += static_cast<std::uint64_t>(of_prompt);
    if (sequence.request().adapter) {
        sequence.adapter = adapters.pin(sequence.adapter_hash());
        CHECK(sequence.adapter != nullptr, "only sequences whose adapter is ready are admitted");
    }
    ++live_adapters[sequence.adapter_hash()];
    waiting.admit(sequence.id());
    sequence.running = true;
}

// Out of the batch: gives back its place and its adapter. The caller takes it out of `running`.
void Engine::State::leave_batch(Sequence& sequence) {
    if (!std::exchange(sequence.running, false)) return;
    const auto live = live_adapters.find(sequence.adapter_hash());
    if (--live->second == 0) live_adapters.erase(live);
    if (std::exchange(sequence.adapter, nullptr) != nullptr) adapters.unpin(sequence.adapter_hash());
}

void Engine::State::preempt(Sequence& sequence) {
    CHECK(sequence.in_flight.rows == 0, "steps in flight are read before anybody is preempted");
    leave_batch(sequence);
    release_blocks(sequence);
    wait(sequence);
    ++counts.preemptions;
}

void Engine::State::finish(Sequence& sequence, StepOutput& output) {
    output.results.push_back(sequence.take_result());
    forget(sequence.id());
}

// Drops a sequence wherever it is. Forks that waited for it go on alone.
void Engine::State::forget(RequestId id) {
    const auto place = sequences.find(id);
    if (place == sequences.end()) return;
    Sequence& sequence = place->second;
    const bool was_running = sequence.running;
    leave_batch(sequence);
    if (was_running) std::erase(running, &sequence);
    for (Batch& batch : batches) batch.drop(sequence);
    waiting.remove(id);
    release_blocks(sequence);
    for (const RequestId follower : sequence.followers) {
        if (sequences.contains(follower)) wait(at(follower));
    }
    sequences.erase(place);
}

void Engine::State::allocate(Sequence& sequence, std::int64_t blocks) {
    if (blocks > pool.available()) adapters.take_back(blocks - pool.available());
    for (std::int64_t i = 0; i < blocks; ++i) sequence.blocks.push_back(pool.allocate());
}

void Engine::State::copy_start(const Sequence& sequence, const SharedPrefix& prefix) {
    if (!prefix.start) return;
    backend.copy_block(*cache, prefix.start->block, sequence.blocks[prefix.blocks.size()]);
    pool.release(prefix.start->block);
}

void Engine::State::release_blocks(Sequence& sequence) {
    while (!sequence.blocks.empty()) {
        pool.release(sequence.blocks.back());
        sequence.blocks.pop_back();
    }
    sequence.computed = 0;
    sequence.indexed = 0;
}

bool Engine::State::release_blocks_of_waiting() {
    bool released = false;
    for (auto& [id, sequence] : sequences) {
        if (sequence.running || sequence.blocks.empty()) continue;
        release_blocks(sequence);
        released = true;
    }
    return released;
}

// Once a leader's shared tokens are computed, its forks take them over and wait for a place of their own.
void Engine::State::fork_followers(Sequence& leader) {
    std::erase_if(leader.followers, [&](RequestId id) {
        const auto place = sequences.find(id);
        if (place == sequences.end()) return true;
        Sequence& follower = place->second;
        if (leader.computed < follower.request().fork->tokens) return false;
        fork(leader, follower);
        wait(follower);
        return true;
    });
}

void Engine::State::fork(const Sequence& leader, Sequence& follower) {
    const std::int64_t tokens = follower.request().fork->tokens;
    const std::int64_t full = tokens / pool.block_size();
    for (std::int64_t i = 0; i < full; ++i) {
        follower.blocks.push_back(leader.blocks[static_cast<std::size_t>(i)]);
        pool.share(follower.blocks.back());
    }
    follower.indexed = full;
    follower.computed = full * pool.block_size();
    // The rest of the last block is copied while there is room for those that run; else it is computed again.
    if (follower.computed == tokens || pool.available() <= static_cast<std::int64_t>(running.size())) return;
    allocate(follower, 1);
    backend.copy_block(*cache, leader.blocks[static_cast<std::size_t>(full)], follower.blocks.back());
    follower.computed = tokens;
}

std::int64_t Engine::context_max() const { return state_->context_max; }

void Engine::submit(Request request) {
    State& state = *state_;
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    CHECK(prompt_tokens > 0 && prompt_tokens <= state.context_max, "intake admits only prompts that fit");
    CHECK(!request.fork || request.fork->tokens < prompt_tokens, "a fork computes at least its last prompt token itself");
    // A prompt that fills the context has room for no token more, and one is drawn all the same.
    request.max_tokens = std::min(request.max_tokens, std::max<std::int64_t>(1, state.context_max - prompt_tokens));
    const RequestId id = request.id;
    const std::string_view adapter = request.adapter ? std::string_view(request.adapter->hash) : std::string_view();
    const BlockHash root = root_hash(adapter, state.model.kv_depends_on_prompt_length(prompt_tokens) ? prompt_tokens : 0);
    const auto [place, fresh] = state.sequences.try_emplace(id, std::move(request), state.arrivals++, root, state.tokenizer);
    CHECK(fresh, "request ids are unique");
    Sequence& sequence = place->second;
    if (sequence.is_complete()) {
        state.complete_at_submit.push_back(id);
        return;
    }
    if (sequence.request().fork) {
        const auto leader = state.sequences.find(sequence.request().fork->leader);
        if (leader != state.sequences.end() && leader->second.root() == root && leader->second.computed < sequence.request().fork->tokens) {
            leader->second.followers.push_back(id);
            return;
        }
    }
    state.wait(sequence);
}

void Engine::cancel(RequestId id) { state_->forget(id); }

bool Engine::has_work() const { return !state_->sequences.empty(); }

void Engine::wait_for_adapters(std::chrono::milliseconds timeout) { state_->adapters.wait(timeout); }

EngineStats Engine::stats() const {
    EngineStats stats = state_->counts;
    stats.running = static_cast<std::int64_t>(state_->running.size());
    stats.waiting = static_cast<std::int64_t>(state_->sequences.size() - state_->running.size());
    stats.kv_blocks = state_->pool.total();
    stats.kv_blocks_used = state_->pool.held();
    stats.kv_blocks_lent = state_->pool.lent();
    stats.adapters = state_->adapters.stats();
    return stats;
}

void Engine::check_integrity() const {
    std::vector<std::span<const BlockId>> tables;
    for (const auto& [id, sequence] : state_->sequences) tables.emplace_back(sequence.blocks);
    state_->pool.check_integrity(tables);
}

}  // namespace lorry::engine
