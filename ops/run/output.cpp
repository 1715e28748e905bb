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

RunOutput begin(const RunOutputArgs& args) {
    RunOutput run;
    run.journal.emplace(FileJournal::create(consumer::journal_of(args.output), args.identity));
    return run;
}

RunOutput resume(const RunOutputArgs& args, consumer::JournalContent content) {
    const std::filesystem::path file = consumer::journal_of(args.output);
    consumer::check_same_run(content.identity, args.identity, args.output);
    check_adapters(args, content);
    RunOutput run;
    if (args.retry_failed) {
        run.retried = consumer::drop_failed(args.output, args.format);
        content = consumer::read_journal(file);
    }
    run.journal.emplace(FileJournal::resume(file, content, args.output));
    run.begin_bytes = content.output_bytes;
    for (const consumer::JournalEntry& entry : content.entries) {
        run.done.add(entry.record);
        run.failed_before += entry.failed ? 1 : 0;
    }
    return run;
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
    const bool is_special = args.output == "-" || (std::filesystem::exists(args.output) && !std::filesystem::is_regular_file(args.output));
    const bool keeps_journal = args.resumable && !is_special;
    if (args.retry_failed && !keeps_journal)
        throw UsageError("--retry-failed needs an input file and an output file that an earlier run wrote");
    if (is_special) return {};
    const std::filesystem::path journal = consumer::journal_of(args.output);
    consumer::check_unused(journal);
    if (args.overwrite) {
        if (args.retry_failed) throw UsageError("--retry-failed keeps results and --overwrite drops them: give one of them");
        std::filesystem::remove(args.output.string() + ".retry");
        std::filesystem::remove(journal.string() + ".retry");
        if (keeps_journal) return begin(args);
        std::filesystem::remove(journal);
        return {};
    }
    if (keeps_journal && std::filesystem::exists(journal)) {
        consumer::finish_rewrite(args.output);
        consumer::JournalContent content = consumer::read_journal(journal);
        if (content.journal_bytes > 0) return resume(args, std::move(content));
    }
    const bool has_results = std::filesystem::exists(args.output) && std::filesystem::file_size(args.output) > 0;
    if (args.retry_failed && !has_results)
        throw UsageError(fmt::format("--retry-failed: no run has written {} yet", args.output.string()));
    if (has_results) {
        throw ResumeRefused(fmt::format("{} exists already and {}: give another -o, or --overwrite", args.output.string(),
                                        args.resumable ? "has no journal (" + journal.filename().string() + ") to resume from"
                                                       : std::string("standard input cannot be read again to resume")));
    }
    if (!keeps_journal) return {};
    return begin(args);
}

std::string resume_command() {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    std::string command;
    std::string word;
    while (std::getline(in, word, '\0')) {
        if (word == "--overwrite" || word == "--retry-failed") continue;
        command += (command.empty() ? "" : " ") + shell_word(word);
    }
    return command;
}

}  // namespace lorry::ops
