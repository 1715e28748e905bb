// The backend that only samples, and the observer that reads each thread's clock.
#include "ops/bench/pipeline_bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "consumer/file/sink.h"
#include "consumer/file/source.h"
#include "consumer/pipeline.h"
#include "ops/adapter_folders.h"
#include "ops/bench/random_model.h"
#include "ops/bench/wrapped_backend.h"
#include "ops/pipeline_setup.h"

namespace lorry::ops {
namespace {

using namespace kernels;

class SamplingBackend final : public WrappedBackend {
public:
    using WrappedBackend::WrappedBackend;

    std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
        auto buffer = backend().allocate(bytes);
        backend().upload(buffer->data(), std::vector<std::byte>(bytes));
        return buffer;
    }
    void make_graphs(const GraphArgs& /*args*/) override {}

private:
    void do_run(const Op& op) override {
        if (std::holds_alternative<const SampleArgs*>(op)) backend().run(op);
    }
};

// The processor time that the calling thread has used, in seconds.
double thread_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Each member belongs to one of the pipeline's threads, until the pipeline has ended.
class ThreadClocks final : public consumer::Observer {
public:
    ThreadClocks() : intake_began_(thread_seconds()) {}

    void on_gauges(const consumer::PipelineGauges&) override { cost_.intake_seconds = thread_seconds() - intake_began_; }
    void on_step(const engine::EngineStats&) override { cost_.engine_seconds = thread_seconds(); }
    void on_committed(std::size_t, std::chrono::microseconds) override { cost_.publishing_seconds = thread_seconds(); }
    void on_finished(const consumer::JobObservation& job) override {
        ++cost_.jobs;
        if (job.error) fail(fmt::format("{}: {}", name_of(job.error->code), job.error->message));
        cost_.tokens += job.usage.prompt_tokens + job.usage.completion_tokens;
    }
    void on_dead_letter(const schema::DeadLetter& letter) override {
        ++cost_.jobs;
        fail(fmt::format("{}: line {}: {}", name_of(letter.error.code), letter.source.offset + 1, letter.error.message));
    }
    const PipelineCost& cost() const { return cost_; }

private:
    void fail(const std::string& error) {
        if (cost_.failed++ == 0) cost_.first_error = error;
    }

    const double intake_began_;  // the pipeline runs its intake on this thread, which has done other work before
    PipelineCost cost_;
};

PipelineCost run_once(EngineSetup& setup, const consumer::AdapterDirectory& adapters, const Settings& settings,
                      const std::filesystem::path& jobs) {
    const TemporaryFolder folder;
    consumer::FileSource source({.file = jobs,
                                 .topic = jobs.filename().string(),
                                 .format = consumer::RecordFormat::lines,
                                 .table = nullptr,
                                 .done = {},
                                 .chosen = {},
                                 .total = {}});
    consumer::FileSink sink({.file = folder.path() / "results.jsonl", .begin_bytes = 0, .table = nullptr}, nullptr);
    const NoCancels no_cancels;
    const std::uint64_t steps = setup.engine().stats().steps;
    ThreadClocks clocks;
    const auto begin = std::chrono::steady_clock::now();
    consumer::Pipeline({.source = source,
                        .sink = sink,
                        .adapters = adapters,
                        .cancels = no_cancels,
                        .preparer = setup.preparer(),
                        .engine = setup.engine(),
                        .reply = setup.reply(),
                        .observer = clocks},
                       pipeline_options(settings, setup.engine(), "bench"))
        .run();
    PipelineCost cost = clocks.cost();
    cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    cost.steps = static_cast<std::int64_t>(setup.engine().stats().steps - steps);
    if (cost.tokens == 0) {
        throw std::runtime_error(jobs.string() + ": none of its jobs ran: `lorry run --dry-run` says why" +
                                 (cost.first_error.empty() ? "" : "; the first: " + cost.first_error));
    }
    return cost;
}

}  // namespace

std::unique_ptr<Backend> only_sample(std::unique_ptr<Backend> backend) { return std::make_unique<SamplingBackend>(std::move(backend)); }

double PipelineCost::busiest_seconds() const { return std::max({intake_seconds, engine_seconds, publishing_seconds}); }

PipelineCost run_pipeline(EngineSetup& setup, const consumer::AdapterDirectory& adapters, const Settings& settings,
                          const std::filesystem::path& jobs, std::int64_t repeat) {
    PipelineCost best = run_once(setup, adapters, settings, jobs);
    for (std::int64_t i = 1; i < repeat; ++i) {
        const PipelineCost again = run_once(setup, adapters, settings, jobs);
        if (again.busiest_seconds() < best.busiest_seconds()) best = again;
    }
    return best;
}

}  // namespace lorry::ops
