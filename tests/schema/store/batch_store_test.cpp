// The views of files, batches and keys: what was applied is found, counted and listed in pages.
#include "schema/store/batch_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "schema/store/key_store.h"
#include "tests/support/full_disk.h"
#include "tests/support/labels.h"

namespace lorry::schema {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// The address sanitizer keeps memory that was freed.
const tests::Labelled measured_memory{"BatchStoreTest.ManyMore*", {tests::Label::not_asan}};

std::string file_id(int number) { return fmt::format("file-{:032x}", number); }
std::string batch_id(int number) { return fmt::format("batch_{:032x}", number); }

BatchUpdate::File file(int number, const std::string& tenant, Seconds created, FilePurpose purpose = FilePurpose::batch) {
    const FileRecord record = {
        .id = file_id(number), .tenant = tenant, .name = "jobs.jsonl", .purpose = purpose, .bytes = 100 + number, .created = created};
    return {.id = record.id, .file = record};
}

BatchRecord batch(int number, const std::string& tenant, BatchState state = BatchState::in_progress) {
    BatchRecord record = {.id = batch_id(number),
                          .tenant = tenant,
                          .key = "k",
                          .input_file = file_id(number),
                          .state = state,
                          .created = 1'000 + number,
                          .expires = 90'000,
                          .lines = 10,
                          .succeeded = 3,
                          .failed = 1};
    if (is_final(state)) record.since[state] = 2'000 + number;
    return record;
}

std::int64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::int64_t all = 0;
    std::int64_t resident = 0;
    file >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

class BatchStoreTest : public testing::Test {
protected:
    void put(const BatchRecord& record, std::int32_t partition = 0) {
        store.apply({.files = {},
                     .batches = {{.id = record.id, .batch = record, .text = encode_batch(record), .partition = partition}},
                     .cancels = {}});
    }
    void put_files(const std::vector<BatchUpdate::File>& files) { store.apply({.files = files, .batches = {}, .cancels = {}}); }
    void forget(int number) { store.apply({.files = {}, .batches = {{.id = batch_id(number), .batch = {}}}, .cancels = {}}); }
    void set_cancel(int number, bool is_asked_for) {
        store.apply({.files = {}, .batches = {}, .cancels = {{.batch = batch_id(number), .is_asked_for = is_asked_for}}});
    }

    template <typename Record>
    static std::string text_of(const std::optional<Page<Record>>& page) {
        if (!page) return "nothing to begin after";
        std::string text;
        for (const Record& record : page->records) text += record.id.substr(record.id.find_first_not_of('0', record.id.size() - 4)) + " ";
        return text + (page->has_more ? "and more" : "");
    }
    std::string files(const ListQuery& query) const { return text_of(store.files(query)); }
    std::string batches(const ListQuery& query) const { return text_of(store.batches(query)); }
    // Of the states that any batch has.
    std::string totals() const {
        const auto& all = store.totals();
        std::string text;
        for (const auto& [state, count] : all.batches) {
            if (count != 0) text += fmt::format("{} {}, ", count, name_of(state));
        }
        return text + fmt::format("{} waiting, {} files, {} bytes", all.lines_waiting, all.files, all.file_bytes);
    }

