// `lorry run --dry-run`: its checks and report, and the estimate from its sample.
#include "ops/run/dry_run.h"

#include "tests/ops/run/fixture.h"

namespace lorry::ops {
namespace {

TEST_F(RunProgram, ChecksEverythingAndWritesNothingInADryRun) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5 w6") + "nonsense\n" + job("b", "broken", "w5"));
    const ProgramResult result = run({"--dry-run", "--json"});
    EXPECT_EQ(result.exit_code, 1);
    const auto report = Json::parse(result.out);
    ASSERT_TRUE(report) << result.out << result.err;
    EXPECT_EQ(report->find("jobs")->as_integer(), 3);
    EXPECT_EQ(report->find("refused")->as_integer(), 2);
    EXPECT_TRUE(report->find("first_errors")->as_array()->at(1).as_string()->starts_with("line 3 (b): adapter_refused: ")) << result.err;
    EXPECT_EQ(report->find("prompt_tokens")->as_integer(), 2);
    EXPECT_EQ(report->find("sample_jobs")->as_integer(), 1);
    EXPECT_EQ(*report->find("first_prompt")->as_string(), "w5 w6");
    EXPECT_FALSE(std::filesystem::exists(out()));
    EXPECT_FALSE(std::filesystem::exists(out().string() + ".lorry"));
}

// Pins: a dry run and a run gave different errors for unknown models and for lines that are not jobs.
TEST_F(RunProgram, SaysInADryRunWhatTheRunWillWrite) {
    write_text(tiny.folder / "in.jsonl", job("unknown", "nobody", "w1") + "this is not JSON\n" + job("broken", "broken", "w1") +
                                             job("long", "base", prompt_of(1, 20'000)) +
                                             R"({"custom_id":"url","method":"POST","url":"/v1/images","body":{}})" + "\n");
    const auto report = Json::parse(run({"--dry-run", "--json"}).out);
    ASSERT_TRUE(report);
    run();
    std::vector<std::string> written;
    for (const auto& [id, text] : results_in(out())) {
        const Json line = Json::parse(text).value();
        const Json& error = *line.find("response")->find("body")->find("error");
        const std::string& message = *error.find("message")->as_string();
        // A dry run names the line itself.
        const std::size_t words = id.starts_with("nameless") ? message.find(": ") + 2 : 0;
        written.push_back(*error.find("code")->as_string() + ": " + message.substr(words));
    }
    std::vector<std::string> said;
    for (const Json& error : *report->find("first_errors")->as_array()) {
        const std::string& text = *error.as_string();  // line N (ID): CODE: MESSAGE
        said.push_back(text.substr(text.find(": ") + 2));
    }
    EXPECT_EQ(written.size(), 5U);
    EXPECT_THAT(said, ::testing::UnorderedElementsAreArray(written));
}

// Pins: a million lines were checked without any progress shown.
TEST_F(RunProgram, ShowsOnATerminalHowFarADryRunIs) {
    std::string jobs;
    for (int i = 0; i < 30'000; ++i) jobs += job(fmt::format("job-{}", i), "base", prompt_of(i, 5), 1);
    write_text(tiny.folder / "in.jsonl", jobs);
    std::string words = "TERM=xterm exec";
    for (const std::string& word : command({"--dry-run"})) words += " '" + word + "'";
    const ProgramResult result = run_program_of({"/usr/bin/script", "--quiet", "--return", "--command", words, "/dev/null"});
    EXPECT_EQ(result.exit_code, 0) << result.out;
    EXPECT_NE(result.out.find("checking █"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("30,000 jobs: 30,000 good"), std::string::npos) << result.out;
}

// Pins: the work of a sample whose jobs share an instruction was underestimated.
TEST(DryRun, EstimatesFromWhatAStoppedSampleHasOfItsTokensWhoeverComputedThem) {
    const DryRunReport report{
        .jobs = 1001,
        .refused = 1,
        .output_tokens_max = 100'000,
        .request_tokens_max = 1'000'000,
        .sample = {.jobs = 128, .sequences_max = 64, .ended = std::vector<SampledJob>(3), .tokens = 100'000, .time = Seconds(10)}};
    EXPECT_EQ(report.estimate()->time.count(), 100.0);
    EXPECT_NE(show(report).find(
                  "3 of a sample of 128 jobs ended in 10 s (10,000 tokens in + out/s); all of them would take at most 1 min 40 s\n"),
              std::string::npos)
        << show(report);
    EXPECT_EQ(json_of(report).find("estimate_is_at_most")->as_bool(), true);
}

// Jobs of 100 tokens that take a tenth of a second, ten at a time; the first ten take a second longer, to load their adapter.
Sample steady_sample(std::int64_t jobs, std::int64_t ended) {
    Sample sample{.jobs = jobs, .sequences_max = 10};
    for (std::int64_t i = 0; i < ended; ++i) {
        const Seconds started(i < 10 ? 0.0 : 1.0 + 0.01 * static_cast<double>(i));
        const Seconds end = Seconds(1.0 + 0.01 * static_cast<double>(i + 10));
        sample.ended.push_back({.place = i, .started = started, .ended = end, .tokens = 100});
        sample.time = end;
    }
    sample.tokens = ended * 100;
    return sample;
}

// Pins: the first batch, which loads adapters and fills the prefix cache, and the last, which empties, counted like the others.
TEST(DryRun, EstimatesFromFullBatchesAlone) {
    DryRunReport report{.jobs = 100'000, .request_tokens_max = 1, .sample = steady_sample(1000, 500)};
    EXPECT_NEAR(full_batch(report.sample)->jobs_per_second, 100.0, 0.5);
    EXPECT_NEAR(full_batch(report.sample)->tokens_per_second, 10'000.0, 50.0);
    EXPECT_NEAR(report.estimate()->time.count(), 1000.0, 5.0);
    EXPECT_EQ(report.estimate()->spread, 0.1);
    EXPECT_EQ(report.estimate()->at_most, false);
    const std::string text = show(report);
    EXPECT_NE(text.find("a sample of 1,000 jobs ran at 100 jobs/s in full batches (10,0"), std::string::npos) << text;
    EXPECT_NE(text.find("all of them would take about 16 min 40 s (15 min 0 s to 18 min 20 s on a machine as busy as now)\n"),
              std::string::npos)
        << text;

    report = {.jobs = 1500, .request_tokens_max = 1, .sample = steady_sample(1000, 1000)};
    EXPECT_NEAR(report.estimate()->time.count(), 1.1 + 15.0, 0.2) << "it begins and ends once";
    report = {.jobs = 1000, .request_tokens_max = 1, .sample = steady_sample(1000, 1000)};
    EXPECT_EQ(report.estimate()->time.count(), report.sample.time.count()) << "those were all jobs";
}

TEST(DryRun, SaysNothingOfFullBatchesWhileAJobOfTheFirstRuns) {
    Sample sample = steady_sample(1000, 500);
    sample.ended.erase(sample.ended.begin() + 3);
    EXPECT_FALSE(full_batch(sample).has_value());
    EXPECT_FALSE(full_batch(steady_sample(40, 40)).has_value()) << "too few";
}

TEST(DryRun, EstimatesFromAFewJobsThatHaveEnded) {
    const DryRunReport report{
        .jobs = 1000,
        .request_tokens_max = 1'000'000,
        .sample = {.jobs = 100, .sequences_max = 64, .ended = std::vector<SampledJob>(100), .tokens = 2000, .time = Seconds(2)}};
    EXPECT_EQ(report.estimate()->time.count(), 20.0);
    EXPECT_NE(
        show(report).find("a sample of 100 jobs took 2.0 s (1,000 tokens in + out/s); all of them would take about 20 s (15 s to 25 s on"),
        std::string::npos)
        << show(report);
    EXPECT_EQ(json_of(report).find("estimate_is_at_most")->as_bool(), false);
    EXPECT_EQ(DryRunReport{}.estimate().has_value(), false);
}

TEST(Reservoir, KeepsEachJobAsLikelyAsAnyOtherAndFewerOfLargeOnes) {
    const auto job_of = [](std::int64_t line, std::size_t bytes) {
        consumer::Delivery delivery;
        delivery.record.source.offset = line;
        delivery.record.value = std::string(bytes, 'x');
        return delivery;
    };
    Reservoir small(100, 1'000'000);
    for (int i = 0; i < 10'000; ++i) small.offer(job_of(i, 10));
    const auto kept = small.take();
    ASSERT_EQ(kept.size(), 100U);
    const auto late = std::ranges::count_if(kept, [](const consumer::Delivery& job) { return job.record.source.offset >= 5000; });
    EXPECT_GT(late, 30);
    EXPECT_LT(late, 70);
    Reservoir large(100, 1000);
    for (int i = 0; i < 10'000; ++i) large.offer(job_of(i, 100));
    EXPECT_EQ(large.take().size(), 10U);
}

// Pins: jobs with choices were reported as drawing at most 0 tokens.
TEST(DryRun, SaysOfJobsWithChoicesThatTheseAreScored) {
    const auto first_line = [](const DryRunReport& report) { return show(report).substr(0, show(report).find('\n')); };
    EXPECT_EQ(first_line({.jobs = 9, .refused = 1, .classifying = 8, .prompt_tokens = 80}),
              "9 jobs: 8 good, 1 refused; 80 prompt tokens; all have their choices scored, which draws none");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 0, .classifying = 2, .prompt_tokens = 80, .output_tokens_max = 70}),
              "9 jobs: 9 good, 0 refused; 80 prompt tokens, at most 70 to be drawn; 2 jobs have their choices scored, which draws none");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 0, .prompt_tokens = 80, .output_tokens_max = 70}),
              "9 jobs: 9 good, 0 refused; 80 prompt tokens, at most 70 to be drawn");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 1, .pooling = 8, .prompt_tokens = 80}),
              "9 jobs: 8 good, 1 refused; 80 prompt tokens; all are only read, which draws none");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 0, .classifying = 2, .pooling = 1, .prompt_tokens = 80, .output_tokens_max = 70}),
              "9 jobs: 9 good, 0 refused; 80 prompt tokens, at most 70 to be drawn; 2 jobs have their choices scored, which draws none; "
              "1 job is only read, which draws none");
}

}  // namespace
}  // namespace lorry::ops
