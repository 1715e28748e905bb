// A FileStore in a folder, which may be shared by many machines (NFS, a volume). A separate file, the marker, says whose contents the
// folder has, so that contents on a volume that is not mounted do not count as lost, and contents of others do not count as orphans
// (consumer/kafka/batches/folder_claim.h). Made by `lorry serve` and `lorry up`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "consumer/batches/batch_backend.h"

namespace lorry::consumer {

class FolderStore final : public FileStore {
public:
    // Makes the folder if it is missing, for this user alone. Throws std::runtime_error if it cannot be written to.
    explicit FolderStore(std::filesystem::path folder);
    static constexpr const char* marker = ".lorry-files";
    const std::filesystem::path& folder() const { return folder_; }
    // The first line of the marker: the id of those whose contents are here. nullopt: there is no marker. Throws if it has no id.
    std::optional<std::string> owner() const;
    // Writes the marker, with a note for people. Nothing happens if there is one.
    void mark(const std::string& owner, const std::string& note) const;
    // Whether there are files in the folder, whoever wrote them; hidden ones do not count.
    bool has_contents() const;

    std::unique_ptr<Writer> create(const std::string& name) override;
    std::unique_ptr<Reader> open(const std::string& name, std::int64_t from) override;
    void remove(const std::string& name) override;
    std::vector<std::string> older_than(std::chrono::seconds age) override;

private:
    const std::filesystem::path folder_;
};

}  // namespace lorry::consumer
