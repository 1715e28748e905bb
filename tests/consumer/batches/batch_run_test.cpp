// A batch's owner, played with a log and a store in memory: what it writes, and that it writes it once, wherever owners end.
#include "consumer/batches/batch_run.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/batch_rig.h"

namespace lorry::consumer {
namespace {

using schema::BatchRecord;
using schema::BatchState;
using schema::Json;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Not;
using tests::BatchRig;
using tests::line;
using tests::lines;
using tests::number_before;

TEST(BatchRun, SendsEachLineAsItIsAndGathersItsResult) {
    BatchRig rig;
    rig.create("\xEF\xBB\xBF" + lines(3) + "\r\n  \n" + line("last", R"("model":"mail")"));
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "completed");
    ASSERT_EQ(rig.topics.jobs.size(), 4U);
    EXPECT_EQ(rig.topics.jobs[0].text, line("id-00"));
    EXPECT_EQ(rig.topics.jobs[3].text, line("last", R"("model":"mail")"));
    EXPECT_EQ(rig.topics.jobs[3].model, "mail");
    EXPECT_THAT(rig.rows(rig.topics.last.output_file), ElementsAre("id-01", "id-02", "last"));
    EXPECT_THAT(rig.rows(rig.topics.last.error_file), ElementsAre("id-00"));
    EXPECT_EQ(rig.topics.last.lines, 4);
    EXPECT_EQ(rig.topics.last.succeeded, 3);
    EXPECT_EQ(rig.topics.last.failed, 1);
    ASSERT_EQ(rig.topics.files.size(), 2U);
    EXPECT_EQ(rig.topics.files[0].tenant, "search");
    EXPECT_EQ(rig.topics.files[0].bytes, std::ssize(rig.store.contents().at(*rig.topics.last.output_file)));
    EXPECT_EQ(rig.store.contents().size(), 3U) << "parts are removed";
}

// Pins: a CSV was answered with twenty syntax errors of JSON.
TEST(BatchRun, ATableAsInputIsAnsweredWithAnExampleOfALine) {
    for (const char* input : {"id,subject\n1,a\n", "[{}]\n"}) {
        BatchRig rig;
        rig.create(input);
        ASSERT_TRUE(rig.own());
        EXPECT_EQ(rig.state(), "failed");
        EXPECT_THAT(rig.topics.last.errors.front().message,
                    HasSubstr(R"(. A batch's file is JSON lines, one request a line, such as {"custom_id":"1","method":"POST",)"
                              R"("url":"/v1/completions","body":{"model":"base","prompt":…}})"));
        for (std::size_t i = 1; i < rig.topics.last.errors.size(); ++i)
            EXPECT_THAT(rig.topics.last.errors[i].message, Not(HasSubstr("such as")));
    }
}

TEST(BatchRun, KeepsAtMostAFewLinesInKafka) {
    BatchRig rig;
    rig.create(lines(60));
    ASSERT_TRUE(rig.own());
    EXPECT_LE(rig.topics.most_open, 12U);
    EXPECT_EQ(rig.topics.jobs.size(), 60U);
}

// Each owner is ended at every moment that others can see: before or after each write to the log and to the store.
TEST(BatchRun, OwnersThatEndAnywhereSendAndGatherEachLineOnce) {
    const std::vector<std::string> expected = [] {
        BatchRig rig;
        rig.create(lines(40));
        EXPECT_TRUE(rig.own());
        return rig.rows(rig.topics.last.output_file);
    }();
    ASSERT_EQ(expected.size(), 36U);
    for (const bool crashes_before : {true, false}) {
        for (int writes = 0; writes < 40; ++writes) {
            SCOPED_TRACE(fmt::format("{} writes, {}", writes, crashes_before ? "before" : "after"));
            BatchRig rig;
            rig.create(lines(40));
            rig.topics.crashes_before = crashes_before;
            rig.topics.writes_left = writes;
            const bool has_ended = rig.own();
            rig.topics.writes_left = writes % 5;
            const bool has_ended_then = has_ended || (rig.topics.last.state != BatchState::completed && rig.own());
            rig.topics.writes_left = -1;
            if (!has_ended_then && rig.topics.last.state != BatchState::completed) {
                ASSERT_TRUE(rig.own());
            }
            EXPECT_EQ(rig.topics.jobs.size(), 40U);
            EXPECT_EQ(rig.rows(rig.topics.last.output_file), expected);
            EXPECT_THAT(rig.rows(rig.topics.last.error_file), ElementsAre("id-00", "id-10", "id-20", "id-30"));
            EXPECT_EQ(rig.topics.last.succeeded, 36);
            EXPECT_EQ(rig.topics.files.size(), 2U);
        }
    }
}

// As calls are: a key may call the base model alone unless it names others, and goes before nobody.
TEST(BatchRun, LinesMayNotDoWhatTheirKeyMayNot) {
    const std::string wanted = line("a", R"("model":"mail")") + "\n" + line("b", R"("model":"base","priority":-1)") + "\n" +
                               line("c", R"("model":"base","priority":1)") + "\n";
    BatchRig rig;
    rig.create(wanted, std::nullopt);
    rig.topics.last.key = "0123456789abcdef";
    ASSERT_TRUE(rig.own());
    EXPECT_THAT(rig.faults(), ElementsAre("1 permission_denied body.model", "2 permission_denied body.priority"));
    BatchRig alone;
    alone.create(wanted);
    ASSERT_TRUE(alone.own());
    EXPECT_EQ(alone.state(), "completed") << "without keys there are no others";
    BatchRig nameless;
    nameless.create(line("a", R"("prompt":"x")") + "\n", std::nullopt);
    ASSERT_TRUE(nameless.own());
    EXPECT_EQ(nameless.state(), "completed") << "a line without a model fails alone";
}

TEST(BatchRun, AWrongLineFailsTheBatchBeforeAnyIsSent) {
    BatchRig rig;
    rig.create(line("a") + "\n\nnot json\n[1]\n" + line("") + "\n" + line("a") + "\n" +
                   R"({"custom_id":"b","method":"GET","url":"/v1/completions","body":{}})" + "\n" +
                   R"({"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}})" + "\n" +
                   R"({"custom_id":"d","method":"POST","url":"/v1/completions"})" + "\n" + line("e", R"("model":"news")") + "\n",
               {{"base", "mail"}});
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "failed");
    EXPECT_THAT(rig.faults(),
                ElementsAre("3 invalid_json -", "4 invalid_json -", "5 invalid_custom_id custom_id", "6 duplicate_custom_id custom_id",
                            "7 invalid_value method", "8 unsupported_url url", "9 missing_field body", "10 permission_denied body.model"));
    EXPECT_THAT(rig.topics.jobs, IsEmpty());
    EXPECT_FALSE(rig.topics.last.output_file || rig.topics.last.error_file);
}

