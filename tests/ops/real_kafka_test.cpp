// The program against a real Kafka: passwords and rights, and a worker of its own. ctest starts the broker with
// `ops/kafka start --secure`; LORRY_KAFKA_ADDRESS_FILE names the file with its address, and the passwords are in the same folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "engine/model/adapter.h"
#include "tests/ops/real_kafka_fixture.h"
#include "tests/support/labels.h"
#include "tests/support/program.h"

namespace lorry::ops {
namespace {

using consumer::Clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using tests::Program;
using tests::ProgramResult;

const tests::Labelled all_on_a_real_broker{"*", {tests::Label::real_kafka}};

// --- Passwords and rights ---

class RealKafkaRights : public RealKafkaProgram {
protected:
    void SetUp() override {
        RealKafkaProgram::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        if (!std::filesystem::exists(secure / "address")) GTEST_SKIP() << "the broker was not started with --secure";
        jobs = (tiny.folder / "jobs.jsonl").string();
        std::ofstream(jobs) << job_line("a", "tiny") << '\n' << job_line("b", "tiny") << '\n';
    }

    // What `lorry topics create --print-acls` prints, line by line.
    std::vector<std::string> acls(const std::string& worker) const {
        const Call printed = call({"topics", "create", "--print-acls", "--group", group, "--prefix", topics.prefix, "--brokers", address,
                                   "--worker-user", "User:" + worker});
        EXPECT_EQ(printed.code, 0) << printed.err;
        return lines_of(printed.out);
    }
    // Runs the commands as an administrator would who pastes them into a shell.
    void grant(const std::vector<std::string>& lines) const {
        std::string script = fmt::format("set -e\nkafka-acls() {{ '{}/ops/kafka' tool AclCommand \"$@\"; }}\n", LORRY_SOURCE_DIR);
        for (const std::string& line : lines) script += line + '\n';
        const ProgramResult result = tests::run_program_of({"/bin/bash", "-c", script});
        ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    }

    std::vector<std::string> as(const std::string& user, std::vector<std::string> arguments, std::string password = {}) const {
        if (password.empty()) password = first_line(secure / (user + ".password"));
        arguments.insert(arguments.end(), {"--brokers", first_line(secure / "address"), "--prefix", topics.prefix});
        for (const std::string& setting :
             {std::string("security.protocol=SASL_SSL"), std::string("sasl.mechanisms=SCRAM-SHA-512"), "sasl.username=" + user,
              "sasl.password=" + password, "ssl.ca.location=" + (secure / "ca.pem").string()}) {
            arguments.insert(arguments.end(), {"--kafka", setting});
        }
        return arguments;
    }
    std::vector<std::string> worker_as(const std::string& user, const std::string& password = {}) const {
        return as(user, worker_command(tiny, tiny.folder / (user + ".sqlite")), password);
    }

