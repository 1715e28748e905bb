// The parts of a worker, and the mistakes that can be planted between its stages; see worker.h.
#include "tests/simulation/worker.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/member.h"
#include "tests/faults/job_mix.h"
#include "tests/faults/slow_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::simulation {

namespace {

using std::chrono::milliseconds;

constexpr std::int64_t blocks = 2'000;
constexpr std::int64_t context = 1'024;

// Passes all on, unless a mistake is planted.
class PlantedSource final : public consumer::JobSource {
public:
    PlantedSource(consumer::JobSource& inner, Plant plant) : inner_(inner), plant_(plant) {}

    std::vector<consumer::Delivery> poll(milliseconds timeout, std::size_t max, consumer::RevocationHandler& handler) override {
        Deaf deaf(handler);
        auto deliveries = inner_.poll(timeout, max, plant_ == Plant::loss_unnoticed ? deaf : handler);
        for (const consumer::Delivery& delivery : deliveries) epochs_[delivery.record.source.partition] = delivery.epoch;
        return deliveries;
    }
    bool exhausted() const override { return inner_.exhausted(); }
    void waits(const schema::Source& source, consumer::Epoch epoch) override { inner_.waits(source, epoch); }
    bool may_go_on(const schema::Source& source, consumer::Epoch epoch) override { return inner_.may_go_on(source, epoch); }
    HeldBack held_back() const override { return inner_.held_back(); }
    std::optional<std::int64_t> backlog() override { return inner_.backlog(); }
    bool has_lost_partitions() const override { return inner_.has_lost_partitions(); }
    void close(consumer::RevocationHandler& handler, consumer::Clock::time_point deadline) override { inner_.close(handler, deadline); }
    void give_up() override { inner_.give_up(); }

    consumer::Epoch last_epoch(std::int32_t partition) const { return epochs_.at(partition); }

private:
    struct Deaf final : consumer::RevocationHandler {
        explicit Deaf(consumer::RevocationHandler& the_inner) : inner(the_inner) {}
        void drain(const std::vector<consumer::PartitionEpoch>& partitions, consumer::Clock::time_point deadline) override {
            inner.drain(partitions, deadline);
        }
        void lost(const std::vector<consumer::PartitionEpoch>&) override {}
        consumer::RevocationHandler& inner;
    };
    consumer::JobSource& inner_;
    const Plant plant_;
    std::map<std::int32_t, consumer::Epoch> epochs_;  // of the last delivery
};

class PlantedSink final : public consumer::CompletionSink {
public:
    PlantedSink(consumer::CompletionSink& inner, const PlantedSource& source, Plant plant)
        : inner_(inner), source_(source), plant_(plant) {}

    void publish(consumer::Outcome outcome) override {
        if (plant_ == Plant::loss_unnoticed) outcome.epoch = source_.last_epoch(outcome.source.partition);
        if (plant_ == Plant::result_dropped && Machine::playing()->chance(0.01)) return;
        inner_.publish(std::move(outcome));
    }
    void publish(const schema::Chunk& chunk) override { inner_.publish(chunk); }
    void publish(const schema::Status& status) override { inner_.publish(status); }
    std::size_t commit() override { return inner_.commit(); }
    std::size_t commit_calls() override { return inner_.commit_calls(); }

private:
    consumer::CompletionSink& inner_;
    const PlantedSource& source_;
    const Plant plant_;
};

// The world sees the pipeline only while it is there.
class Shown {
public:
    Shown(RunningWorker& running, consumer::Pipeline& pipeline) : running_(running) { running.pipeline = &pipeline; }
    ~Shown() { running_.pipeline = nullptr; }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

private:
    RunningWorker& running_;
};

}  // namespace

std::string transactional_id(const std::string& member) { return fmt::format("{}/{}/{}", topic_prefix, group_name, member); }

void run_worker(const WorkerOptions& options, RunningWorker& running) {
    const consumer::KafkaConfig kafka{
        .brokers = "simulated:9092", .passthrough = {}, .deadline_start = milliseconds(60'000), .deadline_later = milliseconds(60'000)};
    const schema::Topics topics{std::string(topic_prefix)};
    const faults::FaultRules rules;

    engine::EngineOptions engine_options;
    engine_options.sequences_max = 16;
    engine_options.kv_bytes = blocks * tests::hash_block_size;
    const auto backend = tests::make_hash_backend();
    faults::SlowModel model(tests::make_hash_model(context, engine_options.step_rows_max, engine_options.sample_rows_max()),
                            options.on_killer, [](std::size_t) {
                                Machine& machine = *Machine::playing();
                                machine.sleep_for(machine.draw(millisecond, 20 * millisecond));
                            });
    engine::Engine engine(model, *backend, tests::gpt2_tokenizer(), engine_options);
    const consumer::Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, model.config(), {.context_max = engine.context_max()});
    const consumer::ReplyContext reply{.tokenizer = tests::gpt2_tokenizer(), .base_name = "hash", .system_fingerprint = "fp_hash"};

    const auto deadline = consumer::Clock::now() + kafka.deadline_start;
    consumer::AdapterTopic adapters(
        kafka, {.topic = topics.adapters(), .adapters_root = "/", .base_names = {"base", "hash"}, .grace = milliseconds(1'000)});
    consumer::ControlTopic cancels(kafka, {.topics = topics});
    consumer::KafkaMember member(kafka, {.topics = topics,
                                         .group = std::string(group_name),
                                         .member = options.member,
                                         .session_timeout = milliseconds(6'000),
                                         .drain_budget = milliseconds(1'000),
                                         .transaction_timeout = milliseconds(5'000),
                                         .careful_starts = {.quiet_max = milliseconds(5'000)}});
    adapters.wait_until_read(deadline);
    cancels.wait_until_read(deadline);

    PlantedSource source(member.source(), options.plant);
    PlantedSink sink(member.sink(), source, options.plant);
    consumer::Observer observer;
    consumer::Pipeline pipeline({.source = source,
                                 .sink = sink,
                                 .adapters = adapters,
                                 .cancels = cancels,
                                 .preparer = preparer,
                                 .engine = engine,
                                 .reply = reply,
                                 .observer = observer},
                                {.worker = options.member,
                                 .in_flight_max = rules.window,
                                 .commit_interval = milliseconds(100),
                                 .drain_timeout = milliseconds(3'000),
                                 .parse = {.bytes_max = rules.job_bytes_max}});
    const Shown shown(running, pipeline);
    pipeline.run();
}

}  // namespace lorry::simulation
