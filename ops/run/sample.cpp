// The sample's source, sink and clock, and the speed that its times give.
#include "ops/run/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "consumer/pipeline.h"
#include "ops/pipeline_setup.h"
#include "ops/progress_bar.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using consumer::Clock;
using consumer::Delivery;

constexpr Seconds full_time_enough{3.0};
constexpr Seconds time_max{10.0};
constexpr std::size_t slices = 8;
constexpr std::int64_t full_jobs_min = 4 * slices;

std::size_t bytes_of(const Delivery& delivery) {
    std::size_t bytes = delivery.record.value ? delivery.record.value->size() : 0;
    for (const auto& [name, value] : delivery.record.headers) bytes += name.size() + value.size();
    return bytes;
}

// Records when jobs end.
class SampleClock final : public consumer::Observer {
public:
    explicit SampleClock(const std::vector<Delivery>& jobs, std::int64_t sequences_max) {
        for (std::size_t i = 0; i < jobs.size(); ++i) place_of_[jobs[i].record.source.offset] = static_cast<std::int64_t>(i);
        sample_.jobs = std::ssize(jobs);
        sample_.sequences_max = sequences_max;
    }

    void on_finished(const consumer::JobObservation& job) override {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
        const Seconds ended = Clock::now() - begin_;
        sample_.ended.push_back({.place = place_of_.at(job.run.source.offset),
                                 .started = ended - Seconds(job.total - job.queued),
                                 .ended = ended,
                                 .tokens = job.usage.prompt_tokens + job.usage.completion_tokens});
    }

    // Up to now, or up to stop().
    Sample sample() const {
        const std::lock_guard lock(mutex_);
        Sample sample = sample_;
        sample.time = stopped_.value_or(Clock::now()) - begin_;
        return sample;
    }
    void stop() {
        const std::lock_guard lock(mutex_);
        if (!stopped_) stopped_ = Clock::now();
    }

private:
    const Clock::time_point begin_ = Clock::now();
    std::map<std::int64_t, std::int64_t> place_of_;  // by line
    mutable std::mutex mutex_;
    Sample sample_;                             // guarded by mutex_
    std::optional<Clock::time_point> stopped_;  // guarded by mutex_
};

class SampleSource final : public consumer::JobSource {
public:
    SampleSource(std::vector<Delivery> jobs, SampleClock& clock, std::function<void()> stop)
        : jobs_(std::move(jobs)), clock_(clock), stop_(std::move(stop)) {}

    std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, consumer::RevocationHandler&) override {
        const Sample so_far = clock_.sample();
        bar_.show({.done = std::ssize(so_far.ended)});  // the total is unknown: the sample ends when enough was observed
        const auto full = full_batch(so_far);
        if (so_far.time >= time_max || (full && full->time >= full_time_enough)) {
            clock_.stop();
            stop_();
        }
        std::vector<Delivery> some;
        for (; some.size() < max && next_ < jobs_.size(); ++next_) some.push_back(std::move(jobs_[next_]));
        if (some.empty()) std::this_thread::sleep_for(std::min(timeout, std::chrono::milliseconds(20)));
        return some;
    }
    bool exhausted() const override { return next_ == jobs_.size(); }
    std::optional<std::int64_t> backlog() override { return std::ssize(jobs_) - static_cast<std::int64_t>(next_); }
    void close(consumer::RevocationHandler& handler, Clock::time_point deadline) override {
        handler.drain({{.topic = first_.topic, .partition = first_.partition, .epoch = 0}}, deadline);
    }

private:
    std::vector<Delivery> jobs_;
    SampleClock& clock_;
    const std::function<void()> stop_;
    const schema::Source first_ = jobs_.front().record.source;  // all come from one file
    std::size_t next_ = 0;
    ProgressBar bar_{"trying a sample"};
};