    tests::TinyModel tiny;
    std::string jobs;
};

// Each user has exactly the rights that the program prints for it.
TEST_F(RealKafkaRights, EachUserCanDoItsPartWithTheRightsThatArePrintedAndNoWorkerWithoutItsPassword) {
    grant(acls("worker"));
    const Call submit = call(as("producer", {"submit", jobs}));
    ASSERT_EQ(submit.code, 0) << submit.err;
    const std::string batch = trimmed(submit.out);
    const Call again = call(as("producer", {"submit", jobs, "--batch", batch}));
    EXPECT_EQ(again.code, 2) << again.err << "\na batch is submitted once";

    const auto start = Clock::now();
    std::vector<std::string> with_wrong_password = worker_as("worker", "not the password");
    with_wrong_password.insert(with_wrong_password.end(), {"--deadline-start", "5s"});
    const ProgramResult stranger = Program(std::move(with_wrong_password)).wait();
    EXPECT_EQ(stranger.exit_code, 1);
    EXPECT_THAT(stranger.err, AllOf(HasSubstr("within 5 s"), HasSubstr("uthentication failed"), HasSubstr("sasl.")));
    EXPECT_LT(Clock::now() - start, 60s) << "the deadline did not end the wait";

    const auto has_answers_of_a_worker = [&](const std::string& of_batch) {
        Program worker(worker_as("worker"));
        const Call collect = call(as("reader", {"collect", "--batch", of_batch, "--timeout", "60s"}));
        EXPECT_EQ(collect.code, 0) << collect.err << worker.err_so_far();
        EXPECT_THAT(lines_of(collect.out), SizeIs(2));
        worker.signal(SIGTERM);
        const ProgramResult ended = worker.wait(60s);
        EXPECT_EQ(ended.exit_code, 0) << ended.err;
        EXPECT_THAT(ended.err, HasSubstr(R"("delivery":"exactly once")"));
    };
    has_answers_of_a_worker(batch);
    // A worker that takes over after a dead letter reads it, for which it needs the right.
    {
        consumer::JobProducer garbage(config, {.topic = topics.jobs(), .spread = 8});
        for (std::uint64_t line = 0; line < 8; ++line) garbage.submit("not JSON", "base", line);
        garbage.finish();
    }
    for (int round = 0; round < 2; ++round) {
        const Call more = call(as("producer", {"submit", jobs}));
        ASSERT_EQ(more.code, 0) << more.err;
        has_answers_of_a_worker(trimmed(more.out));
    }

    const Call offsets = call(as("administrator", {"offsets", "--group", group, "--json"}));
    EXPECT_EQ(offsets.code, 0) << offsets.err;
    std::int64_t lag = 0;
    for (const std::string& line : lines_of(offsets.out)) lag += *schema::Json::parse(line)->find("lag")->as_integer();
    EXPECT_EQ(lag, 0) << offsets.out;
    Call reset;
    const auto deadline = Clock::now() + 40s;  // the group keeps the worker until its session times out
    do {
        reset = call(as("administrator", {"offsets", "reset", "--group", group, "--to", "1h", "--replay", "--dry-run"}));
    } while (reset.code != 0 && reset.err.find("has members") != std::string::npos && Clock::now() < deadline);
    EXPECT_EQ(reset.code, 0) << reset.err;
    const Call calls = call(as("administrator", {"offsets", "--calls", "--group", group, "--json"}));
    EXPECT_EQ(calls.code, 0) << calls.err;
    // No user can use another user's rights.
    EXPECT_EQ(call(as("reader", {"submit", jobs})).code, 1);
    EXPECT_EQ(call(as("producer", {"offsets", "--group", group})).code, 1);
}

TEST_F(RealKafkaRights, AWorkerThatMayNotWriteResultsSaysSoAndLosesNothing) {
    std::vector<std::string> lines = acls("no-results");
    std::erase_if(lines, [](const std::string& line) { return line.find("User:no-results") == std::string::npos; });
    const std::string results = fmt::format(" --topic '{}'", topics.results());
    int taken = 0;
    for (std::string& line : lines) {
        const auto at = line.find(results);
        if (line.find("--operation Write") == std::string::npos || at == std::string::npos) continue;
        line.erase(at, results.size());
        ++taken;
    }
    ASSERT_EQ(taken, 1) << "exactly one line must grant the right to write results";
    grant(lines);

    const Call submit = lorry({"submit", jobs});
    ASSERT_EQ(submit.code, 0) << submit.err;
    const ProgramResult refused = Program(worker_as("no-results")).wait(120s);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr(topics.results()), HasSubstr("uthoriz"), HasSubstr("print-acls")));

    // A worker that has the right runs the same jobs.
    std::vector<std::string> command = worker_command(tiny, tiny.folder / "right.sqlite");
    command.insert(command.end(), {"--brokers", address, "--prefix", topics.prefix});
    Program worker(std::move(command));
    const Call collect = lorry({"collect", "--batch", trimmed(submit.out), "--timeout", "60s"});
    EXPECT_EQ(collect.code, 0) << collect.err << worker.err_so_far();
    EXPECT_THAT(lines_of(collect.out), SizeIs(2));
    worker.signal(SIGTERM);
    EXPECT_EQ(worker.wait(60s).exit_code, 0);
    EXPECT_THAT(consumer::read_all(config, topics.results()), SizeIs(2)) << "each job has one result";
}

// The brokers ask for the password again every twenty seconds (`ops/kafka`). The client reports a refused connection only as down, so the
// worker ends as it does when the brokers stay away.
TEST_F(RealKafkaRights, AWorkerWhosePasswordIsTakenBackEndsAndSaysWhatTheBrokersSaid) {
    const std::string user = "leaver-" + topics.prefix;
    const std::string password = "a password";
    const auto change_user = [&](const char* how, const std::string& what) {
        const ProgramResult result =
            tests::run_program_of({LORRY_SOURCE_DIR "/ops/kafka", "tool", "kafka.admin.ConfigCommand", "--bootstrap-server", address,
                                   "--alter", "--entity-type", "users", "--entity-name", user, how, what});
        ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    };
    ASSERT_NO_FATAL_FAILURE(change_user("--add-config", fmt::format("SCRAM-SHA-512=[password={}]", password)));
    std::vector<std::string> lines = acls(user);
    std::erase_if(lines, [&](const std::string& line) { return line.find("User:" + user) == std::string::npos; });
    grant(lines);
    const Call submit = lorry({"submit", jobs});
    ASSERT_EQ(submit.code, 0) << submit.err;
    std::vector<std::string> command = worker_command(tiny, tiny.folder / "leaver.sqlite");
    command.insert(command.end(), {"--deadline-later", "15s"});
    Program worker(as(user, std::move(command), password));
    const Call collect = lorry({"collect", "--batch", trimmed(submit.out), "--timeout", "60s"});
    EXPECT_EQ(collect.code, 0) << collect.err << worker.err_so_far();

    ASSERT_NO_FATAL_FAILURE(change_user("--delete-config", "SCRAM-SHA-512"));
    const ProgramResult ended = worker.wait(180s);
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("within 15 s"), HasSubstr("uthentication failed"), HasSubstr("sasl.")));
}

// --- A worker that is killed ---

class RealKafkaWorker : public RealKafkaProgram {
protected:
    static constexpr int count = 120;

