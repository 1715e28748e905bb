// Writes the results of `lorry run`. Appends them to a file as they finish, flushes them to disk at each commit, and records them in the
// journal (journal.h), so that a killed run can resume. Or writes to standard output, where no run can resume.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "consumer/file/journal.h"
#include "consumer/file/reader.h"
#include "consumer/file/table_rows.h"
#include "consumer/seams.h"

namespace lorry::consumer {

struct FileSinkOptions {
    std::filesystem::path file;    // "-": standard output
    std::int64_t begin_bytes = 0;  // the file is first truncated to this length
    const Table* table = nullptr;  // writes rows, not results of jobs; must outlive the sink
};

class FileSink final : public CompletionSink {
public:
    // `journal` is nullptr if no run will resume this output; it must outlive the sink. Throws std::runtime_error when the file cannot be
    // written.
    FileSink(FileSinkOptions options, FileJournal* journal);
    ~FileSink() override;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;

    void publish(Outcome outcome) override;
    // Ignored: the completion has the whole text, and nobody watches a file for its parts.
    void publish(const schema::Chunk&) override {}
    void publish(const schema::Status&) override {}
    std::size_t commit() override;

private:
    std::string line_of(const Outcome& outcome) const;

    FileSinkOptions options_;
    FileJournal* journal_;
    int descriptor_ = -1;
    std::string pending_;
    std::vector<JournalEntry> entries_;
};

// Writes the records of an output that are not run again to a new one with a journal of its own, both on disk on return; returns how many
// it left out. Throws ResumeRefused when the output does not match its journal.
struct KeepGoodArgs {
    std::filesystem::path output;
    FileFormat format;
    Retried retried;
    const RunIdentity& identity;  // of the new journal
    std::filesystem::path new_output;
    std::filesystem::path new_journal;
};
std::int64_t keep_good(const KeepGoodArgs& args);
// Removes records from an output and its journal, so that a resumed run repeats them; returns how many. Safe against a kill: after
// finish_rewrite(), either all of it happened or nothing. Throws ResumeRefused when the output does not match the journal.
struct DropArgs {
    std::filesystem::path output;
    FileFormat format;
    Retried retried;
    const RunIdentity& identity;  // of the run that repeats them
};
std::int64_t drop_retried(const DropArgs& args);
// The files that drop_retried() writes beside the output, until it has ended.
std::vector<std::filesystem::path> rewritten_files(const std::filesystem::path& output);
// Completes or undoes a drop_retried() that was killed. Call it before reading a journal.
void finish_rewrite(const std::filesystem::path& output);

}  // namespace lorry::consumer
