// `lorry run`'s results: appended to a file as they finish, on disk with each commit, and noted in the journal (journal.h) that lets a
// killed run go on. Or written to standard output, which no run can resume.
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
    std::int64_t begin_bytes = 0;  // the file is cut to this length first
    const Table* table = nullptr;  // rows rather than results of jobs; outlives the sink
};

class FileSink final : public CompletionSink {
public:
    // journal: nullptr for output that no run will resume; outlives the sink. Throws std::runtime_error when the file cannot be written.
    FileSink(FileSinkOptions options, FileJournal* journal);
    ~FileSink() override;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;

    void publish(Outcome outcome) override;
    // The completion has the whole text: nobody watches a file for its parts.
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

// Takes the failed records out of an output and its journal, so that a run that resumes does them again; returns how many. Safe against
// a kill: either all of it happened or, after finish_rewrite(), nothing. Throws ResumeRefused when the output is not what the journal says.
std::int64_t drop_failed(const std::filesystem::path& output, RecordFormat format);
// Ends or undoes a drop_failed() that was killed; to be called before a journal is read.
void finish_rewrite(const std::filesystem::path& output);

}  // namespace lorry::consumer
