// The way of a job: intake -> generate -> publish. Read run() first, then the three loops, then receive() and prepare().
#include "consumer/pipeline.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "consumer/batch_failure.h"
#include "consumer/bounded_queue.h"
#include "consumer/generator.h"
#include "consumer/intake.h"
#include "consumer/jobs_in_flight.h"
#include "consumer/parked_jobs.h"
#include "consumer/publisher.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds poll_timeout{50};
constexpr std::chrono::milliseconds idle_wait{20};
constexpr std::chrono::milliseconds idle_commit_interval{20};
constexpr std::chrono::seconds report_interval{2};
constexpr std::size_t publications_max = 4096;
constexpr std::size_t polled_max = 256;                  // at a time, as their bytes are not known before
constexpr std::size_t retried_max = 512;                 // jobs that wait for a name which is looked up again, at a time
constexpr std::chrono::seconds parked_look_interval{1};  // between two looks for cancelled and expired jobs among all that are parked
constexpr std::size_t parked_share_max = 8;              // in windows of in_flight_max: jobs that may be parked
constexpr std::size_t grammars_ordered_max = 4;          // of jobs, and of calls: each may take megabytes until its job goes on
constexpr std::chrono::milliseconds compiling_turn{1};   // about as long as a grammar takes

InFlightLimits limits_of(const PipelineOptions& options, const engine::EngineOptions& engine) {
    InFlightLimits limits = InFlightLimits::of(options.in_flight.tokens, options.in_flight.bytes, engine);
    limits.keeps_room_for_calls = options.calls_in_flight_max > 0;
    return limits;
}

}  // namespace

struct Pipeline::State final : RevocationHandler {
    State(const PipelineParts& the_parts, const PipelineOptions& the_options)
        : parts(the_parts),
          options(the_options),
          limits(limits_of(options, parts.engine.options())),
          jobs_in_flight(limits),
          submissions(the_options.in_flight_max + the_options.calls_in_flight_max),
          publications(publications_max),
          intake(parts.adapters, parts.preparer, {.worker = options.worker, .parse = options.parse, .limits = limits}),
          grammars(grammars_ordered_max, [this](std::chrono::microseconds took) { parts.observer.on_compiled(took); }),
          generator(parts.engine, parts.cancels, jobs_in_flight, publications, parts.observer,
                    {.running_status_after = options.running_status_after, .job_timeout = options.job_timeout}),
          publisher(parts.sink, parts.reply, jobs_in_flight, parts.observer) {}

    // The three loops, one thread each.
    void intake_loop(const std::atomic<bool>& stop);
    void generate_loop();
    void publish_loop();

    // Intake.
    void receive(Delivery delivery);
    void prepare(AdmittedJob admitted, std::optional<Awaited> from = {});
    void start(WeighedJob weighed);
    bool has_ended(const AdmittedJob& admitted);
    void retry_parked();
    void retry_compiled(Awaited awaited);
    void retry_starts();
    void end_parked();
    void update_observer();
    void report_held_back();
    std::size_t working() const;
    std::size_t room() const;
    std::size_t room_for_calls() const;
    std::chrono::milliseconds poll_time() const;
    std::optional<engine::GrammarThread::Ordered> grammar_of(const AdmittedJob& admitted, const ModelName& model) const;
    bool has_grammar(const AdmittedJob& admitted) const;
    void order_grammars(Awaited awaited);
    std::optional<Awaited> lacks(const AdmittedJob& admitted, std::optional<Awaited> from);
    std::optional<Awaited> lacks(const schema::Source& source, const JobWeight& weight, std::optional<Awaited> from);
    void park(Awaited awaited, AdmittedJob admitted, std::optional<Awaited> from);
    void refuse(Refused refused);

