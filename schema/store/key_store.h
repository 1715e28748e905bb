// API keys by their ids: a SQLite view of the topic PREFIX.keys, in memory. Filled and asked by consumer/kafka/follow/key_topic.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schema/key.h"
#include "schema/store/store_sqlite.h"

namespace lorry::schema {

struct KeyChange {
    std::string id;
    std::optional<std::string> text;  // a record that parse_key() takes; nullopt: removed
};

// Each call over HTTP looks a key up, on the thread that serves all calls, so no disk may keep it waiting. Throws std::runtime_error when
// memory is used up. One thread at a time.
class KeyStore {
public:
    KeyStore();
    // In this order, in one transaction.
    void apply(std::span<const KeyChange> changes);
    std::optional<KeyRecord> find(std::string_view id) const;
    std::int64_t count() const;

private:
    mutable Database database_{Database::Place::memory};  // mutable, because reading prepares statements
};

}  // namespace lorry::schema
