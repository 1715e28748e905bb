// The columns that a JSON schema of answers describes. Used by table_rows.cpp. Pure.
#pragma once

#include <optional>
#include <string>

#include "engine/text/parquet.h"
#include "schema/json.h"

namespace lorry::consumer {

// The properties of an object's schema by name; nullptr: it has none.
const schema::Json::Object* properties_of(const schema::Json& schema);

// The keyword of an object's schema that lets it have members besides its properties.
std::optional<std::string> keyword_of_others(const schema::Json& schema);

// What a column holds all values of a property in: boolean, integer or number if `type`, `enum`, `const`, `anyOf` and `oneOf` allow no
// other type but null; text otherwise, which a value becomes as JSON. `root` is what a "$ref" refers to.
engine::ParquetKind kind_of_property(const schema::Json& property, const schema::Json& root);

}  // namespace lorry::consumer