    void SetUp() override {
        RealKafkaProgram::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        for (const char* name : {"plain", "rank12"}) {
            const auto info = engine::inspect_adapter(tiny.adapters / name, engine::ModelConfig::load(tiny.model));
            consumer::register_adapters(config, topics.adapters(),
                                        {{.name = name, .hash = info.value().hash, .path = name, .base = "tiny"}});
        }
    }

    // Some are for adapters and some stream. Sampling is random, with seeds that depend on the jobs' ids.
    static std::vector<std::string> jobs() {
        constexpr std::array models = {"base", "plain", "rank12"};
        std::vector<std::string> lines;
        for (std::size_t i = 0; i < count; ++i) {
            lines.push_back(fmt::format(R"({{"custom_id":"job-{}","method":"POST","url":"/v1/completions","body":{{"model":"{}",)"
                                        R"("prompt":"w{} w{}","max_tokens":200,"temperature":0.8,"ignore_eos":true{}}}}})",
                                        i, models[i % models.size()], i % 131, i * 7 % 131, i % 4 == 0 ? R"(,"stream":true)" : ""));
        }
        return lines;
    }
    static std::string text_of(const schema::Json& body) { return *body.find("choices")->as_array()->front().find("text")->as_string(); }
    // Adds the answer by custom_id: the text, or the error of a job that failed.
    static void take_answer(const std::string& line, std::map<std::string, std::string>& answers) {
        const auto summary = schema::parse_result(line);
        ASSERT_TRUE(summary) << line;
        const schema::Json result = schema::Json::parse(line).value();
        answers[summary->custom_id] = summary->ok ? text_of(*result.find("response")->find("body")) : summary->error;
    }

    std::map<std::string, std::string> undisturbed() const {
        std::string lines;
        for (const std::string& job : jobs()) lines += job + '\n';
        const ProgramResult result = tests::run_program_of(
            {LORRY_PROGRAM, "run", "-", "-o", "-", "--model", tiny.model.string(), "--adapters", tiny.adapters.string(), "--threads", "1"},
            lines);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        std::map<std::string, std::string> answers;
        for (const std::string& line : lines_of(result.out)) take_answer(line, answers);
        return answers;
    }
    std::vector<std::string> command() const {
        std::vector<std::string> command = worker_command(tiny, tiny.folder / "ledger.sqlite");
        command.insert(command.end(), {"--max-batch", "4", "--commit-interval", "100ms", "--brokers", address, "--prefix", topics.prefix});
        return command;
    }

    tests::TinyModel tiny;
};

TEST_F(RealKafkaWorker, ThatIsKilledTwiceInTheMiddleGivesEachJobTheOneAnswerOfAnUndisturbedRun) {
    const auto expected = undisturbed();
    ASSERT_THAT(expected, SizeIs(count));
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs()});
        std::uint64_t line = 0;
        for (const std::string& job : jobs()) producer.submit(job, "base", ++line);
        producer.finish();
    }
    consumer::RecordReader results(config, {.topics = {topics.results()}});
    std::size_t seen = 0;
    const auto wait_for = [&](std::size_t wanted, const Program& worker) {
        const auto deadline = Clock::now() + 120s;
        while (seen < wanted && Clock::now() < deadline) seen += results.poll(20ms, 1000).size();
        ASSERT_GE(seen, wanted) << worker.err_so_far();
    };
    for (int death = 0; death < 2; ++death) {
        Program worker(command());
        ASSERT_NO_FATAL_FAILURE(wait_for(seen + 1, worker));
        worker.signal(SIGKILL);
        EXPECT_EQ(worker.wait().exit_code, 128 + SIGKILL);
    }
    EXPECT_LT(seen, std::size_t{count}) << "the worker was killed only after all jobs had ended";
    Program worker(command());
    ASSERT_NO_FATAL_FAILURE(wait_for(count, worker));
    worker.signal(SIGTERM);
    EXPECT_EQ(worker.wait(60s).exit_code, 0);

    // The streamed text of each attempt at a job.
    std::map<std::pair<std::string, std::string>, std::string> streamed;
    for (const auto& record : consumer::read_all(config, topics.chunks())) {
        const schema::Json chunk = schema::Json::parse(*record.value).value();
        streamed[{*record.key, std::to_string(*chunk.find("attempt")->as_integer())}] += text_of(*chunk.find("chunk"));
    }
    std::map<std::string, std::string> answers;
    const auto records = consumer::read_all(config, topics.results());
    EXPECT_THAT(records, SizeIs(count)) << "each job has one result";
    std::size_t streams = 0;
    for (const auto& record : records) {
        ASSERT_NO_FATAL_FAILURE(take_answer(*record.value, answers));
        const auto stream = streamed.find({*record.key, *schema::find_header(record.headers, schema::attempt_header)});
        if (stream == streamed.end()) continue;
        ++streams;
        EXPECT_EQ(stream->second, answers[*record.key]) << *record.key << ": the chunks of the attempt that won";
    }
    EXPECT_EQ(streams, std::size_t{count} / 4);
    EXPECT_EQ(answers, expected);
}

}  // namespace
}  // namespace lorry::ops
