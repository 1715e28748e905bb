// tail, jobs, adapters, topics and broker: the commands that people use to observe and to set up Lorry.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "ops/client/chunk_printer.h"
#include "ops/progress_bar.h"
#include "schema/store/store.h"
#include "tests/ops/client/fixture.h"
#include "tests/support/labels.h"
#include "tests/support/real_broker.h"

namespace lorry::ops {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string chunk_line(const std::string& custom_id, int attempt, int seq, const std::string& text, bool last = false) {
    return fmt::format(
        R"({{"custom_id":"{}","attempt":{},"seq":{},"chunk":{{"choices":[{{"index":0,"delta":{{"content":"{}"}},"finish_reason":{}}}]}}}})",
        custom_id, attempt, seq, text, last ? "\"stop\"" : "null");
}

ChunkText chunk(int attempt, int seq, const std::string& text, std::int64_t index = 0) {
    return {.custom_id = "a", .attempt = attempt, .seq = seq, .choices = {{.index = index, .text = text, .finished = false}}};
}

TEST(ProgressBar, FitsItsLineAndSaysWhatMatters) {
    const ProgressState state{.done = 230, .failed = 3, .total = 400};
    EXPECT_EQ(progress_line("collecting", state, {41.2, 41.2}), "collecting: 230 of 400 (57 %), 41/s, 3 failed, 4.1 s left");
    EXPECT_EQ(progress_bar("collecting", state, {41.2, 41.2}, 120),
              "collecting █████████████░░░░░░░░░░░ 230/400 57 % · 41/s · 3 failed · 4.1 s left");
    EXPECT_EQ(progress_bar("collecting", state, {41.2, 41.2}, 41), "collecting 230/400 57 % · 41/s · 3 failed");
    EXPECT_EQ(progress_bar("collecting", state, {41.2, 41.2}, 40), "collecting 230/400 57 % · 41/s");
    EXPECT_EQ(progress_bar("checking", {.done = 1234, .failed = 0, .total = {}}, {}, 80), "checking 1,234");
    EXPECT_THAT(progress_line("collecting", {.done = 399, .failed = 0, .total = 400}, {}), HasSubstr("(99 %)"));
}

TEST(ProgressBar, SaysWhatIsInTheWayInsteadOfAnOldRate) {
    const ProgressState state{.done = 230, .failed = 3, .total = 400, .trouble = "Kafka does not answer"};
    EXPECT_EQ(progress_line("collecting", state, {41.2, 41.2}), "collecting: 230 of 400 (57 %), 3 failed, Kafka does not answer");
    EXPECT_EQ(
        progress_line("running", {.done = 3, .total = 4, .more = {"5,120 tokens in + out/s", "64 sequences in the batch"}}, {12.0, 12.0}),
        "running: 3 of 4 (75 %), 12/s, 0.1 s left, 5,120 tokens in + out/s, 64 sequences in the batch");
}

// Pins: the time left was worked out from the last ten seconds, and jumped between 10 minutes and 3 hours.
TEST(ProgressBar, TellsTheTimeLeftFromTheRateOverMinutes) {
    EXPECT_EQ(progress_line("running", {.done = 400'000, .total = 1'000'000}, {.now = 50.0, .lately = 1000.0}),
              "running: 400,000 of 1,000,000 (40 %), 50/s, 10 min 0 s left");
}

// Pins: a million results from the day before were read in a minute, and the remaining time was estimated at that rate.
TEST(ProgressRate, LeavesOutWhatWasDoneBeforeItsRestart) {
    const ProgressRate::Clock::time_point begin;
    ProgressRate rate;
    rate.restart(begin, 0);
    EXPECT_EQ(rate.update(begin + 1s, 1000), 1000.0);
    rate.restart(begin + 2s, 2000);
    EXPECT_EQ(rate.update(begin + 2s, 2000), 0.0);
    EXPECT_EQ(rate.update(begin + 4s, 2300), 150.0);
    EXPECT_EQ(rate.update(begin + 14s, 2300), 0.0) << "of the last ten seconds";
}

TEST(ChunkPrinter, OneJobIsWrittenAsItComesAndOthersLineByLine) {
    std::ostringstream out;
    ChunkPrinter printer(out, "a");
    printer.take("a", chunk(1, 0, "Once "));
    EXPECT_EQ(out.str(), "Once ");
    printer.take("a", chunk(1, 1, "second choice", 1));
    printer.take("a", chunk(1, 2, "upon a time"));
    EXPECT_TRUE(printer.end("a"));
    EXPECT_EQ(out.str(), "Once upon a time\na (1): second choice\n");

    std::ostringstream lines;
    ChunkPrinter many(lines, "");
    many.take("a", chunk(1, 0, "one\ntw"));
    many.take("b", chunk(1, 0, "uno\n"));
    many.take("a", chunk(1, 1, "o\n"));
    EXPECT_EQ(lines.str(), "a: one\nb: uno\na: two\n");
}

TEST(ChunkPrinter, ANewAttemptStartsOverAndAnOldOneIsSilent) {
    std::ostringstream out;
    ChunkPrinter printer(out, "a");
    printer.take("a", chunk(1, 0, "Once up"));
    EXPECT_EQ(printer.take("a", chunk(2, 0, "Once ")), ChunkPrinter::Taken::restarted);
    EXPECT_EQ(printer.take("a", chunk(1, 1, "on")), ChunkPrinter::Taken::old);
    EXPECT_EQ(printer.take("a", chunk(2, 0, "Once ")), ChunkPrinter::Taken::old) << "chunks are published at least once";
    printer.take("a", chunk(2, 1, "again"));
    printer.end("a");
    EXPECT_EQ(out.str(), "Once up\nOnce again\n");
    EXPECT_FALSE(printer.end("b")) << "no chunk of this job ever arrived";
}

TEST_F(ClientTest, TailPrintsAJobsTextAndEndsWithItsResult) {
    publish(topics.chunks(), "mine/a", {chunk_line("a", 1, 0, "upon "), chunk_line("a", 1, 1, "a time", true)});
    publish(topics.chunks(), "mine/b", {chunk_line("b", 1, 0, "another job")});
    publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    const Call tail = lorry({"tail", "--job", "mine/a", "--timeout", "60s"});
    EXPECT_EQ(tail.code, 0) << tail.err;
    EXPECT_EQ(tail.out, "upon a time\n");

    const Call json = lorry({"tail", "--job", "mine/a", "--json", "--timeout", "60s"});
    EXPECT_THAT(lines_of(json.out), ElementsAre(chunk_line("a", 1, 0, "upon "), chunk_line("a", 1, 1, "a time", true)));
}

TEST_F(ClientTest, TailOfAJobThatDoesNotStreamPrintsItsAnswerAndAFailedOneFails) {
    publish(topics.results(), "mine/a", {result_line("1", "a")}, "mine");
    publish(topics.results(), "mine/c", {result_line("3", "c", 404)}, "mine");
    const Call whole = lorry({"tail", "--job", "mine/a", "--timeout", "60s"});
    EXPECT_EQ(whole.code, 0);
    EXPECT_EQ(whole.out, "upon a time\n");
    const Call failed = lorry({"tail", "--job", "mine/c", "--timeout", "60s"});
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.err, HasSubstr("job mine/c failed: model_not_found: no such model"));
}

TEST_F(ClientTest, TailThatGivesUpSaysWhatItWaitedFor) {
    publish(topics.chunks(), "mine/a", {chunk_line("a", 1, 0, "upon ")});
    const Call begun = lorry({"tail", "--job", "mine/a", "--timeout", "2s"});
    EXPECT_EQ(begun.code, 1);
    EXPECT_THAT(begun.err, HasSubstr("the time is up, and job mine/a has not ended"));
    const Call unknown = lorry({"tail", "--job", "mine/b", "--timeout", "2s"});
    EXPECT_EQ(unknown.code, 1);
    // Pins: a batch whose jobs do not stream was followed in silence.
    const Call silent = lorry({"tail", "--batch", "other", "--timeout", "2s"});
    EXPECT_THAT(silent.err, HasSubstr("nothing from batch other with \"stream\": true yet; waiting (Ctrl-C or --timeout stops waiting)"));
    EXPECT_THAT(silent.err, HasSubstr("no text arrived from batch other in lorry.chunks: check the id"));
    EXPECT_EQ(silent.code, 1);
    EXPECT_EQ(lorry({"tail", "--batch", "mine", "--timeout", "5s"}).code, 0);
    EXPECT_THAT(unknown.err, HasSubstr("nothing arrived from job mine/b, neither text in lorry.chunks nor a result in lorry.results"));
}

// Pins: an empty id was taken for none, and the jobs of all batches were shown; --timeout 0 ended before anything was read.
TEST_F(ClientTest, TailTakesWhatExistsAndRefusesEmptyFlags) {
    publish(topics.chunks(), "mine/a", {chunk_line("a", 1, 0, "upon a time", true)});
    const Call now = lorry({"tail", "--batch", "mine", "--timeout", "0"});
    EXPECT_EQ(now.code, 0) << now.err;
    EXPECT_THAT(now.out, HasSubstr("upon a time"));
    const Call none = lorry({"tail", "--batch", "other", "--timeout", "0"});
    EXPECT_EQ(none.code, 1);
    EXPECT_THAT(none.err, HasSubstr("no text arrived from batch other"));
    for (const auto& [flag, error] :
         {std::pair("--batch", "--batch: it is empty: give a value"), std::pair("--job", "--job: it is empty: give a value"),
          std::pair("--timeout", "--timeout is ''; allowed is a time such as 30s or 2h")}) {
        const Call empty = lorry({"tail", flag, ""});
        EXPECT_EQ(empty.code, 2);
        EXPECT_THAT(empty.err, HasSubstr(error));
    }
}

TEST(ClientCommands, HelpForACommandThatDoesNotExistIsAnError) {
    const Call nonsense = call({"nonsense", "--help"});
    EXPECT_EQ(nonsense.code, 2);
    EXPECT_THAT(nonsense.out, IsEmpty());
    EXPECT_THAT(nonsense.err, HasSubstr("there is no command 'nonsense'; see lorry --help"));
    EXPECT_EQ(call({"--help"}).code, 0);
    EXPECT_EQ(call({"jobs", "--help"}).code, 0);
}

TEST_F(ClientTest, JobsShowsWhatTheLedgerKnowsAndHowManyOfABatchWait) {
    {
        schema::Store store = schema::Store::open(file("lorry.sqlite"), schema::Store::Mode::writer);
        const schema::Timestamp begin(1'700'000'000'000ms);
        schema::Status done{.run = {.job_id = "mine/a",
                                    .batch_id = "mine",
                                    .model = "section",
                                    .source = {.topic = "lorry.jobs", .partition = 0, .offset = 1},
                                    .submitted = begin,
                                    .started = begin + 40ms,
                                    .finished = begin + 240ms},
                            .state = schema::JobState::completed,
                            .usage = {.prompt_tokens = 1234, .completion_tokens = 7}};
        schema::Status failed = done;
        failed.run.job_id = "mine/b";
        failed.run.source.offset = 2;
        failed.state = schema::JobState::failed;
        failed.error = "model_not_found: no such model";
        store.apply({.statuses = {done, failed}, .adapters = {}, .offsets = {}});
    }
    publish(topics.jobs(), "base", {job_line("a"), job_line("b"), job_line("c")}, "mine");

    const Call all = lorry({"jobs", "--batch", "mine", "--ledger", file("lorry.sqlite")});
    EXPECT_EQ(all.code, 0) << all.err;
    EXPECT_THAT(all.out, AllOf(Not(HasSubstr("mine/a")), HasSubstr("2023-11-14 22:13:20"), HasSubstr("40 ms"), HasSubstr("200 ms"),
                               HasSubstr("1,234 + 7"), HasSubstr("model_not_found")));
    EXPECT_THAT(all.err, HasSubstr("batch mine: 1 completed, 1 failed; 1 waiting, of 3 in the batch"));

    // Jobs that a filter leaves out do not count as waiting.
    const Call failures = lorry({"jobs", "--batch", "mine", "--state", "failed", "--ledger", file("lorry.sqlite")});
    EXPECT_THAT(failures.err, HasSubstr("batch mine: 1 failed; 1 waiting, of 3 in the batch"));
    const Call expired = lorry({"jobs", "--batch", "mine", "--state", "expired", "--ledger", file("lorry.sqlite")});
    EXPECT_EQ(expired.code, 0);
    EXPECT_THAT(expired.err, HasSubstr("batch mine: the ledger knows no jobs of that kind; 1 waiting, of 3 in the batch"));

    const Call nosuch = lorry({"jobs", "--batch", "nosuch", "--ledger", file("lorry.sqlite")});
    EXPECT_EQ(nosuch.code, 1);
    EXPECT_THAT(nosuch.err, AllOf(HasSubstr("no job of batch nosuch is in the ledger"), HasSubstr("or in lorry.jobs")));
    EXPECT_EQ(call({"jobs", "--batch", "nosuch", "--ledger", file("lorry.sqlite")}).code, 1);

    const Call nojob = call({"jobs", "mine/x", "--ledger", file("lorry.sqlite")});
    EXPECT_EQ(nojob.code, 1);
    EXPECT_THAT(nojob.err, HasSubstr("no job mine/x is in the ledger"));
    EXPECT_EQ(call({"jobs", "mine/a", "--ledger", file("lorry.sqlite")}).code, 0);
    EXPECT_EQ(call({"jobs", "mine/a", "--state", "failed", "--ledger", file("lorry.sqlite")}).code, 0)
        << "the job is known, though in another state";

    const Call json = call({"jobs", "--state", "failed", "--json", "--ledger", file("lorry.sqlite")});
    ASSERT_THAT(lines_of(json.out), SizeIs(1));
    EXPECT_EQ(schema::parse_status(trimmed(json.out))->run.job_id, "mine/b");
    EXPECT_EQ(call({"jobs", "--state", "asleep", "--ledger", file("lorry.sqlite")}).code, 2);
    const Call missing = call({"jobs", "--ledger", file("nowhere.sqlite")});
    EXPECT_EQ(missing.code, 2) << "exit code 1 would be an answer";
    EXPECT_THAT(missing.err, HasSubstr("nowhere.sqlite"));
}

class AdapterCommands : public ClientTest {
protected:
    const std::string data = std::string(LORRY_SOURCE_DIR) + "/tests/data/models/";
    const std::string model = data + "checkpoints/llama-gqa-linear";
};

TEST_F(AdapterCommands, AnAdapterIsAddedListedShownAndRemoved) {
    const Call add = lorry({"adapters", "add", "mail", data + "adapters/plain", "--adapters", data + "adapters", "--model", model});
    ASSERT_EQ(add.code, 0) << add.err;
    const auto registered = records(topics.adapters());
    ASSERT_THAT(registered, SizeIs(1));
    const auto adapter = schema::parse_adapter(registered[0].value.value());
    ASSERT_TRUE(adapter) << adapter.error();
    EXPECT_EQ(adapter->name, "mail");
    EXPECT_EQ(adapter->path, "plain");
    EXPECT_EQ(adapter->base, "llama-gqa-linear");
    EXPECT_THAT(adapter->hash, SizeIs(32));

    EXPECT_THAT(lorry({"adapters", "list"}).out, AllOf(HasSubstr("mail"), HasSubstr("registered")));
    EXPECT_THAT(lorry({"adapters", "show", "mail"}).out, HasSubstr("mail@" + adapter->hash));
    const Call unknown = lorry({"adapters", "show", "male"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("no adapter is called 'male'; registered are mail"));

    ASSERT_EQ(lorry({"adapters", "remove", "mail"}).code, 0);
    EXPECT_THAT(lorry({"adapters", "list", "--json"}).out, IsEmpty());
    EXPECT_EQ(lorry({"adapters", "remove", "mail"}).code, 1);
}

TEST_F(AdapterCommands, WhatWorkersCouldNotUseIsRefusedBeforeTheyHearOfIt) {
    const Call outside = lorry({"adapters", "add", "mail", data + "adapters/plain", "--adapters", model, "--model", model});
    EXPECT_EQ(outside.code, 1);
    EXPECT_THAT(outside.err, HasSubstr("is not below"));
    const Call broken = lorry({"adapters", "add", "mail", data + "refused_adapters/qalora", "--model", model});
    EXPECT_EQ(broken.code, 1);
    EXPECT_THAT(broken.err, HasSubstr("use_qalora"));
    EXPECT_EQ(lorry({"adapters", "add", "base", data + "adapters/plain", "--model", model}).code, 1) << "the base model's name";
    for (const char* wrong : {"adapters/nope", "adapters/plain/adapter_config.json"}) {
        EXPECT_EQ(lorry({"adapters", "add", "mail", data + wrong, "--model", model}).code, 2) << wrong;
        EXPECT_EQ(lorry({"adapters", "add", "mail", data + "adapters/plain", "--model", data + wrong}).code, 2) << wrong;
    }
    const Call no_model = lorry({"adapters", "add", "mail", data + "adapters/plain", "--model", data + "adapters/plain"});
    EXPECT_EQ(no_model.code, 2);
    EXPECT_THAT(no_model.err, HasSubstr("the folder holds an adapter"));
    EXPECT_EQ(call({"check-model", data + "adapters/plain"}).code, 2) << "the folder is an adapter's";
    const Call unchecked = lorry({"adapters", "add", "mail", data + "adapters/plain"});
    EXPECT_EQ(unchecked.code, 2);
    EXPECT_THAT(unchecked.err, HasSubstr("--model DIR is missing"));
    EXPECT_THAT(records(topics.adapters()), IsEmpty());
}

TEST_F(AdapterCommands, AllSubFoldersAreRegisteredAndABrokenOneStopsNoOther) {
    const std::filesystem::path root = folder / "adapters";
    std::filesystem::create_directories(root);
    std::filesystem::copy(data + "adapters/plain", root / "good", std::filesystem::copy_options::recursive);
    std::filesystem::create_directories(root / "empty");
    const Call add = lorry({"adapters", "add", "--all", root.string(), "--model", model});
    EXPECT_EQ(add.code, 1);
    EXPECT_THAT(add.err, AllOf(HasSubstr("good: registered"), HasSubstr("lorry: empty: ")));
    EXPECT_THAT(lines_of(lorry({"adapters", "list", "--json"}).out), ElementsAre(HasSubstr("\"good\"")));
}

TEST_F(ClientTest, TopicsCreateSaysWhatIsThereAndPrintsTheRights) {
    const Call create = lorry({"topics", "create", "--partitions", "3"});
    EXPECT_EQ(create.code, 0) << create.err;
    EXPECT_THAT(lines_of(create.out), SizeIs(13));
    EXPECT_THAT(create.out, HasSubstr("lorry.control   exists"));
    EXPECT_THAT(create.out, Not(HasSubstr("partitions is")));
    const Call more = lorry({"topics", "create", "--partitions", "24"});
    EXPECT_EQ(more.code, 0);
    EXPECT_THAT(more.out, HasSubstr("partitions is 3, not 24"));
    EXPECT_THAT(more.err, HasSubstr("give `lorry broker` other --partitions"));

    const Call acls = call({"topics", "create", "--print-acls", "--group", "lorry-base", "--prefix", "mine", "--worker-user", "User:w"});
    EXPECT_EQ(acls.code, 0) << acls.err;
    EXPECT_THAT(acls.out, AllOf(HasSubstr("--topic 'mine.jobs'"), HasSubstr("--group 'lorry-base'"), HasSubstr("'User:w'")));
    EXPECT_EQ(call({"topics", "create", "--print-acls"}).code, 2) << "rights without a group would be incomplete";
}

const tests::Labelled client_on_a_real_broker{"RealKafkaClient.*", {tests::Label::real_kafka}};

// The embedded broker has neither topic creation nor read_committed; ctest starts a real one.
TEST(RealKafkaClient, TopicsAreCreatedAndABatchGoesThroughThem) {
    const auto broker = tests::real_broker();
    if (!broker) GTEST_SKIP() << tests::no_real_broker;
    const std::string& address = broker->address;
    const std::string prefix = fmt::format("client-{}", getpid());
    const auto lorry = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--brokers", address, "--prefix", prefix});
        return call(std::move(arguments));
    };
    const Call created = lorry({"topics", "create", "--partitions", "3"});
    ASSERT_EQ(created.code, 0) << created.err;
    EXPECT_THAT(lines_of(created.out)[1], HasSubstr(prefix + ".jobs"));
    EXPECT_THAT(lines_of(created.out)[1], HasSubstr("created"));
    const Call again = lorry({"topics", "create", "--partitions", "5"});
    EXPECT_THAT(lines_of(again.out)[1], AllOf(HasSubstr("exists"), HasSubstr("partitions is 3, not 5")));
    EXPECT_THAT(again.err, HasSubstr("were not changed"));

    const std::string jobs = (std::filesystem::temp_directory_path() / (prefix + ".jsonl")).string();
    std::ofstream(jobs) << job_line("a") << '\n' << job_line("b") << '\n';
    const Call submit = lorry({"submit", jobs});
    std::filesystem::remove(jobs);
    ASSERT_EQ(submit.code, 0) << submit.err;
    const std::string batch = trimmed(submit.out);
    const consumer::KafkaConfig config{.brokers = address};
    consumer::JobProducer worker(config, {.topic = prefix + ".results", .batch_id = batch});
    for (const char* id : {"a", "b"}) worker.submit(result_line(id, id), batch + "/" + id, 1);
    worker.finish();
    const Call collect = lorry({"collect", "--batch", batch, "--timeout", "30s"});
    EXPECT_EQ(collect.code, 0) << collect.err;
    EXPECT_THAT(lines_of(collect.out), SizeIs(2));
}

// A port that was free a moment ago.
std::string free_port() {
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
    close(descriptor);
    return std::to_string(ntohs(address.sin_port));
}

TEST_F(ClientTest, TheEmbeddedBrokerAnswersAtThePortThatWasAskedFor) {
    const std::string port = free_port();
    Call broker_call;
    std::thread thread([&] {
        broker_call = call({"broker", "--port", port, "--address-file", file("address"), "--prefix", "mine", "--stop-after", "6s"});
    });
    while (!std::filesystem::exists(file("address"))) std::this_thread::sleep_for(20ms);
    EXPECT_EQ(trimmed(text_of(file("address"))), "127.0.0.1:" + port);
    const consumer::KafkaConfig relayed{.brokers = "127.0.0.1:" + port, .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
    // Long enough to need several turns of the relay in both directions.
    const std::string value(300'000, 'x');
    consumer::JobProducer producer(relayed, {.topic = "mine.jobs"});
    for (std::uint64_t i = 0; i < 10; ++i) producer.submit(value, "base", i);
    producer.finish();
    EXPECT_EQ(producer.counts().delivered, 10U);
    consumer::RecordReader reader(relayed, {.topics = {"mine.jobs"}});
    std::size_t read = 0;
    while (read < 10 && std::filesystem::exists(file("address"))) read += reader.poll(100ms, 100).size();
    EXPECT_EQ(read, 10U);
    thread.join();
    EXPECT_EQ(broker_call.code, 0) << broker_call.err;
    EXPECT_EQ(broker_call.out, "127.0.0.1:" + port + "\n");
    EXPECT_THAT(broker_call.err, HasSubstr("it keeps nothing"));
    EXPECT_FALSE(std::filesystem::exists(file("address"))) << "others would wait for a broker that has ended";
}

}  // namespace
}  // namespace lorry::ops