TEST(BatchRun, AFileWithoutLinesOrWithTooManyOrTooLongOnesFailsTheBatch) {
    const auto fault = [](const std::string& input) {
        BatchRig rig;
        rig.options.line_bytes_max = 200;
        rig.create(input);
        EXPECT_TRUE(rig.own());
        EXPECT_EQ(rig.state(), "failed");
        return rig.faults();
    };
    EXPECT_THAT(fault(" \n\n"), ElementsAre("0 empty_file -"));
    EXPECT_THAT(fault(lines(61)), ElementsAre("61 too_many_lines -"));
    // Pins: a file of blank lines was read to its end in one go, and then again for each batch.
    EXPECT_THAT(fault(line("a") + "\n" + std::string(61, '\n') + line("b")), ElementsAre("62 too_many_lines -"));
    EXPECT_THAT(fault(line("a") + "\n" + line("b", std::string(300, ' '))), ElementsAre("2 payload_too_large -"));
    EXPECT_THAT(fault(line("a") + "\n" + std::string(200'000, 'x')), ElementsAre("2 payload_too_large -"));
    std::string many;
    for (int i = 0; i < 200; ++i) many += "x\n";
    EXPECT_EQ(fault(many).size(), 20U) << "not all are reported: the record stays small";
    BatchRig rig;
    rig.create("x");
    rig.store.at_write = [] {};
    rig.store.remove(tests::batch_input_id);
    EXPECT_TRUE(rig.own());
    EXPECT_THAT(rig.faults(), ElementsAre("0 file_not_found -"));
}

TEST(BatchRun, ABatchWithMoreJobsThanItsKeyMayStillHaveFails) {
    for (const int count : {7, 8}) {
        BatchRig rig;
        rig.key_jobs = 3;
        rig.create(lines(count), {}, 10);
        ASSERT_TRUE(rig.own());
        EXPECT_EQ(rig.state(), count == 7 ? "completed" : "failed");
        EXPECT_EQ(rig.topics.jobs.size(), count == 7 ? 7U : 0U);
        if (count == 7) continue;
        EXPECT_THAT(rig.faults(), ElementsAre("0 batch_queue_full -"));
        EXPECT_THAT(rig.topics.last.errors[0].message, HasSubstr("may have 10 jobs without a result; 3 wait or run, and this file has 8"));
    }
}

TEST(BatchRun, ACancelledBatchKeepsTheResultsThatItHas) {
    BatchRig rig;
    rig.create(lines(40));
    rig.topics.writes_left = 8;
    ASSERT_FALSE(rig.own());
    const std::size_t sent = rig.topics.jobs.size();
    rig.topics.writes_left = -1;
    rig.is_cancelled = true;
    rig.works = false;  // no worker says anything any more
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "cancelled");
    EXPECT_EQ(rig.topics.jobs.size(), sent) << "nothing is sent after the cancel";
    EXPECT_THAT(rig.topics.stopped, ElementsAre(rig.topics.last.id));
    const auto errors = rig.rows(rig.topics.last.error_file);
    EXPECT_EQ(rig.rows(rig.topics.last.output_file).size() + errors.size(), 40U);
    EXPECT_EQ(errors.back(), "id-39 batch_cancelled");
    EXPECT_GE(rig.now - 1'000'000, 600) << "lines that run may end";
}

TEST(BatchRun, ABatchThatIsCancelledBeforeItBeginsHasNoFiles) {
    BatchRig rig;
    rig.create(lines(3));
    rig.is_cancelled = true;
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "cancelled");
    EXPECT_THAT(rig.topics.jobs, IsEmpty());
    EXPECT_THAT(rig.topics.files, IsEmpty());
}

TEST(BatchRun, AfterADayUnfinishedLinesAreErrors) {
    BatchRig rig;
    rig.create(lines(40));
    rig.topics.writes_left = 8;
    ASSERT_FALSE(rig.own());
    rig.topics.writes_left = -1;
    rig.works = false;
    rig.now = rig.topics.last.expires;
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "expired");
    const auto errors = rig.rows(rig.topics.last.error_file);
    EXPECT_EQ(rig.rows(rig.topics.last.output_file).size() + errors.size(), 40U);
    EXPECT_EQ(errors.back(), "id-39 batch_expired");
}

