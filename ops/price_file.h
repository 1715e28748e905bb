// Reads the file of prices that the setting `prices` names. Used by `lorry usage` and `lorry serve`.
#pragma once

#include <filesystem>
#include <optional>

#include "ops/settings.h"
#include "schema/store/usage_report.h"

namespace lorry::ops {

// nullopt: the setting names no file. Throws UsageError that names file, line and key if it cannot be read or has something else in it.
std::optional<schema::Prices> prices_of(const Settings& settings);

schema::Prices read_prices(const std::filesystem::path& file);

}  // namespace lorry::ops
