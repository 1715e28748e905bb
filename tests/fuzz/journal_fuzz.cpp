// The journal of a file run: an input is its lines without checksums. What is accepted reads back equal when it is written again, and a run
// with other options is refused with a message.
#include <xxhash.h>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/journal.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

std::string sealed(std::string_view lines) {
    std::string text;
    while (!lines.empty()) {
        const std::size_t end = std::min(lines.find('\n'), lines.size());
        text += fmt::format("{} #{:08x}\n", lines.substr(0, end), XXH32(lines.data(), end, 0));
        lines.remove_prefix(std::min(end + 1, lines.size()));
    }
    return text;
}

std::string told(const JournalContent& content) {
    std::string text;
    for (const RunTrait& trait : content.identity) text += fmt::format("{} = {} ({})\n", trait.name, trait.value, trait.shown);
    for (const auto& [name, hash] : content.adapters) text += fmt::format("{} @ {}\n", name, hash);
    for (const JournalEntry& entry : content.entries) text += fmt::format("{} {}\n", entry.record, entry.failed);
    return text;
}

void check_again(const JournalContent& content, const std::filesystem::path& file) {
    {
        auto journal = FileJournal::create(file, content.identity);
        for (const auto& [name, hash] : content.adapters) journal.note_adapter(name, hash);
        journal.append(content.entries, "");
        if (content.ended) journal.end();
    }
    const JournalContent again = read_journal(file);
    CHECK(told(again) == told(content) && again.ended == content.ended, "a journal reads back equal");
}

void check_other_run(const RunIdentity& identity) {
    RunIdentity other = identity;
    other.push_back({"max tokens", "5"});
    if (other.size() > 1) other.front().shown += "\xC3\xA9";
    if (other.size() > 1) other.front().value += "x";
    try {
        check_same_run({.before = identity, .now = other, .retried = {}}, "out");
        CHECK(false, "another run is refused");
    } catch (const ResumeRefused& error) {
        fuzz::check_message(error.what());
    }
}

void try_journal(std::string_view text) {
    static const tests::TempFolder folder;
    const auto file = folder / "out.lorry";
    tests::write_text(file, std::string(text));
    try {
        const JournalContent content = read_journal(file);
        CHECK(content.journal_bytes >= 0 && content.journal_bytes <= std::ssize(text), "a resumed run keeps a beginning of the journal");
        CHECK(content.output_bytes >= 0, "an output has no negative length");
        if (content.journal_bytes == 0) return;
        check_again(content, folder / "again.lorry");
        check_other_run(content.identity);
    } catch (const ResumeRefused& error) {
        fuzz::check_message(error.what());
    }
}

}  // namespace
}  // namespace lorry::consumer

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view lines = lorry::fuzz::text_of(data, size);
    lorry::consumer::try_journal(lines);
    lorry::consumer::try_journal(lorry::consumer::sealed(lines));
    return 0;
}