    void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) override;
    void lost(const std::vector<PartitionEpoch>& partitions) override;
    void drop_waiting(const std::vector<PartitionEpoch>& partitions);
    void end_generating(std::thread& generating);
    void end_publishing(std::thread& publishing);
    void set_publishing_since(std::optional<Clock::time_point> time);
    bool is_commit_overdue() const;
    void check_commit() const;

    template <typename Loop>
    void guarded(Loop loop);
    std::string failure_text();
    void rethrow_failure();

    const PipelineParts parts;
    const PipelineOptions options;
    const InFlightLimits limits;

    JobsInFlight jobs_in_flight;
    BoundedQueue<Submission> submissions;    // intake -> generate
    BoundedQueue<Publication> publications;  // intake and generate -> publish

    Intake intake;  // intake thread, with the next seven
    engine::GrammarThread grammars;
    ParkedJobs parked;
    std::deque<WeighedJob> starting;  // jobs that have waited, and now have room: each waits until its source lets it go on
    bool is_closing = false;          // the worker ends: what is lost now is an error
    bool is_full = false;             // the first job that waits for room finds none until others end
    Clock::time_point next_look{};
    Clock::time_point next_report{};

    // As the intake thread last saw them.
    std::atomic<std::size_t> idle = 0;      // jobs that are parked or starting
    std::atomic<bool> starts_wait = false;  // for a commit

    Generator generator;  // engine thread
    Publisher publisher;  // publishing thread

    std::atomic<bool> failed = false;
    std::promise<void> generated;  // the engine thread has ended
    std::promise<void> published;  // the publishing thread has ended
    mutable std::mutex publishing_mutex;
    // Guarded by publishing_mutex: since when the publisher has been working on what it took from its queue, which includes waiting for the
    // sink.
    std::optional<Clock::time_point> publishing_since;
    std::mutex failure_mutex;
    std::exception_ptr failure;  // guarded by failure_mutex: the first failure of any thread
};

Pipeline::Pipeline(const PipelineParts& parts, const PipelineOptions& options) : state_(std::make_unique<State>(parts, options)) {}
Pipeline::~Pipeline() = default;

void Pipeline::run() {
    State& state = *state_;
    std::thread generating([&] {
        state.guarded([&] { state.generate_loop(); });
        state.generated.set_value();
    });
    std::thread publishing([&] {
        state.guarded([&] { state.publish_loop(); });
        state.published.set_value();
    });
    state.guarded([&] { state.intake_loop(stop_); });
    if (state.failed) state.parts.source.give_up();
    state.submissions.close();
    state.end_generating(generating);
    state.publications.close();
    state.end_publishing(publishing);
    state.rethrow_failure();
}

void Pipeline::State::intake_loop(const std::atomic<bool>& stop) {
    while (!stop && !failed) {
        retry_parked();
        if (parts.source.exhausted() && jobs_in_flight.total() == 0) break;
        // Calls that wait have limits of their own.
        const std::size_t jobs_parked = parked.count() - parked.calls();
        const std::int64_t bytes_parked = parked.bytes() - parked.bytes_of_calls();
        const bool may_park = jobs_parked < parked_share_max * options.in_flight_max && bytes_parked < limits.bytes / 2;
        const bool has_bytes = !jobs_in_flight.taken().exceeds(limits.all());  // refused records may take more
        const std::size_t wanted = may_park && has_bytes ? std::min(room(), polled_max) : 0;
        parts.source.allow_calls(has_bytes ? std::min(room_for_calls(), polled_max) : 0);
        for (Delivery& delivery : parts.source.poll(poll_time(), wanted, *this)) receive(std::move(delivery));
        idle = parked.count() + starting.size();
        report_held_back();
        update_observer();
        check_commit();
    }
    is_closing = true;
    if (!failed) parts.source.close(*this, Clock::now() + options.drain_timeout);
}

// The publisher commits starts of calls at once, and those of other jobs soon.
void Pipeline::State::report_held_back() {
    const JobSource::HeldBack held = parts.source.held_back();
    starts_wait = !starting.empty() || held != JobSource::HeldBack::none;
    const auto is_call = [&](const WeighedJob& job) { return parts.source.is_call(job.tokenized.plan.job.source); };
    Publication publication = CallsHeldBack();
    if (held == JobSource::HeldBack::calls || std::ranges::any_of(starting, is_call)) publications.push_for(publication, {});
}

// Neither parked jobs nor calls count: they have limits of their own.
std::size_t Pipeline::State::working() const {
    const std::size_t inside = jobs_in_flight.total();
    return inside - std::min(inside, jobs_in_flight.calls() + parked.count() - parked.calls());
}

// How many more jobs may be polled or retried.
std::size_t Pipeline::State::room() const { return is_full ? 0 : options.in_flight_max - std::min(options.in_flight_max, working()); }

