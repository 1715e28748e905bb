// The metadata string of a committed offset: what it holds, what is refused, and that no bytes do harm.
#include "consumer/commit_metadata.h"
#include "tests/support/labels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace lorry::consumer {
namespace {

// No other thread takes part.
const tests::Labelled metadata_without_tsan{"*", {tests::Label::not_tsan}};

using ErrorKind = CommitMetadataError::Kind;

CommitState random_state(std::mt19937_64& random) {
    const auto upto = [&](std::int64_t max) { return std::uniform_int_distribution<std::int64_t>(0, max)(random); };
    CommitState state;
    state.offset = upto(1) == 0 ? upto(100) : upto(std::int64_t{1} << 40);
    std::set<std::int64_t> holes;
    const std::int64_t range = std::int64_t{1} << upto(30);
    for (std::int64_t i = upto(60); i > 0; --i) holes.insert(state.offset + 1 + upto(range));
    state.holes.assign(holes.begin(), holes.end());
    state.highest_finished = state.holes.empty() ? state.offset + upto(3) : state.holes.back() + 1 + upto(300);
    std::set<std::int64_t> started;
    for (std::int64_t i = upto(10); i > 0; --i) started.insert(state.offset + upto(range));
    for (const std::int64_t offset : started) state.starts.push_back({offset, static_cast<std::uint32_t>(1 + upto(300))});
    state.seen = {.results = upto(std::int64_t{1} << 50), .dead_letters = upto(1000)};
    state.topic = upto(1) == 0 ? 0 : mark_of_topic(std::to_string(upto(1000)));
    return state;
}

TEST(CommitMetadata, ReadsBackWhatItWroteAndCountsItsLength) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < 3000; ++round) {
        const CommitState state = random_state(random);
        const std::string text = encode_commit_metadata(state);
        ASSERT_EQ(text.size(), commit_metadata_chars(state));
        const auto back = decode_commit_metadata(state.offset, text);
        ASSERT_TRUE(back) << back.error().text;
        ASSERT_EQ(*back, state);
    }
}

// An administrator's reset has no metadata; Lorry's commits always have some, even if nothing above the offset is finished.
TEST(CommitMetadata, TellsOurOffsetsFromOnesThatSomebodyElseSet) {
    const CommitState nothing{.offset = 7, .holes = {}, .highest_finished = 7, .starts = {}};
    const auto back = decode_commit_metadata(7, encode_commit_metadata(nothing));
    ASSERT_TRUE(back) << back.error().text;
    EXPECT_EQ(*back, nothing);
    const auto empty = decode_commit_metadata(7, "");
    ASSERT_FALSE(empty);
    EXPECT_EQ(empty.error().kind, ErrorKind::absent);
}

TEST(CommitMetadata, SaysThatItSaysNothingWhereTheStateIsTooLong) {
    CommitState state{.offset = 0, .holes = {2, 4, 6, 8}, .highest_finished = 9, .starts = {}};
    const std::size_t size = commit_metadata_chars(state);
    EXPECT_EQ(encode_commit_metadata(state, size).size(), size);
    const std::string one = encode_commit_metadata(state, size - 1);
    state.holes.pop_back();
    const std::string other = encode_commit_metadata(state, 4);
    EXPECT_NE(one, other) << "each commit can be recognized";
    for (const std::string& text : {one, other}) {
        const auto result = decode_commit_metadata(0, text);
        ASSERT_FALSE(result) << text;
        EXPECT_EQ(result.error().kind, ErrorKind::absent) << text;
    }
}

TEST(CommitMetadata, TellsTopicsOfOneNameApartByTheirIds) {
    CommitState state = nothing_finished_above(7);
    EXPECT_FALSE(is_of_other_topic(state, "new")) << "its topic was not known";
    state.topic = mark_of_topic("old");
    EXPECT_TRUE(is_of_other_topic(state, "new"));
    EXPECT_FALSE(is_of_other_topic(state, "old"));
    EXPECT_FALSE(is_of_other_topic(state, "")) << "these brokers give no ids";
    EXPECT_EQ(mark_of_topic(""), 0);
    EXPECT_GT(mark_of_topic("old"), 0);
}

// The first version did not name the topic.
TEST(CommitMetadata, TakesAnEarlierVersionsStringForOneThatSaysNothing) {
    const auto result = decode_commit_metadata(10, "AclDKRAAAAAAAAAAAAAAAAAAAAAAAgIBAQA=");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::foreign);
    EXPECT_EQ(result.error().text, "the commit metadata was written by an earlier Lorry");
}

