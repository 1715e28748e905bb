// The order of arrival, shared fairly: tenants that have requests waiting take turns, so that many requests of one do not hold up those of
// others. Used by engine.cpp; the engine's thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace lorry::engine {

// Start-time fair queueing (Goyal, Vin and Cheng, 1996): a tenant's requests have turns one after another, each as far after the one before
// as that one costs, and none before the turn of the request that started last. So tenants start equal costs, and one that was quiet has
// saved nothing up. Requests of a single tenant keep their order.
class TenantTurns {
public:
    // The turn of a request that arrives: requests with smaller ones start first. cost: tokens that it may compute, at least 1.
    std::uint64_t arrive(const std::string& tenant, std::int64_t cost) {
        if (next_.size() >= forget_at_) forget_idle();
        std::uint64_t& next = next_[tenant];
        const std::uint64_t turn = std::max(now_, next);
        next = turn + static_cast<std::uint64_t>(cost);
        return turn;
    }
    void start(std::uint64_t turn) { now_ = std::max(now_, turn); }
    // Tenants of whom something is remembered: those whose next turn is not now. A producer may invent tenants, so they have a limit.
    std::size_t remembered() const { return next_.size(); }
    static constexpr std::size_t tenants_max = 10'000;

private:
    void forget_idle() {
        std::erase_if(next_, [&](const auto& entry) { return entry.second <= now_; });
        if (next_.size() >= tenants_max) {
            // A new round: whoever comes from now on has a turn after all that were given out.
            for (const auto& [tenant, next] : next_) now_ = std::max(now_, next);
            next_.clear();
        }
        forget_at_ = std::clamp(2 * next_.size(), forget_at_min, tenants_max);
    }

    static constexpr std::size_t forget_at_min = 64;
    std::uint64_t now_ = 0;
    std::map<std::string, std::uint64_t> next_;  // by tenant
    std::size_t forget_at_ = forget_at_min;
};

}  // namespace lorry::engine
