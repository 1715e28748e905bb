// The order of arrival, shared fairly: tenants that have requests waiting take turns, so that many requests of one do not hold up those of
// others. Used by engine.cpp; the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "engine/request.h"

namespace lorry::engine {

// Start-time fair queueing (Goyal, Vin and Cheng, 1996): a tenant's requests have turns one after another. Each turn follows the previous
// one by the cost of that previous request, and none is before the current turn. The current turn is that of the request that started last
// or, because urgent requests start out of turn, the first turn that waits. So tenants start requests of equal total cost, and a tenant
// that was idle has not saved anything up. Requests of a single tenant keep their order.
class TenantTurns {
public:
    struct Arrival {
        RequestId id = 0;
        std::string tenant;
        std::int64_t cost = 0;  // tokens that it may compute, at least 1
    };
    // The turn of a request that arrives: requests with smaller ones start first.
    std::uint64_t arrive(const Arrival& arrival);
    // A request starts, or ends without having started. In the latter case it costs nothing once its tenant has no other waiting request.
    // Requests that have already started are ignored.
    void start(RequestId id);
    void leave(RequestId id);

    // Tenants that are remembered. A producer may invent tenants, so the number of those without waiting requests is limited.
    std::size_t remembered() const { return tenants_.size(); }
    static constexpr std::size_t tenants_max = 10'000;

private:
    struct Tenant {
        std::uint64_t next = 0;        // the turn of its next request, if that is not before now
        std::uint64_t next_began = 0;  // the same without those that wait
        std::size_t waiting = 0;
    };
    struct Waiting {
        std::string tenant;
        std::uint64_t turn = 0;
        std::uint64_t end = 0;
    };
    Tenant& remove(std::unordered_map<RequestId, Waiting>::iterator place);
    void forget_idle();

    static constexpr std::size_t forget_at_min = 64;
    std::uint64_t now_ = 0;
    std::map<std::string, Tenant> tenants_;
    std::unordered_map<RequestId, Waiting> waiting_;
    std::multiset<std::uint64_t> turns_;  // of these
    std::size_t forget_at_ = forget_at_min;
};

}  // namespace lorry::engine
