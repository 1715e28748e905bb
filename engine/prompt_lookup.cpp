// Finds the longest of the latest occurrences of a sequence's last tokens, and follows it as long as it is right.
#include "engine/prompt_lookup.h"

#include <algorithm>
#include <bit>

namespace lorry::engine {
namespace {

constexpr std::int64_t length_least = 2;
constexpr std::int64_t length_most = 32;      // that is compared
constexpr int places_most = 16;               // that one search compares
constexpr double newest_match_share = 0.125;  // of the last match in a chance
constexpr std::size_t buckets_least = 256;

// How many tokens before both places are equal, up to length_most. one < other.
std::int64_t common_length(std::span<const TokenId> tokens, std::int64_t one, std::int64_t other) {
    const std::int64_t most = std::min(one, length_most);
    std::int64_t length = 0;
    while (length < most && tokens[static_cast<std::size_t>(one - 1 - length)] == tokens[static_cast<std::size_t>(other - 1 - length)]) {
        ++length;
    }
    return length;
}

}  // namespace

std::size_t PromptLookup::class_of(std::int64_t length) {
    const auto doublings = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length / length_least)) - 1);
    return std::min(doublings, classes - 1);
}

// Of the last two tokens.
std::size_t PromptLookup::bucket_of(std::span<const TokenId> tokens) const {
    const auto last = static_cast<std::uint64_t>(tokens.back());
    const auto before = static_cast<std::uint64_t>(tokens[tokens.size() - 2]);
    const std::uint64_t hash = (before * 0x9E3779B97F4A7C15U ^ last) * 0xC2B2AE3D27D4EB4FU;
    return static_cast<std::size_t>(hash >> 32U) & (latest_.size() - 1);
}

void PromptLookup::extend(std::span<const TokenId> tokens) {
    const std::size_t known = before_.empty() ? 0 : before_.size() - 1;
    if (tokens.size() > latest_.size()) {
        latest_.assign(std::max(buckets_least, std::bit_ceil(2 * tokens.size())), 0);
        before_.assign(1, 0);
        for (std::size_t count = 1; count <= known; ++count) add(tokens.first(count));
    }
    // The tokens of the prompt are not guessed.
    const std::size_t first_guessed = known == 0 ? tokens.size() : known + 1;
    for (std::size_t count = known + 1; count <= tokens.size(); ++count) {
        const auto all = tokens.first(count);
        if (match_) judge(all.back(), all.first(count - 1));
        if (!match_ && count >= first_guessed) find(all);
        add(all);
    }
}

void PromptLookup::judge(TokenId token, std::span<const TokenId> before) {
    const bool is_right = before[static_cast<std::size_t>(match_->place)] == token;
    double& chance = chances_[class_of(match_->length)];
    chance += newest_match_share * ((is_right ? 1.0 : 0.0) - chance);
    if (!is_right) return match_.reset();
    ++match_->place;
    ++match_->length;
}

void PromptLookup::find(std::span<const TokenId> tokens) {
    if (std::ssize(tokens) < length_least) return;
    std::int64_t place = latest_[bucket_of(tokens)];
    for (int tried = 0; tried < places_most && place != 0; ++tried) {
        const std::int64_t length = common_length(tokens, place, std::ssize(tokens));
        if (length >= length_least && (!match_ || length > match_->length)) match_ = {.place = place, .length = length};
        place = before_[static_cast<std::size_t>(place)];
    }
}

// Adds the place after these tokens.
void PromptLookup::add(std::span<const TokenId> tokens) {
    if (std::ssize(tokens) < length_least) return before_.push_back(0);
    std::int32_t& latest = latest_[bucket_of(tokens)];
    before_.push_back(latest);
    latest = static_cast<std::int32_t>(tokens.size());
}

void PromptLookup::guess(std::span<const TokenId> tokens, const DraftLimits& limits, std::vector<TokenId>& guesses) const {
    guesses.clear();
    if (!match_) return;
    auto [place, length] = *match_;
    double chance = 1.0;
    while (std::ssize(guesses) < limits.count) {
        chance *= chances_[class_of(length++)];
        if (chance < limits.chance_least) return;
        // Past the end, the guesses themselves go on: the sequence repeats itself.
        const std::int64_t ahead = place - std::ssize(tokens);
        guesses.push_back(ahead < 0 ? tokens[static_cast<std::size_t>(place)] : guesses[static_cast<std::size_t>(ahead)]);
        ++place;
    }
}

}  // namespace lorry::engine