// The broker takes 4,096 characters: thousands of jobs of a partition may be stuck before polling stops.
TEST(CommitMetadata, HoldsTwoThousandRandomHolesInLessThanThreeThousandCharacters) {
    std::mt19937_64 random(20260101);
    std::set<std::int64_t> holes;
    while (holes.size() < 2048) holes.insert(1 + static_cast<std::int64_t>(random() % 100'000));
    CommitState state{.offset = 0, .holes = {holes.begin(), holes.end()}, .highest_finished = 100'001, .starts = {}};
    EXPECT_NEAR(static_cast<double>(encode_commit_metadata(state).size()), 2930, 40);
}

TEST(CommitMetadata, TellsForeignDamagedAndNewerStringsApart) {
    const CommitState state{.offset = 10, .holes = {12}, .highest_finished = 20, .starts = {{10, 1}}};
    const std::string text = encode_commit_metadata(state);
    for (const char* foreign : {"hello world", "AAAA", "x", "host-17:1234", "=====", "AAAAAAA="}) {
        const auto result = decode_commit_metadata(10, foreign);
        ASSERT_FALSE(result) << foreign;
        EXPECT_EQ(result.error().kind, ErrorKind::foreign) << foreign;
    }
    std::string damaged = text;
    damaged[9] = damaged[9] == 'A' ? 'B' : 'A';
    const auto result = decode_commit_metadata(10, damaged);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::damaged);
}

TEST(CommitMetadata, KnowsAStringOfALaterVersionByItsChecksum) {
    // Version 3, payload 01 02 03, xxh32 of the payload under seed 3, as any later version would write it.
    const auto result = decode_commit_metadata(0, "A3V0basBAgM=");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::newer) << result.error().text;
}

// Whatever a group's offsets contain must decode to a consistent state or an error.
TEST(CommitMetadata, SurvivesAnyMutationOfItsBytes) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        const CommitState state = random_state(random);
        std::string text = encode_commit_metadata(state);
        for (auto edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
            const std::size_t at = random() % text.size();
            switch (random() % 4) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text[at] = "ABCabc019+/="[random() % 12]; break;
                case 2: text.erase(at, 1 + random() % 5); break;
                default: text.insert(at, text.substr(random() % text.size(), 4)); break;
            }
        }
        const auto back = decode_commit_metadata(state.offset, text);
        if (!back) continue;
        ++accepted;
        std::int64_t last = back->offset;
        for (const std::int64_t hole : back->holes) {
            ASSERT_GT(hole, last);
            last = hole;
        }
        ASSERT_TRUE(back->highest_finished > last || back->holes.empty());
    }
    // The checksum catches nearly all edits; an edit that changes nothing is accepted.
    EXPECT_LT(accepted, 2000);
}

// At the limit itself: a state that fits is complete, one that does not is left out as a whole.
TEST(CommitMetadata, FitsUpToTheVeryLastCharacter) {
    CommitState state{.offset = 5, .holes = {}, .highest_finished = 5, .starts = {}};
    std::set<std::size_t> lengths;
    for (std::int64_t i = 0; commit_metadata_chars(state) <= commit_metadata_chars_max + 16; ++i) {
        state.holes.push_back(6 + 2 * i);
        state.highest_finished = state.holes.back() + 1;
        const std::size_t length = commit_metadata_chars(state);
        if (length + 16 < commit_metadata_chars_max) continue;
        lengths.insert(length);
        const std::string text = encode_commit_metadata(state);
        ASSERT_LE(text.size(), commit_metadata_chars_max);
        const auto back = decode_commit_metadata(state.offset, text);
        if (length <= commit_metadata_chars_max) {
            ASSERT_EQ(text.size(), length);
            ASSERT_TRUE(back) << back.error().text;
            ASSERT_EQ(*back, state);
        } else {
            ASSERT_FALSE(back) << length;
            ASSERT_EQ(back.error().kind, ErrorKind::absent);
        }
        for (const std::size_t limit : {length - 1, length, length + 1}) {
            EXPECT_EQ(decode_commit_metadata(state.offset, encode_commit_metadata(state, limit)).has_value(), limit >= length) << limit;
        }
    }
    EXPECT_TRUE(lengths.contains(commit_metadata_chars_max) && lengths.contains(commit_metadata_chars_max + 4));
}

TEST(CommitMetadata, HoldsOffsetsUpToTheLargest) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const CommitState states[] = {
        {.offset = 0, .holes = {1, most - 1}, .highest_finished = most, .starts = {{0, 1}, {most - 1, 7}}},
        {.offset = most - 1, .holes = {}, .highest_finished = most, .starts = {}},
        {.offset = most, .holes = {}, .highest_finished = most, .starts = {}, .seen = {.results = most, .dead_letters = most}},
    };
    for (const CommitState& state : states) {
        const auto back = decode_commit_metadata(state.offset, encode_commit_metadata(state));
        ASSERT_TRUE(back) << back.error().text;
        EXPECT_EQ(*back, state);
        // The same string beside a larger offset would name offsets beyond the largest.
        const auto shifted = decode_commit_metadata(most, encode_commit_metadata(state));
        EXPECT_TRUE(state.offset == most || !shifted || shifted->highest_finished == most);
    }
}

// Strings of other programs, of any length and with any bytes, are recognized as such.
TEST(CommitMetadata, TakesNoForeignBytesForItsOwn) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int round = 0; round < 20'000; ++round) {
        std::string text(random() % (round % 50 == 0 ? 9000 : 60), ' ');
        const bool base64 = round % 2 == 0;
        for (char& byte : text) byte = base64 ? letters[random() % letters.size()] : static_cast<char>(random());
        if (base64) text.resize(text.size() / 4 * 4);
        const auto back = decode_commit_metadata(static_cast<std::int64_t>(random() >> 1), text);
        ASSERT_FALSE(back) << text;
        ASSERT_FALSE(back.error().text.empty());
    }
}

TEST(CommitMetadata, SaysWhatIsFinished) {
    const CommitState state{.offset = 10, .holes = {13, 15}, .highest_finished = 17};
    std::vector<std::int64_t> finished;
    for (std::int64_t offset = 8; offset < 20; ++offset) {
        if (is_finished(state, offset)) finished.push_back(offset);
    }
    EXPECT_EQ(finished, (std::vector<std::int64_t>{8, 9, 11, 12, 14, 16, 17}));
    EXPECT_FALSE(is_finished({.offset = 10, .highest_finished = 10}, 10)) << "nothing above the offset";
}

}  // namespace
}  // namespace lorry::consumer
