// Keeps the turns that wait, and each tenant's next one.
#include "engine/tenant_turns.h"

#include <algorithm>

namespace lorry::engine {

std::uint64_t TenantTurns::arrive(const Arrival& arrival) {
    if (tenants_.size() >= forget_at_) forget_idle();
    Tenant& tenant = tenants_[arrival.tenant];
    const std::uint64_t turn = std::max(now_, tenant.next);
    tenant.next = turn + static_cast<std::uint64_t>(arrival.cost);
    ++tenant.waiting;
    waiting_.emplace(arrival.id, Waiting{.tenant = arrival.tenant, .turn = turn, .end = tenant.next});
    turns_.insert(turn);
    return turn;
}

void TenantTurns::start(RequestId id) {
    const auto place = waiting_.find(id);
    if (place == waiting_.end()) return;
    const auto [tenant, turn, end] = place->second;
    Tenant& its = remove(place);
    its.next_began = std::max(its.next_began, end);
    now_ = std::max(now_, turns_.empty() ? turn : std::min(turn, *turns_.begin()));
}

void TenantTurns::leave(RequestId id) {
    const auto place = waiting_.find(id);
    if (place == waiting_.end()) return;
    Tenant& its = remove(place);
    if (its.waiting == 0) its.next = its.next_began;
}

TenantTurns::Tenant& TenantTurns::remove(std::unordered_map<RequestId, Waiting>::iterator place) {
    Tenant& tenant = tenants_.at(place->second.tenant);
    --tenant.waiting;
    turns_.erase(turns_.find(place->second.turn));
    waiting_.erase(place);
    return tenant;
}

void TenantTurns::forget_idle() {
    const auto is_idle = [&](const auto& entry) { return entry.second.waiting == 0 && entry.second.next <= now_; };
    std::erase_if(tenants_, is_idle);
    if (tenants_.size() >= tenants_max) {
        // A new round: whoever comes from now on has a turn after all that were given out.
        for (const auto& [name, tenant] : tenants_) now_ = std::max(now_, tenant.next);
        std::erase_if(tenants_, is_idle);
    }
    const std::size_t twice = 2 * tenants_.size();
    forget_at_ = tenants_.size() < tenants_max ? std::clamp(twice, forget_at_min, tenants_max) : twice;
}

}  // namespace lorry::engine
