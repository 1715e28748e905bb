// Converts outcomes to output lines and rewrites an output without its failures.
#include "consumer/file/sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/lock.h"

namespace lorry::consumer {
namespace {

using schema::Json;

// The result of a line without custom_id, which is identified only by its place in the file.
std::string line_of_nameless(const schema::DeadLetter& letter) {
    schema::Completion completion{.id = schema::result_id(letter.source, {}), .custom_id = {}};
    schema::JobError error = letter.error;
    error.message = fmt::format("line {} of {}: {}", letter.source.offset + 1, letter.source.topic, error.message);
    schema::set_error(completion, error);
    auto line = Json::parse(schema::encode_completion(completion));
    CHECK(line, "the codec reads what it writes");
    line->set("custom_id", nullptr);
    return line->dump();
}

bool has_failed(const Outcome& outcome) {
    const auto* completion = std::get_if<schema::Completion>(&outcome.record);
    return completion == nullptr || completion->state != schema::JobState::completed;
}

// The row that a delivery carried in its headers.
std::string_view row_of(const std::vector<schema::Header>& headers) {
    const std::string* row = schema::find_header(headers, row_header);
    CHECK(row != nullptr, "a table's records carry their row");
    return *row;
}

constexpr const char* rewritten = ".retry";

}  // namespace

FileSink::FileSink(FileSinkOptions options, FileJournal* journal) : options_(std::move(options)), journal_(journal) {
    const std::filesystem::path& file = options_.file;
    if (file == "-") {
        descriptor_ = ::dup(STDOUT_FILENO);
        if (descriptor_ < 0) fail_file(file, "written");
    } else {
        descriptor_ = open_locked(file, O_WRONLY | O_CREAT);
        // Pipes and devices have no contents and are not truncated.
        if (std::filesystem::is_regular_file(file) &&
            (::ftruncate(descriptor_, options_.begin_bytes) != 0 || ::lseek(descriptor_, 0, SEEK_END) < 0)) {
            fail_file(file, "truncated");
        }
        flush_folder_of(file);
    }
    if (options_.begin_bytes == 0 && options_.table != nullptr) pending_ = options_.table->output_header();
}

FileSink::~FileSink() { ::close(descriptor_); }

void FileSink::publish(Outcome outcome) {
    pending_ += line_of(outcome);
    const auto* completion = std::get_if<schema::Completion>(&outcome.record);
    entries_.push_back(
        {.record = outcome.source.offset, .failed = has_failed(outcome), .cut = completion != nullptr && schema::was_cut(*completion)});
    // An adapter that produced no result may still be corrected before the run resumes.
    if (journal_ != nullptr && !has_failed(outcome) && !completion->run.adapter.empty()) {
        journal_->note_adapter(completion->run.model, completion->run.adapter);
    }
}

std::size_t FileSink::commit() {
    const std::size_t outcomes = entries_.size();
    if (pending_.empty()) return outcomes;
    write_all(descriptor_, pending_, options_.file);
    if (journal_ != nullptr) {
        flush_to_disk(descriptor_, options_.file);
        journal_->append(entries_, pending_);
    }
    pending_.clear();
    entries_.clear();
    return outcomes;
}

std::string FileSink::line_of(const Outcome& outcome) const {
    const auto* completion = std::get_if<schema::Completion>(&outcome.record);
    if (options_.table == nullptr) {
        return (completion != nullptr ? schema::encode_completion(*completion)
                                      : line_of_nameless(std::get<schema::DeadLetter>(outcome.record))) +
               "\n";
    }
    if (completion != nullptr) return options_.table->output_row(row_of(completion->headers), *completion);
    const auto& letter = std::get<schema::DeadLetter>(outcome.record);
    return options_.table->output_row(row_of(letter.headers), letter);
}

std::int64_t keep_good(const KeepGoodArgs& args) {
    const std::filesystem::path journal_file = journal_of(args.output);
    const JournalContent content = read_journal(journal_file);
    auto dropped = static_cast<std::int64_t>(content.entries.size());
    const FileJournal lock = FileJournal::resume(journal_file, content, args.output);  // keeps other runs from writing meanwhile
    const int descriptor = ::open(args.new_output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail_file(args.new_output, "opened for writing");
    FileReader reader(args.output, args.format, std::size_t{1} << 40);
    FileJournal journal = FileJournal::create(args.new_journal, args.identity);
    for (const auto& [name, hash] : content.adapters) journal.note_adapter(name, hash);
    std::vector<JournalEntry> kept;
    std::string pending;
    const auto flush = [&] {
        write_all(descriptor, pending, args.new_output);
        flush_to_disk(descriptor, args.new_output);
        journal.append(kept, pending);
        dropped -= static_cast<std::int64_t>(kept.size());
        kept.clear();
        pending.clear();
    };
    if (args.format.records == RecordFormat::csv) {
        if (const auto header = reader.next(std::chrono::seconds(60))) pending = header->text + "\n";
    }
    for (const JournalEntry& entry : content.entries) {
        const auto record = reader.next(std::chrono::seconds(60));
        if (!record)
            throw std::runtime_error(
                fmt::format("{} has fewer lines than its journal says: start over with --overwrite", args.output.string()));
        if (args.retried.takes(entry)) continue;
        pending += record->text + "\n";
        kept.push_back(entry);
        if (pending.size() > (1 << 20)) flush();
    }
    flush();
    ::close(descriptor);
    return dropped;
}

std::int64_t drop_retried(const DropArgs& args) {
    const std::filesystem::path journal_file = journal_of(args.output);
    const std::filesystem::path new_output = with_suffix(args.output, rewritten);
    const std::filesystem::path new_journal = with_suffix(journal_file, rewritten);
    const std::int64_t dropped = keep_good({.output = args.output,
                                            .format = args.format,
                                            .retried = args.retried,
                                            .identity = args.identity,
                                            .new_output = new_output,
                                            .new_journal = new_journal});
    move_file(new_journal, journal_file);
    move_file(new_output, args.output);
    return dropped;
}

std::vector<std::filesystem::path> rewritten_files(const std::filesystem::path& output) {
    return {with_suffix(output, rewritten), with_suffix(journal_of(output), rewritten)};
}

void finish_rewrite(const std::filesystem::path& output) {
    const std::filesystem::path new_output = with_suffix(output, rewritten);
    const std::filesystem::path new_journal = with_suffix(journal_of(output), rewritten);
    if (std::filesystem::exists(new_journal)) {
        // The old output and journal are still in place.
        std::filesystem::remove(new_journal);
        std::filesystem::remove(new_output);
    } else if (std::filesystem::exists(new_output)) {
        // The new journal was either renamed or never written; the output's length decides.
        const JournalContent content = read_journal(journal_of(output));
        const bool belongs = content.output_bytes == static_cast<std::int64_t>(std::filesystem::file_size(new_output));
        if (belongs)
            move_file(new_output, output);
        else
            std::filesystem::remove(new_output);
    }
}

}  // namespace lorry::consumer
