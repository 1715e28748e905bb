// `lorry worker` as it runs in production, against an embedded broker: jobs in, results out, its pages, its log, its end on SIGTERM.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "consumer/kafka/broker.h"
#include "consumer/kafka/client.h"
#include "consumer/kafka/reader.h"
#include "engine/adapter_folder.h"
#include "ops/event_log.h"
#include "ops/metrics.h"
#include "ops/pipeline_setup.h"
#include "ops/worker/health_server.h"
#include "ops/worker/worker_observer.h"
#include "schema/store/store.h"
#include "schema/topics.h"
#include "tests/support/http_client.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

using schema::Json;
using tests::Program;
using tests::ProgramResult;
using tests::TinyModel;
using namespace std::chrono_literals;

consumer::EmbeddedBroker::Options broker_options() {
    consumer::EmbeddedBroker::Options options;
    for (const auto& spec : schema::topic_specs({}, {.partitions = 3})) options.topics.push_back({spec.name, spec.partitions});
    return options;
}

std::string job(const std::string& id, const std::string& model, const std::string& more = "") {
    return fmt::format(
        R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"model":"{}","prompt":"w5 w6","max_tokens":6{}}}}})", id,
        model, more);
}

// The log's events of that name.
std::vector<Json> events_in(const std::string& log, std::string_view name) {
    std::vector<Json> events;
    std::istringstream in(log);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with('{')) continue;  // the table at the start
        auto json = Json::parse(line);
        EXPECT_TRUE(json) << line;
        if (json && *json->find("event")->as_string() == name) events.push_back(std::move(*json));
    }
    return events;
}

class WorkerProgram : public testing::Test {
protected:
    WorkerProgram() {
        const auto info = engine::inspect_adapter(tiny.adapters / "plain", engine::ModelConfig::load(tiny.model));
        consumer::register_adapters(config, topics.adapters(),
                                    {{.name = "plain", .hash = info.value().hash, .path = "plain", .base = "tiny"},
                                     {.name = "broken", .hash = "00000000000000000000000000000000", .path = "broken", .base = "tiny"}});
    }
    std::vector<std::string> command() const {
        return {LORRY_PROGRAM,       "worker",
                "--model",           tiny.model.string(),
                "--adapters",        tiny.adapters.string(),
                "--brokers",         config.brokers,
                "--member",          "worker-1",
                "--metrics-address", "127.0.0.1:0",
                "--threads",         "1",
                "--ledger",          ledger.string()};
    }
    // Values of the results topic once there are that many.
    std::vector<std::string> results(std::size_t count) const {
        consumer::RecordReader reader(config, {.topics = {topics.results()}});
        std::vector<std::string> values;
        const auto deadline = consumer::Clock::now() + 60s;
        while (values.size() < count && consumer::Clock::now() < deadline) {
            for (auto& record : reader.poll(100ms, 1000)) values.push_back(*record.value);
        }
        return values;
    }
    static int metrics_port(const Program& program) {
        const auto deadline = consumer::Clock::now() + 60s;
        while (consumer::Clock::now() < deadline) {
            const auto started = events_in(program.err_so_far(), "worker_started");
            if (!started.empty()) return static_cast<int>(*started.front().find("metrics_port")->as_integer());
            std::this_thread::sleep_for(20ms);
        }
        ADD_FAILURE() << "the worker did not start: " << program.err_so_far();
        return 0;
    }

