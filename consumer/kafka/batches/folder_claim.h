// Whether a folder has the contents that the topics name. Contents that no record names are removed (batch_owner.cpp), so a folder of
// another prefix or cluster, or of topics that were recreated, would lose all of them. Used by `lorry serve` when it starts.
#pragma once

#include <optional>
#include <string>

namespace lorry::consumer {

class BatchTopics;
class FolderStore;

// Folder and topics carry the same id, in the folder's marker and in a record of the topic of files. It is drawn for an empty folder and
// for topics without one. nullopt: they belong together. Otherwise why not, with what to do; then nothing may be written or removed.
// Call it once the topics are read. Throws as the store, and Unavailable.
std::optional<std::string> claim_folder(const FolderStore& store, BatchTopics& topics);

}  // namespace lorry::consumer
