// Requests that wait to run, grouped by adapter, and the order in which they start. Adapters in the batch are favoured, because their
// weights are read anyway, but the work that may pass another adapter by is bounded. Pure bookkeeping; the engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace lorry::engine {

struct WaitingEntry {
    RequestId id = 0;
    std::string adapter;        // content hash; empty: base
    std::int32_t priority = 0;  // lower first
    std::uint64_t turn = 0;     // smaller ones first (tenant_turns.h); a preempted request keeps its own
    std::int64_t cost = 0;      // tokens that it may compute, for fairness
    bool large = false;         // of a large job
    bool is_call = false;       // others yield to it
};

class WaitingQueue {
public:
    // patience: an adapter takes precedence over live ones once requests with this many tokens of other adapters have started before it.
    explicit WaitingQueue(std::int64_t patience) : patience_(patience) {}

    void push(WaitingEntry entry);
    void remove(RequestId id);
    std::size_t size() const { return entries_.size(); }
    bool empty() const { return entries_.empty(); }
    // Requests that yield to others: those of large jobs or, while calls wait or run, all that are not calls.
    std::size_t yielding(bool to_calls) const { return to_calls ? entries_.size() - calls_.size() + large_calls_ : large_; }
    bool has_others(bool to_calls) const { return yielding(to_calls) < entries_.size(); }  // than requests that yield

    struct Context {
        std::function<bool(std::string_view adapter)> is_ready;  // on the device; others are skipped without losing their turn
        std::function<bool(std::string_view adapter)> is_live;   // in the batch now
        // An adapter that was read, but for which those in use leave no room. Once it is overdue, only requests of the base and of
        // adapters that were passed over for as long start, so that the others finish and it gets its place.
        std::optional<std::string_view> needs_room;
        bool to_calls = false;         // calls wait or run
        std::size_t yielding_max = 0;  // this many requests that yield come in their order; further ones come after all others
        bool groups = true;            // false: live adapters are not favoured, so that requests start in order of their turns
    };
    // The next `count` requests in the order in which they should start. Changes nothing.
    std::vector<RequestId> candidates(std::size_t count, const Context& context) const;
    // Removes a request because it starts, and charges its cost to all adapters that still wait.
    void start(RequestId id);
    // The first request of each adapter except the base, by priority and turn: the order in which adapters are loaded.
    struct ByTurn {
        bool operator()(const WaitingEntry* a, const WaitingEntry* b) const;
    };
    using Turns = std::set<const WaitingEntry*, ByTurn>;
    const Turns& firsts() const { return firsts_; }
    const Turns& calls() const { return calls_; }  // all of them: their adapters are loaded before
    bool waits_for(std::string_view adapter) const { return groups_.contains(adapter); }
    std::vector<RequestId> requests_of(std::string_view adapter) const;

private:
    struct Group {
        Turns entries;
        std::int64_t passed_over = 0;  // cost of others that started since this group last had its turn
    };

    const std::int64_t patience_;
    std::map<RequestId, WaitingEntry> entries_;
    std::map<std::string, Group, std::less<>> groups_;
    Turns firsts_;
    std::size_t large_ = 0;
    Turns calls_;
    std::size_t large_calls_ = 0;
};

}  // namespace lorry::engine
