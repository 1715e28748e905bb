// Writes under a temporary name, syncs, renames. Temporary names begin with a dot.
#include "consumer/batches/folder_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "schema/secret.h"

namespace lorry::consumer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& path) {
    throw std::runtime_error(
        fmt::format("the files' folder: cannot {} {}: {}", what, path.string(), std::error_code(errno, std::generic_category()).message()));
}

class FileDescriptor {
public:
    explicit FileDescriptor(int number) : number_(number) {}
    ~FileDescriptor() {
        if (number_ >= 0) ::close(number_);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int number() const { return number_; }

private:
    const int number_;
};

bool is_name(std::string_view name) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return !name.empty() && name.size() <= 200 && name[0] != '.' && name.find_first_not_of(letters) == name.npos;
}

void write_all(const FileDescriptor& file, std::string_view bytes, const fs::path& path) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
        if (written < 0 && errno != EINTR) fail("write", path);
        if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

void sync_folder(const fs::path& folder) {
    const FileDescriptor entry(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (entry.number() < 0 || ::fsync(entry.number()) != 0) fail("sync", folder);
}

// Of a content, as the gateway and consumer/batches name them. Others are not removed, whoever wrote them.
bool is_of_lorry(std::string_view name) { return name.starts_with("file-") || name.starts_with("batch_"); }

class FolderWriter final : public FileStore::Writer {
public:
    FolderWriter(const fs::path& folder, const std::string& name)
        : folder_(folder),
          path_(folder / name),
          temporary_(folder / fmt::format(".{}.{}", name, schema::draw_random_id())),
          file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR)) {
        if (file_.number() < 0) fail("write", temporary_);
    }
    ~FolderWriter() override {
        if (!is_kept_) ::unlink(temporary_.c_str());
    }
    void write(std::string_view bytes) override { write_all(file_, bytes, temporary_); }
    void keep() override {
        if (::fsync(file_.number()) != 0) fail("sync", temporary_);
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", temporary_);
        is_kept_ = true;
        sync_folder(folder_);
    }

private:
    const fs::path folder_;
    const fs::path path_;
    const fs::path temporary_;
    const FileDescriptor file_;
    bool is_kept_ = false;
};

class FolderReader final : public FileStore::Reader {
public:
    FolderReader(fs::path path, int file) : path_(std::move(path)), file_(file) {}
    std::size_t read(std::span<char> to) override {
        for (;;) {
            const ssize_t bytes = ::read(file_.number(), to.data(), to.size());
            if (bytes >= 0) return static_cast<std::size_t>(bytes);
            if (errno != EINTR) fail("read", path_);
        }
    }
    void seek(std::int64_t from) {
        if (::lseek(file_.number(), from, SEEK_SET) < 0) fail("read", path_);
    }

private:
    const fs::path path_;
    const FileDescriptor file_;
};

}  // namespace

FolderStore::FolderStore(fs::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    const bool is_new = fs::create_directories(folder_, error);
    if (error) throw std::runtime_error(fmt::format("--files {}: cannot be made: {}", folder_.string(), error.message()));
    if (is_new) fs::permissions(folder_, fs::perms::owner_all, error);
    if (::access(folder_.c_str(), R_OK | W_OK | X_OK) != 0) fail("use", folder_);
}

std::optional<std::string> FolderStore::owner() const {
    const fs::path path = folder_ / marker;
    if (::access(path.c_str(), F_OK) != 0) {
        if (errno == ENOENT) return std::nullopt;
        fail("read", path);
    }
    std::ifstream in(path);
    std::string owner;
    std::getline(in, owner);
    if (in.bad() || owner.empty()) {
        throw std::runtime_error(
            fmt::format("the files' folder: {} does not say whose contents the folder has: remove this file if the folder has no others",
                        path.string()));
    }
    return owner;
}

void FolderStore::mark(const std::string& owner, const std::string& note) const {
    const fs::path path = folder_ / marker;
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.number() < 0) {
        if (errno == EEXIST) return;
        fail("write", path);
    }
    write_all(file, fmt::format("{}\n{}\n", owner, note), path);
    if (::fsync(file.number()) != 0) fail("sync", path);
    sync_folder(folder_);
}

bool FolderStore::has_contents() const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
        std::error_code gone;
        if (entry.is_regular_file(gone) && !entry.path().filename().string().starts_with('.')) return true;
    }
    if (error) throw std::runtime_error(fmt::format("the files' folder: cannot list {}: {}", folder_.string(), error.message()));
    return false;
}

std::unique_ptr<FileStore::Writer> FolderStore::create(const std::string& name) {
    CHECK(is_name(name), "names of contents are no paths");
    return std::make_unique<FolderWriter>(folder_, name);
}

std::unique_ptr<FileStore::Reader> FolderStore::open(const std::string& name, std::int64_t from) {
    CHECK(is_name(name), "names of contents are no paths");
    const fs::path path = folder_ / name;
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) {
        if (errno != ENOENT) fail("read", path);
        const fs::path marked = folder_ / marker;
        if (::access(marked.c_str(), F_OK) != 0) fail("find", marked);
        return nullptr;
    }
    auto reader = std::make_unique<FolderReader>(path, file);
    reader->seek(from);
    return reader;
}

void FolderStore::remove(const std::string& name) {
    CHECK(is_name(name), "names of contents are no paths");
    const fs::path path = folder_ / name;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path);
}

std::vector<std::string> FolderStore::older_than(std::chrono::seconds age) {
    std::vector<std::string> names;
    std::error_code error;
    const auto limit = fs::file_time_type::clock::now() - age;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
        std::error_code gone;
        const auto written = entry.last_write_time(gone);
        if (gone || written > limit || !entry.is_regular_file(gone)) continue;
        const std::string name = entry.path().filename().string();
        if (is_of_lorry(name)) {
            names.push_back(name);
        } else if (name.starts_with('.') && is_of_lorry(std::string_view(name).substr(1))) {
            fs::remove(entry.path(), gone);
        }
    }
    if (error) throw std::runtime_error(fmt::format("the files' folder: cannot list {}: {}", folder_.string(), error.message()));
    std::ranges::sort(names);
    return names;
}

}  // namespace lorry::consumer
