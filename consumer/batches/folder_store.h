// A FileStore in a folder, which may be shared by many machines (NFS, a volume). A file of its own marks the folder, so that contents of a
// volume that is not mounted are not taken for lost. Made by `lorry serve`.
#pragma once

#include <filesystem>

#include "consumer/batches/batch_backend.h"

namespace lorry::consumer {

class FolderStore final : public FileStore {
public:
    // Makes the folder if it is missing, for this user alone. Throws std::runtime_error if it cannot be written to.
    explicit FolderStore(std::filesystem::path folder);
    // No store had used the folder before. unmark() makes it so again.
    bool is_new() const { return is_new_; }
    void unmark() const;
    static constexpr const char* marker = ".lorry-files";

    std::unique_ptr<Writer> create(const std::string& name) override;
    std::unique_ptr<Reader> open(const std::string& name, std::int64_t from) override;
    void remove(const std::string& name) override;
    std::vector<std::string> older_than(std::chrono::seconds age) override;

private:
    const std::filesystem::path folder_;
    bool is_new_ = false;
};

}  // namespace lorry::consumer
