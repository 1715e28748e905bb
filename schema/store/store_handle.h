// A Store's members: shared by store.cpp and store_query.cpp.
#pragma once

#include "schema/check.h"
#include "schema/file_lease.h"
#include "schema/store/store.h"
#include "schema/store/store_sqlite.h"

namespace lorry::schema {

struct Store::Handle {
    std::optional<FileLease> lease;  // writers
    // Mutable, because reading through a const Store prepares statements.
    mutable Database database;
};

inline std::optional<std::int64_t> milliseconds_of(const std::optional<Timestamp>& time) {
    return time ? std::optional<std::int64_t>(time->time_since_epoch().count()) : std::nullopt;
}

inline std::optional<Timestamp> timestamp_of(std::optional<std::int64_t> milliseconds) {
    return milliseconds ? timestamp_of(*milliseconds) : std::nullopt;
}

}  // namespace lorry::schema
