// Looks that end in a UsageError.
#include "ops/paths.h"

#include <system_error>

#include <fmt/format.h>

#include "ops/command.h"

namespace lorry::ops {

void require_folder(std::string_view what, const std::filesystem::path& folder) {
    std::error_code error;
    const std::filesystem::directory_iterator opened(folder, error);
    if (!error) return;
    const bool is_none = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    throw UsageError(fmt::format("{} {}: {}", what, folder.string(),
                                 is_none ? "there is no such folder" : "the folder cannot be read: " + error.message()));
}

}  // namespace lorry::ops
