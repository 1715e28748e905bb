// Checks every job, runs a sample and reports both.
#include "ops/run/dry_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "consumer/intake.h"
#include "ops/pipeline_setup.h"
#include "ops/progress_bar.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

using consumer::Clock;

constexpr std::size_t errors_shown = 10;
constexpr std::size_t prompt_bytes_shown = 2000;
// Enough for some seconds of a small model, in no more memory than a run takes.
constexpr std::size_t sample_batches_max = 32;
constexpr std::size_t sample_bytes_max = 64 << 20;
// The least uncertainty: the other prompts differ from the sample's, and the machine's load changes.
constexpr double spread_min = 0.1;
constexpr double spread_of_few = 0.25;  // when the sample is too small for a full batch

class NobodyDrains final : public consumer::RevocationHandler {
public:
    void drain(const std::vector<consumer::PartitionEpoch>&, Clock::time_point) override {}
    void lost(const std::vector<consumer::PartitionEpoch>&) override {}
};

// As the pipeline's intake does it, except that nothing is parked: all adapters are known, and one job is there at a time.
Expected<consumer::Submission, schema::JobError> prepare(const consumer::Delivery& delivery, consumer::Intake& intake) {
    auto admitted = intake.admit(delivery, Clock::now());
    if (!admitted) return unexpected(std::move(admitted.error().error));
    consumer::ModelName model = intake.resolve(*admitted);
    auto weighed = intake.weigh(std::move(*admitted), std::move(model));
    if (!weighed) return unexpected(std::move(weighed.error().error));
    return intake.expand(std::move(*weighed), false);
}

void count_tokens(const consumer::Submission& prepared, DryRunReport& report) {
    const consumer::ReplyPlan& plan = prepared.job.plan;
    if (plan.work == consumer::Work::score_choices) ++report.classifying;
    if (consumer::pooling_of(plan.work)) ++report.pooling;
    report.prompt_tokens += plan.prompt_tokens;
    for (const engine::Request& request : prepared.requests) {
        report.output_tokens_max += request.max_tokens;
        report.request_tokens_max += std::ssize(request.prompt) + request.max_tokens;
    }
}

void refuse(const consumer::Delivery& delivery, const schema::JobError& error, DryRunReport& report) {
    ++report.refused;
    ++report.refused_by_code[std::string(name_of(error.code))];
    if (report.first_errors.size() == errors_shown) return;
    const auto id = schema::scan_string_member(*delivery.record.value, "custom_id");
    report.first_errors.push_back(fmt::format("line {}{}: {}", delivery.record.source.offset + 1,
                                              id && !id->empty() ? fmt::format(" ({})", schema::shortened(*id)) : std::string(),
                                              text_of(error)));
}

std::string show_time(Seconds time) { return show_duration(std::chrono::round<std::chrono::milliseconds>(time)); }

// What the sample did, and how long all jobs would take.
std::string show(const Sample& sample, const DryRunEstimate& estimate) {
    const auto full = full_batch(sample);
    const double tokens = full ? full->tokens_per_second : real(sample.tokens) / sample.time.count();
    const std::string rate = show_count(std::lround(tokens)) + " tokens in + out/s";
    if (estimate.at_most) {
        return fmt::format("{} of a sample of {} ended in {} ({}); all of them would take at most {}\n",
                           show_count(std::ssize(sample.ended)), show_count(sample.jobs, "job"), show_time(sample.time), rate,
                           show_time(estimate.time));
    }
    const std::string tried =
        full ? fmt::format("ran at {:.{}f} jobs/s in full batches", full->jobs_per_second, full->jobs_per_second < 10.0 ? 1 : 0)
             : fmt::format("took {}", show_time(sample.time));
    return fmt::format("a sample of {} {} ({}); all of them would take about {} ({} to {} on a machine as busy as now)\n",
                       show_count(sample.jobs, "job"), tried, rate, show_time(estimate.time),
                       show_time(estimate.time * (1.0 - estimate.spread)), show_time(estimate.time * (1.0 + estimate.spread)));
}

}  // namespace

