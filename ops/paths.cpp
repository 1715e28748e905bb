// The checks, and a file that is replaced in one step.
#include "ops/paths.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "ops/command.h"

namespace lorry::ops {
namespace {

// OWNER/MODEL, as models are named on the Hugging Face hub.
bool is_hub_name(const std::filesystem::path& path) {
    const auto is_name = [](const std::filesystem::path& part) { return !part.empty() && part != "." && part != ".." && part != "/"; };
    std::error_code unknown;
    return std::distance(path.begin(), path.end()) == 2 && std::all_of(path.begin(), path.end(), is_name) &&
           !std::filesystem::exists(*path.begin(), unknown);
}

}  // namespace

void require_folder(std::string_view what, const std::filesystem::path& folder) {
    std::error_code error;
    const std::filesystem::directory_iterator opened(folder, error);
    if (!error) return;
    const bool is_none = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    std::string reason = is_none ? "there is no such folder" : "the folder cannot be read: " + error.message();
    std::error_code unknown;
    if (std::filesystem::exists(folder, unknown) && is_none) {
        reason = "this is a file; give the folder that it is in";
    } else if (is_none && is_hub_name(folder)) {
        reason += fmt::format("; Lorry downloads no models: hf download {} --local-dir FOLDER", folder.string());
    }
    throw UsageError(fmt::format("{} {}: {}", what, folder.string(), reason));
}

void require_file(const std::filesystem::path& file) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(file, error);
    if (std::filesystem::is_regular_file(status)) return;
    if (status.type() == std::filesystem::file_type::not_found) throw UsageError(fmt::format("{}: there is no such file", file.string()));
    if (error) throw UsageError(fmt::format("{} cannot be read: {}", file.string(), error.message()));
    throw UsageError(fmt::format("{} is not a regular file: give the file that holds the jobs, or '-' for standard input", file.string()));
}

void require_writable(std::string_view what, const std::filesystem::path& file) {
    std::error_code unknown;  // of a folder that may not be entered; access() reports it
    if (std::filesystem::is_directory(file, unknown)) {
        throw UsageError(fmt::format("{} {} is a folder: name a file in it", what, file.string()));
    }
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    const std::filesystem::file_type there = std::filesystem::status(folder, unknown).type();
    if (there != std::filesystem::file_type::directory && there != std::filesystem::file_type::none) {
        throw UsageError(fmt::format("{} {}: there is no folder {}: make it first", what, file.string(), folder.string()));
    }
    const std::filesystem::path& written = std::filesystem::exists(file, unknown) ? file : folder;
    if (::access(written.c_str(), W_OK) == 0) return;
    const int error = errno;
    throw UsageError(
        fmt::format("{} {}: {} cannot be written: {}", what, file.string(), written.string(), std::generic_category().message(error)));
}

void write_text(const std::filesystem::path& file, std::string_view text) {
    const std::filesystem::file_status there = std::filesystem::symlink_status(file);
    const bool in_place = std::filesystem::exists(there) && !std::filesystem::is_regular_file(there);  // /dev/stdout, a pipe
    const std::filesystem::path unfinished = in_place ? file : std::filesystem::path(file.string() + ".part");
    std::ofstream out(unfinished, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out)
        throw std::runtime_error(
            fmt::format("{}: cannot be written: check its folder, its permissions and the free space on the disk", file.string()));
    if (!in_place) std::filesystem::rename(unfinished, file);
}

}  // namespace lorry::ops
