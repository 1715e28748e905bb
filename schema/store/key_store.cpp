// The table of keys, and the statements on it.
#include "schema/store/key_store.h"

#include "schema/check.h"

namespace lorry::schema {

KeyStore::KeyStore() {
    database_.execute(R"(
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)");
}

void KeyStore::apply(std::span<const KeyChange> changes) {
    Transaction transaction(database_);
    for (const KeyChange& change : changes) {
        if (change.text) {
            database_.query("INSERT INTO keys (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record")
                .bind(change.id)
                .bind(*change.text)
                .run();
        } else {
            database_.query("DELETE FROM keys WHERE id = ?").bind(change.id).run();
        }
    }
    transaction.commit();
}

std::optional<KeyRecord> KeyStore::find(std::string_view id) const {
    Query query = database_.query("SELECT record FROM keys WHERE id = ?");
    if (!query.bind(id).step()) return std::nullopt;
    auto key = parse_key(query.text(0));
    CHECK(key.has_value(), "only what parses is stored");
    return *std::move(key);
}

std::int64_t KeyStore::count() const {
    Query query = database_.query("SELECT count(*) FROM keys");
    CHECK(query.step(), "a count has a row");
    return query.integer(0);
}

}  // namespace lorry::schema
