// intake -> generate -> publish. Read run() first, then the three loops.
#include "consumer/pipeline.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "consumer/bounded_queue.h"
#include "consumer/generator.h"
#include "consumer/in_flight.h"
#include "consumer/publisher.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds poll_timeout{50};
constexpr std::chrono::milliseconds idle_wait{20};
constexpr std::chrono::seconds backlog_interval{2};
constexpr std::size_t publications_max = 4096;
constexpr std::size_t parked_share_max = 8;  // windows of jobs that may wait for their adapter's registration

std::int64_t micros_now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What the engine thread is told, in order: a job, or partitions to abandon.
struct Abandon {
    std::vector<PartitionEpoch> partitions;
    std::promise<void> done;
};
using Command = std::variant<AdmittedJob, Abandon>;

}  // namespace

struct Pipeline::State final : RevocationHandler {
    State(const PipelineParts& the_parts, const PipelineOptions& the_options)
        : parts(the_parts),
          options(the_options),
          commands(the_options.in_flight_max + 16),
          publications(publications_max),
          generator(parts.engine, parts.cancels, publications, parts.observer,
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
    std::size_t room_for(std::size_t inside) const;
    void refuse(const schema::Job& job, Epoch epoch, const schema::JobError& error);
    void refuse(const Delivery& delivery, const schema::BadRecord& bad);
    schema::Run run_of(const schema::Job& job) const;

    void drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) override;
    void lost(const std::vector<PartitionEpoch>& partitions) override;
    void abandon(const std::vector<PartitionEpoch>& partitions);

    template <typename Loop>
    void guarded(Loop loop);
    void rethrow_failure();

    const PipelineParts parts;
    const PipelineOptions options;

    InFlight in_flight;
    BoundedQueue<Command> commands;          // intake -> generate
    BoundedQueue<Publication> publications;  // intake and generate -> publish

    // Intake thread. Jobs whose adapter is not registered yet wait here for at most as long as the directory says `not_yet`.
    struct Parked {
        schema::Job job;
        Epoch epoch;
        Clock::time_point delivered;
    };
    std::deque<Parked> parked;
    JobKey next_key = 0;

    Generator generator;  // engine thread
    Publisher publisher;  // publishing thread

    std::atomic<bool> failed = false;
    std::mutex failure_mutex;
    std::exception_ptr failure;  // guarded by failure_mutex: the first of any thread
};

Pipeline::Pipeline(const PipelineParts& parts, const PipelineOptions& options) : state_(std::make_unique<State>(parts, options)) {}
Pipeline::~Pipeline() = default;

void Pipeline::run() {
    State& state = *state_;
    std::thread generating([&] { state.guarded([&] { state.generate_loop(); }); });
    std::thread publishing([&] { state.guarded([&] { state.publish_loop(); }); });
    state.guarded([&] { state.intake_loop(stop_); });
    state.commands.close();
    generating.join();
    state.publications.close();
    publishing.join();
    state.rethrow_failure();
}

void Pipeline::State::intake_loop(const std::atomic<bool>& stop) {
    Clock::time_point next_backlog{};
    bool paused = false;
    while (!stop && !failed) {
        resolve_parked();
        const std::size_t inside = in_flight.total();
        if (parts.source.exhausted() && inside == 0) break;
        const std::size_t room = room_for(inside);
        // Resumed only when there is room worth a fetch: a pause throws away what the client has fetched.
        paused = room == 0 || (paused && room < options.in_flight_max / 4);
        parts.source.set_paused(paused);
        for (Delivery& delivery : parts.source.poll(poll_timeout, room, *this)) receive(std::move(delivery));
        parts.observer.on_gauges(
            {.in_flight = in_flight.total(), .in_flight_max = options.in_flight_max, .unpublished = publications.size()});
        if (const Clock::time_point now = Clock::now(); now >= next_backlog) {
            next_backlog = now + backlog_interval;
            if (const auto backlog = parts.source.backlog()) parts.observer.on_backlog(*backlog);
        }
    }
    if (!failed) parts.source.close(*this, Clock::now() + options.drain_timeout);
}

// Jobs that wait for a registration take no room from the others, up to a bound of their own.
std::size_t Pipeline::State::room_for(std::size_t inside) const {
    if (parked.size() >= parked_share_max * options.in_flight_max) return 0;
    const std::size_t working = inside - std::min(inside, parked.size());
    return options.in_flight_max - std::min(options.in_flight_max, working);
}

void Pipeline::State::generate_loop() {
    while (!failed) {
        for (Command& command : commands.pop_all(generator.is_idle() ? idle_wait : std::chrono::milliseconds(0))) {
            if (auto* job = std::get_if<AdmittedJob>(&command)) {
                generator.submit(std::move(*job));
            } else {
                auto& order = std::get<Abandon>(command);
                for (const auto& [source, epoch] : generator.abandon(order.partitions)) in_flight.remove(source, epoch);
                order.done.set_value();
            }
        }
        if (generator.is_idle() && commands.is_drained()) return;
        generator.step();
    }
}

