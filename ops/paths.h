// The files and folders that a call names. A wrong one that is read is the caller's mistake: exit code 2, before anything is begun.
#pragma once

#include <filesystem>
#include <string_view>

namespace lorry::ops {

// Throws UsageError, "WHAT FOLDER: reason", unless it is a folder that can be read. what: such as "--adapters".
void require_folder(std::string_view what, const std::filesystem::path& folder);

// The same, "FILE: reason", for a file that is read twice.
void require_file(const std::filesystem::path& file);

// The same, "WHAT FILE: reason", for a file that is to be written or made. Touches nothing: it may be refused yet.
void require_writable(std::string_view what, const std::filesystem::path& file);

// All of it, or the file stays as it was. Throws std::runtime_error naming the file.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace lorry::ops
