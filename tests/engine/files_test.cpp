// Reading files that others made: what is not a regular file, or has no end, is refused and not waited for.
#include "engine/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

using testing::HasSubstr;

// Pins: a pipe was waited for, and a device was read until memory ran out.
TEST(Files, OnlyRegularFilesOfAFolderAreOpened) {
    const tests::TempFolder folder;
    tests::write_text(folder / "text", "content");
    std::filesystem::create_symlink(folder / "text", folder / "link");
    std::filesystem::create_symlink("/dev/zero", folder / "zero");
    std::filesystem::create_directory(folder / "folder");
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(read_text(folder / "text"), "content");
    EXPECT_EQ(read_text(folder / "link"), "content");
    for (const auto& [name, kind] :
         {std::pair("zero", "is a device"), std::pair("folder", "is a folder"), std::pair("pipe", "is a pipe")}) {
        EXPECT_THAT(read_text(folder / name).error(), testing::AllOf(HasSubstr(name), HasSubstr(kind)));
        EXPECT_THROW(MappedFile(folder / name), std::runtime_error) << name;
    }
    EXPECT_THAT(read_text(folder / "none").error(), HasSubstr("No such file"));
}

TEST(Files, ATextHasALimit) {
    const tests::TempFolder folder;
    const std::string text(200'000, 'x');
    tests::write_text(folder / "text", text);
    EXPECT_EQ(read_text(folder / "text", {.bytes_max = text.size()}), text);
    EXPECT_THAT(read_text(folder / "text", {.bytes_max = text.size() - 1}).error(), HasSubstr("is longer than 199999 bytes"));
    EXPECT_THAT(read_text("/dev/zero", {.bytes_max = 1000, .kinds = InputFile::Kinds::all}).error(),
                HasSubstr("is longer than 1000 bytes"));
    EXPECT_THAT(read_text(folder.path(), {.kinds = InputFile::Kinds::all}).error(), HasSubstr("cannot be read: Is a directory"));
}

TEST(Files, APipeIsReadToItsEndIfPipesAreAsked) {
    const tests::TempFolder folder;
    const auto pipe = folder / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const std::string text(200'000, 'x');
    const std::jthread writer([&] { tests::write_text(pipe, text); });
    EXPECT_EQ(read_text(pipe, {.kinds = InputFile::Kinds::all}), text);
}

}  // namespace
}  // namespace lorry::engine
