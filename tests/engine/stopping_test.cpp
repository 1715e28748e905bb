// Stop texts across token borders, and which text may be streamed before a match is ruled out.
#include "engine/stopping.h"

#include <gtest/gtest.h>

namespace lorry::engine {
namespace {

TEST(StopMatcher, FindsAStopTextThatSpansPieces) {
    StopMatcher matcher({"###"}, false);
    EXPECT_FALSE(matcher.push("answer #", true));
    EXPECT_FALSE(matcher.push("#", true));
    EXPECT_TRUE(matcher.push("# and more", true));
    EXPECT_EQ(matcher.text(), "answer ");
}

TEST(StopMatcher, KeepsTheStopTextWhenAskedTo) {
    StopMatcher matcher({"END"}, true);
    EXPECT_TRUE(matcher.push("the END of it", true));
    EXPECT_EQ(matcher.text(), "the END");
}

TEST(StopMatcher, EndsAtTheEarliestOfSeveralStops) {
    StopMatcher matcher({"later", "soon"}, false);
    EXPECT_TRUE(matcher.push("not soon, later", true));
    EXPECT_EQ(matcher.text(), "not ");
}

TEST(StopMatcher, StreamsOnlyWhatNoStopTextCanTakeBack) {
    StopMatcher matcher({"\n\nUser:"}, false);
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
    StopMatcher matcher({"x"}, false);
    EXPECT_FALSE(matcher.push("axb", false));
    EXPECT_EQ(matcher.take_certain(false), "axb");
    EXPECT_TRUE(matcher.push("cx", true));
    EXPECT_EQ(matcher.text(), "axbc");
}

}  // namespace
}  // namespace lorry::engine