void Pipeline::State::publish_loop() {
    Clock::time_point next_commit = Clock::now() + options.commit_interval;
    while (!failed) {
        const auto until_commit = std::chrono::duration_cast<std::chrono::milliseconds>(next_commit - Clock::now());
        for (Publication& publication : publications.pop_all(std::max(until_commit, std::chrono::milliseconds(0)))) {
            publisher.take(std::move(publication));
        }
        const bool at_end = publications.is_drained();
        // Small jobs fill the window long before the interval is over.
        const bool window_fills = publisher.uncommitted() * 4 >= options.in_flight_max;
        if (Clock::now() >= next_commit || window_fills || at_end) {
            publisher.commit();
            next_commit = Clock::now() + options.commit_interval;
        }
        if (at_end) return;
    }
}

void Pipeline::State::receive(Delivery delivery) {
    const Clock::time_point delivered = Clock::now();
    in_flight.add(delivery.record.source, delivery.epoch);
    auto job = schema::parse_job(delivery.record, options.parse);
    if (delivery.refusal) {
        schema::BadRecord bad = job ? schema::BadRecord{job->custom_id, job->id, job->batch_id, job->model, {}} : std::move(job.error());
        bad.error = *delivery.refusal;
        refuse(delivery, bad);
        return;
    }
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
    if (model.kind == ModelName::Kind::not_yet) {
        parked.push_back({std::move(job), epoch, delivered});
        return;
    }
    if (model.kind == ModelName::Kind::unknown) {
        refuse(job, epoch,
               {.status_code = 404,
                .code = "model_not_found",
                .param = "model",
                .message = "no adapter named '" + job.model + "' is registered, and it is not the base model: see `lorry adapters list`"});
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
    commands.push(AdmittedJob{.key = next_key++, .prepared = std::move(*prepared), .run = std::move(run), .delivered = delivered});
}

void Pipeline::State::resolve_parked() {
    for (std::size_t left = parked.size(); left > 0; --left) {
        Parked next = std::move(parked.front());
        parked.pop_front();
        admit(std::move(next.job), next.epoch, next.delivered);  // back to the end of `parked` if it is still not known
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
    publications.push(std::move(ended));
}

void Pipeline::State::refuse(const Delivery& delivery, const schema::BadRecord& bad) {
    if (!bad.custom_id) {
        schema::DeadLetter letter{.source = delivery.record.source,
                                  .key = delivery.record.key,
                                  .value = delivery.record.value,
                                  .headers = delivery.record.headers,
                                  .reason = bad.error.message};
        publications.push(Refused{Outcome{delivery.record.source, delivery.epoch, std::move(letter)}});
        return;
    }
    schema::Job job{
        .source = delivery.record.source, .custom_id = *bad.custom_id, .id = bad.job_id, .model = bad.model, .batch_id = bad.batch_id};
    job.submitted = delivery.record.timestamp;
    job.headers = delivery.record.headers;
    refuse(job, delivery.epoch, bad.error);
}

void Pipeline::State::drain(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline) {
    // Jobs that wait for a registration will hardly finish in a drain; they are left to the next owner at once.
    std::erase_if(parked, [&](const Parked& one) {
        const bool gone = std::ranges::any_of(partitions, [&](const PartitionEpoch& partition) {
            return partition.topic == one.job.source.topic && partition.partition == one.job.source.partition &&
                   partition.epoch == one.epoch;
        });
        if (gone) in_flight.remove(one.job.source, one.epoch);
        return gone;
    });
    const auto has_failed = [&] { return failed.load(); };
    if (in_flight.wait_until_none(partitions, deadline, has_failed)) return;
    abandon(partitions);
    // What ended before the abandon is on its way to its commit.
    in_flight.wait_until_none(partitions, Clock::now() + options.drain_timeout, has_failed);
}

void Pipeline::State::lost(const std::vector<PartitionEpoch>& partitions) { drain(partitions, Clock::now()); }

void Pipeline::State::abandon(const std::vector<PartitionEpoch>& partitions) {
    Abandon order{.partitions = partitions, .done = {}};
    std::future<void> done = order.done.get_future();
    if (!commands.push(std::move(order))) return;
    while (!failed && done.wait_for(poll_timeout) != std::future_status::ready) {
    }
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
        commands.close();
        publications.close();
    }
}

void Pipeline::State::rethrow_failure() {
    const std::lock_guard lock(failure_mutex);
    if (failure) std::rethrow_exception(failure);
}

}  // namespace lorry::consumer