    TinyModel tiny;
    consumer::EmbeddedBroker broker{broker_options()};
    schema::Topics topics;
    consumer::KafkaConfig config{.brokers = broker.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
    std::filesystem::path ledger = tiny.folder / "ledger.sqlite";
};

TEST_F(WorkerProgram, AnswersJobsServesItsPagesAndDrainsWhenTold) {
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs()});
        for (int i = 0; i < 20; ++i) producer.submit(job(fmt::format("job-{}", i), i % 2 == 0 ? "base" : "plain"), "base", 1);
        producer.submit(job("lost", "broken"), "broken", 1);
        producer.submit(job("twice", "tiny", R"(,"stream":true)"), "base", 1);
        producer.submit(job("twice", "tiny"), "base", 1);
        producer.submit("no job at all", "base", 1);
        producer.finish();
    }
    Program program(command());
    const int port = metrics_port(program);
    std::map<std::string, int> codes;
    for (const std::string& value : results(23)) {
        const auto summary = schema::parse_result(value);
        ASSERT_TRUE(summary) << value;
        codes[summary->ok ? "ok" : summary->error.substr(0, summary->error.find(':'))]++;
    }
    EXPECT_EQ(codes, (std::map<std::string, int>{{"ok", 22}, {"adapter_failed", 1}}));

    tests::HttpClient client(port);
    const tests::HttpReply health = client.get("/healthz");
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(health.body, "running\n");
    const tests::HttpReply page = client.get("/metrics");
    for (const char* line :
         {"lorry_jobs_total{state=\"completed\"} 22\n", "lorry_jobs_total{state=\"failed\"} 1\n", "lorry_dead_letters_total 1\n",
          "lorry_adapters_resident 1\n", "lorry_partitions 6\n", "lorry_job_seconds_count 22\n", "# TYPE lorry_job_seconds histogram\n"}) {
        EXPECT_NE(page.body.find(line), std::string::npos) << line << page.body;
    }

    program.signal(SIGTERM);
    const ProgramResult result = program.wait(60s);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(*events_in(result.err, "worker_started").at(0).find("delivery")->as_string(), "at least once");
    EXPECT_EQ(events_in(result.err, "embedded_broker").size(), 1U);
    EXPECT_EQ(events_in(result.err, "job_admitted").size(), 23U);
    const auto finished = events_in(result.err, "job_finished");
    ASSERT_EQ(finished.size(), 23U);
    EXPECT_FALSE(finished.front().find("job_id")->as_string()->empty());
    EXPECT_EQ(events_in(result.err, "dead_letter").size(), 1U);
    EXPECT_EQ(events_in(result.err, "worker_stopping").size(), 1U);
    EXPECT_EQ(events_in(result.err, "drained").size(), 1U);

    consumer::RecordReader reader(config, {.topics = {topics.chunks(), topics.dlq()}});
    int chunks = 0;
    int dead = 0;
    for (consumer::CatchUp catch_up(reader); !catch_up.is_done();) {
        for (const auto& record : reader.poll(100ms, 1000)) ++(record.source.topic == topics.dlq() ? dead : chunks);
    }
    EXPECT_GT(chunks, 1);
    EXPECT_EQ(dead, 1);

    const schema::Store store = schema::Store::open(ledger, schema::Store::Mode::reader);
    EXPECT_EQ(store.count({}).failed, 1);
    std::map<std::string, std::string> states;
    for (const auto& row : store.adapters()) states[row.registration.name] = row.state;
    EXPECT_EQ(states["plain"], "ready");
    EXPECT_EQ(states["broken"], "failed");
}

// Pins: workers learn from the registration that an adapter has a text, before they have read its folder.
TEST_F(WorkerProgram, PreparesJobsWithTheTextThatTheirAdapterWasRegisteredWith) {
    const std::filesystem::path folder = tiny.adapters / "other";
    std::filesystem::copy(tiny.adapters / "plain", folder);
    std::string words = tests::read_whole(tiny.model / "tokenizer.json");
    for (std::size_t at = 0; (at = words.find("\"w", at)) != std::string::npos; ++at) words[at + 1] = 'x';
    tests::write_text(folder / "tokenizer.json", words);
    const engine::ModelTexts texts(tiny.model);
    const auto info = engine::inspect_adapter(folder, engine::ModelConfig::load(tiny.model), texts).value();
    consumer::register_adapters(
        config, topics.adapters(),
        {{.name = "other", .hash = info.hash, .path = "other", .base = "tiny", .text = info.text_hash},
         {.name = "changed", .hash = info.hash, .path = "other", .base = "tiny", .text = "00000000000000000000000000000000"}});
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs()});
        for (const char* model : {"plain", "other", "changed"}) producer.submit(job(model, model, R"(,"temperature":0)"), model, 1);
        producer.finish();
    }
    Program program(command());
    std::map<std::string, std::string> texts_of;
    for (const std::string& value : results(3)) {
        const Json result = Json::parse(value).value();
        const Json* choices = result.find("response")->find("body")->find("choices");
        texts_of[*result.find("custom_id")->as_string()] =
            choices == nullptr ? value : *choices->as_array()->front().find("text")->as_string();
    }
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(60s).exit_code, 0);
    EXPECT_EQ(texts_of["other"].find('w'), std::string::npos) << texts_of["other"];
    EXPECT_NE(texts_of["other"].find('x'), std::string::npos) << texts_of["other"];
    EXPECT_EQ(texts_of["plain"].find('x'), std::string::npos) << texts_of["plain"];
    EXPECT_NE(texts_of["changed"].find("adapter_failed"), std::string::npos) << texts_of["changed"];
    EXPECT_NE(texts_of["changed"].find("register it again"), std::string::npos) << texts_of["changed"];
}

