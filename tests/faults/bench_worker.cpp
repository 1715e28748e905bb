// The worker of lorry_kafka_bench: as `lorry worker` builds it, with log, metrics and ledger, but with an engine that computes nothing.
#include <sys/resource.h>

#include <fstream>
#include <functional>
#include <thread>

#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/member.h"
#include "consumer/pipeline.h"
#include "ops/event_log.h"
#include "ops/metrics.h"
#include "ops/settings.h"
#include "ops/signals.h"
#include "ops/worker/worker_observer.h"
#include "tests/faults/bench.h"
#include "tests/support/hash_model.h"

namespace lorry::faults {
namespace {

constexpr std::int32_t answer_token = 481;  // the first id that the tokenizer's file does not use
constexpr std::int64_t sequences_max = 64;

double cpu_seconds_now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A real tokenizer with one more token, as long as a result must be, so that large results cost the engine nothing.
engine::Tokenizer make_tokenizer(const BenchWork& work) {
    std::ifstream in(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/gpt2/tokenizer.json");
    auto file = schema::Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    CHECK(file.has_value(), "the tests' tokenizer is there");
    schema::Json added = *file->find("added_tokens");
    added.push(schema::Json::object({{"id", answer_token},
                                     {"content", std::string(work.token_bytes, 'r')},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", false}}));
    file->set("added_tokens", std::move(added));
    std::ofstream(work.folder / "tokenizer.json") << file->dump();
    return engine::Tokenizer::load(work.folder);
}

// Always draws the same token.
class SingleTokenModel final : public engine::Model {
public:
    SingleTokenModel(std::int64_t sample_rows_max, std::chrono::microseconds step)
        : logits_(static_cast<std::size_t>(sample_rows_max), answer_token), step_(step) {
        config_.vocabulary = tests::hash_vocabulary;
        config_.max_positions = 32'768;
    }
    const engine::ModelConfig& config() const override { return config_; }
    kernels::KvShape kv_shape() const override { return {.layers = 1, .kv_heads = 1, .head_dim = 1}; }
    std::size_t weight_bytes() const override { return 0; }
    const std::string& fingerprint() const override { return fingerprint_; }
    std::int32_t rope_row(std::int64_t position, std::optional<std::int64_t>) override { return static_cast<std::int32_t>(position); }
    kernels::Matrix forward(const engine::ForwardArgs& args, kernels::KvCache&) override {
        if (step_.count() > 0) std::this_thread::sleep_for(step_);
        return {.data = logits_.data(),
                .rows = static_cast<std::int64_t>(args.step.sample_rows.size()),
                .columns = config_.vocabulary,
                .stride = config_.vocabulary};
    }

private:
    engine::ModelConfig config_;
    std::string fingerprint_ = "single";
    std::vector<std::uint64_t> logits_;  // in the form that the hash backend reads
    const std::chrono::microseconds step_;
};

class MeasuringObserver final : public consumer::Observer {
public:
    MeasuringObserver(consumer::Observer& inner, std::uint64_t jobs, std::function<void()> stop)
        : inner_(inner), jobs_(jobs), stop_(std::move(stop)) {}

    void on_admitted(const schema::Job& job) override { inner_.on_admitted(job); }
    void on_finished(const consumer::JobObservation& job) override { inner_.on_finished(job); }
    void on_dead_letter(const schema::DeadLetter& letter) override { inner_.on_dead_letter(letter); }
    void on_step(const engine::EngineStats& stats) override { inner_.on_step(stats); }
    void on_gauges(const consumer::PipelineGauges& gauges) override { inner_.on_gauges(gauges); }
    void on_backlog(std::optional<std::int64_t> jobs) override { inner_.on_backlog(jobs); }
    void on_oldest(const std::optional<consumer::OldestJob>& job) override { inner_.on_oldest(job); }
    void on_committed(std::size_t outcomes, std::chrono::microseconds took) override {
        inner_.on_committed(outcomes, took);
        committed_ += outcomes;
        const auto now = consumer::Clock::now();
        const double cpu = cpu_seconds_now();
        if (committed_ == outcomes) {
            first_ = now;
            first_cpu_ = cpu;
        } else {
            measures_.jobs += outcomes;
            ++measures_.commits;
            measures_.seconds = std::chrono::duration<double>(now - first_).count();
            measures_.cpu_seconds = cpu - first_cpu_;
            measures_.commit_seconds += std::chrono::duration<double>(took).count();
        }
        if (jobs_ > 0 && committed_ >= jobs_) stop_();
    }

    const BenchMeasures& measures() const { return measures_; }  // call after the pipeline has ended

private:
    consumer::Observer& inner_;
    const std::uint64_t jobs_;
    const std::function<void()> stop_;
    std::uint64_t committed_ = 0;
    consumer::Clock::time_point first_;
    double first_cpu_ = 0;
    BenchMeasures measures_;
};

}  // namespace

BenchMeasures run_bench_worker(const consumer::KafkaConfig& kafka, const BenchWork& work) {
    ops::SignalWatcher signals;
    ops::start_event_log("info");
    const engine::Tokenizer tokenizer = make_tokenizer(work);
    const engine::EngineOptions engine_options{
        .sequences_max = sequences_max, .step_rows_max = 4'096, .kv_bytes = std::size_t{1} << 20, .prefix_cache = false};
    const auto backend = tests::make_hash_backend();
    SingleTokenModel model(engine_options.sample_rows_max(), work.step);
    engine::Engine engine(model, *backend, tokenizer, engine_options);
    const consumer::Preparer preparer(tokenizer, std::nullopt, model.config(), {.context_max = engine.context_max()});
    const consumer::ReplyContext reply{.tokenizer = tokenizer, .base_name = "single", .system_fingerprint = "fp_single"};

    const schema::Topics topics{work.prefix};
    const auto deadline = consumer::Clock::now() + kafka.deadline_start;
    consumer::AdapterTopic adapters(kafka, {.topic = topics.adapters(), .adapters_root = "/", .base_names = {"base", "single"}});
    consumer::ControlTopic cancels(kafka, {.topics = topics});
    const auto ledger = work.keeps_ledger ? consumer::Ledger::start(kafka, {.file = work.folder / "ledger.db", .topics = topics}) : nullptr;
    consumer::KafkaMember member(kafka, {.topics = topics,
                                         .group = work.prefix + "-single",
                                         .member = "bench",
                                         .exactly_once = work.exactly_once,
                                         .careful_starts = {.jobs = work.careful_starts}});
    adapters.wait_until_read(deadline);
    cancels.wait_until_read(deadline);

    ops::Metrics metrics("bench", sequences_max);
    ops::WorkerObserver worker_observer(metrics, ledger.get());
    consumer::Pipeline* running = nullptr;
    const auto stop = [&] { running->request_stop(); };
    MeasuringObserver observer(worker_observer, work.jobs, stop);
    consumer::Pipeline pipeline({.source = member.source(),
                                 .sink = member.sink(),
                                 .adapters = adapters,
                                 .cancels = cancels,
                                 .preparer = preparer,
                                 .engine = engine,
                                 .reply = reply,
                                 .observer = observer},
                                {.worker = "bench",
                                 .in_flight_max = work.in_flight,
                                 .calls_in_flight_max = static_cast<std::size_t>(ops::Settings().in_flight_calls),
                                 .commit_interval = work.commit_interval,
                                 .parse = {}});
    running = &pipeline;
    {
        const ops::SignalWatcher::Armed armed(signals, stop);
        pipeline.run();
    }
    return observer.measures();
}

}  // namespace lorry::faults
