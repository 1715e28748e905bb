// Reads and writes the journal's lines: first {"lorry_run":2,…}, then "adapter NAME HASH" and "done BYTES HASH RECORD RECORD! …" ('!':
// failed), at the end "end". Each line ends with "#CHECKSUM".
#include "consumer/file/journal.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/lock.h"
#include "schema/json.h"
#include "schema/whole_number.h"

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr std::int64_t version = 2;
constexpr const char* max_tokens = "max tokens";
constexpr std::size_t read_bytes = 1 << 20;
constexpr std::size_t shown_bytes_kept = 10'000;
constexpr std::size_t shown_bytes = 60;
constexpr std::size_t shown_bytes_before = 20;  // bytes shown before the first difference

std::string sealed(std::string_view line) { return fmt::format("{} #{:08x}\n", line, XXH32(line.data(), line.size(), 0)); }

// The line without its checksum; nullopt if the checksum does not match.
std::optional<std::string_view> unsealed(std::string_view line) {
    const std::size_t mark = line.rfind(" #");
    if (mark == std::string_view::npos || sealed(line.substr(0, mark)) != fmt::format("{}\n", line)) return std::nullopt;
    return line.substr(0, mark);
}

std::string_view take_word(std::string_view& text) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
}

bool read_integer(std::string_view word, std::int64_t& value) {
    const auto number = schema::parse_whole<std::int64_t>(word);
    value = number.value_or(-1);
    return value >= 0;
}

bool read_header(std::string_view line, JournalContent& content) {
    const auto json = Json::parse(line);
    const Json* number = json ? json->find("lorry_run") : nullptr;
    const Json* identity = json ? json->find("identity") : nullptr;
    if (number == nullptr || number->as_integer() != version || identity == nullptr || !identity->is_object()) return false;
    const Json* shown = json->find("shown");  // optional
    for (const auto& [name, value] : *identity->as_object()) {
        if (!value.is_string()) return false;
        const Json* text = shown == nullptr ? nullptr : shown->find(name);
        content.identity.push_back({name, *value.as_string(), text != nullptr && text->is_string() ? *text->as_string() : ""});
    }
    return true;
}

bool read_line(std::string_view line, JournalContent& content) {
    const std::string_view kind = take_word(line);
    if (kind == "adapter") {
        const std::size_t space = line.rfind(' ');
        if (space == std::string_view::npos) return false;
        content.adapters[std::string(line.substr(0, space))] = line.substr(space + 1);
        return true;
    }
    if (content.ended) return false;
    if (kind == "end") return content.ended = line.empty();
    if (kind != "done" || !read_integer(take_word(line), content.output_bytes)) return false;
    content.output_hash = take_word(line);
    while (!line.empty()) {
        std::string_view word = take_word(line);
        JournalEntry entry{.failed = word.ends_with('!'), .cut = word.ends_with('~')};
        if (entry.failed || entry.cut) word.remove_suffix(1);
        if (!read_integer(word, entry.record)) return false;
        content.entries.push_back(entry);
    }
    return true;
}

// Returns the hash of the output's first bytes, as many as the journal records. Throws ResumeRefused when they are missing or different, or
// when a complete output has more.
std::unique_ptr<engine::ContentHash> check_output(const std::filesystem::path& output, const JournalContent& content) {
    const auto refuse = [&](const std::string& what) {
        throw ResumeRefused(
            fmt::format("{} {}: it was changed after `lorry run` wrote it; put it back as it was, give another -o, or start over "
                        "with --overwrite",
                        output.string(), what));
    };
    std::error_code none;
    const auto found = std::filesystem::file_size(output, none);
    const std::int64_t size = none ? 0 : static_cast<std::int64_t>(found);
    if (size < content.output_bytes || (content.ended && size > content.output_bytes)) {
        refuse(fmt::format("has {} bytes, but its journal says {}", size, content.output_bytes));
    }
    auto hash = std::make_unique<engine::ContentHash>();
    std::ifstream in(output, std::ios::binary);
    std::string bytes;
    for (std::int64_t left = content.output_bytes; left > 0; left -= static_cast<std::int64_t>(bytes.size())) {
        bytes.resize(std::min(read_bytes, static_cast<std::size_t>(left)));
        if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) fail_file(output, "read");
        hash->add(std::as_bytes(std::span(bytes)));
    }
    if (hash->hex() != content.output_hash) refuse("does not contain the results that its journal records");
    return hash;
}

const RunTrait* trait_of(const RunIdentity& identity, const std::string& name) {
    const auto place = std::ranges::find(identity, name, &RunTrait::name);
    return place == identity.end() ? nullptr : &*place;
}

