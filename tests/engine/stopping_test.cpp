// Stop texts across token borders, and which text may be streamed before a match is ruled out.
#include "engine/stopping.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lorry::engine {
namespace {

TEST(StopMatcher, FindsAStopTextThatSpansPieces) {
    const std::vector<std::string> stops{"###"};
    StopMatcher matcher(stops, false);
    EXPECT_FALSE(matcher.push("answer #", true));
    EXPECT_FALSE(matcher.push("#", true));
    EXPECT_TRUE(matcher.push("# and more", true));
    EXPECT_EQ(matcher.text(), "answer ");
}

TEST(StopMatcher, KeepsTheStopTextWhenAskedTo) {
    const std::vector<std::string> stops{"END"};
    StopMatcher matcher(stops, true);
    EXPECT_TRUE(matcher.push("the END of it", true));
    EXPECT_EQ(matcher.text(), "the END");
}

TEST(StopMatcher, EndsAtTheEarliestOfSeveralStops) {
    const std::vector<std::string> stops{"later", "soon"};
    StopMatcher matcher(stops, false);
    EXPECT_TRUE(matcher.push("not soon, later", true));
    EXPECT_EQ(matcher.text(), "not ");
}

TEST(StopMatcher, StreamsOnlyWhatNoStopTextCanTakeBack) {
    const std::vector<std::string> stops{"\n\nUser:"};
    StopMatcher matcher(stops, false);
    matcher.push("yes\n", true);
    EXPECT_EQ(matcher.take_certain(false), "yes");
    matcher.push("\nUs", true);
    EXPECT_EQ(matcher.take_certain(false), "");
    matcher.push("eful", true);
    EXPECT_EQ(matcher.take_certain(false), "\n\nUseful");
    matcher.push("\n", true);
    EXPECT_EQ(matcher.take_certain(true), "\n") << "the text ended, nothing can follow";
}

TEST(StopMatcher, IgnoresStopsBeforeMinTokensWereDrawn) {
    const std::vector<std::string> stops{"x"};
    StopMatcher matcher(stops, false);
    EXPECT_FALSE(matcher.push("axb", false));
    EXPECT_EQ(matcher.take_certain(false), "axb");
    EXPECT_TRUE(matcher.push("cx", true));
    EXPECT_EQ(matcher.text(), "axbc");
}

}  // namespace
}  // namespace lorry::engine