std::optional<DryRunEstimate> DryRunReport::estimate() const {
    if (sample.jobs == 0) return std::nullopt;
    const std::int64_t others = jobs - refused - sample.jobs;
    const auto full = full_batch(sample);
    if (sample.has_ended() && others == 0) return DryRunEstimate{.time = sample.time, .spread = spread_min};
    if (full) {
        // A sample that has ended filled and emptied its batch once, as the run will.
        const Seconds time = sample.has_ended() ? sample.time + Seconds(real(others) / full->jobs_per_second)
                                                : Seconds(real(others + sample.jobs) / full->jobs_per_second);
        return DryRunEstimate{.time = time, .spread = std::max(full->spread, spread_min)};
    }
    if (sample.has_ended())
        return DryRunEstimate{.time = sample.time * real(others + sample.jobs) / real(sample.jobs), .spread = spread_of_few};
    // Long jobs: scales by the sample's tokens so far and the most that all jobs may have.
    if (sample.tokens == 0) return std::nullopt;
    return DryRunEstimate{.time = sample.time * real(request_tokens_max) / real(sample.tokens), .at_most = true};
}

DryRunReport dry_run(consumer::JobSource& source, const AdapterFolders& adapters, EngineSetup& setup, const Settings& settings) {
    DryRunReport report;
    NobodyDrains nobody;
    consumer::Intake intake(
        adapters, setup.preparer(),
        {.worker = "dry run", .parse = {.bytes_max = settings.job_bytes_max.count}, .limits = in_flight_limits(settings, setup.engine())});
    Reservoir sample(sample_batches_max * static_cast<std::size_t>(setup.options().sequences_max), sample_bytes_max);
    const std::optional<std::int64_t> total = source.backlog();
    ProgressBar bar("checking");
    while (!source.exhausted()) {
        for (consumer::Delivery& delivery : source.poll(std::chrono::milliseconds(100), 256, nobody)) {
            ++report.jobs;
            const auto prepared = prepare(delivery, intake);
            if (!prepared) {
                refuse(delivery, prepared.error(), report);
                continue;
            }
            if (report.prompt.empty()) report.prompt = setup.preparer().prompt_text(prepared->job.plan).value_or("");
            count_tokens(*prepared, report);
            sample.offer(std::move(delivery));
        }
        bar.show({.done = report.jobs, .failed = report.refused, .total = total});
    }
    bar.clear();
    auto jobs = sample.take();
    if (!jobs.empty()) report.sample = run_sample(std::move(jobs), adapters, setup, settings);
    return report;
}

std::string show(const DryRunReport& report) {
    const std::int64_t good = report.jobs - report.refused;
    std::string text = fmt::format("{} jobs: {} good, {} refused; {} prompt tokens", show_count(report.jobs), show_count(good),
                                   show_count(report.refused), show_count(report.prompt_tokens));
    if (report.classifying + report.pooling < good) text += fmt::format(", at most {} to be drawn", show_count(report.output_tokens_max));
    if (report.classifying > 0) {
        text += fmt::format(
            "; {} their choices scored, which draws none",
            report.classifying == good ? "all have" : show_count(report.classifying, "job") + (report.classifying == 1 ? " has" : " have"));
    }
    if (report.pooling > 0) {
        text +=
            fmt::format("; {} only read, which draws none",
                        report.pooling == good ? "all are" : show_count(report.pooling, "job") + (report.pooling == 1 ? " is" : " are"));
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
        text += show(report.sample, *estimate);
    } else if (report.jobs > report.refused) {
        text += fmt::format("no estimate: a sample of {} computed no token in {}\n", show_count(report.sample.jobs, "job"),
                            show_time(report.sample.time));
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
                                              {"pooling", report.pooling},
                                              {"prompt_tokens", report.prompt_tokens},
                                              {"output_tokens_max", report.output_tokens_max},
                                              {"first_errors", std::move(errors)},
                                              {"first_prompt", schema::repair_utf8(report.prompt)},
                                              {"sample_jobs", report.sample.jobs},
                                              {"sampled_jobs", std::ssize(report.sample.ended)},
                                              {"sampled_tokens", report.sample.tokens},
                                              {"sample_seconds", report.sample.time.count()}});
    const auto estimate = report.estimate();
    json.set("estimated_seconds", estimate ? schema::Json(estimate->time.count()) : schema::Json());
    json.set("estimate_spread", estimate && !estimate->at_most ? schema::Json(estimate->spread) : schema::Json());
    json.set("estimate_is_at_most", estimate ? schema::Json(estimate->at_most) : schema::Json());
    return json;
}

}  // namespace lorry::ops
