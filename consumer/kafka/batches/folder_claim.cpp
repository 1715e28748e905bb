// The marker is written first, which one gateway alone can do; then its id is written to the topic, where the first one counts. So of
// gateways that start at the same time, those that share a folder agree, and of folders that are not shared one is taken. Contents come
// last. So the three are looked at in the other order: what is there has what came before it.
#include "consumer/kafka/batches/folder_claim.h"

#include <fmt/format.h>

#include "consumer/batches/folder_store.h"
#include "consumer/kafka/batches/batch_topics.h"
#include "schema/secret.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::seconds claim_patience{10};

}  // namespace

std::optional<std::string> claim_folder(const FolderStore& store, BatchTopics& topics) {
    const std::string folder = store.folder().string();
    const std::string topic = topics.files_topic();
    const bool has_contents = store.has_contents();
    topics.wait_until_read(Clock::now() + claim_patience);
    const auto named = topics.folder_id();
    if (!store.owner()) {
        if (named) {
            return fmt::format(
                "the folder {0} has no file {1}, but the topic {2} has files: is its volume mounted? If their contents are lost, write {3} "
                "into {0}/{1}, and their batches will fail",
                folder, FolderStore::marker, topic, *named);
        }
        if (has_contents) {
            return fmt::format("the folder {} has files, but no file {} that says that they are of Lorry: give an empty folder", folder,
                               FolderStore::marker);
        }
        store.mark(schema::draw_random_id(), fmt::format("Contents of the Kafka topic {}. Keep this file.", topic));
    }
    const std::string owner = *store.owner();
    if (!named) {
        if (has_contents) {
            return fmt::format(
                "the folder {0} has contents that the topic {1} does not know: they belong to another cluster or prefix, or the topic was "
                "made anew. Give an empty folder, or move them and {0}/{2} away",
                folder, topic, FolderStore::marker);
        }
        topics.name_folder(owner);
    }
    if (topics.folder_id() == owner) return std::nullopt;
    return fmt::format(
        "the folder {0} belongs to another cluster or prefix, or is not the one that the other gateways share: {0}/{1} says {2}, and the "
        "topic {3} says {4}",
        folder, FolderStore::marker, owner, topic, topics.folder_id().value_or("nothing"));
}

}  // namespace lorry::consumer
