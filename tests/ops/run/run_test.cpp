// `lorry run` on job files: answers, resumption, failures and kills.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "consumer/file/error.h"
#include "consumer/file/journal.h"
#include "consumer/file/lock.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "ops/machine.h"
#include "ops/run/output.h"
#include "ops/run/tally.h"
#include "tests/ops/run/fixture.h"
#include "tests/support/labels.h"

namespace lorry::ops {
namespace {

TEST_F(RunProgram, AnswersEveryLineAndNamesWhatIsWrongWithTheBadOnes) {
    std::string huge = job("huge", "base", "w1");
    huge.insert(huge.find("w1"), std::string(10 << 20, 'x'));
    std::string long_prompt = job("long", "base", prompt_of(1, 20'000));
    write_text(tiny.folder / "in.jsonl",
               job("good", "base", "w5 w6") + "this is not JSON\n" + R"({"method":"POST","url":"/v1/completions","body":{}})" + "\n" +
                   R"({"custom_id":"url","method":"POST","url":"/v1/images","body":{}})" + "\n" + job("model", "nobody", "w1") +
                   R"({"custom_id":"field","method":"POST","url":"/v1/completions","body":{"model":"base","prompt":"w1","best_off":2}})" +
                   "\n" + long_prompt + huge + job("utf8", "base", "w1 \xFF") + job("good", "base", "w7") +
                   job("adapter", "plain", "w5 w6") + job("broken", "broken", "w5") + job("named", "tiny", "w5 w6"));
    const ProgramResult result = run();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    const auto results = results_in(out());
    EXPECT_EQ(results.size(), 13U);
    EXPECT_EQ(error_of(results, "good"), "ok");
    EXPECT_EQ(error_of(results, "adapter"), "ok");
    EXPECT_EQ(error_of(results, "named"), "ok");
    EXPECT_EQ(error_of(results, "url"), "400 unsupported_url");
    EXPECT_EQ(error_of(results, "model"), "404 model_not_found");
    EXPECT_EQ(error_of(results, "field"), "400 unsupported_field");
    EXPECT_EQ(error_of(results, "long"), "400 context_length_exceeded");
    EXPECT_EQ(error_of(results, "huge"), "413 payload_too_large");
    EXPECT_EQ(error_of(results, "good again"), "400 duplicate_custom_id");
    EXPECT_EQ(error_of(results, "broken"), "400 adapter_refused");
    EXPECT_EQ(error_of(results, "nameless 0"), "400 invalid_json");
    EXPECT_EQ(error_of(results, "nameless 1"), "400 invalid_custom_id");
    EXPECT_EQ(error_of(results, "nameless 2"), "400 invalid_json");
    const std::string whole = read_whole(out());
    for (const char* words : {"line 2 of in.jsonl", "line 3 of in.jsonl", "line 9 of in.jsonl"})
        EXPECT_NE(whole.find(words), std::string::npos) << words;
    EXPECT_NE(result.err.find("--retry-failed"), std::string::npos);
    EXPECT_EQ((whole + result.err).find("register it"), std::string::npos);  // a run's folder is not registered anywhere
}

TEST_F(RunProgram, GivesTheSameAnswersFromStandardInputToStandardOutput) {
    const std::string jobs = job("a", "base", "w5 w6") + job("b", "plain", "w5 w6");
    write_text(tiny.folder / "in.jsonl", jobs);
    EXPECT_EQ(run().exit_code, 0);
    const ProgramResult piped = run_program_of(
        {LORRY_PROGRAM, "run", "-", "-o", "-", "--model", tiny.model.string(), "--adapters", tiny.adapters.string(), "--threads", "1"},
        jobs);
    EXPECT_EQ(piped.exit_code, 0) << piped.err;
    const auto text_of = [](const std::string& lines, const std::string& id) {
        std::istringstream in(lines);
        for (std::string line; std::getline(in, line);) {
            const Json json = Json::parse(line).value();
            if (*json.find("custom_id")->as_string() != id) continue;
            return *json.find("response")->find("body")->find("choices")->as_array()->front().find("text")->as_string();
        }
        return std::string("none");
    };
    for (const char* id : {"a", "b"}) EXPECT_EQ(text_of(piped.out, id), text_of(read_whole(out()), id)) << id;
    EXPECT_NE(text_of(piped.out, "a"), text_of(piped.out, "b"));
}

TEST_F(RunProgram, RefusesToGoOnWithAnotherInputModelOrOption) {
    write_text(tiny.folder / "in.jsonl", job("a", "plain", "w5"));
    EXPECT_EQ(run().exit_code, 0);
    const std::string before = read_whole(out());
    EXPECT_EQ(run().exit_code, 0);  // nothing is left to do
    EXPECT_EQ(read_whole(out()), before);

    const auto refused = [&](std::vector<std::string> more) {
        const ProgramResult result = run(std::move(more));
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_EQ(read_whole(out()), before);
        return result.err;
    };
    EXPECT_NE(refused({"--dtype", "float32"}).find("another --dtype (then: "), std::string::npos);
    EXPECT_NE(refused({"--sample", "1"}).find("another --sample (then: none; now: 1 job)"), std::string::npos);
    std::filesystem::rename(tiny.adapters / "plain", tiny.folder / "kept");
    EXPECT_NE(refused({}).find("other contents of the adapter 'plain'"), std::string::npos);
    std::filesystem::rename(tiny.folder / "kept", tiny.adapters / "plain");
    write_text(tiny.folder / "in.jsonl", job("a", "plain", "w6"));
    EXPECT_NE(refused({}).find("another input content"), std::string::npos);
    std::filesystem::remove(out().string() + ".lorry");
    EXPECT_NE(refused({}).find("has no journal"), std::string::npos);
    EXPECT_EQ(run({"--overwrite"}).exit_code, 0);
    EXPECT_NE(read_whole(out()), before);
}

TEST_F(RunProgram, RunsFailedJobsAgainWhenAsked) {
    std::filesystem::rename(tiny.adapters / "rank12", tiny.folder / "away");
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "rank12", "w5") + job("c", "base", "w6"));
    EXPECT_EQ(run().exit_code, 1);
    EXPECT_EQ(error_of(results_in(out()), "b"), "404 model_not_found");
    EXPECT_EQ(run().exit_code, 1);  // a plain repetition leaves the failure as it is
    std::filesystem::rename(tiny.folder / "away", tiny.adapters / "rank12");
    const ProgramResult result = run({"--retry-failed"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto results = results_in(out());
    EXPECT_EQ(results.size(), 3U);
    for (const char* id : {"a", "b", "c"}) EXPECT_EQ(error_of(results, id), "ok");
}

TEST_F(RunProgram, SumsUpTheWholeOutputAfterAPartOfItWasRunAgain) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "nobody", "w5") + job("c", "noone", "w6"));
    const ProgramResult first = run();
    EXPECT_NE(first.err.find("2 × model_not_found, such as\n      'nobody' is neither"), std::string::npos) << first.err;
    EXPECT_NE(first.err.find("'noone'"), std::string::npos) << first.err;
    const ProgramResult again = run({"--retry-failed", "--json"});
    EXPECT_NE(again.err.find("with earlier runs: 3 jobs, 1 ok, 2 failed"), std::string::npos) << again.err;
    const auto summary = Json::parse(again.out);
    ASSERT_TRUE(summary) << again.out;
    EXPECT_EQ(summary->find("jobs")->as_integer(), 2);
    EXPECT_EQ(summary->find("in_output")->dump(), R"({"jobs":3,"ok":1,"failed":2,"cut":1})");
}

TEST_F(RunProgram, ReplacesAnAdapterThatWasRefusedAndKeepsAnOutputThatWasChanged) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "broken", "w5"));
    EXPECT_EQ(run().exit_code, 1);
    std::filesystem::remove_all(tiny.adapters / "broken");
    std::filesystem::copy(tiny.adapters / "plain", tiny.adapters / "broken", std::filesystem::copy_options::recursive);
    const std::string before = read_whole(out());
    for (const std::string& changed : {before + "{}\n", before.substr(before.find('\n') + 1) + before.substr(0, before.find('\n') + 1)}) {
        write_text(out(), changed);
        for (const char* flag : {"--retry-failed", "--json"}) EXPECT_EQ(run({flag}).exit_code, 2);
        EXPECT_EQ(read_whole(out()), changed);
    }
    write_text(out(), before);
    const ProgramResult result = run({"--retry-failed"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(error_of(results_in(out()), "b"), "ok");
}

// Pins: a run into a device failed, because a device cannot be truncated.
TEST_F(RunProgram, WritesIntoADevice) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const tests::ProgramResult result = run_program_of(
        {LORRY_PROGRAM, "run", (tiny.folder / "in.jsonl").string(), "-o", "/dev/null", "--model", tiny.model.string(), "--device", "cpu"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Pins: the progress excluded cached tokens and the summary included them, both as "tokens/s".
TEST(Tally, CountsTokensInAndOutWhetherTheyWereComputedOrCached) {
    Tally tally;
    const schema::Run run{.model = "base"};
    tally.add({.run = run,
               .state = schema::JobState::completed,
               .error = {},
               .usage = {.prompt_tokens = 3000, .completion_tokens = 1000, .cached_tokens = 2900}});
    EXPECT_EQ(tally.total().tokens(), 4000);
    EXPECT_EQ(tally.table(2.0),
              "  model  jobs  ok  failed  tokens in  tokens out  in + out/s\n"
              "  base      1   1       0      3,000       1,000       2,000\n");
}

TEST_F(RunProgram, RunsASampleAndSumsItUpAsJson) {
    std::string jobs;
    for (int i = 0; i < 50; ++i) jobs += job(fmt::format("job-{}", i), i % 2 == 0 ? "base" : "plain", prompt_of(i, 5));
    write_text(tiny.folder / "in.jsonl", jobs);
    const ProgramResult result = run({"--sample", "6", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto summary = Json::parse(result.out);
    ASSERT_TRUE(summary) << result.out;
    EXPECT_EQ(summary->find("jobs")->as_integer(), 6);
    EXPECT_EQ(summary->find("completion_tokens")->as_integer(), 24);
    EXPECT_EQ(results_in(out()).size(), 6U);
}

// Pins: a processor ran far below its rate, and nothing said which instruction set was used or how to try another.
TEST_F(RunProgram, SaysAtTheStartWhatChoseTheInstructionSet) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5 w6"));
    const ProgramResult chosen = run({"--device", "cpu"});
    EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
    const kernels::cpu::IsaChoice choice = kernels::cpu::choose_isa();
    EXPECT_THAT(chosen.err, testing::HasSubstr(fmt::format("\n  isa       {}: chosen because {}; compare others with `lorry bench tune`, "
                                                           "choose one with --isa\n",
                                                           kernels::cpu::name_of(choice.isa), choice.reason)));
    const ProgramResult given = run({"--device", "cpu", "--isa", "scalar", "--overwrite"});
    EXPECT_EQ(given.exit_code, 0) << given.err;
    EXPECT_THAT(given.err, testing::HasSubstr("\n  isa       scalar: set by --isa or lorry.toml\n"));
}

// Pins: without a GPU, a driver or CUDA in the build, the program still starts and names what is missing.
TEST_F(RunProgram, SaysWhatIsMissingWhenAGpuIsAskedFor) {
    const auto obstacle = kernels::cuda_obstacle();
    if (!obstacle) GTEST_SKIP() << "this machine has a GPU";
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const ProgramResult result = run({"--device", "cuda"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--device cuda: " + *obstacle), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out()));
}

// Pins: memory that another process had not freed yet counted as a usage error, after which supervisors do not restart a worker.
TEST_F(RunProgram, EndsWith1WhenTheModelIsWrongOrMemoryIsNotFreeNow) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const auto fails = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {LORRY_PROGRAM, "run", (tiny.folder / "in.jsonl").string(), "-o", out(), "--model", tiny.model};
        words.insert(words.end(), more.begin(), more.end());
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 1) << result.err;
        return result.err;
    };
    // All of the machine's memory; some of it is in use.
    EXPECT_NE(fails({"--kv-memory", std::to_string(memory_limit())}).find("are free now"), std::string::npos);
    write_text(tiny.model / "config.json", R"({"model_type": "tea"})");
    EXPECT_NE(fails({}).find("model_type"), std::string::npos);
}

TEST_F(RunProgram, UnpacksJobsFromAFileAndFromStandardInput) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "base", "w6"));
    EXPECT_EQ(run().exit_code, 0);
    const auto plain = results_in(out());
    ASSERT_EQ(run_program_of({"/bin/gzip", (tiny.folder / "in.jsonl").string()}).exit_code, 0);
    const std::string packed = (tiny.folder / "in.jsonl.gz").string();
    const auto unpacked = [&](const std::string& from, const std::string& input) {
        std::vector<std::string> words = command({"--overwrite"});
        words[2] = from;
        EXPECT_EQ(run_program_of(words, input).exit_code, 0);
        return results_in(out());
    };
    EXPECT_EQ(unpacked("-", read_whole(packed)).size(), plain.size());
    EXPECT_EQ(unpacked(packed, "").size(), plain.size());
}

