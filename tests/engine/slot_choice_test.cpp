// The choice of a slot's place, in examples and against a search over all places.
#include "engine/slot_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace lorry::engine {
namespace {

using Taken = std::vector<TakenSlot>;

std::string text_of(const std::optional<SlotChoice>& choice) {
    if (!choice) return "none";
    std::string text = std::to_string(choice->range.begin) + " to " + std::to_string(choice->range.end);
    for (const TakenSlot& victim : choice->victims) text += ", without " + std::to_string(victim.range.begin);
    return text;
}

TEST(SlotChoice, TakesTheLastFreePlace) {
    EXPECT_EQ(text_of(choose_slot(10, {0, 100}, {})), "90 to 100");
    const Taken taken{{{60, 100}, 1}};
    EXPECT_EQ(text_of(choose_slot(10, {0, 100}, taken)), "50 to 60");
    EXPECT_EQ(text_of(choose_slot(60, {0, 100}, taken)), "0 to 60");
    EXPECT_EQ(text_of(choose_slot(101, {0, 100}, {})), "none");
}

TEST(SlotChoice, SendsAwayWhoWasUsedLongestAgo) {
    const Taken taken{{{0, 30}, 2}, {{30, 60}, 1}, {{60, 100}, 3}};
    EXPECT_EQ(text_of(choose_slot(30, {0, 100}, taken)), "30 to 60, without 30");
    EXPECT_EQ(text_of(choose_slot(31, {0, 100}, taken)), "29 to 60, without 0, without 30");
    EXPECT_EQ(text_of(choose_slot(100, {0, 100}, taken)), "0 to 100, without 0, without 30, without 60");
}

TEST(SlotChoice, NeverTouchesWhoHasToStay) {
    const Taken taken{{{0, 30}, 1}, {{40, 50}, std::nullopt}, {{60, 100}, 3}};
    EXPECT_EQ(text_of(choose_slot(40, {0, 100}, taken)), "0 to 40, without 0");
    EXPECT_EQ(text_of(choose_slot(45, {0, 100}, taken)), "55 to 100, without 60");
    EXPECT_EQ(text_of(choose_slot(51, {0, 100}, taken)), "none");
}

TEST(SlotChoice, StaysInItsAreaAndSeesSlotsThatReachIntoIt) {
    const Taken taken{{{0, 30}, 1}, {{30, 60}, std::nullopt}};
    EXPECT_EQ(text_of(choose_slot(20, {50, 90}, taken)), "70 to 90");
    EXPECT_EQ(text_of(choose_slot(30, {50, 90}, taken)), "60 to 90");
    EXPECT_EQ(text_of(choose_slot(31, {50, 90}, taken)), "none");
}

// Compares the choice with the cost of every place.
TEST(SlotChoice, IsTheCheapestOfAllPlaces) {
    const unsigned seed = std::random_device{}();
    std::mt19937 random(seed);
    for (int turn = 0; turn < 2000; ++turn) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", turn " + std::to_string(turn));
        Taken taken;
        std::uint64_t uses = 0;
        for (std::size_t at = random() % 8; at < 60;) {
            const std::size_t end = at + 1 + random() % 15;
            taken.push_back({{at, end}, random() % 4 == 0 ? std::nullopt : std::optional<std::uint64_t>(++uses)});
            at = end + (random() % 2 == 0 ? 0 : random() % 10);
        }
        for (TakenSlot& slot : taken) {
            if (slot.last_use) slot.last_use = 1 + random() % 100;
        }
        const kernels::SlotRange area{random() % 20, 40 + random() % 40};
        const std::size_t bytes = 1 + random() % 30;
        std::optional<std::tuple<std::uint64_t, std::size_t>> best;
        for (std::size_t begin = area.begin; begin + bytes <= area.end; ++begin) {
            std::tuple<std::uint64_t, std::size_t> cost{0, 0};
            bool can_be = true;
            for (const TakenSlot& slot : taken) {
                if (slot.range.end <= begin || slot.range.begin >= begin + bytes) continue;
                can_be = can_be && slot.last_use.has_value();
                std::get<0>(cost) = std::max(std::get<0>(cost), slot.last_use.value_or(0));
                ++std::get<1>(cost);
            }
            if (can_be) best = std::min(best.value_or(cost), cost);
        }
        const auto choice = choose_slot(bytes, area, taken);
        ASSERT_EQ(choice.has_value(), best.has_value());
        if (!choice) continue;
        std::uint64_t last_use = 0;
        for (const TakenSlot& victim : choice->victims) last_use = std::max(last_use, *victim.last_use);
        EXPECT_EQ(std::tuple(last_use, choice->victims.size()), *best);
        EXPECT_EQ(choice->range.end - choice->range.begin, bytes);
    }
}

}  // namespace
}  // namespace lorry::engine
