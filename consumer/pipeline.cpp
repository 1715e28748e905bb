// intake -> generate -> publish. Read run() first, then the three loops.
#include "consumer/pipeline.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "consumer/admission.h"
#include "consumer/bounded_queue.h"
#include "consumer/generator.h"
#include "consumer/in_flight.h"
#include "consumer/publisher.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds poll_timeout{50};
constexpr std::chrono::milliseconds idle_wait{20};
constexpr std::chrono::milliseconds idle_commit_interval{20};
constexpr std::chrono::seconds telling_interval{2};
constexpr std::size_t publications_max = 4096;
constexpr std::size_t parked_share_max = 8;  // windows of jobs that may wait for their adapter's registration

std::int64_t micros_now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The most that a prepared job's sequences come to hold. Samples share a prompt's blocks in the engine, but each has its tokens.
std::int64_t tokens_of(const PreparedJob& prepared) {
    std::int64_t tokens = 0;
    for (const engine::Request& request : prepared.requests) {
        tokens += static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
    }
    return tokens;
}

}  // namespace

struct Pipeline::State final : RevocationHandler {
    State(const PipelineParts& the_parts, const PipelineOptions& the_options)
        : parts(the_parts),
          options(the_options),
          admitted(the_options.in_flight_max),
          publications(publications_max),
          generator(parts.engine, parts.cancels, in_flight, publications, parts.observer,
                    {.running_status_after = options.running_status_after, .job_timeout = options.job_timeout}),
          publisher(parts.sink, parts.reply, in_flight, parts.observer) {}

    // The three loops, one thread each.
    void intake_loop(const std::atomic<bool>& stop);
    void generate_loop();
    void publish_loop();

    // Intake.
    void receive(Delivery delivery);
    void admit(schema::Job job, Epoch epoch, Clock::time_point delivered);
    void resolve_parked();
    void tell_observer();
    std::size_t room() const;
    bool are_tokens_spent() const { return in_flight.tokens() >= options.in_flight_tokens_max; }
    void refuse(const schema::Job& job, Epoch epoch, const schema::JobError& error);
    void refuse(const Delivery& delivery, const schema::BadRecord& bad);
    void publish(Publication publication);
    schema::Run run_of(const schema::Job& job) const;

    void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) override;
    void lost(const std::vector<PartitionEpoch>& partitions) override;
    void drop_parked(const std::vector<PartitionEpoch>& partitions);
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

    InFlight in_flight;
    BoundedQueue<AdmittedJob> admitted;      // intake -> generate
    BoundedQueue<Publication> publications;  // intake and generate -> publish

    // Intake thread. Jobs whose adapter is not registered yet wait here for at most as long as the directory says `not_yet`, and those that
    // were polled together with one that took the rest of the window's tokens.
    struct Parked {
        schema::Job job;
        Epoch epoch;
        Clock::time_point delivered;
    };
    std::deque<Parked> parked;
    JobKey next_key = 0;
    Clock::time_point next_telling{};

    Generator generator;  // engine thread
    Publisher publisher;  // publishing thread

    std::atomic<bool> failed = false;
    std::promise<void> generated;  // the engine's thread is through
    std::promise<void> published;  // the publisher's is
    mutable std::mutex publishing_mutex;
    // Guarded by publishing_mutex: since when the publisher has been busy with what it took from its queue. It waits for the sink in there.
    std::optional<Clock::time_point> publishing_since;
    std::mutex failure_mutex;
    std::exception_ptr failure;  // guarded by failure_mutex: the first of any thread
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
    state.admitted.close();
    state.end_generating(generating);
    state.publications.close();
    state.end_publishing(publishing);
    state.rethrow_failure();
}

void Pipeline::State::intake_loop(const std::atomic<bool>& stop) {
    while (!stop && !failed) {
        resolve_parked();
        if (parts.source.exhausted() && in_flight.total() == 0) break;
        const std::size_t wanted = parked.size() < parked_share_max * options.in_flight_max ? room() : 0;
        for (Delivery& delivery : parts.source.poll(poll_timeout, wanted, *this)) receive(std::move(delivery));
        tell_observer();
        check_commit();
    }
    if (!failed) parts.source.close(*this, Clock::now() + options.drain_timeout);
}