TEST(BatchRun, AResultThatComesTwiceCountsOnce) {
    BatchRig rig;
    rig.create(lines(2));
    rig.begin();
    while (rig.run->record().next_line < 2) rig.step();
    const std::string result = R"({"id":"r","custom_id":"id-01","response":{"status_code":200,"request_id":"r","body":{}},"error":null})";
    for (const std::int64_t number : {1, 1, -1, 2, 7}) rig.run->take(number, result);
    rig.run->take(0, "not a result");
    EXPECT_EQ(rig.run->record().succeeded, 1);
    EXPECT_EQ(rig.run->record().failed, 0);
}

// Pins: an owner whose store was full went on as if its results were stored.
TEST(BatchRun, AStoreThatFailsIsTriedAgainByTheNextOwner) {
    BatchRig rig;
    rig.create(lines(40));
    rig.store.is_full = true;
    EXPECT_THROW(rig.own(), std::runtime_error);
    rig.store.is_full = false;
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.rows(rig.topics.last.output_file).size(), 36U);
    EXPECT_EQ(rig.topics.jobs.size(), 40U);
}

TEST(BatchRun, AStoreThatCannotBeReadIsTriedAgainByTheNextOwner) {
    BatchRig rig;
    rig.break_off();
    rig.store.is_unreadable = true;
    EXPECT_THROW(rig.own(), std::runtime_error);
    rig.store.is_unreadable = false;
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "completed");
    EXPECT_EQ(rig.rows(rig.topics.last.output_file).size(), 36U);
    EXPECT_EQ(rig.topics.jobs.size(), 40U);
}