    BatchStore store;
};

// Those of one second in the order of their ids, both ways, so that no page leaves one out or has one twice.
TEST_F(BatchStoreTest, PagesGoBothWaysAlsoWithinOneSecond) {
    put_files(
        {file(3, "search", 7), file(1, "search", 7), file(2, "search", 7), file(9, "search", 6), file(4, "search", 8), file(5, "mail", 7)});
    EXPECT_EQ(files({.tenant = "search"}), "4 3 2 1 9 ");
    EXPECT_EQ(files({.tenant = "search", .limit = 2}), "4 3 and more");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(3), .limit = 2}), "2 1 and more");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(1), .limit = 2}), "9 ");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(9)}), "");
    EXPECT_EQ(files({.tenant = "search", .limit = 5}), "4 3 2 1 9 ") << "no more than the limit";
    EXPECT_EQ(files({.tenant = "search", .limit = 3, .newest_first = false}), "9 1 2 and more");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(2), .limit = 3, .newest_first = false}), "3 4 ");
    EXPECT_EQ(files({.tenant = "mail"}), "5 ");
    EXPECT_EQ(files({.tenant = "nobody"}), "");

    for (const int number : {2, 1, 3}) put(batch(number, "search"));
    EXPECT_EQ(batches({.tenant = "search", .limit = 2}), "3 2 and more");
    EXPECT_EQ(batches({.tenant = "search", .after = batch_id(2)}), "1 ");
    EXPECT_EQ(batches({.tenant = "search", .newest_first = false}), "1 2 3 ");
    EXPECT_EQ(batches({.tenant = "mail"}), "");
}

TEST_F(BatchStoreTest, APageAfterWhatIsDeletedOrOfAnotherTenantIsNone) {
    put_files({file(1, "search", 7), file(2, "search", 8), file(3, "mail", 7)});
    put_files({{.id = file_id(2), .file = {}}});
    EXPECT_EQ(files({.tenant = "search"}), "1 ");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(2)}), "nothing to begin after");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(3)}), "nothing to begin after");
    EXPECT_EQ(files({.tenant = "search", .after = ""}), "nothing to begin after");
    put(batch(1, "search"));
    forget(1);
    EXPECT_EQ(batches({.tenant = "search", .after = batch_id(1)}), "nothing to begin after");
    EXPECT_FALSE(store.batch(batch_id(1)));
}

TEST_F(BatchStoreTest, APageMayHaveFilesOfOnePurposeOnly) {
    put_files({file(1, "search", 1), file(2, "search", 2, FilePurpose::batch_output), file(3, "search", 3), file(4, "search", 4)});
    EXPECT_EQ(files({.tenant = "search", .purpose = FilePurpose::batch, .limit = 2}), "4 3 and more");
    EXPECT_EQ(files({.tenant = "search", .after = file_id(3), .purpose = FilePurpose::batch, .limit = 2}), "1 ");
    EXPECT_EQ(files({.tenant = "search", .purpose = FilePurpose::batch_output, .newest_first = false}), "2 ");
}

TEST_F(BatchStoreTest, TheLastRecordOfAnIdIsWhatIsKnown) {
    put_files({file(1, "search", 7)});
    const auto found = store.file(file_id(1));
    ASSERT_TRUE(found);
    EXPECT_EQ(encode_file(*found), encode_file(*file(1, "search", 7).file));
    put_files({file(1, "mail", 9, FilePurpose::batch_output)});
    EXPECT_EQ(encode_file(*store.file(file_id(1))), encode_file(*file(1, "mail", 9, FilePurpose::batch_output).file));
    EXPECT_FALSE(store.file(file_id(2)));

    BatchRecord record = batch(1, "search");
    record.parts = {"part"};
    put(record, 2);
    EXPECT_EQ(encode_batch(*store.batch(batch_id(1))), encode_batch(record));
    record.state = BatchState::completed;
    put(record, 5);
    EXPECT_EQ(encode_batch(*store.batch(batch_id(1))), encode_batch(record));
    EXPECT_EQ(store.partition_of(batch_id(1)), 5);
    EXPECT_EQ(store.partition_of(batch_id(2)), std::nullopt);
}

