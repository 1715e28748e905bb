// Clients whose brokers go away or hang.
#include <csignal>
#include <filesystem>
#include <thread>

#include "ops/client/batch_follower.h"
#include "tests/ops/client/fixture.h"
#include "tests/support/program.h"

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(ClientTest, ABatchIsFollowedThroughTheBrokersAbsence) {
    publish(topics.jobs(), "base", {job_line("a")}, "mine");
    BatchFollower batch(config, topics, {.batch_id = "mine", .since = {}});
    const auto poll_until = [&](bool away) {
        const auto deadline = std::chrono::steady_clock::now() + 15s;
        while (batch.is_away() != away && std::chrono::steady_clock::now() < deadline) batch.poll();
        return batch.is_away() == away;
    };
    EXPECT_TRUE(poll_until(false));
    broker.set_down(true);
    EXPECT_TRUE(poll_until(true));
    broker.set_down(false);
    EXPECT_TRUE(poll_until(false));
}

// Waits until the program has written this text to its standard error.
void wait_for_text(const tests::Program& program, std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (program.err_so_far().find(text) == std::string::npos && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(20ms);
    ASSERT_THAT(program.err_so_far(), HasSubstr(std::string(text)));
}

void wait_for_bytes(const std::filesystem::path& path) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while ((!std::filesystem::exists(path) || std::filesystem::file_size(path) == 0) && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(20ms);
}

// Pins: `collect` asked the absent brokers again after its time was up, and `tail` said that the id may be wrong.
TEST_F(ClientTest, WaitsEndInTimeWhenTheBrokersGoAway) {
    publish(topics.jobs(), "base", {job_line("a"), job_line("b")}, "mine");
    publish(topics.results(), "mine/b", {result_line("1", "b")}, "mine");
    const std::string out = file("out.jsonl");
    tests::Program collect({LORRY_PROGRAM, "collect", "--batch", "mine", "-o", out, "--brokers", broker.address(), "--timeout", "15s"});
    tests::Program tail({LORRY_PROGRAM, "tail", "--job", "mine/a", "--brokers", broker.address(), "--timeout", "15s"});
    ASSERT_NO_FATAL_FAILURE(wait_for_text(tail, "nothing from job mine/a yet"));
    wait_for_bytes(out);
    broker.set_down(true);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(collect.wait(60s).err, HasSubstr("the time is up"));
    EXPECT_THAT(tail.wait(60s).err, HasSubstr("the time is up, and Kafka does not answer"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 35s);
}

// Pins: while results are missing, `collect` makes a reader of statuses. Brokers that accepted its connection and did not answer ended it
// with an error and without counts.
TEST_F(ClientTest, AWaitForResultsGoesOnWhileTheBrokersHang) {
    constexpr std::int16_t metadata_request = 3;
    publish(topics.jobs(), "base", {job_line("a"), job_line("b")}, "mine");
    publish(topics.results(), "mine/b", {result_line("1", "b")}, "mine");
    const std::string out = file("out.jsonl");
    tests::Program collect({LORRY_PROGRAM, "collect", "--batch", "mine", "-o", out, "--brokers", broker.address(), "--timeout", "8s"});
    wait_for_bytes(out);
    for (int request = 0; request < 30; ++request) broker.delay_answer(metadata_request, 60s);
    const tests::ProgramResult ended = collect.wait(50s);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("the time is up"), HasSubstr("1 of 2 jobs ended")));
    EXPECT_EQ(ended.exit_code, 1);
}

// Pins: `collect`, `submit` and `cancel` ignored the first signal until a broker had answered.
TEST_F(ClientTest, OneSignalEndsACommandThatWaitsForItsFirstBroker) {
    write("jobs.jsonl", {job_line("a")});
    for (const std::vector<std::string>& words : {std::vector<std::string>{"tail", "--batch", "mine"},
                                                  {"collect", "--batch", "mine", "-o", file("out.jsonl")},
                                                  {"submit", file("jobs.jsonl")},
                                                  {"submit", file("jobs.jsonl"), "--batch", "mine"},
                                                  {"cancel", "--batch", "mine"}}) {
        std::vector<std::string> command = {LORRY_PROGRAM};
        command.insert(command.end(), words.begin(), words.end());
        command.insert(command.end(), {"--brokers", "127.0.0.1:1"});
        tests::Program program(command);
        ASSERT_NO_FATAL_FAILURE(wait_for_text(program, "retried"));
        program.signal(SIGINT);
        EXPECT_EQ(program.wait(20s).exit_code, 128 + SIGINT) << words.front();
    }
    EXPECT_FALSE(std::filesystem::exists(file("out.jsonl")));
}

// Pins: the time of --timeout began with the brokers' first answer.
TEST_F(ClientTest, TheTimeToWaitIncludesTheBrokersFirstAnswer) {
    for (const char* name : {"tail", "collect"}) {
        const auto begin = std::chrono::steady_clock::now();
        const auto result = tests::run_program_of({LORRY_PROGRAM, name, "--batch", "mine", "--timeout", "2s", "--brokers", "127.0.0.1:1"});
        EXPECT_EQ(result.exit_code, 1);
        EXPECT_THAT(result.err, HasSubstr("did not succeed within 2 s"));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s) << "the brokers have 30 s otherwise";
    }
}

}  // namespace
}  // namespace lorry::ops
