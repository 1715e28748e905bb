// A file that other users of the machine cannot read. Used by tests of keys that are secrets.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace lorry::tests {

inline void write_secret(const std::filesystem::path& file, const std::string& text) {
    write_text(file, text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace lorry::tests