// The flag that sets a trait; the input has no flag, only its name.
std::string flag_of(std::string name) {
    if (name.starts_with("input")) return name;
    if (name == "id column") return "--id";
    if (name == "system message") return "--system";
    std::ranges::replace_if(
        name, [](char letter) { return letter == ' ' || letter == '_'; }, '-');
    return "--" + name;
}

// As much of a text, from `begin` on, as fits into a message.
std::string excerpt(const std::string& text, std::size_t begin) {
    const auto boundary = [&](std::size_t at) {
        while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
        return std::min(at, text.size());
    };
    const std::size_t from = boundary(begin);
    const std::size_t to = boundary(from + shown_bytes);
    std::string cut = (from > 0 ? "…" : "") + text.substr(from, to - from) + (to < text.size() ? "…" : "");
    std::ranges::replace(cut, '\n', ' ');
    return cut;
}

// Both values as a message shows them: the texts where they differ, otherwise the values themselves.
std::pair<std::string, std::string> told_apart(const RunTrait* was, const RunTrait* is) {
    const auto value_of = [](const RunTrait* trait) { return trait == nullptr ? std::string("none") : trait->value; };
    const auto shown_of = [&](const RunTrait* trait) { return trait == nullptr || trait->shown.empty() ? value_of(trait) : trait->shown; };
    const std::string then = shown_of(was);
    const std::string today = shown_of(is);
    const auto kept = [](const std::string& text) { return std::string_view(text).substr(0, shown_bytes_kept); };
    if (kept(then) == kept(today)) return {value_of(was), value_of(is)};
    const auto same = static_cast<std::size_t>(std::ranges::mismatch(then, today).in1 - then.begin());
    const std::size_t begin = same > shown_bytes_before ? same - shown_bytes_before : 0;
    return {excerpt(then, begin), excerpt(today, begin)};
}

// More tokens change no answer that ended by itself.
void check_more_tokens(const RunTrait* was, const RunTrait* is) {
    const auto number_of = [](const RunTrait* trait) {
        std::int64_t number = 0;
        return trait != nullptr && read_integer(trait->value, number) ? std::optional(number) : std::nullopt;
    };
    const auto now = number_of(is);
    const auto then = number_of(was);
    if (!then) throw ResumeRefused("--retry-cut is for runs with --max-tokens, and this one had none");
    if (!now || *now <= *then) throw ResumeRefused(fmt::format("--retry-cut needs a larger --max-tokens than the run had ({})", *then));
}

}  // namespace

std::filesystem::path journal_of(const std::filesystem::path& output) { return with_suffix(output, ".lorry"); }

std::filesystem::path with_suffix(const std::filesystem::path& file, const char* suffix) { return file.string() + suffix; }

JournalContent read_journal(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) fail_file(file, "opened");
    JournalContent content;
    std::string line;
    for (std::int64_t number = 1; std::getline(in, line) && !in.eof(); ++number) {  // a last line without line end was cut short by a kill
        const bool is_last = in.peek() == std::ifstream::traits_type::eof();
        const auto text = unsealed(line);
        const bool whole = text && (number == 1 ? read_header(*text, content) : read_line(*text, content));
        if (!whole) {
            if (is_last && number > 1 && !text) break;
            throw ResumeRefused(
                fmt::format("{}, line {}: not written by this version of lorry, or damaged; the run cannot be resumed: "
                            "start over with --overwrite, or give another -o",
                            file.string(), number));
        }
        if (!content.ended) content.journal_bytes += static_cast<std::int64_t>(line.size()) + 1;
    }
    return content;
}

void check_same_run(const SameRunArgs& args, const std::filesystem::path& output) {
    const RunIdentity& before = args.before;
    const RunIdentity& now = args.now;
    if (args.retried.cut) check_more_tokens(trait_of(before, max_tokens), trait_of(now, max_tokens));
    std::string changes;
    bool input_changed = false;
    const auto compare = [&](const std::string& name, const RunTrait* was, const RunTrait* is) {
        if (was != nullptr && is != nullptr && was->value == is->value) return;
        if (args.retried.cut && name == max_tokens) return;
        if (input_changed && name.starts_with("input")) return;  // a different size also means different content
        const auto [then, today] = told_apart(was, is);
        changes += fmt::format("{}another {} (then: {}; now: {})", changes.empty() ? "" : ", and ", flag_of(name), then, today);
        input_changed = input_changed || name.starts_with("input");
    };
    for (const RunTrait& trait : before) compare(trait.name, &trait, trait_of(now, trait.name));
    for (const RunTrait& trait : now) {
        if (trait_of(before, trait.name) == nullptr) compare(trait.name, nullptr, &trait);
    }
    if (changes.empty()) return;
    throw ResumeRefused(
        fmt::format("{} was begun with {} and cannot be continued: use the same flags and input as before, give another -o, or start "
                    "over with --overwrite{}",
                    output.string(), changes,
                    input_changed ? ". To run only the corrected lines, put them into a file of their own, with "
                                    "another -o"
                                  : ""));
}

