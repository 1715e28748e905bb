// Which state of a repeatable call counts, for how long, and which records are refused.
#include "consumer/kafka/calls/repeat_table.h"

#include <gmock/gmock.h>

namespace lorry::consumer {
namespace {

using testing::HasSubstr;
using State = Repeat::State;
using namespace std::chrono_literals;

constexpr schema::Timestamp start{1'000'000s};

Repeat ended(schema::Timestamp begun) {
    return {.begun = begun,
            .state = State::ended,
            .run = "run",
            .result = schema::Source{.topic = "lorry.results", .partition = 3, .offset = 17}};
}

TEST(RepeatTable, ARecordIsReadBack) {
    const Repeat repeat{.content = schema::sha256_of("a"), .begun = start, .run = "a-1"};
    const auto running = parse_repeat(encode_repeat(repeat));
    ASSERT_TRUE(running) << running.error();
    EXPECT_EQ(running->content, repeat.content);
    EXPECT_EQ(running->begun, start);
    EXPECT_EQ(running->state, State::running);
    EXPECT_EQ(running->run, "a-1");
    EXPECT_EQ(parse_repeat(encode_repeat(ended(start)))->result, ended(start).result);
    EXPECT_EQ(encode_repeat(ended(start)), R"({"state":"ended","begun_at":1000000000,"sha256":")" + std::string(64, '0') +
                                               R"(","run":"run","topic":"lorry.results","partition":3,"offset":17})");
}

TEST(RepeatTable, RecordsThatSayTooLittleAreRefused) {
    const std::string hash = R"("sha256":")" + std::string(64, '0') + "\"";
    EXPECT_THAT(parse_repeat("no JSON").error(), HasSubstr("is not JSON"));
    EXPECT_THAT(parse_repeat("{" + hash + "}").error(), HasSubstr("'state' is missing"));
    EXPECT_THAT(parse_repeat(R"({"state":"lost",)" + hash + "}").error(), HasSubstr("'state' is not"));
    EXPECT_THAT(parse_repeat(R"({"state":"running"})").error(), HasSubstr("'sha256' is missing"));
    EXPECT_THAT(parse_repeat(R"({"state":"running",)" + hash + "}").error(), HasSubstr("'run' is missing"));
    EXPECT_THAT(parse_repeat(R"({"state":"ended","run":"r",)" + hash + "}").error(), HasSubstr("'topic' is missing"));
    EXPECT_THAT(parse_repeat(R"({"state":"ended","run":"r","topic":"a","partition":-1,)" + hash + "}").error(),
                HasSubstr("'partition' is -1"));
}

TEST(RepeatTable, ACallIsRememberedForADayAndWhatIsGoneIsNot) {
    RepeatTable table(10min);
    EXPECT_EQ(table.find("a", start), nullptr);
    table.set("a", {.begun = start});
    EXPECT_EQ(table.find("a", start + 10min)->state, State::running);
    EXPECT_EQ(table.find("a", start + 10min + 1ms), nullptr) << "its gateway has ended";
    table.set("a", ended(start));
    table.set("a", {.begun = start, .run = "run"});
    EXPECT_EQ(table.find("a", start + 24h)->state, State::ended) << "a record that comes late changes nothing";
    EXPECT_EQ(table.find("a", start + 24h + 1ms), nullptr);
    table.set("a", {.begun = start + 1h});
    EXPECT_EQ(table.find("a", start + 1h)->state, State::running) << "a later run";
    table.set("a", {.begun = start + 1h, .state = State::gone});
    EXPECT_EQ(table.find("a", start + 1h), nullptr);
}

TEST(RepeatTable, OldCallsAreForgotten) {
    RepeatTable table(10min);
    for (int i = 0; i < 900; ++i) table.set("old" + std::to_string(i), ended(start));
    for (int i = 0; i < 2'000; ++i) table.set("new" + std::to_string(i), ended(start + 25h));
    EXPECT_EQ(table.size(), 2'000U);
}

// Pins: a record of an earlier run, read after a later one had begun here, said that the later one had ended.
TEST(RepeatTable, RecordsOfAnEarlierRunComeTooLate) {
    RepeatTable table(10min);
    table.set("a", {.begun = start + 1s, .run = "a-2"});
    table.set("a", {.begun = start, .run = "a-1"});
    EXPECT_EQ(table.find("a", start + 1s)->run, "a-2");
    table.set("a", {.begun = start, .state = State::gone, .run = "a-1"});
    EXPECT_EQ(table.find("a", start + 1s)->run, "a-2");
    table.set("a", {.begun = start + 1s, .state = State::gone, .run = "a-2"});
    EXPECT_EQ(table.find("a", start + 1s), nullptr);
    table.set("a", {.begun = start, .run = "a-3"});
    EXPECT_EQ(table.find("a", start + 1s)->run, "a-3") << "the clock of its gateway is slow";
}

TEST(RepeatTable, ARunBeginsAfterTheEarlierOnesOfItsCall) {
    RepeatTable table(10min);
    EXPECT_EQ(table.next_begin("a", start), start);
    table.set("a", {.begun = start, .state = State::gone, .run = "a-1"});
    EXPECT_EQ(table.next_begin("a", start), start + 1ms) << "within the same millisecond";
    EXPECT_EQ(table.next_begin("a", start - 5s), start + 1ms) << "a clock that is slow";
    EXPECT_EQ(table.next_begin("a", start + 1s), start + 1s);
    EXPECT_EQ(table.next_begin("b", start), start);
}

// Pins: clients that sent ever new keys took the gateway's memory.
TEST(RepeatTable, OfTooManyCallsThoseThatAreGoneAreForgottenFirstAndThenTheOldest) {
    constexpr std::size_t entries_max = 640;
    RepeatTable table(10min, entries_max);
    const auto id_of = [](int number) { return "call-" + std::to_string(number); };
    for (int i = 0; i < 600; ++i) table.set(id_of(i), ended(start + i * 1ms));
    for (int i = 600; i < 640; ++i) table.set(id_of(i), {.begun = start + i * 1ms, .state = State::gone});
    EXPECT_EQ(table.size(), 600U);
    EXPECT_NE(table.find(id_of(0), start + 1s), nullptr) << "those that are gone made room";
    for (int i = 640; i < 2'000; ++i) {
        table.set(id_of(i), ended(start + i * 1ms));
        ASSERT_LE(table.size(), entries_max);
    }
    EXPECT_EQ(table.find(id_of(0), start + 2s), nullptr);
    EXPECT_NE(table.find(id_of(1'500), start + 2s), nullptr);
    EXPECT_NE(table.find(id_of(1'999), start + 2s), nullptr);
}

}  // namespace
}  // namespace lorry::consumer