// Pins: the batches of its partition stopped for good.
TEST(BatchRun, AnInputThatIsGoneEndsTheBatchWithTheRowsThatItHas) {
    BatchRig rig;
    rig.break_off();
    rig.store.remove(tests::batch_input_id);
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "failed");
    EXPECT_THAT(rig.faults(), ElementsAre("0 content_missing -"));
    EXPECT_THAT(rig.topics.stopped, ElementsAre(rig.topics.last.id));
    const auto rows = rig.rows(rig.topics.last.output_file);
    EXPECT_THAT(rows, Not(IsEmpty()));
    EXPECT_EQ(std::ssize(rows), rig.topics.last.succeeded);
    EXPECT_EQ(rig.topics.last.failed, 40 - std::ssize(rows));
    EXPECT_EQ(rig.store.contents().size(), rig.topics.files.size()) << "parts are removed";
}

// Pins: it crashed the process of an owner that did not know yet that another one had ended the batch.
TEST(BatchRun, APartThatIsGoneEndsTheBatch) {
    for (const bool is_gone_before : {true, false}) {
        BatchRig rig;
        rig.break_off();
        rig.topics.last.state = BatchState::finalizing;
        rig.topics.last.output_file = "file-00000000000000000000000000000002";
        rig.topics.last.error_file = "file-00000000000000000000000000000003";
        const std::string part = rig.topics.last.parts[0];
        if (is_gone_before) rig.store.remove(part);
        rig.begin();
        if (!is_gone_before) rig.store.remove(part);
        while (!rig.run->has_ended()) ASSERT_TRUE(rig.step());
        EXPECT_EQ(rig.state(), "failed");
        EXPECT_THAT(rig.faults(), ElementsAre("0 content_missing -"));
        EXPECT_EQ(std::ssize(rig.rows(rig.topics.last.output_file)), rig.topics.last.succeeded);
    }
}

// Pins: these aborted every gateway in turn.
TEST(BatchRun, AnInputThatIsNotAsItWasEndsTheBatch) {
    for (const bool is_expired : {true, false}) {
        for (const std::string& input : {std::string(), lines(3), std::string(10'000, 'x') + "\n", lines(3) + std::string(9'000, '\n')}) {
            BatchRig rig;
            rig.break_off();
            rig.store.put(tests::batch_input_id, input);
            if (is_expired) rig.now = rig.topics.last.expires;
            rig.works = !is_expired;
            ASSERT_TRUE(rig.own());
            EXPECT_EQ(rig.state(), "failed");
            EXPECT_THAT(rig.faults(), ElementsAre("0 content_changed -"));
        }
    }
}

TEST(BatchRun, ALimitThatIsLoweredConcernsNoBatchThatWasChecked) {
    BatchRig rig;
    rig.break_off();
    rig.options.line_bytes_max = 10;
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "completed");
    EXPECT_EQ(rig.rows(rig.topics.last.output_file).size(), 36U);
}

// Pins: each open batch kept its input open.
TEST(BatchRun, KeepsNoContentOpenBetweenItsSteps) {
    BatchRig rig;
    rig.create(lines(40));
    rig.begin();
    while (rig.topics.jobs.size() < 10) {
        rig.step();
        EXPECT_EQ(rig.store.open_readers, 0);
    }
}

