// Decides whether `lorry run` begins, resumes or refuses, by what its output already contains. Called by run.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "consumer/file/journal.h"
#include "consumer/file/packed_output.h"
#include "consumer/file/reader.h"

namespace lorry::ops {

struct RunOutputArgs {
    std::filesystem::path output;  // "-": standard output
    // Number of jobs; nullopt: standard input, which cannot be read again to resume.
    std::optional<std::int64_t> jobs;
    consumer::RunIdentity identity;
    consumer::FileFormat format;                    // of the output, or of the rows that are packed
    std::optional<consumer::PackedOutput> packing;  // what the output becomes at the end; nullopt: results are appended to it
    bool overwrite = false;
    consumer::Retried retried = {};
    std::function<std::string(const std::string&)> hash_of_adapter;  // its current hash; empty: no adapter has that name
};

// The state in which the run begins.
struct RunOutput {
    std::optional<consumer::FileJournal> journal;  // nullopt: the run cannot be resumed
    consumer::RecordSet done;
    std::int64_t failed_before = 0;  // of `done`
    std::int64_t cut_before = 0;     // of `done`
    std::int64_t retried = 0;        // done before and run again now
    std::int64_t begin_bytes = 0;
    // Where results are appended; nullopt: the output is packed and whole, so there is nothing to run.
    std::optional<std::filesystem::path> rows;
    std::optional<consumer::PackedOutput> packs;  // what is to be made of the results at the end
};

// Throws consumer::ResumeRefused or UsageError, which say why and what to do, or std::runtime_error for a bad disk.
RunOutput open_run_output(const RunOutputArgs& args);

// This process's command line, quoted for a shell, without the flags that must not be repeated to resume.
std::string resume_command();

}  // namespace lorry::ops
