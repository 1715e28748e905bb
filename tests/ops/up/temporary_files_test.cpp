// Folders of `lorry up`: what is removed, and what stays.
#include "ops/up/temporary_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

TEST(TemporaryFiles, AreRemovedAtTheEnd) {
    const tests::TempFolder parent;
    std::filesystem::path folder;
    {
        const TemporaryFiles files(parent.path());
        folder = files.folder();
        std::filesystem::create_directory(folder);
        std::ofstream(folder / "content") << "x";
    }
    EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
    EXPECT_EQ(folder.parent_path().parent_path(), parent.path());
}

TEST(TemporaryFiles, ThoseOfAProcessThatEndedAreRemovedAndOthersStay) {
    const tests::TempFolder parent;
    const auto make = [&](const std::string& name, bool has_lease) {
        std::filesystem::create_directories(parent.path() / name / "files");
        if (has_lease) std::ofstream(parent.path() / name / "process.lock") << "1";
        return parent.path() / name;
    };
    const auto left = make("lorry-up-aaaaaa", true);
    const auto begun = make("lorry-up-bbbbbb", false);
    const auto other = make("lorry-down-aaaaa", true);
    const auto linked = parent.path() / "lorry-up-cccccc";
    std::filesystem::create_directory_symlink(other, linked);
    const TemporaryFiles living(parent.path());
    std::filesystem::create_directory(living.folder());
    const TemporaryFiles files(parent.path());
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_TRUE(std::filesystem::exists(begun));
    EXPECT_TRUE(std::filesystem::exists(other / "process.lock"));
    EXPECT_TRUE(std::filesystem::exists(linked));
    EXPECT_TRUE(std::filesystem::exists(living.folder()));
}

}  // namespace
}  // namespace lorry::ops