TEST_F(WorkerProgram, EndsACancelledJobOnceAndLeavesTheOthersAlone) {
    {
        consumer::JobProducer producer(config, {.topic = topics.jobs()});
        for (const char* id : {"first", "dropped", "last"}) producer.submit(job(id, "base"), "base", 1);
        producer.finish();
    }
    consumer::send_cancels(config, topics, {{.id = "dropped"}});
    Program program(command());
    std::map<std::string, std::string> ends;
    for (const std::string& value : results(3)) {
        const auto summary = schema::parse_result(value);
        ASSERT_TRUE(summary) << value;
        ends[summary->custom_id] = summary->ok ? "ok" : summary->error.substr(0, summary->error.find(':'));
    }
    EXPECT_EQ(ends, (std::map<std::string, std::string>{{"first", "ok"}, {"dropped", "batch_cancelled"}, {"last", "ok"}}));
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(60s).exit_code, 0);
    EXPECT_EQ(results(3).size(), 3U);
    EXPECT_EQ(schema::Store::open(ledger, schema::Store::Mode::reader).count({}).cancelled, 1);
}

TEST(WorkerCommand, EndsWith2WithoutBrokersAndWith1WhenNoneAnswer) {
    const TinyModel tiny;
    const ProgramResult without = tests::run_program_of({LORRY_PROGRAM, "worker", "--model", tiny.model.string()});
    EXPECT_EQ(without.exit_code, 2);
    EXPECT_NE(without.err.find("brokers"), std::string::npos) << without.err;
    const ProgramResult unreachable =
        tests::run_program_of({LORRY_PROGRAM, "worker", "--model", tiny.model.string(), "--brokers", "127.0.0.1:1", "--deadline-start",
                               "1s", "--metrics-address", "off", "--threads", "1"});
    EXPECT_EQ(unreachable.exit_code, 1);
    EXPECT_NE(unreachable.err.find("127.0.0.1:1"), std::string::npos) << unreachable.err;
    EXPECT_EQ(unreachable.err.find("is retried for up to"), std::string::npos) << unreachable.err;
    // Pins: nothing was printed for half a minute.
    const ProgramResult patient =
        tests::run_program_of({LORRY_PROGRAM, "cancel", "a", "--brokers", "127.0.0.1:1", "--deadline-start", "7s"});
    EXPECT_NE(patient.err.find("has failed for 5 s and is retried for up to"), std::string::npos) << patient.err;
}

// Pins: the worker started without an error, and every job for an adapter failed.
TEST(WorkerCommand, DoesNotStartWithoutTheFolderOfItsAdapters) {
    const TinyModel tiny;
    const std::filesystem::path missing = tiny.folder / "nope";
    const std::filesystem::path file = tiny.model / "config.json";
    const std::pair<std::filesystem::path, const char*> cases[] = {
        {missing, "there is no such folder"},
        {file, "this is a file; give the folder that it is in"},
        {"./model", "there is no such folder"},
        {"owner/model", "there is no such folder; Lorry downloads no models: hf download owner/model --local-dir FOLDER"}};
    for (const auto& [adapters, reason] : cases) {
        const ProgramResult refused =
            tests::run_program_of({LORRY_PROGRAM, "worker", "--model", tiny.model.string(), "--adapters", adapters.string(), "--brokers",
                                   "127.0.0.1:1", "--deadline-start", "1s", "--metrics-address", "off", "--threads", "1"});
        EXPECT_EQ(refused.exit_code, 2) << refused.err;
        EXPECT_NE(refused.err.find(fmt::format("--adapters {}: {}\n", adapters.string(), reason)), std::string::npos) << refused.err;
    }
}

