// A run's output and its journal: whenever a run is killed, a resumed run repeats nothing and loses nothing.
#include "consumer/file/sink.h"
#include "consumer/file/error.h"

#include <gtest/gtest.h>

#include <sstream>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using tests::read_whole;
using tests::TempFolder;
using tests::write_text;

const RunIdentity identity = {{"input", "in.jsonl"}, {"model", "abc"}};

Outcome finished(std::int64_t record, bool failed = false) {
    schema::Completion completion{.id = fmt::format("batch_req_{}", record), .custom_id = fmt::format("job-{}", record)};
    completion.body = schema::Json::object({{"record", record}});
    if (failed) {
        completion.state = schema::JobState::failed;
        completion.status_code = 400;
    }
    return {.source = {.topic = "in.jsonl", .partition = 0, .offset = record}, .epoch = 0, .record = std::move(completion)};
}

// Ids in a results file, in order.
std::vector<std::string> ids_in(const std::filesystem::path& file) {
    std::vector<std::string> ids;
    std::istringstream in(read_whole(file));
    for (std::string line; std::getline(in, line);) ids.push_back(schema::parse_result(line).value().custom_id);
    return ids;
}

void write_run(const std::filesystem::path& output, const std::vector<std::vector<std::int64_t>>& commits, std::int64_t failed_every = 0) {
    FileJournal journal = FileJournal::create(journal_of(output), identity);
    FileSink sink({.file = output}, &journal);
    for (const auto& commit : commits) {
        for (const std::int64_t record : commit) sink.publish(finished(record, failed_every > 0 && record % failed_every == 0));
        EXPECT_EQ(sink.commit(), commit.size());
    }
}

std::int64_t drop_failed(const std::filesystem::path& output) {
    return drop_retried({.output = output, .format = {.records = RecordFormat::lines}, .retried = {.failed = true}, .identity = identity});
}

TEST(FileSink, WritesNothingBeforeACommitAndEverythingWithIt) {
    const TempFolder folder;
    FileJournal journal = FileJournal::create(folder / "out.lorry", identity);
    FileSink sink({.file = folder / "out"}, &journal);
    sink.publish(finished(3));
    EXPECT_EQ(read_whole(folder / "out"), "");
    EXPECT_EQ(sink.commit(), 1U);
    EXPECT_EQ(ids_in(folder / "out"), std::vector<std::string>{"job-3"});
}

TEST(FileSink, NamesTheLineOfARecordWithoutACustomId) {
    const TempFolder folder;
    FileSink sink({.file = folder / "out"}, nullptr);
    const schema::Source source{.topic = "in.jsonl", .partition = 0, .offset = 16};
    const schema::JobError error{.code = schema::ErrorCode::payload_too_large, .param = {}, .message = "the job is large"};
    sink.publish(Outcome{.source = source, .epoch = 0, .record = schema::DeadLetter{.source = source, .error = error}});
    sink.commit();
    const auto line = schema::Json::parse(read_whole(folder / "out"));
    ASSERT_TRUE(line);
    EXPECT_TRUE(line->find("custom_id")->is_null());
    const schema::Json& response = *line->find("response");
    EXPECT_EQ(*response.find("status_code")->as_integer(), 413);
    const schema::Json& told = *response.find("body")->find("error");
    EXPECT_EQ(*told.find("code")->as_string(), "payload_too_large");
    EXPECT_EQ(*told.find("message")->as_string(), "line 17 of in.jsonl: the job is large");
}

