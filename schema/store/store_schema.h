// The ledger's tables and their migrations. Called by Store::open.
#pragma once

#include "schema/store/store_sqlite.h"

namespace lorry::schema {

// Brings the file to this program's tables, creating them in an empty one, in WAL and with foreign keys on. Throws when the file
// belongs to another program or a newer one.
void migrate(Database& database);
// The same checks for a reader, which cannot migrate: throws if the tables are not those of this program.
void require_current_schema(Database& database);

}  // namespace lorry::schema
