// How rows are routed to experts and grouped. The golden checkpoints verify the rest.
#include "engine/model/expert_mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lorry {
namespace {

using engine::ExpertsConfig;
using engine::Routing;
using testing::ElementsAre;

TEST(Routing, GroupsRowsByExpertWithoutPadding) {
    const ExpertsConfig config{.count = 4, .chosen = 2, .normalized = true};
    Routing routing(config);
    const std::vector<float> scores = {0.0F, 3.0F, 1.0F, 2.0F,   // experts 1 and 3
                                       5.0F, 0.0F, 0.0F, 5.0F,   // 0 and 3
                                       0.0F, 2.0F, 0.0F, 9.0F};  // 1 and 3
    routing.choose(scores);
    ASSERT_EQ(routing.groups().size(), 3U) << "no row has expert 2";
    EXPECT_EQ(routing.groups()[1].expert, 1);
    EXPECT_EQ(routing.groups()[1].begin, 1);
    EXPECT_EQ(routing.groups()[1].count, 2);
    EXPECT_THAT(routing.rows(), ElementsAre(1, 0, 2, 0, 1, 2));
    EXPECT_THAT(routing.places(), ElementsAre(1, 3, 0, 4, 2, 5));
    EXPECT_THAT(routing.factors().subspan(2, 2), ElementsAre(0.5F, 0.5F));
}

TEST(Routing, AmongEqualScoresTheLowerIndexWins) {
    const ExpertsConfig config{.count = 5, .chosen = 2, .normalized = true};
    Routing routing(config);
    routing.choose(std::vector<float>{1.0F, 2.0F, 2.0F, 2.0F, 1.0F});
    ASSERT_EQ(routing.groups().size(), 2U);
    EXPECT_EQ(routing.groups()[0].expert, 1);
    EXPECT_EQ(routing.groups()[1].expert, 2);
}

TEST(Routing, FactorsThatAreNotNormalizedAreSharesOfAllExperts) {
    const ExpertsConfig config{.count = 3, .chosen = 1};
    Routing routing(config);
    routing.choose(std::vector<float>{0.0F, 1.0F, 0.0F});
    EXPECT_FLOAT_EQ(routing.factors()[0], std::exp(1.0F) / (std::exp(1.0F) + 2.0F));
}

// Pins: a broken row chose fewer experts than others have.
TEST(Routing, ScoresThatAreNotNumbersStillChooseAsManyExperts) {
    const ExpertsConfig config{.count = 3, .chosen = 2};
    Routing routing(config);
    routing.choose(std::vector<float>(3, std::numeric_limits<float>::quiet_NaN()));
    EXPECT_THAT(routing.rows(), ElementsAre(0, 0));
    EXPECT_TRUE(std::isnan(routing.factors()[0])) << "which keeps the defect visible in the logits";
}

}  // namespace
}  // namespace lorry