std::size_t Pipeline::State::room_for_calls() const {
    const std::size_t waiting = parked.calls();
    if (waiting >= parked_share_max * options.calls_in_flight_max || parked.bytes_of_calls() >= limits.kept_for_calls().bytes) return 0;
    return options.calls_in_flight_max - std::min(options.calls_in_flight_max, jobs_in_flight.calls() - waiting);
}

// Without this check the worker would stay in the group, and its partitions would never be processed again.
void Pipeline::State::check_commit() const {
    if (is_commit_overdue()) throw std::runtime_error("a commit hangs: restart the worker; jobs without a committed result run again");
}

void Pipeline::State::update_observer() {
    const JobWeight taken = jobs_in_flight.taken();
    parts.observer.on_gauges({.in_flight = jobs_in_flight.total(),
                              .parked = parked.count(),
                              .in_flight_max = options.in_flight_max,
                              .tokens = taken.tokens,
                              .tokens_max = limits.tokens,
                              .bytes = taken.bytes,
                              .bytes_max = limits.bytes,
                              .unpublished = publications.size()});
    const Clock::time_point now = Clock::now();
    if (now < next_report) return;
    next_report = now + report_interval;
    parts.observer.on_backlog(parts.source.backlog());
    parts.observer.on_oldest(jobs_in_flight.oldest(now));
}

void Pipeline::State::generate_loop() {
    while (!failed) {
        for (Submission& submission : submissions.pop_all(generator.is_idle() ? idle_wait : std::chrono::milliseconds(0))) {
            generator.submit(std::move(submission));
        }
        if (generator.is_idle() && submissions.is_drained()) return;
        generator.step();
    }
}

void Pipeline::State::publish_loop() {
    Clock::time_point next_commit = Clock::now() + options.commit_interval;
    while (!failed) {
        // While nothing else runs, waiting for more results only delays. While starts wait, small jobs would run at the pace of commits:
        // each takes two, one that lists its start and one that gives its place to another.
        const auto nothing_runs = [&] { return jobs_in_flight.total() <= publisher.uncommitted() + idle; };
        if (nothing_runs() || starts_wait) next_commit = std::min(next_commit, Clock::now() + idle_commit_interval);
        const auto until_commit = std::chrono::ceil<std::chrono::milliseconds>(next_commit - Clock::now());  // rounded down, it would spin
        // It does not wake when jobs become idle or starts begin to wait.
        auto taken = publications.pop_all(std::clamp(until_commit, std::chrono::milliseconds(0), idle_commit_interval));
        set_publishing_since(Clock::now());
        for (Publication& publication : taken) publisher.take(std::move(publication));
        const bool at_end = publications.is_drained();
        // Small jobs fill the window long before the interval ends.
        const bool window_fills = publisher.uncommitted() * 4 >= options.in_flight_max;
        const bool all_done = publisher.uncommitted() > 0 && nothing_runs();
        if (Clock::now() >= next_commit || window_fills || all_done || at_end) {
            publisher.commit();
            next_commit = Clock::now() + options.commit_interval;
        } else if (publisher.calls_wait()) {
            publisher.commit_calls();
        }
        set_publishing_since(std::nullopt);
        if (at_end) return;
    }
}

void Pipeline::State::receive(Delivery delivery) {
    const Clock::time_point delivered = Clock::now();
    const Epoch epoch = delivery.epoch;
    const schema::JobRecord& record = delivery.record;
    auto admitted = intake.admit(delivery, delivered);
    jobs_in_flight.add({.source = record.source,
                        .epoch = epoch,
                        .job_id = admitted ? admitted->job.id : admitted.error().job_id,
                        .delivered = delivered,
                        .is_call = parts.source.is_call(record.source)});
    if (!admitted) {
        // It needs no room, but takes memory until it is committed.
        jobs_in_flight.weigh(record.source, epoch, {.bytes = schema::memory_bytes(record)});
        return refuse(intake.refusal(std::move(delivery), std::move(admitted.error())));
    }
    parts.observer.on_admitted(admitted->job);
    prepare(std::move(*admitted));
}