FileJournal FileJournal::create(const std::filesystem::path& file, const RunIdentity& identity) {
    FileJournal journal(file, open_locked(file, O_RDWR | O_CREAT));
    if (::ftruncate(journal.descriptor_, 0) != 0) fail_file(file, "emptied");
    Json::Object members;
    Json::Object shown;
    for (const RunTrait& trait : identity) {
        members.emplace_back(trait.name, schema::repair_utf8(trait.value));
        if (!trait.shown.empty())
            shown.emplace_back(trait.name, schema::repair_utf8(std::string_view(trait.shown).substr(0, shown_bytes_kept)));
    }
    const std::string header = Json::object({{"lorry_run", version}, {"identity", std::move(members)}, {"shown", std::move(shown)}}).dump();
    write_all(journal.descriptor_, sealed(header) + sealed("done 0 " + engine::ContentHash().hex()), file);
    flush_to_disk(journal.descriptor_, file);
    flush_folder_of(file);
    return journal;
}

FileJournal FileJournal::resume(const std::filesystem::path& file, const JournalContent& content, const std::filesystem::path& output) {
    FileJournal journal(file, open_locked(file, O_RDWR));
    journal.output_hash_ = check_output(output, content);
    journal.output_bytes_ = content.output_bytes;
    journal.adapters_ = content.adapters;
    if (::ftruncate(journal.descriptor_, content.journal_bytes) != 0) fail_file(file, "cut");
    if (::lseek(journal.descriptor_, 0, SEEK_END) < 0) fail_file(file, "written");
    return journal;
}

FileJournal::FileJournal(FileJournal&& other) noexcept
    : file_(std::move(other.file_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      adapters_(std::move(other.adapters_)),
      output_bytes_(other.output_bytes_),
      output_hash_(std::move(other.output_hash_)),
      pending_(std::move(other.pending_)) {}

FileJournal::~FileJournal() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void FileJournal::append(std::span<const JournalEntry> entries, std::string_view output) {
    add_output(output);
    append_line(entries);
}

void FileJournal::append_file(std::span<const JournalEntry> entries, const std::filesystem::path& output) {
    std::ifstream in(output, std::ios::binary);
    if (!in) fail_file(output, "opened");
    std::string bytes(read_bytes, '\0');
    while (in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), in.gcount() > 0) {
        add_output(std::string_view(bytes).substr(0, static_cast<std::size_t>(in.gcount())));
    }
    if (in.bad()) fail_file(output, "read");
    append_line(entries);
}

void FileJournal::add_output(std::string_view bytes) {
    output_bytes_ += static_cast<std::int64_t>(bytes.size());
    output_hash_->add(std::as_bytes(std::span(bytes)));
}

void FileJournal::append_line(std::span<const JournalEntry> entries) {
    std::string line = fmt::format("done {} {}", output_bytes_, output_hash_->hex());
    for (const JournalEntry& entry : entries)
        fmt::format_to(std::back_inserter(line), " {}{}", entry.record, entry.failed ? "!" : entry.cut ? "~" : "");
    pending_ += sealed(line);
    write_all(descriptor_, pending_, file_);
    flush_to_disk(descriptor_, file_);
    pending_.clear();
}

void FileJournal::end() {
    write_all(descriptor_, sealed("end"), file_);
    flush_to_disk(descriptor_, file_);
}

void FileJournal::note_adapter(const std::string& name, const std::string& hash) {
    if (!adapters_.emplace(name, hash).second) return;
    pending_ += sealed(fmt::format("adapter {} {}", name, hash));
}

void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& file) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_file(file, "written");
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

void flush_to_disk(int descriptor, const std::filesystem::path& file) {
    // Pipes and some file systems do not support this; then there is nothing to wait for.
    if (::fdatasync(descriptor) != 0 && errno != EINVAL && errno != EROFS) fail_file(file, "flushed to disk");
}

void move_file(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::filesystem::rename(from, to);
    flush_folder_of(to);
}

void flush_folder_of(const std::filesystem::path& file) {
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail_file(folder, "opened");
    const int failed = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    if (failed != 0 && error != EINVAL) {
        errno = error;
        fail_file(folder, "flushed to disk");
    }
}

}  // namespace lorry::consumer
