// Opens a run's output and journal, or refuses.
#include "ops/run/output.h"

#include <fstream>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/lock.h"
#include "consumer/file/sink.h"
#include "ops/command.h"

namespace lorry::ops {
namespace {

using consumer::FileJournal;
using consumer::ResumeRefused;

constexpr const char* retry_failed_flag = "--retry-failed";
constexpr const char* retry_cut_flag = "--retry-cut";

void check_adapters(const RunOutputArgs& args, const consumer::JournalContent& content) {
    for (const auto& [name, hash] : content.adapters) {
        const std::string now = args.hash_of_adapter(name);
        if (now == hash) continue;
        throw ResumeRefused(
            fmt::format("{} was begun with other contents of the adapter '{}' (then: {}, now: {}) and cannot be continued: "
                        "put the old adapter back, give another -o, or start over with --overwrite",
                        args.output.string(), name, hash, now.empty() ? "none" : now));
    }
}

std::string flags_of(consumer::Retried retried) {
    return retried.failed && retried.cut ? fmt::format("{} and {}", retry_failed_flag, retry_cut_flag)
           : retried.cut                 ? retry_cut_flag
                                         : retry_failed_flag;
}

// Of a run whose results are appended to args.output.
RunOutput begin(const RunOutputArgs& args) {
    RunOutput run;
    run.rows = args.output;
    run.journal.emplace(FileJournal::create(consumer::journal_of(args.output), args.identity));
    return run;
}

void check_same(const RunOutputArgs& args, const consumer::JournalContent& content) {
    consumer::check_same_run({.before = content.identity, .now = args.identity, .retried = args.retried}, args.output);
    check_adapters(args, content);
}

void note_done(const consumer::JournalContent& content, RunOutput& run) {
    for (const consumer::JournalEntry& entry : content.entries) {
        run.done.add(entry.record);
        run.failed_before += entry.failed ? 1 : 0;
        run.cut_before += entry.cut ? 1 : 0;
    }
}

RunOutput resume(const RunOutputArgs& args, consumer::JournalContent content) {
    const std::filesystem::path file = consumer::journal_of(args.output);
    check_same(args, content);
    RunOutput run;
    run.rows = args.output;
    if (args.retried.any()) {
        run.retried =
            consumer::drop_retried({.output = args.output, .format = args.format, .retried = args.retried, .identity = args.identity});
        content = consumer::read_journal(file);
    }
    run.journal.emplace(FileJournal::resume(file, content, args.output));
    run.begin_bytes = content.output_bytes;
    note_done(content, run);
    return run;
}

void check_new(const RunOutputArgs& args, const std::string& why) {
    if (std::filesystem::exists(args.output) && std::filesystem::file_size(args.output) > 0) {
        throw ResumeRefused(fmt::format("{} exists already and {}: give another -o, or --overwrite", args.output.string(), why));
    }
    if (args.retried.any()) throw UsageError(fmt::format("{}: no run has written {} yet", flags_of(args.retried), args.output.string()));
}

std::string why_not_resumed(const RunOutputArgs& args) {
    return args.jobs ? "has no journal (" + consumer::journal_of(args.output).filename().string() + ") to resume from"
                     : "standard input cannot be read again to resume";
}

// The output of a run that has ended: there is nothing to do, unless failed rows are run again.
RunOutput reopen_packed(const RunOutputArgs& args, const RunOutputArgs& rows) {
    const std::filesystem::path journal = consumer::journal_of(args.output);
    consumer::JournalContent content = consumer::read_journal(journal);
    check_same(args, content);
    // Earlier versions appended rows to outputs of any name.
    if (std::ssize(content.entries) != *args.jobs) {
        throw ResumeRefused(
            fmt::format("{} has {} of {} results, and an output of this kind is written with all of them: give another "
                        "-o, or start over with --overwrite",
                        args.output.string(), content.entries.size(), *args.jobs));
    }
    consumer::remove_rows(args.output);
    if (args.retried.any()) {
        const std::int64_t retried = consumer::unpack_good(*args.packing, args.retried, args.identity);
        RunOutputArgs again = rows;
        again.retried = {};
        RunOutput run = resume(again, consumer::read_journal(consumer::journal_of(rows.output)));
        run.retried = retried;
        return run;
    }
    FileJournal::resume(journal, content, args.output).end();  // checks the output
    RunOutput run;
    note_done(content, run);
    return run;
}

// No file of another kind has a name that the run uses beside its output. `journal` is that of the rows.
void check_unused_names(const RunOutputArgs& args, const std::filesystem::path& journal) {
    for (const auto& file : consumer::files_beside(args.output)) {
        if (!std::filesystem::exists(file) || file == journal) continue;
        throw ResumeRefused(
            fmt::format("{} exists already, and this run would replace it: move it away, give another -o, or --overwrite", file.string()));
    }
}

RunOutput open_rows(const RunOutputArgs& args) {
    RunOutputArgs rows = args;
    rows.output = consumer::rows_of(args.output);
    const std::filesystem::path journal = consumer::journal_of(rows.output);
    consumer::check_unused(journal);
    if (!args.overwrite) {
        const bool has_begun = args.jobs && std::filesystem::exists(journal);
        if (has_begun) {
            consumer::finish_rewrite(rows.output);
            consumer::JournalContent content = consumer::read_journal(journal);
            if (content.journal_bytes > 0) return resume(rows, std::move(content));
        }
        if (args.jobs && std::filesystem::exists(consumer::journal_of(args.output))) return reopen_packed(args, rows);
        check_new(args, why_not_resumed(args));
        // A run that was killed before its first result has left files, too.
        if (!has_begun) check_unused_names(args, journal);
    }
    consumer::remove_rows(args.output);
    return begin(rows);
}

RunOutput open_packed(const RunOutputArgs& args) {
    RunOutput run = open_rows(args);
    if (run.rows) run.packs = args.packing;
    return run;
}

RunOutput without_journal(const RunOutputArgs& args) {
    RunOutput run;
    run.rows = args.output;
    return run;
}

RunOutput open_appended(const RunOutputArgs& args) {
    const bool is_special = args.output == "-" || (std::filesystem::exists(args.output) && !std::filesystem::is_regular_file(args.output));
    const bool keeps_journal = args.jobs && !is_special;
    if (args.retried.any() && !keeps_journal)
        throw UsageError(flags_of(args.retried) + " needs an input file and an output file that an earlier run wrote");
    if (is_special) return without_journal(args);
    const std::filesystem::path journal = consumer::journal_of(args.output);
    consumer::check_unused(journal);
    if (args.overwrite) {
        for (const auto& file : consumer::rewritten_files(args.output)) std::filesystem::remove(file);
        if (keeps_journal) return begin(args);
        std::filesystem::remove(journal);
        return without_journal(args);
    }
    if (keeps_journal && std::filesystem::exists(journal)) {
        consumer::finish_rewrite(args.output);
        consumer::JournalContent content = consumer::read_journal(journal);
        if (content.journal_bytes > 0) return resume(args, std::move(content));
    }
    check_new(args, why_not_resumed(args));
    return keeps_journal ? begin(args) : without_journal(args);
}

// In single quotes, unless no character needs them.
std::string shell_word(const std::string& word) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
    std::string text = "'";
    for (const char byte : word) text += byte == '\'' ? std::string("'\\''") : std::string(1, byte);
    return text + "'";
}

}  // namespace

RunOutput open_run_output(const RunOutputArgs& args) {
    if (args.retried.any() && args.overwrite)
        throw UsageError(flags_of(args.retried) + " keeps results and --overwrite drops them: give one of them");
    if (args.packing) {
        if (args.retried.any() && !args.jobs) throw UsageError(flags_of(args.retried) + " needs an input file that can be read again");
        return open_packed(args);
    }
    return open_appended(args);
}

std::string resume_command() {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    std::string command;
    std::string word;
    while (std::getline(in, word, '\0')) {
        if (word == "--overwrite" || word == retry_failed_flag || word == retry_cut_flag) continue;
        command += (command.empty() ? "" : " ") + shell_word(word);
    }
    return command;
}

}  // namespace lorry::ops