TEST_F(BatchStoreTest, TotalsFollowEachChange) {
    EXPECT_EQ(totals(), "0 waiting, 0 files, 0 bytes");
    EXPECT_EQ(store.totals().batches.size(), 8U) << "all states";
    put_files({file(1, "search", 7), file(2, "mail", 7)});
    put(batch(1, "search"));
    put(batch(2, "search", BatchState::validating));
    EXPECT_EQ(totals(), "1 validating, 1 in_progress, 12 waiting, 2 files, 203 bytes");
    EXPECT_EQ(store.totals().batch_count(), 2);
    put(batch(1, "search", BatchState::completed));
    put_files({file(1, "search", 7)});
    EXPECT_EQ(totals(), "1 validating, 1 completed, 6 waiting, 2 files, 203 bytes");
    forget(1);
    forget(1);
    put_files({{.id = file_id(2), .file = {}}, {.id = file_id(2), .file = {}}});
    EXPECT_EQ(totals(), "1 validating, 6 waiting, 1 files, 101 bytes");
}

TEST_F(BatchStoreTest, CountsWhatIsATenants) {
    put_files({file(1, "search", 7), file(2, "search", 7), file(3, "mail", 7)});
    put(batch(1, "search"));
    put(batch(2, "search", BatchState::failed));
    put(batch(3, "search", BatchState::cancelling));
    put(batch(4, "mail"));
    BatchRecord other_key = batch(5, "search");
    other_key.key = "other";
    put(other_key);
    EXPECT_EQ(store.files_of("search"), 2);
    EXPECT_EQ(store.files_of("nobody"), 0);
    EXPECT_EQ(store.batches_of("search"), 4);
    EXPECT_EQ(store.open_batches_of("search"), 3);
    EXPECT_EQ(store.key_jobs("search", "k"), 12) << "what has ended has none left";
    EXPECT_EQ(store.key_jobs("search", "other"), 6);
    EXPECT_EQ(store.key_jobs("mail", "k"), 6);
    EXPECT_EQ(store.key_jobs("nobody", "k"), 0);
}