TEST(WorkerCommand, WarnsWhenAnotherProgramHasThePortOfItsPages) {
    const TinyModel tiny;
    std::unique_ptr<HealthServer> first;
    try {
        first = std::make_unique<HealthServer>(HealthServer::Options{.address = Settings().metrics_address, .metrics = {}, .health = {}});
    } catch (const std::runtime_error&) {
        // Another program has the port already, which serves the test as well.
    }
    const ProgramResult second = tests::run_program_of(
        {LORRY_PROGRAM, "worker", "--model", tiny.model.string(), "--brokers", "127.0.0.1:1", "--deadline-start", "1s", "--threads", "1"});
    const auto events = events_in(second.err, "pages_not_served");
    ASSERT_EQ(events.size(), 1U) << second.err;
    EXPECT_EQ(*events[0].find("level")->as_string(), "warning");
}

// What `act` logs. A process starts its event log once.
std::string log_of(const std::function<void()>& act) {
    static std::once_flag started;
    testing::internal::CaptureStderr();
    std::call_once(started, [] { start_event_log("info"); });
    act();
    return testing::internal::GetCapturedStderr();
}

// Pins: the log quoted prompts and arguments of tool calls, as the messages of the errors about them do.
TEST(WorkerObserver, LogsErrorsByCodeAndFieldWithoutTheirMessages) {
    Metrics metrics("1.2.3", 8);
    WorkerObserver observer(metrics, nullptr);
    const schema::Run run{.job_id = "one"};
    const auto fail = [&](schema::ErrorCode code, const std::string& param) {
        observer.on_finished({.run = run,
                              .state = schema::JobState::failed,
                              .error = consumer::ObservedError{.code = code, .param = param, .message = "it is \"SECRET\""},
                              .usage = {}});
    };
    const std::string log = log_of([&] {
        fail(schema::ErrorCode::invalid_value, "messages[1].tool_calls[0].function.arguments");
        fail(schema::ErrorCode::chat_template_failed, "");
        fail(schema::ErrorCode::unsupported_field, std::string(1000, 'x'));
        observer.on_dead_letter({.source = {.topic = "lorry.jobs", .partition = 2, .offset = 7},
                                 .error = {.code = schema::ErrorCode::invalid_json, .param = "", .message = "near \"SECRET\""}});
    });
    EXPECT_EQ(log.find("SECRET"), std::string::npos) << log;
    const auto finished = events_in(log, "job_finished");
    ASSERT_EQ(finished.size(), 3U);
    EXPECT_EQ(*finished[0].find("error")->as_string(), "invalid_value");
    EXPECT_EQ(*finished[0].find("param")->as_string(), "messages[1].tool_calls[0].function.arguments");
    EXPECT_EQ(*finished[1].find("error")->as_string(), "chat_template_failed");
    EXPECT_EQ(finished[1].find("param"), nullptr);
    EXPECT_EQ(*finished[2].find("param")->as_string(), std::string(60, 'x') + "…");
    const auto letters = events_in(log, "dead_letter");
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(*letters[0].find("error")->as_string(), "invalid_json");
}

TEST(WorkerObserver, NamesEachStuckJobOnce) {
    Metrics metrics("1.2.3", 8);
    WorkerObserver observer(metrics, nullptr);
    const auto oldest = [&](const std::string& id, std::int64_t offset, std::chrono::milliseconds age) {
        const schema::Source source{.topic = "lorry.jobs", .partition = 2, .offset = offset};
        observer.on_oldest(consumer::OldestJob{.source = source, .job_id = id, .age = age});
    };
    const std::string log = log_of([&] {
        oldest("slow", 7, 9min);
        oldest("slow", 7, 11min);
        oldest("slow", 7, 12min);
        oldest("slower", 9, 10min);
    });
    const auto events = events_in(log, "job_stuck");
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(*events[0].find("job_id")->as_string(), "slow");
    EXPECT_EQ(*events[0].find("partition")->as_integer(), 2);
    EXPECT_EQ(*events[0].find("offset")->as_integer(), 7);
    EXPECT_EQ(*events[0].find("seconds")->as_number(), 660.0);
    EXPECT_EQ(*events[1].find("job_id")->as_string(), "slower");
}

TEST(PipelineSetup, BoundsTheTokensInFlightByTheSettingOrTwoBatchesOfTheLongestJobs) {
    Settings settings;
    settings.max_batch = 64;
    EXPECT_EQ(in_flight_tokens_of(settings, 2'048), 2'000'000);
    EXPECT_EQ(in_flight_tokens_of(settings, 32'768), 4 * 64 * 32'768);
    settings.in_flight_tokens = 5'000;
    EXPECT_EQ(in_flight_tokens_of(settings, 32'768), 5'000);
}

}  // namespace
}  // namespace lorry::ops