TEST_F(RunProgram, EndsWith2WhenTheCallIsWrong) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const auto fails = [&](std::vector<std::string> words) {
        words.insert(words.begin(), LORRY_PROGRAM);
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        return result.err;
    };
    const std::string in = (tiny.folder / "in.jsonl").string();
    EXPECT_NE(fails({"run", in}).find("-o OUT"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", in}).find("same file"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", tiny.folder / "nowhere" / "out.jsonl"}).find("make it first"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out()}).find("--model"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--retry-failed"}).find("no run has written"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--id", "id"}).find("give a prompt with --template FILE"),
              std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--text", "a", "--template", in}).find("give one of them"),
              std::string::npos);
    for (const char* flag : {"--choices", "--result-prefix", "--dimensions"}) {
        EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, flag, "3"}).find("need --text COLUMN or --template FILE"),
                  std::string::npos);
    }
    for (const auto& [flag, value] : {std::pair("--adapter", "ad"), std::pair("--max-tokens", "2"), std::pair("--temperature", "1")}) {
        EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, flag, value}).find("each job names its own"), std::string::npos);
    }
    EXPECT_NE(fails({"run", in, "-o", out(), "--max-batch", "many"}).find("--max-batch is 'many'"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--device", "cpu", "--quantize", "fp8"}).find("choose int8 or int4"),
              std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--device", "cpu", "--kv-dtype", "fp8"}).find("choose int8"),
              std::string::npos);
    EXPECT_NE(fails({"run", tiny.model.string(), "-o", out().string()}).find("not a regular file"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out().string(), "--adapter-columm", "ad"}).find("there is no flag --adapter-columm"),
              std::string::npos);
    for (const char* number : {"0", "-3", "abc"}) {
        EXPECT_NE(
            fails({"run", in, "-o", out(), "--sample", number}).find(fmt::format("--sample: '{}' is not a whole number from 1", number)),
            std::string::npos);
    }
    // Pins: the dry run checked all jobs.
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--dry-run", "--retry-failed"}).find("give one of them"),
              std::string::npos);
    for (const char* memory : {"100TB", "1"}) {
        EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--kv-memory", memory}).find("the total of"), std::string::npos);
    }
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--adapter-memory", "100TB"}).find("--adapter-memory"),
              std::string::npos);
    EXPECT_NE(fails({"walk", "--help"}).find("no command 'walk'"), std::string::npos);
    EXPECT_NE(fails({}).find("subcommand"), std::string::npos);
}