// Jobs that may go to the engine now. Those that are parked take no room from the others; they have a bound of their own.
std::size_t Pipeline::State::room() const {
    if (are_tokens_spent()) return 0;
    const std::size_t inside = in_flight.total();
    const std::size_t working = inside - std::min(inside, parked.size());
    return options.in_flight_max - std::min(options.in_flight_max, working);
}

// Otherwise this worker would stay in the group, and its partitions would rest for ever.
void Pipeline::State::check_commit() const {
    if (is_commit_overdue()) throw std::runtime_error("a commit hangs: start the worker again, nothing that was not committed is lost");
}

void Pipeline::State::tell_observer() {
    parts.observer.on_gauges({.in_flight = in_flight.total(),
                              .parked = parked.size(),
                              .in_flight_max = options.in_flight_max,
                              .tokens = in_flight.tokens(),
                              .tokens_max = options.in_flight_tokens_max,
                              .unpublished = publications.size()});
    const Clock::time_point now = Clock::now();
    if (now < next_telling) return;
    next_telling = now + telling_interval;
    parts.observer.on_backlog(parts.source.backlog());
    parts.observer.on_oldest(in_flight.oldest(now));
}

void Pipeline::State::generate_loop() {
    while (!failed) {
        for (AdmittedJob& job : admitted.pop_all(generator.is_idle() ? idle_wait : std::chrono::milliseconds(0))) {
            generator.submit(std::move(job));
        }
        if (generator.is_idle() && admitted.is_drained()) return;
        generator.step();
    }
}

void Pipeline::State::publish_loop() {
    Clock::time_point next_commit = Clock::now() + options.commit_interval;
    while (!failed) {
        // While nothing else runs, nobody is served by waiting for more: suspects run without others, and start after a commit.
        const auto nothing_runs = [&] { return in_flight.total() <= publisher.uncommitted(); };
        if (nothing_runs()) next_commit = std::min(next_commit, Clock::now() + idle_commit_interval);
        const auto until_commit = std::chrono::duration_cast<std::chrono::milliseconds>(next_commit - Clock::now());
        auto taken = publications.pop_all(std::max(until_commit, std::chrono::milliseconds(0)));
        set_publishing_since(Clock::now());
        for (Publication& publication : taken) publisher.take(std::move(publication));
        const bool at_end = publications.is_drained();
        // Small jobs fill the window long before the interval is over.
        const bool window_fills = publisher.uncommitted() * 4 >= options.in_flight_max;
        const bool all_done = publisher.uncommitted() > 0 && nothing_runs();
        if (Clock::now() >= next_commit || window_fills || all_done || at_end) {
            publisher.commit();
            next_commit = Clock::now() + options.commit_interval;
        }
        set_publishing_since(std::nullopt);
        if (at_end) return;
    }
}

void Pipeline::State::receive(Delivery delivery) {
    const Clock::time_point delivered = Clock::now();
    auto job = read_job(delivery, options.parse);
    in_flight.add(delivery.record.source, delivery.epoch, job ? job->id : job.error().job_id, delivered);
    if (!job) {
        refuse(delivery, job.error());
        return;
    }
    parts.observer.on_admitted(*job);
    admit(std::move(*job), delivery.epoch, delivered);
}

// Names are resolved, text is tokenized, and the job goes to the engine or is refused.
void Pipeline::State::admit(schema::Job job, Epoch epoch, Clock::time_point delivered) {
    ModelName model = parts.adapters.resolve(job.model, delivered);
    if (model.kind == ModelName::Kind::not_yet || are_tokens_spent()) {
        parked.push_back({std::move(job), epoch, delivered});
        return;
    }
    if (const auto refusal = refusal_of_model(job, model)) {
        refuse(job, epoch, *refusal);
        return;
    }
    schema::Run run = run_of(job);
    run.adapter = model.hash;
    const schema::Job asked = job;
    auto prepared = parts.intake.prepare(std::move(job), epoch, std::move(model));
    if (!prepared) {
        refuse(asked, epoch, prepared.error());
        return;
    }
    in_flight.weigh(asked.source, epoch, tokens_of(*prepared));
    admitted.push(AdmittedJob{.key = next_key++, .prepared = std::move(*prepared), .run = std::move(run), .delivered = delivered});
}

