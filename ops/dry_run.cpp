// Checks everything, runs a little.
#include "ops/dry_run.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "consumer/admission.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using consumer::Clock;
using consumer::PreparedJob;

constexpr std::size_t errors_shown = 10;
constexpr std::size_t prompt_bytes_shown = 2000;
constexpr std::chrono::seconds sample_time_max{10};
constexpr std::uint64_t sample_seed = 1;

class NobodyDrains final : public consumer::RevocationHandler {
public:
    void drain(const std::vector<consumer::PartitionEpoch>&, Clock::time_point) override {}
    void lost(const std::vector<consumer::PartitionEpoch>&) override {}
};

// As the pipeline's intake does it, where no adapter is still to come.
Expected<PreparedJob, schema::JobError> prepare(const consumer::Delivery& delivery, const AdapterFolders& adapters,
                                                const consumer::Intake& intake, const schema::ParseLimits& limits) {
    auto job = consumer::read_job(delivery, limits);
    if (!job) return unexpected(job.error().error);
    consumer::ModelName model = adapters.resolve(job->model, Clock::now());
    if (auto refusal = consumer::refusal_of_model(*job, model)) return unexpected(std::move(*refusal));
    return intake.prepare(std::move(*job), 0, std::move(model));
}

void count_tokens(const PreparedJob& job, DryRunReport& report) {
    report.classifying += job.choices.empty() ? 0 : 1;
    report.prompt_tokens += job.prompt_tokens;
    for (const engine::Request& request : job.requests) {
        report.output_tokens_max += request.max_tokens;
        report.request_tokens_max += static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
    }
}

// Runs the jobs through the engine, for at most sample_time_max.
void measure(std::vector<PreparedJob> sample, engine::Engine& engine, DryRunReport& report) {
    engine::RequestId first = 0;
    std::map<engine::RequestId, std::size_t> job_of;  // first request → job
    std::vector<std::size_t> missing;
    report.sample = std::ssize(sample);
    const engine::EngineStats before = engine.stats();
    const Clock::time_point begin = Clock::now();
    for (PreparedJob& job : sample) {
        job_of[first] = missing.size();
        missing.push_back(job.requests.size());
        const engine::RequestId base = first;
        for (engine::Request& request : job.requests) {
            request.id += base;
            if (request.fork) request.fork->leader += base;
            request.stream = false;
            engine.submit(std::move(request));
        }
        first += job.requests.size();
    }
    engine::StepOutput output;
    while (engine.has_work() && Clock::now() - begin < sample_time_max) {
        if (!engine.step(output)) engine.wait_for_adapters(std::chrono::milliseconds(20));
        for (const engine::Result& result : output.results) {
            if (--missing[std::prev(job_of.upper_bound(result.id))->second] == 0) ++report.sampled;
        }
    }
    for (engine::RequestId id = 0; id < first; ++id) engine.cancel(id);
    const engine::EngineStats after = engine.stats();
    report.sample_time = Clock::now() - begin;
    report.sampled_tokens =
        static_cast<std::int64_t>(after.prompt_tokens - before.prompt_tokens + after.drawn_tokens - before.drawn_tokens);
    report.sampled_cached_tokens = static_cast<std::int64_t>(after.cached_tokens - before.cached_tokens);
}

}  // namespace

std::optional<DryRunEstimate> DryRunReport::estimate() const {
    const bool all_ended = sampled == sample;
    // Long jobs: what they have of their tokens so far, of the most that all jobs may come to have.
    const double share = all_ended ? static_cast<double>(sampled) / static_cast<double>(jobs - refused)
                                   : static_cast<double>(sampled_tokens + sampled_cached_tokens) / static_cast<double>(request_tokens_max);
    if (sample == 0 || share <= 0.0) return std::nullopt;
    return DryRunEstimate{.time = sample_time / share, .at_most = !all_ended};
}

DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const schema::ParseLimits& limits) {
    DryRunReport report;
    NobodyDrains nobody;
    // Every good job is equally likely to be in the sample.
    std::vector<PreparedJob> sample;
    const auto sample_size = static_cast<std::size_t>(2 * setup.options().sequences_max);
    std::mt19937_64 random(sample_seed);
    while (!source.exhausted()) {
        for (const consumer::Delivery& delivery : source.poll(std::chrono::milliseconds(100), 256, nobody)) {
            ++report.jobs;
            auto prepared = prepare(delivery, adapters, setup.intake(), limits);
            if (!prepared) {
                ++report.refused;
                ++report.refused_by_code[prepared.error().code];
                if (report.first_errors.size() < errors_shown) {
                    const auto id = schema::scan_string_member(*delivery.record.value, "custom_id");
                    report.first_errors.push_back(fmt::format("line {}{}: {}: {}", delivery.record.source.offset + 1,
                                                              id && !id->empty() ? fmt::format(" ({})", *id) : std::string(),
                                                              prepared.error().code, prepared.error().message));
                }
                continue;
            }
            if (report.prompt.empty()) report.prompt = setup.intake().prompt_text(prepared->job).value_or("");
            count_tokens(*prepared, report);
            const auto good = static_cast<std::uint64_t>(report.jobs - report.refused);
            if (sample.size() < sample_size) {
                sample.push_back(std::move(*prepared));
            } else if (const std::uint64_t place = random() % good; place < sample_size) {
                sample[place] = std::move(*prepared);
            }
        }
    }
    if (!sample.empty()) measure(std::move(sample), setup.engine(), report);
    return report;
}

std::string show(const DryRunReport& report) {
    const std::int64_t good = report.jobs - report.refused;
    std::string text = fmt::format("{} jobs: {} good, {} refused; {} prompt tokens", show_count(report.jobs), show_count(good),
                                   show_count(report.refused), show_count(report.prompt_tokens));
    if (report.classifying < good) text += fmt::format(", at most {} to be drawn", show_count(report.output_tokens_max));
    if (report.classifying > 0) {
        text += fmt::format(
            "; {} their choices scored, which draws none",
            report.classifying == good ? "all have" : show_count(report.classifying, "job") + (report.classifying == 1 ? " has" : " have"));
    }
    text += "\n";
    for (const auto& [code, count] : report.refused_by_code) text += fmt::format("  {} × {}\n", show_count(count), code);
    for (const std::string& error : report.first_errors) text += "  " + error + "\n";
    if (report.refused > static_cast<std::int64_t>(report.first_errors.size())) {
        text += fmt::format("  and {} more\n", show_count(report.refused - static_cast<std::int64_t>(report.first_errors.size())));
    }
    if (!report.prompt.empty()) {
        const bool cut = report.prompt.size() > prompt_bytes_shown;
        text += fmt::format("the first prompt, as the model sees it:\n---\n{}{}\n---\n",
                            schema::repair_utf8(std::string_view(report.prompt).substr(0, prompt_bytes_shown)), cut ? " …" : "");
    }
    if (const auto estimate = report.estimate()) {
        const auto show_time = [](std::chrono::duration<double> time) {
            return show_duration(std::chrono::duration_cast<std::chrono::milliseconds>(time));
        };
        text += estimate->at_most ? fmt::format("{} of a sample of {} ended in ", report.sampled, show_count(report.sample, "job"))
                                  : fmt::format("a sample of {} took ", show_count(report.sample, "job"));
        text += fmt::format("{} ({:.0f} tokens/s); all of them would take {} {}\n", show_time(report.sample_time),
                            static_cast<double>(report.sampled_tokens) / report.sample_time.count(),
                            estimate->at_most ? "at most" : "about", show_time(estimate->time));
    }
    return text;
}

schema::Json json_of(const DryRunReport& report) {
    schema::Json::Array errors(report.first_errors.begin(), report.first_errors.end());
    schema::Json codes = schema::Json::Object();
    for (const auto& [code, count] : report.refused_by_code) codes.set(code, count);
    schema::Json json = schema::Json::object({{"jobs", report.jobs},
                                              {"refused", report.refused},
                                              {"refused_by_code", std::move(codes)},
                                              {"classifying", report.classifying},
                                              {"prompt_tokens", report.prompt_tokens},
                                              {"output_tokens_max", report.output_tokens_max},
                                              {"first_errors", std::move(errors)},
                                              {"first_prompt", schema::repair_utf8(report.prompt)},
                                              {"sample_jobs", report.sample},
                                              {"sampled_jobs", report.sampled},
                                              {"sampled_tokens", report.sampled_tokens},
                                              {"sampled_cached_tokens", report.sampled_cached_tokens},
                                              {"sample_seconds", report.sample_time.count()}});
    const auto estimate = report.estimate();
    json.set("estimated_seconds", estimate ? schema::Json(estimate->time.count()) : schema::Json());
    json.set("estimate_is_at_most", estimate ? schema::Json(estimate->at_most) : schema::Json());
    return json;
}

}  // namespace lorry::ops
