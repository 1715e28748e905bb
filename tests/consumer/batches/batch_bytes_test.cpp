// How many bytes of a batch's lines wait at a time, for a broker that keeps no more.
#include <gmock/gmock.h>

#include "tests/support/batch_rig.h"

namespace lorry::consumer {
namespace {

using schema::BatchState;
using testing::AllOf;
using testing::Ge;
using testing::Le;
using tests::BatchRig;
using tests::line;
using tests::lines;
using tests::lines_from;
using tests::number_before;

// Answers of the test's workers, all at once.
void answer_all(BatchRig& rig) {
    while (rig.topics.results.size() < rig.topics.jobs.size()) rig.topics.answer(0);
    for (const std::string& text : rig.topics.results)
        rig.run->take(number_before(text), std::string_view(text).substr(text.find(' ') + 1));
}

TEST(BatchRun, SendsOnlyAsManyBytesAsMayWait) {
    BatchRig rig;
    rig.options.ahead_bytes = 3'000;
    rig.create(lines(20) + line("large", fmt::format(R"("prompt":"{}")", std::string(5'000, 'x'))) + "\n" + lines_from(20, 30));
    rig.begin();
    rig.others_open_bytes = 1'000;
    while (rig.run->record().state == BatchState::validating) rig.step();
    while (rig.step()) continue;
    EXPECT_EQ(rig.topics.jobs.size(), 3U) << "of about 600 bytes each, with what a record has besides";
    EXPECT_THAT(rig.run->open_bytes(), AllOf(Ge(1'500), Le(2'000)));
    rig.others_open_bytes = 0;
    std::size_t sent = 0;
    while (rig.topics.jobs.size() < 31 && rig.topics.jobs.size() > sent) {
        sent = rig.topics.jobs.size();
        answer_all(rig);
        EXPECT_EQ(rig.run->open_bytes(), 0);
        while (rig.step()) continue;
        const bool is_large = rig.topics.jobs.back().number == 20;
        EXPECT_THAT(rig.topics.jobs.size() - sent, AllOf(Ge(1U), Le(is_large ? 1U : 5U))) << "a line that is too large goes alone";
    }
    EXPECT_EQ(rig.topics.jobs.size(), 31U);
}

// It does not know how large they are, nor whether their results are still there: if they are not, others must go on.
TEST(BatchRun, LinesThatAnEarlierOwnerSentTakeHalfOfTheBytes) {
    BatchRig rig;
    rig.options.ahead_bytes = 10'000;
    rig.options.ahead = 100;
    rig.works = false;
    rig.topics.writes_left = 4;
    rig.create(lines(40));
    ASSERT_FALSE(rig.own());
    rig.topics.writes_left = -1;
    rig.begin();
    ASSERT_GT(rig.run->open_lines(), 0);
    EXPECT_EQ(rig.run->open_bytes(), 5'000);
    const auto sent = rig.topics.jobs.size();
    while (rig.step()) continue;
    EXPECT_GT(rig.topics.jobs.size(), sent);
    EXPECT_LT(rig.topics.jobs.size(), 40U);
    EXPECT_LE(rig.run->open_bytes(), 11'000) << "and one line";
    for (int i = 0; i < 5; ++i) {
        answer_all(rig);
        while (rig.step()) continue;
    }
    EXPECT_EQ(rig.topics.jobs.size(), 40U);
}

}  // namespace
}  // namespace lorry::consumer
