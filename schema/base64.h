// Bytes as base64 text (RFC 4648, section 4). Used by commit metadata and by embeddings in replies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lorry::schema {

std::string to_base64(std::string_view bytes);
// Strict: accepts only what to_base64 writes.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace lorry::schema
