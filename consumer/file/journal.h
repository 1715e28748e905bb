// The journal that `lorry run` keeps beside its output (OUT.lorry), so that it can resume after a kill. It records what the run was started
// with, which input records are in the output, in the output's order, and the output's length and hash at that time. It is text, one line
// per commit, each with a checksum. sink.cpp writes it after the output is on disk. When a killed run resumes, whatever the output contains
// beyond the journal's last line is cut off, so no result is lost or duplicated, whenever the kill came. An output that something else
// changed is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consumer/file/record_set.h"
#include "engine/files.h"

namespace lorry::consumer {

// One property that a resumed run must share with the run that it continues.
struct RunTrait {
    std::string name;        // "max tokens"; messages turn it into a flag
    std::string value;       // the value that is compared
    std::string shown = {};  // shown in messages instead of a value that is a hash: the text itself
    bool operator==(const RunTrait&) const = default;
};
using RunIdentity = std::vector<RunTrait>;

struct JournalEntry {
    std::int64_t record = 0;  // record of the input
    bool failed = false;
    bool cut = false;  // as schema::was_cut() says
};
// Which records of an output are run again.
struct Retried {
    bool failed = false;
    bool cut = false;
    bool takes(const JournalEntry& entry) const { return (failed && entry.failed) || (cut && entry.cut); }
    bool any() const { return failed || cut; }
};

// The contents of a journal.
struct JournalContent {
    RunIdentity identity;
    std::map<std::string, std::string> adapters;  // name → content hash, of the adapters that were used
    std::vector<JournalEntry> entries;            // in the output's order
    std::int64_t output_bytes = 0;
    std::string output_hash;         // xxh128 of that many bytes, 32 hex digits
    bool ended = false;              // the run was not killed, so nothing can follow output_bytes
    std::int64_t journal_bytes = 0;  // up to the last complete line that a resumed run keeps; 0: the run was killed before it began
};

std::filesystem::path journal_of(const std::filesystem::path& output);
std::filesystem::path with_suffix(const std::filesystem::path& file, const char* suffix);

// Throws ResumeRefused when the file is damaged before its last line or has another version.
JournalContent read_journal(const std::filesystem::path& file);

// Throws ResumeRefused if any trait differs. The message names each as a flag, with its values then and now from where they begin to
// differ. With `retried.cut`, it must differ in "max tokens", which must be more now.
struct SameRunArgs {
    const RunIdentity& before;
    const RunIdentity& now;
    Retried retried;
};
void check_same_run(const SameRunArgs& args, const std::filesystem::path& output);

// Writes a journal. Holds a lock on the file, so that two runs never share an output. One thread.
class FileJournal {
public:
    // Starts a new journal, replacing any other. Throws ResumeRefused when another run is writing it, std::runtime_error when the disk
    // fails.
    static FileJournal create(const std::filesystem::path& file, const RunIdentity& identity);
    // Continues where `content` ends and cuts off what follows. Reads the output once; throws ResumeRefused when it does not match the
    // journal.
    static FileJournal resume(const std::filesystem::path& file, const JournalContent& content, const std::filesystem::path& output);
    FileJournal(FileJournal&& other) noexcept;
    ~FileJournal();

    // Records entries. `output` is the bytes that they added to the output, already on disk. The journal is on disk on return.
    void append(std::span<const JournalEntry> entries, std::string_view output);
    // Records entries whose output is the whole of a file, already on disk.
    void append_file(std::span<const JournalEntry> entries, const std::filesystem::path& output);
    // Marks the output as complete; do not call append() afterwards.
    void end();
    // Written with the next append().
    void note_adapter(const std::string& name, const std::string& hash);

private:
    void add_output(std::string_view bytes);
    void append_line(std::span<const JournalEntry> entries);
    FileJournal(std::filesystem::path file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}

    std::filesystem::path file_;
    int descriptor_ = -1;
    std::map<std::string, std::string> adapters_;
    std::int64_t output_bytes_ = 0;
    std::unique_ptr<engine::ContentHash> output_hash_ = std::make_unique<engine::ContentHash>();
    std::string pending_;
};

// Writes all bytes, or throws std::runtime_error naming the file and the system's reason. Also used by sink.cpp.
void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& file);
// Data is not safe until this returns. Throws like write_all().
void flush_to_disk(int descriptor, const std::filesystem::path& file);
// Flushes the folder that contains the file, after the file was created or renamed.
void flush_folder_of(const std::filesystem::path& file);
// Renames a file, on disk on return.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lorry::consumer