void Pipeline::State::resolve_parked() {
    for (std::size_t left = parked.size(); left > 0 && room() > 0; --left) {
        Parked next = std::move(parked.front());
        parked.pop_front();
        admit(std::move(next.job), next.epoch, next.delivered);  // back to the end of `parked` if its adapter is still not known
    }
}

schema::Run Pipeline::State::run_of(const schema::Job& job) const {
    return {.job_id = job.id,
            .batch_id = job.batch_id,
            .model = job.model,
            .worker = options.worker,
            .source = job.source,
            .attempt = micros_now(),
            .submitted = job.submitted};
}

void Pipeline::State::refuse(const schema::Job& job, Epoch epoch, const schema::JobError& error) {
    JobEnded ended{.job = {.key = next_key++, .prepared = {.job = job, .epoch = epoch}, .run = run_of(job), .delivered = Clock::now()},
                   .error = error,
                   .ended = Clock::now()};
    ended.job.run.finished = schema::Timestamp(std::chrono::milliseconds(ended.job.run.attempt / 1000));
    in_flight.end(job.source, epoch);
    publish(std::move(ended));
}

// Without room the publisher is busy, for ever perhaps.
void Pipeline::State::publish(Publication publication) {
    while (!publications.push_for(publication, poll_timeout)) check_commit();
}

void Pipeline::State::refuse(const Delivery& delivery, const schema::BadRecord& bad) {
    if (!bad.custom_id) {
        schema::DeadLetter letter{.source = delivery.record.source,
                                  .key = delivery.record.key,
                                  .value = delivery.record.value,
                                  .headers = delivery.record.headers,
                                  .error = bad.error};
        in_flight.end(delivery.record.source, delivery.epoch);
        publish(Refused{Outcome{delivery.record.source, delivery.epoch, std::move(letter)}});
        return;
    }
    schema::Job job{
        .source = delivery.record.source, .custom_id = *bad.custom_id, .id = bad.job_id, .model = bad.model, .batch_id = bad.batch_id};
    job.submitted = delivery.record.timestamp;
    job.headers = delivery.record.headers;
    refuse(job, delivery.epoch, bad.error);
}

// Takes until the deadline for what runs, as what only waits costs its next owner nothing; then release_timeout at most for the commit of
// what has ended. Both together stay far below the time after which the group throws a silent member out. Whether the engine answers plays
// no part: what it still works on is forgotten, and it finds that out by itself.
void Pipeline::State::drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) {
    drop_parked(partitions);
    in_flight.forget_waiting(partitions);
    const auto has_failed = [&] { return failed.load(); };
    if (in_flight.wait_until_none(partitions, deadline, has_failed)) return;
    in_flight.forget_unfinished(partitions);
    if (in_flight.wait_until_none(partitions, Clock::now() + options.release_timeout, has_failed) || failed) return;
    throw std::runtime_error("partitions were to be given up, but results of theirs were not committed for " +
                             std::to_string(options.release_timeout.count()) +
                             " ms: a commit hangs; start the worker again, nothing that was not committed is lost");
}

// Waits for nobody: not for the engine, nor for a commit that may be doomed by now.
void Pipeline::State::lost(const std::vector<PartitionEpoch>& partitions) {
    drop_parked(partitions);
    in_flight.forget(partitions);
}

void Pipeline::State::drop_parked(const std::vector<PartitionEpoch>& partitions) {
    std::erase_if(parked, [&](const Parked& one) {
        const bool gone = std::ranges::any_of(partitions, [&](const PartitionEpoch& partition) {
            return partition.topic == one.job.source.topic && partition.partition == one.job.source.partition &&
                   partition.epoch == one.epoch;
        });
        if (gone) in_flight.remove(one.job.source, one.epoch);
        return gone;
    });
}

// Nothing is left for it but to end its step. A thread that hangs cannot be ended, the process can: others take its jobs.
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

// A failure of any thread ends them all; run() throws the first.
template <typename Loop>
void Pipeline::State::guarded(Loop loop) {
    try {
        loop();
    } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        failed = true;
        admitted.close();
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