TEST(FileJournal, RepeatsNothingAndLosesNothingWhereverTheJournalWasTorn) {
    const TempFolder folder;
    const std::filesystem::path whole = folder / "whole";
    write_run(whole, {{4, 0}, {2}, {1, 3, 7}, {9}});
    const std::string results = read_whole(whole);
    const std::string journal = read_whole(journal_of(whole));
    const std::size_t header = journal.find('\n', journal.find('\n') + 1) + 1;
    for (std::size_t cut = header; cut <= journal.size(); ++cut) {
        SCOPED_TRACE(cut);
        // The output is on disk before its journal entry, so it may be longer than the journal says, but never shorter.
        const std::filesystem::path output = folder / "torn";
        write_text(output, results + R"({"id":"half a li)");
        write_text(journal_of(output), journal.substr(0, cut));
        const JournalContent content = read_journal(journal_of(output));
        {
            FileJournal resumed = FileJournal::resume(journal_of(output), content, output);
            FileSink sink({.file = output, .begin_bytes = content.output_bytes}, &resumed);
            std::vector<std::string> ids;
            for (const JournalEntry& entry : content.entries) ids.push_back(fmt::format("job-{}", entry.record));
            ASSERT_EQ(ids_in(output), ids);
            sink.publish(finished(5));
            sink.commit();
        }
        const JournalContent after = read_journal(journal_of(output));
        ASSERT_EQ(after.entries.size(), content.entries.size() + 1);
        ASSERT_EQ(after.output_bytes, static_cast<std::int64_t>(std::filesystem::file_size(output)));
        ASSERT_EQ(ids_in(output).back(), "job-5");
    }
}

TEST(FileJournal, RefusesToGoOnWithWhatTheRunWasNotBegunWith) {
    const auto message_of = [](const RunIdentity& now) -> std::string {
        try {
            check_same_run({.before = identity, .now = now, .retried = {}}, "out.jsonl");
        } catch (const ResumeRefused& refused) {
            return refused.what();
        }
        return "accepted";
    };
    EXPECT_EQ(message_of(identity), "accepted");
    EXPECT_NE(message_of({{"input", "in.jsonl"}, {"model", "xyz"}}).find("another --model (then: abc; now: xyz)"), std::string::npos);
    EXPECT_NE(message_of({{"input", "in.jsonl"}}).find("another --model (then: abc; now: none)"), std::string::npos);
    EXPECT_NE(message_of({{"input", "in.jsonl"}, {"model", "abc"}, {"sample", "5"}}).find("another --sample"), std::string::npos);
}

TEST(FileJournal, ShowsTwoTextsWhereTheyBeginToDifferAndTheirHashesIfThatIsNotKept) {
    const TempFolder folder;
    const auto changed = [&](const std::string& then, const std::string& now) -> std::string {
        FileJournal::create(folder / "out.lorry", {{"system message", "hash 1", then}, {"max tokens", "by default"}});
        try {
            check_same_run({.before = read_journal(folder / "out.lorry").identity,
                            .now = {{"system message", "hash 2", now}, {"max tokens", "8"}},
                            .retried = {}},
                           "out");
        } catch (const ResumeRefused& refused) {
            const std::string message = refused.what();
            return message.substr(0, message.find(" and cannot"));
        }
        return "accepted";
    };
    const std::string tokens = ", and another --max-tokens (then: by default; now: 8)";
    EXPECT_EQ(changed("Be\nbrief.", "Be rude."), "out was begun with another --system (then: Be brief.; now: Be rude.)" + tokens);
    EXPECT_EQ(changed(std::string(99, 'x') + "é", std::string(99, 'x') + "è" + std::string(50, 'y')),
              "out was begun with another --system (then: …xxxxxxxxxxxxxxxxxxxé; now: …xxxxxxxxxxxxxxxxxxxè" + std::string(39, 'y') + "…)" +
                  tokens);
    EXPECT_EQ(changed(std::string(20'000, 'x') + "1", std::string(20'000, 'x') + "2"),
              "out was begun with another --system (then: hash 1; now: hash 2)" + tokens);
    // A journal without texts, as earlier versions wrote it.
    EXPECT_EQ(changed("", "Be rude."), "out was begun with another --system (then: hash 1; now: Be rude.)" + tokens);
}

