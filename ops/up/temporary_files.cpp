// A folder has a lease of the process that made it. Where nobody holds it, the process has ended.
#include "ops/up/temporary_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lorry::ops {
namespace {

constexpr std::string_view folder_begin = "lorry-up-";
constexpr std::string_view new_folder_begin = "lorry-new-";  // before there is a lease: as another's, it could be taken for left over
constexpr const char* lease_name = "process";

// A folder, no link, of this user: nobody else has put anything there.
bool is_own_folder(const std::filesystem::path& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

bool is_left_over(const std::filesystem::path& folder) {
    if (!folder.filename().string().starts_with(folder_begin) || !is_own_folder(folder)) return false;
    // Without the lease's file it is about to be made, or is something else.
    if (!std::filesystem::exists(folder / (std::string(lease_name) + ".lock"))) return false;
    try {
        const schema::FileLease lease(folder / lease_name);
        return true;
    } catch (const std::runtime_error&) {
        return false;
    }
}

void remove_left_overs(const std::filesystem::path& parent) {
    std::error_code ignored;
    std::vector<std::filesystem::path> left;
    for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
        if (is_left_over(entry.path())) left.push_back(entry.path());
    }
    for (const auto& folder : left) std::filesystem::remove_all(folder, ignored);
}

}  // namespace

TemporaryFiles::TemporaryFiles(const std::filesystem::path& parent) {
    remove_left_overs(parent);
    std::string made = (parent / (std::string(new_folder_begin) + "XXXXXX")).string();
    if (mkdtemp(made.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), "a folder for files cannot be made: " + made);
    try {
        lease_.emplace(std::filesystem::path(made) / lease_name);
        folder_ = parent / (std::string(folder_begin) + made.substr(made.size() - 6));
        std::filesystem::rename(made, folder_);
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove_all(made, ignored);
        throw;
    }
}

TemporaryFiles::~TemporaryFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace lorry::ops
