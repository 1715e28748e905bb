// Checks the files and folders that a command line names, before the command begins its work. Used by commands throughout ops/.
#pragma once

#include <filesystem>
#include <string_view>

namespace lorry::ops {

// Throws UsageError, "WHAT FOLDER: reason", unless it is a folder that can be read. what: such as "--adapters".
void require_folder(std::string_view what, const std::filesystem::path& folder);

// Throws UsageError, "FILE: reason", unless it is a regular file, which can be read twice.
void require_file(const std::filesystem::path& file);

// Throws UsageError, "WHAT FILE: reason", unless the file can be written or created. Creates nothing.
void require_writable(std::string_view what, const std::filesystem::path& file);

// Writes the whole text, or leaves the file as it was. Throws std::runtime_error naming the file.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace lorry::ops