TEST(FileJournal, RefusesAFileThatIsDamagedInTheMiddle) {
    const TempFolder folder;
    write_run(folder / "out", {{1}, {2}, {3}});
    std::string journal = read_whole(folder / "out.lorry");
    journal[journal.find("done", journal.size() / 2) + 1] = 'X';
    write_text(folder / "out.lorry", journal);
    EXPECT_THROW(read_journal(folder / "out.lorry"), ResumeRefused);
}

TEST(FileJournal, LetsOneRunAtATimeWriteAnOutput) {
    const TempFolder folder;
    const FileJournal journal = FileJournal::create(folder / "out.lorry", identity);
    EXPECT_THROW(FileJournal::create(folder / "out.lorry", identity), ResumeRefused);
    EXPECT_THROW(FileJournal::resume(folder / "out.lorry", read_journal(folder / "out.lorry"), folder / "out"), ResumeRefused);
}

// Pins: two runs from standard input, which keep no journal, wrote one file, each from its beginning.
TEST(FileSink, LetsOneRunAtATimeWriteAnOutput) {
    const TempFolder folder;
    const FileSink sink({.file = folder / "out"}, nullptr);
    EXPECT_THROW(FileSink({.file = folder / "out"}, nullptr), ResumeRefused);
}

TEST(FileJournal, RefusesToGoOnWithAnOutputThatSomebodyChanged) {
    const TempFolder folder;
    const std::filesystem::path output = folder / "out";
    const auto message_of = [&](const std::string& changed) -> std::string {
        write_text(output, changed);
        try {
            FileJournal::resume(journal_of(output), read_journal(journal_of(output)), output);
        } catch (const ResumeRefused& refused) {
            EXPECT_THROW(drop_failed(output), ResumeRefused);
            EXPECT_EQ(read_whole(output), changed);
            return refused.what();
        }
        return "accepted";
    };
    write_run(output, {{1, 2}}, 2);
    const std::string whole = read_whole(output);
    const std::size_t first = whole.find('\n') + 1;
    const std::string sorted = whole.substr(first) + whole.substr(0, first);
    EXPECT_NE(message_of(sorted).find("does not contain the results"), std::string::npos);
    EXPECT_NE(message_of("x\n").find("has 2 bytes, but its journal says"), std::string::npos);
    // Text after what the journal's last entry covers is left by a kill. A run that was not killed leaves none.
    EXPECT_EQ(message_of(whole + "more\n"), "accepted");
    write_text(output, whole);
    FileJournal::resume(journal_of(output), read_journal(journal_of(output)), output).end();
    EXPECT_NE(message_of(whole + "more\n").find("its journal says"), std::string::npos);
    EXPECT_EQ(message_of(whole), "accepted");
}

TEST(FileJournal, PinsAnAdapterOnlyWhenItMadeAResult) {
    const TempFolder folder;
    FileJournal journal = FileJournal::create(folder / "out.lorry", identity);
    FileSink sink({.file = folder / "out"}, &journal);
    for (const bool failed : {false, true}) {
        Outcome outcome = finished(failed ? 1 : 2, failed);
        auto& completion = std::get<schema::Completion>(outcome.record);
        completion.run.model = failed ? "broken" : "good";
        completion.run.adapter = failed ? "refused" : "abc";
        sink.publish(std::move(outcome));
    }
    sink.commit();
    EXPECT_EQ(read_journal(folder / "out.lorry").adapters, (std::map<std::string, std::string>{{"good", "abc"}}));
}

TEST(DropRetried, TakesTheFailedRecordsOutAndLeavesTheOthers) {
    const TempFolder folder;
    write_run(folder / "out", {{5, 3, 6}, {1, 9, 2}}, 3);
    EXPECT_EQ(drop_failed(folder / "out"), 3);
    EXPECT_EQ(ids_in(folder / "out"), (std::vector<std::string>{"job-5", "job-1", "job-2"}));
    const JournalContent content = read_journal(folder / "out.lorry");
    EXPECT_EQ(content.entries.size(), 3U);
    EXPECT_EQ(content.identity, identity);
    EXPECT_EQ(content.output_bytes, static_cast<std::int64_t>(std::filesystem::file_size(folder / "out")));
    EXPECT_EQ(drop_failed(folder / "out"), 0);
}