TEST_F(BatchStoreTest, OpenAndEndedBatchesAreThoseOfTheirPartition) {
    put(batch(1, "search"), 0);
    put(batch(2, "mail"), 1);
    put(batch(3, "search", BatchState::completed), 0);
    put(batch(4, "search", BatchState::expired), 0);
    EXPECT_THAT(store.open_ids(0), ElementsAre(batch_id(1)));
    EXPECT_THAT(store.open_ids(1), ElementsAre(batch_id(2)));
    EXPECT_THAT(store.open_ids(2), IsEmpty());
    ASSERT_EQ(store.open_batches(1).size(), 1U);
    EXPECT_EQ(store.open_batches(1)[0].tenant, "mail");
    EXPECT_THAT(store.ended_before(0, 2'004, 10), ElementsAre(batch_id(3))) << "of before, not of then";
    EXPECT_THAT(store.ended_before(0, 9'000, 10), ElementsAre(batch_id(3), batch_id(4)));
    EXPECT_THAT(store.ended_before(0, 9'000, 1), ElementsAre(batch_id(3)));
    EXPECT_THAT(store.ended_before(1, 9'000, 10), IsEmpty());
    put(batch(1, "search", BatchState::cancelled), 0);
    EXPECT_THAT(store.open_ids(0), IsEmpty());
    EXPECT_THAT(store.open_batches(0), IsEmpty());
    EXPECT_THAT(store.ended_before(0, 2'002, 10), ElementsAre(batch_id(1)));
}

TEST_F(BatchStoreTest, ContentsAreInUseWhileAFileOrAnOpenBatchNamesThem) {
    put_files({file(9, "search", 7)});
    BatchRecord record = batch(1, "search");
    record.parts = {"part-1", "part-2"};
    record.output_file = file_id(21);
    record.error_file = file_id(22);
    put(record);
    EXPECT_TRUE(store.is_input(file_id(1)));
    EXPECT_FALSE(store.is_input(file_id(9)));
    EXPECT_THAT(store.contents_in_use(), UnorderedElementsAre(file_id(9), file_id(1), "part-1", "part-2", file_id(21), file_id(22)));
    record.state = BatchState::completed;
    put(record);
    EXPECT_FALSE(store.is_input(file_id(1)));
    EXPECT_THAT(store.contents_in_use(), UnorderedElementsAre(file_id(9)));
}

// A cancel and its batch are records of two keys, so either may be read first.
TEST_F(BatchStoreTest, ACancelStaysUntilItIsTakenBack) {
    set_cancel(1, true);
    set_cancel(1, true);
    EXPECT_TRUE(store.is_cancelled(batch_id(1)));
    put(batch(1, "search"));
    EXPECT_TRUE(store.is_cancelled(batch_id(1)));
    EXPECT_FALSE(store.is_cancelled(batch_id(2)));
    set_cancel(1, false);
    EXPECT_FALSE(store.is_cancelled(batch_id(1)));
}

// Pins: each gateway had all records in memory.
TEST_F(BatchStoreTest, ManyMoreThanItsCacheHoldsTakeNoMoreMemory) {
    constexpr int count = 50'000;
    BatchRecord record = batch(0, "", BatchState::completed);
    BatchRecord large = record;
    large.metadata = {{"padding", std::string(1'500, 'x')}};
    const std::string text = encode_batch(large);
    const std::int64_t before = resident_bytes();
    BatchUpdate update;
    for (int i = 0; i < count; ++i) {
        record.id = batch_id(i);
        record.tenant = fmt::format("tenant-{}", i % 10);
        update.batches.push_back({.id = record.id, .batch = record, .text = text, .partition = i % 12});
        if (update.batches.size() < 1'000) continue;
        store.apply(update);
        update.batches.clear();
    }
    EXPECT_LT(resident_bytes() - before, std::int64_t{30} << 20) << "of more than 100 MB";
    EXPECT_EQ(store.totals().batch_count(), count);
    EXPECT_EQ(store.batches_of("tenant-3"), count / 10);
    EXPECT_EQ(store.partition_of(batch_id(count - 1)), (count - 1) % 12);
    EXPECT_EQ(store.batch(batch_id(count / 2))->metadata, large.metadata);
}

// Pins: a machine without a place for the file was found out once the cache was full, long after the start.
TEST_F(BatchStoreTest, AFullDiskIsAnErrorThatSaysWhichFolder) {
    const std::string at_start = tests::thrown_with_full_disk(256 << 10, [] { const BatchStore another; });
    EXPECT_THAT(at_start, AllOf(HasSubstr("TMPDIR"), HasSubstr("nothing is lost")));
    put(batch(0, "search"));
    BatchUpdate update;
    for (int i = 0; i < 10'000; ++i) {
        const BatchRecord record = batch(i, "search", BatchState::completed);
        update.batches.push_back({.id = record.id, .batch = record, .text = std::string(2'000, 'x')});
    }
    EXPECT_THAT(tests::thrown_with_full_disk(2 << 20, [&] { store.apply(update); }), HasSubstr("TMPDIR"));
    EXPECT_EQ(totals(), "1 in_progress, 6 waiting, 0 files, 0 bytes") << "all of an update, or nothing";
    EXPECT_EQ(store.batches_of("search"), 1);
}

TEST(KeyStore, FindsTheLastRecordOfAKey) {
    KeyStore store;
    const auto change = [](const std::string& id, const std::string& tenant) {
        const KeyRecord key = {.id = id, .tenant = tenant, .name = "test", .hash = sha256_of(id)};
        return KeyChange{.id = id, .text = encode_key(key)};
    };
    const std::string one(16, '1');
    const std::string two(16, '2');
    store.apply(std::vector{change(one, "old"), change(two, "mail"), change(one, "search")});
    EXPECT_EQ(store.count(), 2);
    EXPECT_EQ(store.find(one)->tenant, "search");
    EXPECT_EQ(store.find(one)->hash, sha256_of(one));
    EXPECT_FALSE(store.find(""));
    store.apply(std::vector{KeyChange{.id = one, .text = {}}});
    EXPECT_FALSE(store.find(one));
    EXPECT_EQ(store.count(), 1);
}

}  // namespace
}  // namespace lorry::schema