class NoOutput final : public consumer::CompletionSink {
public:
    void publish(consumer::Outcome) override { ++outcomes_; }
    void publish(const schema::Chunk&) override {}
    void publish(const schema::Status&) override {}
    std::size_t commit() override { return std::exchange(outcomes_, 0); }

private:
    std::size_t outcomes_ = 0;
};

}  // namespace

void Reservoir::offer(Delivery delivery) {
    ++seen_;
    const std::size_t bytes = bytes_of(delivery);
    if (kept_.size() < jobs_max_) {
        kept_.push_back(std::move(delivery));
        bytes_ += bytes;
    } else if (const std::uint64_t place = random_() % seen_; place < kept_.size()) {
        bytes_ += bytes - bytes_of(kept_[place]);
        kept_[place] = std::move(delivery);
    }
    while (bytes_ > bytes_max_ && kept_.size() > 1) {
        std::swap(kept_[random_() % kept_.size()], kept_.back());
        bytes_ -= bytes_of(kept_.back());
        kept_.pop_back();
        jobs_max_ = kept_.size();
    }
}

std::vector<Delivery> Reservoir::take() {
    std::ranges::shuffle(kept_, random_);
    return std::move(kept_);
}

std::optional<FullBatch> full_batch(const Sample& sample) {
    Seconds begin{};
    Seconds end = sample.time;
    Seconds last_start{};
    std::int64_t first_ended = 0;
    for (const SampledJob& job : sample.ended) {
        last_start = std::max(last_start, job.started);
        if (job.place >= sample.sequences_max) continue;
        ++first_ended;
        begin = std::max(begin, job.ended);
    }
    if (first_ended < sample.sequences_max) return std::nullopt;
    // With fewer jobs left than a batch holds, the batch is no longer full after the last start.
    if (sample.jobs - std::ssize(sample.ended) < sample.sequences_max) end = std::min(end, last_start);
    std::array<double, slices> jobs{};
    std::int64_t tokens = 0;
    for (const SampledJob& job : sample.ended) {
        if (job.ended <= begin || job.ended > end) continue;
        tokens += job.tokens;
        jobs[std::min(static_cast<std::size_t>((job.ended - begin) / (end - begin) * slices), slices - 1)] += 1.0;
    }
    double all = 0.0;
    for (const double count : jobs) all += count;
    if (all < static_cast<double>(full_jobs_min)) return std::nullopt;
    const double mean = all / slices;
    double squares = 0.0;
    for (const double count : jobs) squares += (count - mean) * (count - mean);
    const double seconds = (end - begin).count();
    return FullBatch{.time = end - begin,
                     .jobs_per_second = all / seconds,
                     .tokens_per_second = real(tokens) / seconds,
                     .spread = 2.0 * std::sqrt(squares / (slices - 1) / slices) / mean};
}

Sample run_sample(std::vector<Delivery> jobs, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings) {
    CHECK(!jobs.empty(), "there is something to try");
    const engine::EngineStats before = setup.engine().stats();
    SampleClock clock(jobs, setup.options().sequences_max);
    consumer::Pipeline* running = nullptr;
    SampleSource source(std::move(jobs), clock, [&] { running->request_stop(); });
    NoOutput sink;
    const NoCancels no_cancels;
    consumer::PipelineOptions options = pipeline_options(settings, setup.engine(), "dry run");
    options.drain_timeout = std::chrono::milliseconds(0);
    consumer::Pipeline pipeline({.source = source,
                                 .sink = sink,
                                 .adapters = adapters,
                                 .cancels = no_cancels,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = clock},
                                options);
    running = &pipeline;
    pipeline.run();
    clock.stop();
    Sample sample = clock.sample();
    const engine::EngineStats after = setup.engine().stats();
    sample.tokens = static_cast<std::int64_t>(after.prompt_tokens - before.prompt_tokens + after.cached_tokens - before.cached_tokens +
                                              after.drawn_tokens - before.drawn_tokens + after.forced_tokens - before.forced_tokens);
    return sample;
}

}  // namespace lorry::ops
