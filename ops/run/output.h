// Whether `lorry run` begins, resumes or refuses: what stands at its output already, and what must be equal to go on. Called by
// command_run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "consumer/file/journal.h"
#include "consumer/file/reader.h"

namespace lorry::ops {

struct RunOutputArgs {
    std::filesystem::path output;  // "-": standard output
    bool resumable = true;         // the input can be read again
    consumer::RunIdentity identity;
    consumer::RecordFormat format = consumer::RecordFormat::lines;
    bool overwrite = false;
    bool retry_failed = false;
    std::function<std::string(const std::string&)> hash_of_adapter;  // now; empty: there is none of that name
};

// How the run begins.
struct RunOutput {
    std::optional<consumer::FileJournal> journal;  // nullopt: nobody will resume it
    consumer::RecordSet done;
    std::int64_t failed_before = 0;  // of the done ones
    std::int64_t retried = 0;        // failed ones that are run again
    std::int64_t begin_bytes = 0;
};

// Throws consumer::ResumeRefused or UsageError with the reason and what to do, std::runtime_error for a bad disk.
RunOutput open_run_output(const RunOutputArgs& args);

// This process's own command line, quoted for a shell, without the flags that must not be repeated to resume.
std::string resume_command();

}  // namespace lorry::ops