// Pins: a run from standard input with --overwrite removed the journal of a run that was writing the same file, and wrote into it.
TEST_F(RunProgram, DoesNotOverwriteTheOutputOfARunThatGoesOn) {
    const int other = consumer::open_locked(consumer::journal_of(out()), O_RDWR | O_CREAT);
    for (const std::optional<std::int64_t> jobs : {std::optional<std::int64_t>(2), std::optional<std::int64_t>()}) {
        const RunOutputArgs args{.output = out(), .jobs = jobs, .overwrite = true};
        EXPECT_THROW(open_run_output(args), consumer::ResumeRefused);
    }
    EXPECT_TRUE(std::filesystem::exists(consumer::journal_of(out())));
    ::close(other);
}

TEST_F(RunProgram, SaysHowToGoOnWhenTheOutputCannotGrow) {
    std::string jobs;
    for (int i = 0; i < 40; ++i) jobs += job(fmt::format("job-{}", i), "base", "w5");
    write_text(tiny.folder / "in.jsonl", jobs);
    std::vector<std::string> words = {"/bin/sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};
    for (const std::string& word : command({})) words.push_back(word);
    const ProgramResult full = run_program_of(words);
    EXPECT_EQ(full.exit_code, 1) << full.err;
    EXPECT_NE(full.err.find("resume with:\n  " + std::string(LORRY_PROGRAM) + " run "), std::string::npos) << full.err;
    EXPECT_EQ(run().exit_code, 0);
    EXPECT_EQ(results_in(out()).size(), 40U);
}

TEST_F(RunProgram, FinishesWhatRunsAndSaysHowToGoOnWhenItIsToldToStop) {
    std::string jobs;
    for (int i = 0; i < 3000; ++i) jobs += job(fmt::format("job-{}", i), "base", prompt_of(i, 20), 40);
    write_text(tiny.folder / "in.jsonl", jobs);
    Program program(command({"--commit-interval", "20ms"}));
    while (!std::filesystem::exists(out()) || std::filesystem::file_size(out()) == 0) {
        ASSERT_FALSE(program.ends_within(std::chrono::milliseconds(5))) << program.err_so_far();
    }
    program.signal(SIGTERM);
    const ProgramResult stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 1);
    EXPECT_NE(stopped.err.find("resume with:\n  " + std::string(LORRY_PROGRAM) + " run "), std::string::npos) << stopped.err;
    const auto first = results_in(out());
    EXPECT_LT(first.size(), 3000U);
    for (const auto& [id, line] : first) EXPECT_EQ(error_of(first, id), "ok");
}

