// What `lorry offsets` reports about a committed offset and its metadata.
#include "ops/client/offset_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::ops {
namespace {

using consumer::CommitState;
using consumer::PartitionOffsets;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

PartitionOffsets committed(const CommitState& state, std::int64_t first, std::int64_t end) {
    return {.partition = 3, .committed = state.offset, .metadata = encode_commit_metadata(state), .first = first, .end = end};
}

TEST(OffsetReport, DividesWhatLiesAboveTheOffsetIntoFinishedAndMissing) {
    const PartitionReport report = report_of(
        committed({.offset = 100, .holes = {101, 105, 106, 110}, .highest_finished = 112, .starts = {{100, 2}, {106, 1}}}, 0, 120));
    EXPECT_EQ(report.finished, (std::vector<OffsetRange>{{102, 104}, {107, 109}, {111, 112}}));
    EXPECT_EQ(report.missing, (std::vector<OffsetRange>{{100, 101}, {105, 106}, {110, 110}}));
    EXPECT_EQ(report.lag, 20);
    EXPECT_EQ(report.unfinished, 12);
    EXPECT_EQ(show_reports(std::vector{report}),
              "PARTITION  COMMITTED  END  LAG  UNFINISHED  REMARK\n"
              "        3        100  120   20          12\n"
              "partition 3: 8 finished above the offset: 102-104, 107-109, 111-112; 5 missing: 100-101, 105-106, 110; 2 started, "
              "1 of them again: 100 (2×)\n");
    EXPECT_EQ(json_of(report).dump(),
              R"({"partition":3,"committed":100,"end":120,"lag":20,"unfinished":12,"finished":[[102,104],[107,109],[111,112]],)"
              R"("missing":[[100,101],[105,106],[110,110]],"starts":[{"offset":100,"count":2},{"offset":106,"count":1}]})");
}

TEST(OffsetReport, SaysNothingMoreWhereNothingIsFinishedAboveTheOffset) {
    const PartitionReport report = report_of(committed({.offset = 7, .holes = {}, .highest_finished = 7, .starts = {}}, 2, 9));
    EXPECT_EQ(report.unfinished, 2);
    EXPECT_THAT(report.missing, testing::IsEmpty());
    EXPECT_THAT(show_reports(std::vector{report}), Not(HasSubstr("partition 3")));
}

// A number that is only a guess must not look like one that is known.
TEST(OffsetReport, NamesMetadataThatItCannotRead) {
    for (const char* metadata : {"", "written by hand", "AQAAAAAAAAA="}) {
        const PartitionReport report = report_of({.partition = 0, .committed = 5, .metadata = metadata, .first = 0, .end = 9});
        EXPECT_EQ(report.unfinished, std::nullopt) << metadata;
        EXPECT_EQ(report.lag, 4) << metadata;
        EXPECT_THAT(report.remark, HasSubstr("metadata")) << metadata;
        EXPECT_THAT(show_reports(std::vector{report}), HasSubstr("4           ?  " + report.remark)) << metadata;
        EXPECT_THAT(json_of(report).dump(), HasSubstr("\"unfinished\":null")) << metadata;
    }
    const PartitionReport none = report_of({.partition = 0, .committed = std::nullopt, .metadata = "", .first = 3, .end = 9});
    EXPECT_EQ(none.lag, 6);
    EXPECT_EQ(none.unfinished, std::nullopt);
    EXPECT_EQ(report_of({.partition = 0, .committed = 9, .metadata = "", .first = 3, .end = 9}).unfinished, 0);
    EXPECT_EQ(none.remark, "nothing committed yet");
    const PartitionReport outdated =
        report_of({.partition = 0, .committed = {}, .metadata = "", .first = 0, .end = 9, .is_outdated = true});
    EXPECT_EQ(outdated.remark, "the commit is for an earlier topic of that name");
    EXPECT_EQ(outdated.lag, 9);
}

TEST(OffsetReport, NoticesALogThatNoLongerHoldsTheOffset) {
    const CommitState state{.offset = 10, .holes = {12, 20}, .highest_finished = 30, .starts = {}};
    const PartitionReport deleted = report_of(committed(state, 20, 40));
    EXPECT_THAT(deleted.remark, HasSubstr("the log begins at 20"));
    EXPECT_EQ(deleted.lag, 20);
    EXPECT_EQ(deleted.unfinished, 10) << "20, and 31 to 39";
    const PartitionReport truncated = report_of(committed(state, 0, 8));
    EXPECT_THAT(truncated.remark, HasSubstr("beyond the log's end"));
    EXPECT_EQ(truncated.unfinished, 0);
}

TEST(OffsetReport, CutsLongListsForPeopleOnly) {
    CommitState state{.offset = 0, .holes = {}, .highest_finished = 100, .starts = {}};
    for (std::int64_t hole = 2; hole < 100; hole += 2) state.holes.push_back(hole);
    for (std::int64_t offset = 0; offset < 40; ++offset) state.starts.push_back({offset, offset < 20 ? 1U : 3U});
    const PartitionReport report = report_of(committed(state, 0, 200));
    const std::string text = show_reports(std::vector{report});
    EXPECT_THAT(text, HasSubstr("51 finished above the offset: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, … (50 ranges)"));
    EXPECT_THAT(text, HasSubstr("40 started, 20 of them again: 20 (3×), 21 (3×)"));
    EXPECT_THAT(text, AllOf(HasSubstr("31 (3×), …\n"), Not(HasSubstr("32 (3×)"))));
    EXPECT_THAT(json_of(report).dump(), HasSubstr("[97,97],[99,100]"));
    EXPECT_EQ(show_ranges(report.finished, 100).find("…"), std::string::npos);
    EXPECT_EQ(show_ranges({}, 3), "-");
}

}  // namespace
}  // namespace lorry::ops
