// Keeps how much work has passed each adapter by, and derives the order in which requests start.
#include "engine/waiting_queue.h"

#include <algorithm>
#include <tuple>

#include "schema/check.h"

namespace lorry::engine {

bool WaitingQueue::ByTurn::operator()(const WaitingEntry* a, const WaitingEntry* b) const {
    return std::tie(a->priority, a->turn, a->id) < std::tie(b->priority, b->turn, b->id);
}

void WaitingQueue::push(WaitingEntry entry) {
    const RequestId id = entry.id;
    const auto [place, fresh] = entries_.emplace(id, std::move(entry));
    CHECK(fresh, "a request waits only once");
    const WaitingEntry& added = place->second;
    if (added.large) ++large_;
    if (added.large && added.is_call) ++large_calls_;
    if (added.is_call) calls_.insert(&added);
    Turns& entries = groups_[added.adapter].entries;
    const WaitingEntry* const was_first = entries.empty() ? nullptr : *entries.begin();
    entries.insert(&added);
    if (added.adapter.empty() || *entries.begin() != &added) return;
    if (was_first != nullptr) firsts_.erase(was_first);
    firsts_.insert(&added);
}

void WaitingQueue::remove(RequestId id) {
    const auto place = entries_.find(id);
    if (place == entries_.end()) return;
    const auto group = groups_.find(place->second.adapter);
    Turns& entries = group->second.entries;
    if (place->second.large) --large_;
    if (place->second.large && place->second.is_call) --large_calls_;
    calls_.erase(&place->second);
    const bool was_first = firsts_.erase(&place->second) > 0;
    entries.erase(&place->second);
    if (entries.empty()) {
        groups_.erase(group);
    } else if (was_first) {
        firsts_.insert(*entries.begin());
    }
    entries_.erase(place);
}

std::vector<RequestId> WaitingQueue::candidates(std::size_t count, const Context& context) const {
    // Simulates start() on copies of the groups' heads: each pick advances one head and charges the other groups.
    struct Walk {
        const Group* group;
        Turns::const_iterator head;
        std::int64_t passed_over;
        bool live;
    };
    std::vector<Walk> walks;
    const auto without_room = context.needs_room ? groups_.find(*context.needs_room) : groups_.end();
    const bool make_room = without_room != groups_.end() && without_room->second.passed_over >= patience_;
    for (const auto& [adapter, group] : groups_) {
        if (!context.is_ready(adapter)) continue;
        if (make_room && !adapter.empty() && group.passed_over < without_room->second.passed_over) continue;
        walks.push_back({&group, group.entries.begin(), group.passed_over, context.is_live(adapter)});
    }
    const auto turn = [&](const Walk& walk) {
        const bool overdue = context.groups && walk.passed_over >= patience_;
        const bool live = context.groups && walk.live;
        return std::tuple((*walk.head)->priority, !overdue, overdue ? -walk.passed_over : 0, !live, (*walk.head)->turn);
    };
    std::vector<RequestId> order;
    std::vector<RequestId> held_back;
    std::size_t yielding_left = has_others(context.to_calls) ? context.yielding_max : count;
    const auto yields = [&](const WaitingEntry& entry) { return entry.large || (context.to_calls && !entry.is_call); };
    // Moves a head on to the next request that may have its turn.
    const auto pass_yielding = [&](Walk& walk) {
        for (; walk.head != walk.group->entries.end() && yields(**walk.head) && yielding_left == 0; ++walk.head) {
            if (held_back.size() < count) held_back.push_back((*walk.head)->id);
        }
    };
    const auto drop_ended = [&] { std::erase_if(walks, [](const Walk& walk) { return walk.head == walk.group->entries.end(); }); };
    for (Walk& walk : walks) pass_yielding(walk);
    drop_ended();
    while (order.size() < count && !walks.empty()) {
        const auto next = std::ranges::min_element(walks, {}, turn);
        const WaitingEntry& entry = **next->head;
        order.push_back(entry.id);
        for (Walk& walk : walks) walk.passed_over += entry.cost;
        next->passed_over = 0;
        next->live = true;
        ++next->head;
        if (yields(entry) && --yielding_left == 0) {
            for (Walk& walk : walks) pass_yielding(walk);
            drop_ended();
        } else {
            pass_yielding(*next);
            if (next->head == next->group->entries.end()) walks.erase(next);
        }
    }
    held_back.resize(std::min(held_back.size(), count - order.size()));
    order.insert(order.end(), held_back.begin(), held_back.end());
    return order;
}

void WaitingQueue::start(RequestId id) {
    const auto place = entries_.find(id);
    CHECK(place != entries_.end(), "only a waiting request starts");
    for (auto& [adapter, group] : groups_) {
        group.passed_over = adapter == place->second.adapter ? 0 : group.passed_over + place->second.cost;
    }
    remove(id);
}

std::vector<RequestId> WaitingQueue::requests_of(std::string_view adapter) const {
    std::vector<RequestId> requests;
    const auto group = groups_.find(adapter);
    if (group == groups_.end()) return requests;
    for (const WaitingEntry* entry : group->second.entries) requests.push_back(entry->id);
    return requests;
}

}  // namespace lorry::engine