const tests::Labelled many_kills{"RunProgram.RepeatsAndLosesNothingHoweverOftenItIsKilled", {tests::Label::slow, tests::Label::one_core}};
TEST_F(RunProgram, RepeatsAndLosesNothingHoweverOftenItIsKilled) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    constexpr int count = 3000;
    const char* const models[] = {"base", "plain", "rank12", "nobody"};
    std::string jobs;
    for (int i = 0; i < count; ++i) {
        jobs += job(fmt::format("job-{}", i), models[random() % 4], prompt_of(i, 1 + static_cast<int>(random() % 30)),
                    1 + static_cast<int>(random() % 30));
    }
    write_text(tiny.folder / "in.jsonl", jobs);
    EXPECT_EQ(run().exit_code, 1);
    const auto undisturbed = results_in(out());
    ASSERT_EQ(undisturbed.size(), static_cast<std::size_t>(count));

    std::filesystem::remove(out());
    std::filesystem::remove(out().string() + ".lorry");
    const auto size = [&] { return std::filesystem::exists(out()) ? std::filesystem::file_size(out()) : 0; };
    int kills = 0;
    for (bool ended = false; !ended;) {
        const auto size_before = size();
        Program program(command({"--commit-interval", "5ms"}));
        // Most kills come while results are written, some while the run still reads its journal.
        if (random() % 4 != 0) {
            while (!ended && size() == size_before) ended = program.ends_within(std::chrono::milliseconds(1));
        }
        if (!ended) ended = program.ends_within(std::chrono::milliseconds(random() % 60));
        if (!ended) {
            program.signal(SIGKILL);
            ++kills;
        }
        const ProgramResult result = program.wait();
        ASSERT_NE(result.exit_code, 2) << result.err;
    }
    EXPECT_GE(kills, 3);
    EXPECT_EQ(results_in(out()), undisturbed);
}