// Resolves the model, tokenizes, weighs and takes room; the job then starts, or is parked or refused. `from`: where it was parked.
void Pipeline::State::prepare(AdmittedJob admitted, std::optional<Awaited> from) {
    if (has_ended(admitted)) return;
    const bool is_call = parts.source.is_call(admitted.job.source);
    ModelName model = intake.resolve(admitted);
    if (model.kind == ModelName::Kind::not_yet) return park(is_call ? Awaited::for_a_call : Awaited::name, std::move(admitted), from);
    engine::GrammarThread::Ordered grammar;
    if (model.can_run()) {
        // Its turn for room had come when its grammar was no longer kept.
        if (from == Awaited::grammar && admitted.weight)
            from = admitted.weight->exceeds(limits.large()) ? Awaited::large_room : Awaited::room;
        if (const auto awaited = lacks(admitted, from)) return park(*awaited, std::move(admitted), from);
        auto compiled = grammar_of(admitted, model);
        if (!compiled) return park(is_call ? Awaited::grammar_of_call : Awaited::grammar, std::move(admitted), from);
        grammar = *std::move(compiled);
    }
    auto weighed = intake.weigh(std::move(admitted), std::move(model), grammar);
    if (!weighed) return refuse(std::move(weighed.error()));
    const JobWeight weight = weighed->tokenized.weight;
    const schema::Source& source = weighed->tokenized.plan.job.source;
    if (const auto awaited = lacks(source, weight, from)) return park(*awaited, std::move(*weighed).untokenized(), from);
    jobs_in_flight.weigh(source, weighed->epoch, weight);
    start(std::move(*weighed));
}

// The job has its room. It keeps it while its source does not let it go on, so that nobody who comes later can take it.
void Pipeline::State::start(WeighedJob weighed) {
    const schema::Source& source = weighed.tokenized.plan.job.source;
    if (!parts.source.may_go_on(source, weighed.epoch)) return starting.push_back(std::move(weighed));
    const bool is_call = parts.source.is_call(source);
    submissions.push(intake.expand(std::move(weighed), is_call));
}

// Null: the job needs none, or will be refused. nullopt: it is not compiled yet.
std::optional<engine::GrammarThread::Ordered> Pipeline::State::grammar_of(const AdmittedJob& admitted, const ModelName& model) const {
    if (admitted.grammar && admitted.grammar_text == model.text_key())
        return admitted.grammar->is_compiled() ? std::optional(admitted.grammar) : std::nullopt;
    auto demand = parts.preparer.demand(admitted.job, model);
    if (!demand) return nullptr;
    auto kept = demand->compiler->find(demand->structure);
    if (!kept.valid()) return std::nullopt;
    return std::make_shared<const engine::OrderedGrammar>(std::move(demand->structure), std::move(kept));
}

// Whether a job that waits for its grammar can go on, if only to be refused.
bool Pipeline::State::has_grammar(const AdmittedJob& admitted) const {
    const ModelName model = intake.resolve(admitted);
    return !model.can_run() || grammar_of(admitted, model);
}

// Of the first that wait.
void Pipeline::State::order_grammars(Awaited awaited) {
    for (std::size_t i = 0; i < std::min(parked.count(awaited), grammars_ordered_max); ++i) {
        AdmittedJob& waiting = parked.at(awaited, i);
        const ModelName model = intake.resolve(waiting);
        if (waiting.grammar && waiting.grammar_text == model.text_key()) continue;
        auto demand = model.can_run() ? parts.preparer.demand(waiting.job, model) : std::nullopt;
        if (!demand) continue;  // it is refused in its turn
        // What is compiled may kill the worker. A job that waited for something else before does not count as started yet.
        if (!parts.source.may_go_on(waiting.job.source, waiting.epoch)) continue;
        waiting.grammar = grammars.order(std::move(demand->compiler), std::move(demand->structure), awaited == Awaited::grammar_of_call);
        waiting.grammar_text = model.text_key();
    }
}

// Publishes the end of a job that was cancelled or has expired.
bool Pipeline::State::has_ended(const AdmittedJob& admitted) {
    const auto reason = failure_before_start(admitted.job, parts.cancels);
    if (reason) refuse(intake.ended(admitted, *reason));
    return reason.has_value();
}

