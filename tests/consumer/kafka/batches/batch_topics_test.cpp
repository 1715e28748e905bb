// Two gateways that know of the same files and batches over an embedded broker, and whose folder it is.
#include "consumer/kafka/batches/batch_topics.h"

#include <gmock/gmock.h>

#include "consumer/batches/folder_store.h"
#include "consumer/kafka/batches/folder_claim.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using schema::BatchRecord;
using schema::BatchState;
using schema::FileRecord;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class BatchTopicsTest : public KafkaTest {
protected:
    static constexpr std::int32_t partitions_max = 64;  // more than the topic has
    std::vector<std::string> open_batches(const BatchTopics& known) const {
        std::vector<std::string> ids;
        for (std::int32_t partition = 0; partition < partitions_max; ++partition) {
            for (const BatchRecord& batch : known.open_batches(partition)) ids.push_back(batch.id);
        }
        return ids;
    }
    void read(BatchTopics& known) const { known.wait_until_read(Clock::now() + 20s); }
    const std::string file_id = schema::draw_file_id();
    const std::string batch_id = schema::draw_batch_id();
};

TEST_F(BatchTopicsTest, FilesAreKnownToAllGatewaysAndToTheirTenantAlone) {
    BatchTopics one(config, topics);
    BatchTopics two(config, topics);
    ASSERT_TRUE(one.add_file({.id = file_id, .tenant = "search", .name = "a.jsonl", .bytes = 7, .created = 1}));
    const auto found = two.find_file("search", file_id);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->name, "a.jsonl");
    EXPECT_FALSE(two.find_file("mails", file_id));
    EXPECT_EQ(two.list_files({.tenant = "search"})->records.size(), 1U);
    EXPECT_THAT(two.list_files({.tenant = "mails"})->records, IsEmpty());
    EXPECT_THAT(two.contents_in_use(), UnorderedElementsAre(file_id));
    two.remove_file(*found);
    read(one);
    EXPECT_FALSE(one.find_file("search", file_id));
    EXPECT_THAT(one.contents_in_use(), IsEmpty());
    one.check();
}

TEST_F(BatchTopicsTest, ACancelIsKnownBeforeTheOwnerHasSeenIt) {
    BatchTopics one(config, topics);
    BatchTopics two(config, topics);
    const BatchRecord batch = {.id = batch_id, .tenant = "search", .key = "k", .input_file = file_id, .created = 1, .expires = 100};
    ASSERT_TRUE(one.add_batch(batch));
    ASSERT_TRUE(two.find_batch("search", batch_id));
    EXPECT_FALSE(two.find_batch("mails", batch_id));
    EXPECT_THAT(open_batches(two), ElementsAre(batch_id));
    EXPECT_TRUE(two.is_in_use({.id = file_id}));
    two.cancel_batch(batch);
    read(one);
    EXPECT_TRUE(one.is_cancelled(batch_id));
    EXPECT_EQ(one.find_batch("search", batch_id)->state, BatchState::cancelling);
    EXPECT_EQ(one.list_batches({.tenant = "search"})->records.size(), 1U);
}

TEST_F(BatchTopicsTest, SaysSoWhileNoBrokerAnswers) {
    config.deadline_later = 2s;
    BatchTopics one(config, topics);
    read(one);
    broker.set_down(true);
    EXPECT_THROW(one.list_files({.tenant = "search"}), Unavailable);
    broker.set_down(false);
}

// Pins: a gateway of another prefix, or of topics that were made anew, took all contents for orphans and removed them.
class FolderClaimTest : public BatchTopicsTest {
protected:
    std::string claim(BatchTopics& known, const std::string& name = "files") const {
        const FolderStore store(folder / name);
        return claim_folder(store, known).value_or("it belongs to them");
    }
    const tests::TempFolder folder;
    EmbeddedBroker elsewhere{broker_options(partitions)};
    KafkaConfig other_config{.brokers = elsewhere.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
};

TEST_F(FolderClaimTest, GatewaysOfTheSameTopicsShareAFolder) {
    BatchTopics one(config, topics);
    BatchTopics two(config, topics);
    EXPECT_EQ(claim(one), "it belongs to them");
    EXPECT_EQ(claim(two), "it belongs to them");
    tests::write_text(folder / "files" / file_id, "content");
    EXPECT_EQ(claim(one), "it belongs to them");
    EXPECT_EQ(claim(two), "it belongs to them");
    BatchTopics three(config, topics);
    EXPECT_EQ(claim(three), "it belongs to them");
    EXPECT_TRUE(three.add_file({.id = file_id, .tenant = "search", .created = 1})) << "the folder's record is no file";
    EXPECT_EQ(three.list_files({.tenant = "search"})->records.size(), 1U);
}

TEST_F(FolderClaimTest, TopicsOfAnotherClusterOrThatWereMadeAnewDoNotGetIt) {
    BatchTopics one(config, topics);
    BatchTopics other(other_config, topics);
    ASSERT_EQ(claim(one), "it belongs to them");
    tests::write_text(folder / "files" / file_id, "content");
    EXPECT_THAT(claim(other), AllOf(HasSubstr("contents that the topic lorry.files does not know"), HasSubstr("Give an empty folder")));
    EXPECT_FALSE(other.folder_id()) << "nothing was written";
    // Those that have a folder already.
    ASSERT_EQ(claim(other, "another"), "it belongs to them");
    EXPECT_THAT(claim(other), HasSubstr("belongs to another cluster or prefix"));
}

TEST_F(FolderClaimTest, AFolderThatIsNotMountedIsNotTakenForANewOne) {
    BatchTopics one(config, topics);
    ASSERT_EQ(claim(one), "it belongs to them");
    EXPECT_THAT(claim(one, "unmounted"), AllOf(HasSubstr("is its volume mounted?"), HasSubstr("write " + one.folder_id().value())));
    EXPECT_FALSE(std::filesystem::exists(folder / "unmounted" / FolderStore::marker));
    // Its contents are lost.
    tests::write_text(folder / "unmounted" / FolderStore::marker, one.folder_id().value() + "\n");
    EXPECT_EQ(claim(one, "unmounted"), "it belongs to them");
}

TEST_F(FolderClaimTest, AFolderOfOtherFilesIsRefused) {
    BatchTopics one(config, topics);
    std::filesystem::create_directory(folder / "files");
    tests::write_text(folder / "files" / "thesis.txt", "of somebody else");
    EXPECT_THAT(claim(one), HasSubstr("give an empty folder"));
    EXPECT_FALSE(std::filesystem::exists(folder / "files" / FolderStore::marker));
}

// Gateways of a new installation, whose folders are not shared: their records are read in one order by all.
TEST_F(FolderClaimTest, OfFoldersThatAreNotSharedOneIsTaken) {
    BatchTopics one(config, topics);
    BatchTopics two(config, topics);
    one.name_folder("0123");
    two.name_folder("4567");
    read(one);
    EXPECT_EQ(one.folder_id(), "0123");
    EXPECT_EQ(two.folder_id(), "0123");
    EXPECT_THAT(claim(two), HasSubstr("is its volume mounted?"));
}

}  // namespace
}  // namespace lorry::consumer
