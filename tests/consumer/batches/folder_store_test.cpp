// Contents in a folder: whole or not there.
#include "consumer/batches/folder_store.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string read(FileStore& store, const std::string& name, std::int64_t from = 0) {
    const auto reader = store.open(name, from);
    if (!reader) return "missing";
    std::string text;
    std::array<char, 3> part{};
    for (std::size_t bytes = 1; bytes > 0;) {
        bytes = reader->read(part);
        text.append(part.data(), bytes);
    }
    return text;
}

std::size_t files_in(const std::filesystem::path& folder) {
    const std::filesystem::directory_iterator entries(folder);
    return static_cast<std::size_t>(
        std::count_if(begin(entries), end(entries), [](const auto& entry) { return entry.path().filename() != FolderStore::marker; }));
}

// Pins: contents of a volume that was not mounted would have been taken for deleted ones.
TEST(FolderStore, KnowsItsFolderAgain) {
    const tests::TempFolder folder;
    FolderStore store(folder / "files");
    EXPECT_EQ(store.owner(), std::nullopt);
    store.mark("0123", "a note");
    FolderStore(folder / "files").mark("4567", "by another one, too late");
    EXPECT_EQ(store.owner(), "0123");
    EXPECT_FALSE(store.has_contents()) << "the marker is none";
    EXPECT_EQ(read(store, "file-1"), "missing");
    std::filesystem::rename(folder / "files", folder / "elsewhere");
    EXPECT_THROW(store.open("file-1", 0), std::runtime_error);
    std::filesystem::create_directory(folder / "files");
    EXPECT_THROW(store.open("file-1", 0), std::runtime_error);
    std::ofstream(folder / "files" / FolderStore::marker) << "\n";
    EXPECT_THROW(store.owner(), std::runtime_error) << "it does not say whose";
}

TEST(FolderStore, KeepsAContentAsAWhole) {
    const tests::TempFolder folder;
    FolderStore store(folder / "files");
    store.mark("0123", "a note");
    {
        const auto writer = store.create("file-1");
        writer->write("one ");
        EXPECT_EQ(read(store, "file-1"), "missing");
        writer->write("two");
        writer->keep();
    }
    EXPECT_EQ(read(store, "file-1"), "one two");
    EXPECT_EQ(read(store, "file-1", 4), "two");
    EXPECT_EQ(read(store, "file-1", 100), "");
    {
        const auto writer = store.create("file-1");
        writer->write("three");
        writer->keep();
    }
    EXPECT_EQ(read(store, "file-1"), "three");
    EXPECT_TRUE(store.has_contents());
    store.remove("file-1");
    EXPECT_FALSE(store.has_contents());
    store.remove("file-1");
    EXPECT_EQ(read(store, "file-1"), "missing");
}

// Pins: an upload that broke off stayed in the folder.
TEST(FolderStore, DropsWhatIsNotKept) {
    const tests::TempFolder folder;
    FolderStore store(folder.path());
    store.create("file-1")->write("half");
    EXPECT_EQ(files_in(folder.path()), 0U);
    // Of a process that was killed.
    std::ofstream(folder / ".file-2.00000000000000000000000000000000") << "half";
    std::ofstream(folder / "file-3") << "whole";
    std::ofstream(folder / ".hidden") << "of somebody else";
    std::ofstream(folder / "thesis.txt") << "of somebody else";
    EXPECT_THAT(store.older_than(std::chrono::hours(1)), IsEmpty());
    EXPECT_EQ(files_in(folder.path()), 4U);
    EXPECT_THAT(store.older_than(std::chrono::seconds(-5)), ElementsAre("file-3"));
    EXPECT_EQ(files_in(folder.path()), 3U);
}

TEST(FolderStore, SaysWhatIsWrongWithItsFolder) {
    const tests::TempFolder folder;
    std::ofstream(folder / "file") << "x";
    EXPECT_THROW(FolderStore(folder / "file" / "below"), std::runtime_error);
    FolderStore store(folder / "gone");
    std::filesystem::remove_all(folder / "gone");
    EXPECT_THROW(store.create("file-1"), std::runtime_error);
    EXPECT_THROW(store.older_than(std::chrono::hours(1)), std::runtime_error);
    EXPECT_DEATH(store.open("../x", 0), "names of contents are no paths");
}

}  // namespace
}  // namespace lorry::consumer
