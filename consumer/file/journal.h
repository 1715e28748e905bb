// What `lorry run` keeps beside its output (OUT.lorry) so that it can go on after a kill: what the run was started with, which records
// of the input are in the output, in the output's order, and how long the output was then and its hash. Text, a line per commit, each with
// its checksum. Written by sink.cpp after the output is on disk; what the output of a killed run holds beyond the last line here is
// cut off when it resumes, so no result is lost or there twice, whenever the kill came. An output that somebody else changed is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "consumer/file/record_set.h"
#include "engine/files.h"

namespace lorry::consumer {

// What a resumed run must have in common with its beginning.
struct RunTrait {
    std::string name;        // "max tokens"; messages make a flag of it
    std::string value;       // what is compared
    std::string shown = {};  // what messages show in the place of a value that is a hash: the text itself
    bool operator==(const RunTrait&) const = default;
};
using RunIdentity = std::vector<RunTrait>;

// The output cannot be continued with this input, model or these options; the message says why and what to do.
struct ResumeRefused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct JournalEntry {
    std::int64_t record = 0;  // of the input
    bool failed = false;
};

// What a journal says, read whole.
struct JournalContent {
    RunIdentity identity;
    std::map<std::string, std::string> adapters;  // name → content hash, of those that were used
    std::vector<JournalEntry> entries;            // in the output's order
    std::int64_t output_bytes = 0;
    std::string output_hash;         // xxh128 of that many bytes, 32 hex digits
    bool ended = false;              // nothing can stand beyond output_bytes: the run was not killed
    std::int64_t journal_bytes = 0;  // up to the last whole line that a resumed run keeps; 0: the run was killed before it began
};

std::filesystem::path journal_of(const std::filesystem::path& output);

// Throws ResumeRefused when the file is damaged before its last line or of another version.
JournalContent read_journal(const std::filesystem::path& file);

// Throws ResumeRefused naming all traits that differ, as flags, and their values then and now, where these begin to differ.
void check_same_run(const RunIdentity& before, const RunIdentity& now, const std::filesystem::path& output);

// The writing side; holds a lock on the file, so that two runs never share an output. One thread.
class FileJournal {
public:
    // A new journal, in the place of any other. Throws ResumeRefused when another run writes it, std::runtime_error when the disk fails.
    static FileJournal create(const std::filesystem::path& file, const RunIdentity& identity);
    // Goes on where `content` ends; what comes after is cut off. Reads the output once: throws ResumeRefused when it is not what the
    // journal says.
    static FileJournal resume(const std::filesystem::path& file, const JournalContent& content, const std::filesystem::path& output);
    FileJournal(FileJournal&& other) noexcept;
    ~FileJournal();

    // `output`: the bytes that the entries added to the output, on disk already. On disk when it returns.
    void append(std::span<const JournalEntry> entries, std::string_view output);
    // The output is as it should be and nobody writes it any more; no call of append() comes after.
    void end();
    // On disk with the next append.
    void note_adapter(const std::string& name, const std::string& hash);

private:
    FileJournal(std::filesystem::path file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}

    std::filesystem::path file_;
    int descriptor_ = -1;
    std::map<std::string, std::string> adapters_;
    std::int64_t output_bytes_ = 0;
    std::unique_ptr<engine::ContentHash> output_hash_ = std::make_unique<engine::ContentHash>();
    std::string pending_;
};

// Writes all bytes, or throws std::runtime_error naming the file and the system's reason. Shared with the output's writer.
void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& file);
// Until it returns nothing is safe; throws as above.
void flush_to_disk(int descriptor, const std::filesystem::path& file);
// The same for a folder's list of files, after a file was made or renamed.
void flush_folder_of(const std::filesystem::path& file);

}  // namespace lorry::consumer
