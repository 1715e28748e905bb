// What the log says of a batch.
#include "consumer/batches/batch_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::consumer {
namespace {

using schema::BatchRecord;
using schema::BatchState;
using testing::HasSubstr;

struct Story {
    explicit Story(BatchState state = BatchState::validating) {
        batch.state = state;
        progress.emplace(batch);
    }
    std::string note(std::int64_t seconds) {
        return progress->note(batch, BatchProgress::Time(std::chrono::seconds(seconds))).value_or("");
    }
    void enter(BatchState state, std::int64_t seconds) {
        batch.state = state;
        batch.since.emplace(state, seconds);
    }
    BatchRecord batch{.id = "batch_1", .tenant = "search", .input_file = "file-1", .endpoint = schema::Endpoint::completions};
    std::optional<BatchProgress> progress;
};

TEST(BatchProgress, SaysTheBeginStepsAndTheEnd) {
    Story story;
    EXPECT_EQ(story.note(1'000), "");
    story.batch.lines = 100'000;
    story.enter(BatchState::in_progress, 1'001);
    EXPECT_EQ(story.note(1'001), "batch batch_1 of tenant search begins: 100000 lines for /v1/completions");
    story.batch.succeeded = 20'000;
    EXPECT_EQ(story.note(1'020), "") << "too early";
    EXPECT_EQ(story.note(1'041), "batch batch_1: 20000 of 100000 lines have a result; 500 lines/s, about 2 min left");
    story.batch.succeeded = 25'000;
    EXPECT_EQ(story.note(1'100), "") << "less than a tenth";
    story.batch.succeeded = 29'700;
    story.batch.failed = 400;
    EXPECT_EQ(story.note(1'201), "batch batch_1: 30100 of 100000 lines have a result, 400 of them failed; 63 lines/s, about 18 min left");
    story.batch.succeeded = 99'600;
    EXPECT_NE(story.note(1'231), "");
    story.enter(BatchState::finalizing, 1'251);
    EXPECT_EQ(story.note(1'251), "");
    story.enter(BatchState::completed, 1'251);
    EXPECT_EQ(story.note(1'251), "batch batch_1 is completed: of 100000 lines 99600 succeeded, 400 failed, in 4 min, 400 lines/s");
    EXPECT_EQ(story.note(9'999), "") << "once";
}

// Pins: a log of a slow batch would say nothing for hours, or too much.
TEST(BatchProgress, ASlowBatchHasALineInTenMinutesAndOneThatStandsStillSaysSo) {
    Story story;
    story.note(0);
    story.batch.lines = 1'000;
    story.enter(BatchState::in_progress, 0);
    story.note(0);
    story.batch.succeeded = 6;
    int lines = 0;
    for (std::int64_t second = 1; second <= 1'200; ++second) lines += story.note(second).empty() ? 0 : 1;
    EXPECT_EQ(lines, 2);
    EXPECT_EQ(story.note(1'800), "batch batch_1: 6 of 1000 lines have a result; none came in the last 10 min: do workers run?");
}

TEST(BatchProgress, TheNextOwnerGoesOnAndAnEndWithoutResultsSaysHowMany) {
    Story story(BatchState::in_progress);
    story.batch.lines = 50;
    story.batch.since.emplace(BatchState::in_progress, 100);
    story.batch.succeeded = 30;
    EXPECT_EQ(story.note(200), "batch batch_1 of tenant search goes on here: 30 of 50 lines have a result");
    story.enter(BatchState::cancelling, 210);
    EXPECT_EQ(story.note(210), "batch batch_1 is being cancelled: 30 of 50 lines have a result");
    story.batch.failed = 2;
    story.enter(BatchState::finalizing, 220);
    story.note(220);
    story.batch.failed = 20;
    story.enter(BatchState::cancelled, 220);
    EXPECT_EQ(story.note(220), "batch batch_1 is cancelled: of 50 lines 30 succeeded, 2 failed, 18 have no result, in 2 min, 0.3 lines/s");
}

TEST(BatchProgress, ARefusedInputNamesItsFirstError) {
    Story story;
    story.note(0);
    story.batch.errors = {{.code = "invalid_json", .line = 1, .message = "m", .param = {}},
                          {.code = "b", .line = 2, .message = "m", .param = {}}};
    story.enter(BatchState::failed, 1);
    EXPECT_THAT(story.note(1), HasSubstr("batch batch_1 is failed; the first of its 2 errors is invalid_json"));
}

}  // namespace
}  // namespace lorry::consumer