// What a job that is resolved lacks, whose weight may not be known yet.
std::optional<Awaited> Pipeline::State::lacks(const AdmittedJob& admitted, std::optional<Awaited> from) {
    if (admitted.weight) return lacks(admitted.job.source, *admitted.weight, from);
    const bool has_place = parts.source.is_call(admitted.job.source) || (!is_full && working() <= options.in_flight_max);
    return has_place ? std::nullopt : std::optional(Awaited::room);
}

// What a job lacks. Large jobs begin in the order in which they came. Calls have places as long as they are read.
std::optional<Awaited> Pipeline::State::lacks(const schema::Source& source, const JobWeight& weight, std::optional<Awaited> from) {
    if (parts.source.is_call(source)) {
        if (jobs_in_flight.room_for(weight, true) == JobsInFlight::Room::free) return std::nullopt;
        // What is kept for calls is not enough for it, so no job may take what others give back.
        if (weight.exceeds(limits.kept_for_calls())) is_full = true;
        return Awaited::for_a_call;
    }
    if (is_full || working() > options.in_flight_max) return Awaited::room;
    const bool large = weight.exceeds(limits.large());
    if (large && from != Awaited::large_room && parked.count(Awaited::large_room) > 0) return Awaited::large_room;
    switch (jobs_in_flight.room_for(weight, false)) {
        case JobsInFlight::Room::free: return std::nullopt;
        case JobsInFlight::Room::full_for_large: return Awaited::large_room;
        case JobsInFlight::Room::full: is_full = true; return large ? Awaited::large_room : Awaited::room;
    }
    CHECK(false, "there is room or not");
}

// A job that still lacks room keeps its turn, so that it starts however many others follow.
void Pipeline::State::park(Awaited awaited, AdmittedJob admitted, std::optional<Awaited> from) {
    const bool awaits_grammar = awaited == Awaited::grammar || awaited == Awaited::grammar_of_call;
    if (!awaits_grammar) {
        // While its grammar is compiled, it counts as started, as that may be what kills the worker (order_grammars).
        parts.source.waits(admitted.job.source, admitted.epoch);
        admitted.grammar.reset();  // it may take megabytes
    }
    const bool keeps_turn = awaited == from && (awaited == Awaited::room || awaited == Awaited::large_room);
    keeps_turn ? parked.push_first(awaited, std::move(admitted)) : parked.push(awaited, std::move(admitted));
    if (awaits_grammar) order_grammars(awaited);
}

// Calls first. Then the longest waiting: those that have room, then large ones, which smaller ones could pass for ever.
void Pipeline::State::retry_parked() {
    is_full = false;
    retry_starts();
    end_parked();
    retry_compiled(Awaited::grammar_of_call);
    for (std::size_t left = parked.count(Awaited::for_a_call); left > 0; --left)
        prepare(parked.pop(Awaited::for_a_call), Awaited::for_a_call);
    for (const Awaited awaited : {Awaited::large_room, Awaited::room}) {
        for (std::size_t before = parked.count(awaited); before > 0 && room() > 0; before = parked.count(awaited)) {
            prepare(parked.pop(awaited), awaited);
            if (parked.count(awaited) == before) break;  // the first one still lacks room
        }
    }
    retry_compiled(Awaited::grammar);
    for (std::size_t left = std::min(parked.count(Awaited::name), retried_max); left > 0 && room() > 0; --left) {
        prepare(parked.pop(Awaited::name), Awaited::name);
    }
}

// In the order in which they came. Those for which there is no room by now wait for that.
void Pipeline::State::retry_compiled(Awaited awaited) {
    while (parked.count(awaited) > 0 && has_grammar(parked.first(awaited))) prepare(parked.pop(awaited), awaited);
    order_grammars(awaited);
}

// A job whose grammar is compiled does not wait for the end of a long poll.
std::chrono::milliseconds Pipeline::State::poll_time() const {
    const auto compiles = [&](Awaited awaited) { return parked.count(awaited) > 0 && !has_grammar(parked.first(awaited)); };
    return compiles(Awaited::grammar_of_call) || compiles(Awaited::grammar) ? compiling_turn : poll_timeout;
}

void Pipeline::State::retry_starts() {
    for (std::deque<WeighedJob> waiting = std::exchange(starting, {}); WeighedJob & job : waiting) start(std::move(job));
}

