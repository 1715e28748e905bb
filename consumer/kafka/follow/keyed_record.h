// Records of topics that are followed. Used beside follower.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "consumer/log.h"
#include "schema/check.h"
#include "schema/codec.h"

namespace lorry::consumer {

// Logs where a record is that cannot be used, and why.
inline void warn_of(const schema::JobRecord& record, std::string_view why) {
    log_warning("{} [{}] offset {}: {}", record.source.topic, record.source.partition, record.source.offset, why);
}

// A record whose key is the id of what its value describes; nullopt: it has no value, so that nothing of that id is there any more. parse:
// from schema/codec.h or schema/batch.h.
template <typename Value>
Expected<std::optional<Value>, std::string> read_keyed(const schema::JobRecord& record,
                                                       Expected<Value, std::string> (*parse)(std::string_view)) {
    if (!record.value) return std::nullopt;
    auto value = parse(*record.value);
    if (!value) return unexpected(std::move(value).error());
    if (value->id != record.key.value_or("")) return unexpected(std::string("its id differs from the record's key"));
    return std::optional<Value>(*std::move(value));
}

}  // namespace lorry::consumer
