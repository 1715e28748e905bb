// Records of many tenants by id, and of each tenant in the order of their creation. Used by batch_topics.cpp. One thread at a time.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "consumer/batches/batch_backend.h"

namespace lorry::consumer {

template <typename Record>
class TenantView {
public:
    std::size_t size() const { return records_.size(); }
    std::size_t count(const std::string& tenant) const {
        const auto place = order_.find(tenant);
        return place == order_.end() ? 0 : place->second.size();
    }

    const Record* find(const std::string& id) const {
        const auto place = records_.find(id);
        return place == records_.end() ? nullptr : &place->second;
    }
    void put(Record record) {
        erase(record.id);
        order_[record.tenant].emplace(record.created, record.id);
        const std::string id = record.id;
        records_.emplace(id, std::move(record));
    }
    void erase(const std::string& id) {
        const auto place = records_.find(id);
        if (place == records_.end()) return;
        const auto tenant = order_.find(place->second.tenant);
        tenant->second.erase(Place(place->second.created, id));
        if (tenant->second.empty()) order_.erase(tenant);
        records_.erase(place);
    }
    template <typename Visit>
    void each(const Visit& visit) const {
        for (const auto& [id, record] : records_) visit(record);
    }

    // nullopt: there is nothing of the id `after`. `keep` chooses records.
    template <typename Keep>
    std::optional<Page<Record>> page(const ListQuery& query, const Keep& keep) const {
        Page<Record> page;
        std::optional<Place> from;
        if (query.after) {
            const Record* after = find(*query.after);
            if (after == nullptr || after->tenant != query.tenant) return std::nullopt;
            from = Place(after->created, after->id);
        }
        const auto tenant = order_.find(query.tenant);
        if (tenant == order_.end()) return page;
        const auto take = [&](const Place& place) {
            const Record& record = records_.at(place.second);
            if (!keep(record)) return true;
            page.has_more = page.records.size() == query.limit;
            if (!page.has_more) page.records.push_back(record);
            return !page.has_more;
        };
        const Order& order = tenant->second;
        if (query.newest_first) {
            auto at = from ? std::make_reverse_iterator(order.lower_bound(*from)) : order.rbegin();
            while (at != order.rend() && take(*at)) ++at;
        } else {
            auto at = from ? order.upper_bound(*from) : order.begin();
            while (at != order.end() && take(*at)) ++at;
        }
        return page;
    }

private:
    using Place = std::pair<schema::Seconds, std::string>;
    using Order = std::set<Place>;
    std::unordered_map<std::string, Record> records_;  // by id
    std::map<std::string, Order> order_;               // by tenant
};

}  // namespace lorry::consumer