const tests::Labelled large_file{"RunProgram.TakesNoMoreMemoryForAFileTenTimesAsLarge", {tests::Label::slow, tests::Label::one_core}};
// Memory is bounded by the window of jobs in flight, whatever the size of the file.
TEST_F(RunProgram, TakesNoMoreMemoryForAFileTenTimesAsLarge) {
    const auto peak_for = [&](int count) {
        // 8 KB each, so that keeping the file, or most of it, would show.
        const std::string padding(8'000, 'x');
        std::string jobs;
        for (int i = 0; i < count; ++i) {
            std::string line = job(fmt::format("job-{}", i), i % 2 == 0 ? "base" : "plain", prompt_of(i, 3), 1);
            jobs += line.insert(line.rfind("}}"), R"(,"user":")" + padding + "\"");
        }
        write_text(tiny.folder / "in.jsonl", jobs);
        const ProgramResult result = run({"--overwrite"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(results_in(out()).size(), static_cast<std::size_t>(count));
        EXPECT_GT(result.peak_bytes, 0U);
        return result.peak_bytes;
    };
    constexpr std::size_t bound = 30 << 20;
    const std::size_t small = peak_for(500);  // 4 MB
    const std::size_t large = peak_for(5'000);
    EXPECT_LT(large, small + bound) << small << " bytes for the small file";
}

}  // namespace
}  // namespace lorry::ops