// Ends cancelled and expired jobs, also those whose turn has not come.
void Pipeline::State::end_parked() {
    const Clock::time_point now = Clock::now();
    if (now < next_look) return;
    next_look = now + parked_look_interval;
    const auto ended = [&](const AdmittedJob& job) { return failure_before_start(job.job, parts.cancels).has_value(); };
    for (AdmittedJob& job : parked.take_if(ended)) prepare(std::move(job));
}

// While the queue is full, the publisher may be stuck: checks for an overdue commit.
void Pipeline::State::refuse(Refused refused) {
    jobs_in_flight.end(refused.outcome.source, refused.outcome.epoch);
    Publication publication = std::move(refused);
    while (!publications.push_for(publication, poll_timeout)) check_commit();
}

// Running jobs have until the deadline; jobs that only wait cost the next owner nothing and are forgotten at once. The commit of ended jobs
// then takes release_timeout at most. Both together stay far below the time after which the group removes a silent member. Does not depend
// on the engine: the jobs that it still computes are forgotten, and the generator drops them.
void Pipeline::State::drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) {
    drop_waiting(partitions);
    jobs_in_flight.forget_waiting(partitions);
    const auto is_in_vain = [&] { return failed || parts.source.has_lost_partitions(); };
    if (jobs_in_flight.wait_until_none(partitions, deadline, is_in_vain)) return;
    jobs_in_flight.forget_unfinished(partitions);
    if (jobs_in_flight.wait_until_none(partitions, Clock::now() + options.release_timeout, is_in_vain) || failed) return;
    if (parts.source.has_lost_partitions()) {
        if (!is_closing) return lost(partitions);
        throw std::runtime_error(
            "the group removed this worker, or Kafka was away, before the results of its last jobs were committed; these jobs run again");
    }
    throw std::runtime_error("partitions were revoked, but results of their jobs were not committed within " +
                             std::to_string(options.release_timeout.count()) +
                             " ms: a commit hangs; restart the worker; jobs without a committed result run again");
}

// Does not wait: neither for the engine, nor for a commit that may no longer succeed.
void Pipeline::State::lost(const std::vector<PartitionEpoch>& partitions) {
    drop_waiting(partitions);
    jobs_in_flight.forget(partitions);
}

void Pipeline::State::drop_waiting(const std::vector<PartitionEpoch>& partitions) {
    parked.drop(partitions);
    std::erase_if(starting, [&](const WeighedJob& job) { return is_of(job.tokenized.plan.job.source, job.epoch, partitions); });
}

// The thread only has to end its step. A thread that hangs cannot be ended, but the process can: other workers take over its jobs.
void Pipeline::State::end_generating(std::thread& generating) {
    const bool has_ended = generated.get_future().wait_for(options.step_timeout) == std::future_status::ready;
    CHECK(has_ended, "a step of the engine hangs" + failure_text());
    generating.join();
}

void Pipeline::State::end_publishing(std::thread& publishing) {
    const auto patience = is_commit_overdue() ? std::chrono::milliseconds(0) : options.commit_timeout;
    const bool has_ended = published.get_future().wait_for(patience) == std::future_status::ready;
    CHECK(has_ended, "a commit hangs" + failure_text());
    publishing.join();
}

void Pipeline::State::set_publishing_since(std::optional<Clock::time_point> time) {
    const std::lock_guard lock(publishing_mutex);
    publishing_since = time;
}

bool Pipeline::State::is_commit_overdue() const {
    const std::lock_guard lock(publishing_mutex);
    return publishing_since && Clock::now() - *publishing_since > options.commit_timeout;
}

// A failure of any thread ends all of them; run() throws the first failure.
template <typename Loop>
void Pipeline::State::guarded(Loop loop) {
    try {
        loop();
    } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        failed = true;
        submissions.close();
        publications.close();
    }
}

std::string Pipeline::State::failure_text() {
    try {
        rethrow_failure();
    } catch (const std::exception& error) {
        return std::string("; before that: ") + error.what();
    }
    return {};
}

void Pipeline::State::rethrow_failure() {
    const std::lock_guard lock(failure_mutex);
    if (failure) std::rethrow_exception(failure);
}

}  // namespace lorry::consumer