// Pins: a gateway left its group while it checked a large file.
TEST(BatchRun, ChecksAndWritesFilesInPieces) {
    BatchRig rig;
    const std::string input = lines(40);
    rig.create(input);
    rig.begin();
    const std::int64_t pieces = std::ssize(input) / 400;
    const auto steps_amid = [&] {
        std::int64_t steps = 0;
        for (rig.step(); rig.run->is_amid(); rig.step()) ++steps;
        return steps;
    };
    EXPECT_THAT(steps_amid(), testing::AllOf(Ge(pieces - 5), Le(pieces)));
    EXPECT_EQ(rig.run->record().lines, 40);
    rig.now = rig.topics.last.expires + 60;
    while (rig.run->record().state != BatchState::finalizing) rig.step();
    EXPECT_THAT(steps_amid(), testing::AllOf(Ge(pieces - 5), Le(pieces + 1)));
    EXPECT_EQ(rig.state(), "expired");
    EXPECT_EQ(rig.rows(rig.topics.last.error_file).size(), 40U);
}

TEST(BatchRun, ABatchThatIsCancelledWhileItIsCheckedHasNoErrors) {
    BatchRig rig;
    rig.create("no JSON\n" + lines(40));
    rig.begin();
    rig.step();
    ASSERT_TRUE(rig.run->is_amid());
    rig.is_cancelled = true;
    while (!rig.run->has_ended()) ASSERT_TRUE(rig.step());
    EXPECT_EQ(rig.state(), "cancelled");
    EXPECT_THAT(rig.faults(), IsEmpty());
    EXPECT_EQ(rig.topics.last.lines, 0);
}

TEST(BatchRun, SendsOnlyWhatTheOtherBatchesOfItsTenantLeave) {
    BatchRig rig;
    rig.create(lines(40));
    rig.begin();
    rig.others_open = 12;
    while (rig.run->record().state == BatchState::validating) rig.step();
    for (int i = 0; i < 3; ++i) rig.step();
    EXPECT_THAT(rig.topics.jobs, IsEmpty());
    rig.others_open = 4;
    while (rig.step()) continue;
    EXPECT_EQ(rig.topics.jobs.size(), 8U);
    EXPECT_EQ(rig.run->open_lines(), 8);
}

// Pins: a result that was read before the parts had two rows.
TEST(BatchRun, TakesNoResultsBeforeItHasCountedThoseThatItHas) {
    BatchRig rig;
    rig.break_off();
    rig.begin();
    ASSERT_FALSE(rig.run->has_counted());
    EXPECT_TRUE(rig.run->is_amid());
    for (const std::string& text : rig.topics.results)
        rig.run->take(number_before(text), std::string_view(text).substr(text.find(' ') + 1));
    EXPECT_EQ(rig.run->record().succeeded + rig.run->record().failed, 0);
    while (!rig.run->has_counted()) rig.run->count();
    EXPECT_EQ(rig.run->record().succeeded, rig.topics.last.succeeded);
}

TEST(BatchRun, PartsThatCannotBeRemovedDoNotMatter) {
    BatchRig rig;
    rig.break_off();
    rig.store.at_write = [&] {
        if (rig.topics.last.state == BatchState::completed) throw std::runtime_error("read-only");
    };
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.state(), "completed");
}

TEST(BatchRun, KeepsTheErrorsOfABatchShort) {
    BatchRig rig;
    std::string input;
    for (int i = 0; i < 50; ++i) input += line(std::string(5'000, 'i'), fmt::format(R"("model":"{}")", std::string(5'000, 'm'))) + "\n";
    rig.create(input, {{"base"}});
    ASSERT_TRUE(rig.own());
    EXPECT_EQ(rig.topics.last.errors.size(), 20U);
    for (const schema::BatchError& error : rig.topics.last.errors) EXPECT_LE(error.message.size(), 300U);
}

TEST(BatchRun, ABatchWhoseStoreFailsForTooLongEnds) {
    BatchRig rig;
    rig.break_off();
    const BatchRecord end = given_up(rig.topics.last, BatchRun::Time(std::chrono::seconds(rig.now)));
    EXPECT_EQ(end.state, BatchState::failed);
    EXPECT_EQ(end.since.at(BatchState::failed), rig.now);
    ASSERT_EQ(end.errors.size(), 1U);
    EXPECT_EQ(end.errors[0].code, "content_unavailable");
    EXPECT_THAT(end.parts, IsEmpty());
    EXPECT_EQ(end.failed, 40);
    EXPECT_TRUE(schema::parse_batch(schema::encode_batch(end)));
}

}  // namespace
}  // namespace lorry::consumer
