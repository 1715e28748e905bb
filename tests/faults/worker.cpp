// lorry_fault_worker is the worker as `lorry worker` builds it, but its engine computes hashes instead of a model, and it can kill or stop
// itself at named places. Started by lorry_faults; see --help.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <thread>

#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/member.h"
#include "consumer/pipeline.h"
#include "ops/machine.h"
#include "ops/signals.h"
#include "tests/faults/arguments.h"
#include "tests/faults/counters.h"
#include "tests/faults/job_mix.h"
#include "tests/faults/slow_model.h"
#include "tests/faults/step_time.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::faults {
namespace {

constexpr std::string_view help =
    R"(usage: lorry_fault_worker --brokers B --prefix P --group G --member M --ledger FILE --counts FILE [OPTION]...
  --session-timeout-ms N   --transaction-timeout-ms N   --drain-budget-ms N   --drain-timeout-ms N   --commit-interval-ms N
  --poll-interval-ms N
  --step-time T            duration of the engine's steps (step_time.h)
  --seed S                 seed of those durations
  --deadline-ms N          how long brokers may be down
  --codec C                compression of what the worker produces (none)
  --at-least-once          no transactions
  --careful-starts N       0: a job that kills its worker is not detected (consumer/careful_starts.h)
  --die-at NAME:COUNT      SIGKILL itself when it passes that fault point for the COUNTth time (consumer/kafka/fault_point.h)
  --stop-at NAME:COUNT     SIGSTOP itself there
)";

// Adapters are known once they are registered, but answer as the base: the hash model has none.
class WithoutWeights final : public consumer::AdapterDirectory {
public:
    explicit WithoutWeights(const consumer::AdapterDirectory& inner) : inner_(inner) {}
    consumer::ModelName resolve(std::string_view model, consumer::Clock::time_point polled) const override {
        auto name = inner_.resolve(model, polled);
        if (name.kind == consumer::ModelName::Kind::adapter) name = {.kind = consumer::ModelName::Kind::base, .hash = {}, .folder = {}};
        return name;
    }
    std::vector<std::string> names() const override { return inner_.names(); }

private:
    const consumer::AdapterDirectory& inner_;
};

class CountingObserver final : public consumer::Observer {
public:
    // ledger: nullptr if another process has it open.
    CountingObserver(WorkerCounts& counts, const consumer::KafkaMember& member, const consumer::Ledger* ledger)
        : counts_(counts), member_(member), ledger_(ledger) {}
    void on_gauges(const consumer::PipelineGauges& gauges) override {
        raise_to(counts_.working_most, gauges.in_flight - gauges.parked);
        raise_to(counts_.parked_most, gauges.parked);
        raise_to(counts_.memory_most, ops::memory_peak());
        if (ledger_ != nullptr && ledger_->stats().failing) ++counts_.ledger_failures;
        const auto stats = member_.stats();
        counts_.rebalances += stats.source.rebalances - before_.source.rebalances;
        counts_.aborts += stats.commits.aborts - before_.commits.aborts;
        counts_.fences += stats.commits.fences - before_.commits.fences;
        before_ = stats;
    }

private:
    static void raise_to(std::atomic<std::uint64_t>& most, std::uint64_t now) { most = std::max(most.load(), now); }

    WorkerCounts& counts_;
    const consumer::KafkaMember& member_;
    const consumer::Ledger* ledger_;
    consumer::KafkaMember::Stats before_;
};

// The place where the process kills or stops itself. Set before any thread starts.
struct FaultPlace {
    std::string name;
    std::atomic<std::int64_t> passes_left = 0;
    int signal = 0;

    void set(const std::string& text, int number) {
        const auto colon = text.find(':');
        name = text.substr(0, colon);
        std::int64_t count = 1;
        if (colon != std::string::npos) std::from_chars(text.data() + colon + 1, text.data() + text.size(), count);
        passes_left = count;
        signal = number;
    }
};
FaultPlace fault_place;  // NOLINT: fault points call a plain function

void on_passing(const char* name) {
    if (fault_place.name == name && --fault_place.passes_left == 0) raise(fault_place.signal);
}