TEST(DropRetried, TakesTheCutRecordsOutForARunWithMoreTokens) {
    const TempFolder folder;
    const RunIdentity before = {{"model", "abc"}, {"max tokens", "8"}};
    const RunIdentity now = {{"model", "abc"}, {"max tokens", "16"}};
    {
        FileJournal journal = FileJournal::create(folder / "out.lorry", before);
        FileSink sink({.file = folder / "out"}, &journal);
        for (const auto& [record, reason] : {std::pair(1, "length"), std::pair(2, "stop"), std::pair(3, "length")}) {
            Outcome outcome = finished(record);
            const auto choice = schema::Json::object({{"index", 0}, {"finish_reason", reason}});
            std::get<schema::Completion>(outcome.record).body = schema::Json::object({{"choices", schema::Json::Array{choice}}});
            sink.publish(std::move(outcome));
        }
        sink.publish(finished(4, true));
        sink.commit();
    }
    const Retried cut = {.cut = true};
    EXPECT_NO_THROW(check_same_run({.before = before, .now = now, .retried = cut}, folder / "out"));
    EXPECT_THROW(check_same_run({.before = before, .now = now, .retried = {.failed = true}}, folder / "out"), ResumeRefused);
    EXPECT_THROW(check_same_run({.before = before, .now = before, .retried = cut}, folder / "out"), ResumeRefused);
    EXPECT_THROW(check_same_run({.before = now, .now = before, .retried = cut}, folder / "out"), ResumeRefused);
    EXPECT_THROW(check_same_run({.before = before, .now = {{"model", "other"}, {"max tokens", "16"}}, .retried = cut}, folder / "out"),
                 ResumeRefused);
    EXPECT_EQ(drop_retried({.output = folder / "out", .format = {.records = RecordFormat::lines}, .retried = cut, .identity = now}), 2);
    EXPECT_EQ(ids_in(folder / "out"), (std::vector<std::string>{"job-2", "job-4"}));
    EXPECT_EQ(read_journal(folder / "out.lorry").identity, now);
}

TEST(DropRetried, LeavesAPairThatBelongsTogetherWhereverItWasKilled) {
    const TempFolder folder;
    write_run(folder / "old", {{5, 3, 6}, {1, 9, 2}}, 3);
    write_run(folder / "new", {{5, 3, 6}, {1, 9, 2}}, 3);
    drop_failed(folder / "new");
    const auto stand = [&](bool new_output, bool new_journal, bool journal_moved) {
        for (const char* file : {"out", "out.lorry", "out.retry", "out.lorry.retry"}) std::filesystem::remove(folder / file);
        write_text(folder / "out", read_whole(folder / "old"));
        write_text(folder / "out.lorry", read_whole(folder / (journal_moved ? "new.lorry" : "old.lorry")));
        if (new_output)
            write_text(folder / "out.retry", read_whole(folder / "new").substr(0, new_journal || journal_moved ? std::string::npos : 7));
        if (new_journal) write_text(folder / "out.lorry.retry", read_whole(folder / "new.lorry"));
        finish_rewrite(folder / "out");
        EXPECT_FALSE(std::filesystem::exists(folder / "out.retry"));
        EXPECT_FALSE(std::filesystem::exists(folder / "out.lorry.retry"));
        const JournalContent content = read_journal(folder / "out.lorry");
        EXPECT_EQ(content.output_bytes, static_cast<std::int64_t>(std::filesystem::file_size(folder / "out")));
        return ids_in(folder / "out").size();
    };
    EXPECT_EQ(stand(false, false, false), 6U);
    EXPECT_EQ(stand(true, false, false), 6U);
    EXPECT_EQ(stand(true, true, false), 6U);
    EXPECT_EQ(stand(true, false, true), 3U);
    EXPECT_EQ(stand(false, false, false), 6U);
}

}  // namespace
}  // namespace lorry::consumer