SlowModel slow_model(const engine::EngineOptions& options, StepTime& step_time, WorkerCounts& counts) {
    return {tests::make_hash_model(32'768, options.step_rows_max, options.sample_rows_max()), [] { raise(SIGKILL); },
            [&](std::size_t sampled) {
                std::this_thread::sleep_for(step_time.next());
                counts.tokens += sampled;
            }};
}

void haul(Arguments& arguments, ops::SignalWatcher& signals) {
    const consumer::KafkaConfig kafka{.brokers = arguments.text("brokers"),
                                      .passthrough = {{"compression.codec", arguments.text("codec", "none")}},
                                      .deadline_start = arguments.milliseconds("deadline-ms", 60'000),
                                      .deadline_later = arguments.milliseconds("deadline-ms", 60'000)};
    const schema::Topics topics{arguments.text("prefix")};
    const std::string name = arguments.text("member");
    const CountsFile counts(arguments.text("counts"));
    consumer::KafkaMember::Options member_options{.topics = topics,
                                                  .group = arguments.text("group"),
                                                  .member = name,
                                                  .session_timeout = arguments.milliseconds("session-timeout-ms", 6'000),
                                                  .poll_interval_max = arguments.milliseconds("poll-interval-ms", 300'000),
                                                  .drain_budget = arguments.milliseconds("drain-budget-ms", 1'000),
                                                  .exactly_once = !arguments.has("at-least-once"),
                                                  .transaction_timeout = arguments.milliseconds("transaction-timeout-ms", 10'000)};
    if (arguments.has("careful-starts"))
        member_options.careful_starts.jobs = static_cast<std::size_t>(arguments.number("careful-starts", 0));
    consumer::PipelineOptions pipeline_options{.worker = name,
                                               .in_flight_max = FaultRules().window,
                                               .commit_interval = arguments.milliseconds("commit-interval-ms", 100),
                                               .drain_timeout = arguments.milliseconds("drain-timeout-ms", 3'000),
                                               .parse = {.bytes_max = FaultRules().job_bytes_max}};
    StepTime step_time(arguments.text("step-time", "10000"), static_cast<std::uint64_t>(arguments.number("seed", 1)));
    const std::filesystem::path ledger_file = arguments.text("ledger");
    if (arguments.has("die-at")) fault_place.set(arguments.text("die-at"), SIGKILL);
    if (arguments.has("stop-at")) fault_place.set(arguments.text("stop-at"), SIGSTOP);
    arguments.refuse_others();
    consumer::on_fault_point = on_passing;
    ++counts->starts;

    engine::EngineOptions engine_options;
    // A small batch of slow steps keeps a backlog at little cost.
    engine_options.sequences_max = 16;
    engine_options.kv_bytes = 40'000 * tests::hash_block_size;
    const auto backend = tests::make_hash_backend();
    SlowModel model = slow_model(engine_options, step_time, *counts);
    engine::Engine engine(model, *backend, tests::gpt2_tokenizer(), engine_options);
    const consumer::Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, model.config(), {.context_max = engine.context_max()});
    const consumer::ReplyContext reply{.tokenizer = tests::gpt2_tokenizer(), .base_name = "hash", .system_fingerprint = "fp_hash"};

    const auto deadline = consumer::Clock::now() + kafka.deadline_start;
    consumer::AdapterTopic adapters(
        kafka, {.topic = topics.adapters(), .adapters_root = "/", .base_names = {"base", "hash"}, .grace = std::chrono::seconds(3)});
    consumer::ControlTopic cancels(kafka, {.topics = topics});
    const auto ledger = consumer::Ledger::start(kafka, {.file = ledger_file, .topics = topics});
    consumer::KafkaMember member(kafka, member_options);
    adapters.wait_until_read(deadline);
    cancels.wait_until_read(deadline);

    const WithoutWeights directory(adapters);
    CountingObserver observer(*counts, member, ledger.get());
    consumer::Pipeline pipeline({.source = member.source(),
                                 .sink = member.sink(),
                                 .adapters = directory,
                                 .cancels = cancels,
                                 .preparer = preparer,
                                 .engine = engine,
                                 .reply = reply,
                                 .observer = observer},
                                pipeline_options);
    std::cerr << "running as " << getpid() << std::string("\n") << std::flush;
    {
        const ops::SignalWatcher::Armed armed(signals, [&] { pipeline.request_stop(); });
        pipeline.run();
    }
    std::cerr << "drained\n";
}

int run(std::span<char* const> given) {
    std::signal(SIGXFSZ, SIG_IGN);  // a full disk is an error, not the end of the process
    try {
        Arguments arguments(given);
        if (arguments.has("help")) {
            std::cout << help;
            return 0;
        }
        ops::SignalWatcher signals;
        haul(arguments, signals);
        return 0;
    } catch (const UsageError& error) {
        std::cerr << error.what() << '\n' << help;
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "failed: " << error.what() << '\n';
        return 1;
    }
}

}  // namespace
}  // namespace lorry::faults

int main(int count, char** arguments) { return lorry::faults::run({arguments, static_cast<std::size_t>(count)}); }
