// Reading a run's input: records exactly as in the file, what is skipped, and what is refused.
#include "consumer/file/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using tests::TempFolder;
using tests::write_text;

class Nobody final : public RevocationHandler {
public:
    void drain(const std::vector<PartitionEpoch>&, Clock::time_point) override {}
    void lost(const std::vector<PartitionEpoch>&) override {}
};

std::vector<Delivery> read_all(FileSource& source, std::size_t max = 100) {
    Nobody nobody;
    std::vector<Delivery> all;
    while (!source.exhausted()) {
        for (Delivery& delivery : source.poll(std::chrono::milliseconds(50), max, nobody)) all.push_back(std::move(delivery));
    }
    return all;
}

// "number:text" or "number!code" of each delivery.
std::string shown(const std::vector<Delivery>& deliveries) {
    std::string text;
    for (const Delivery& delivery : deliveries) {
        text += fmt::format("{}{}{} ", delivery.record.source.offset, delivery.refusal ? "!" : ":",
                            delivery.refusal ? std::string(name_of(delivery.refusal->code)) : *delivery.record.value);
    }
    return text;
}

FileSourceOptions options_of(const std::filesystem::path& file) { return {.file = file, .topic = file.filename().string()}; }

TEST(FileSource, DeliversEachLineWithItsNumberWhateverEndsIt) {
    const TempFolder folder;
    write_text(folder / "in",
               "\xEF\xBB\xBF"
               "a\r\n\n  \t\nb\nc");
    FileSource source(options_of(folder / "in"));
    EXPECT_EQ(shown(read_all(source)), "0:a 3:b 4:c ");
    EXPECT_TRUE(source.exhausted());
}

TEST(FileSource, HasNoRecordsInAnEmptyFile) {
    const TempFolder folder;
    write_text(folder / "in", "");
    FileSource source(options_of(folder / "in"));
    EXPECT_EQ(shown(read_all(source)), "");
}

TEST(FileSource, RefusesTheSecondLineOfAnIdEvenWhenTheFirstIsDoneAlready) {
    const TempFolder folder;
    write_text(folder / "in", R"({"custom_id":"x"})"
                              "\n"
                              R"({"custom_id":"y"})"
                              "\n"
                              R"({"custom_id":"x"})"
                              "\n");
    FileSource fresh(options_of(folder / "in"));
    EXPECT_EQ(shown(read_all(fresh)), R"(0:{"custom_id":"x"} 1:{"custom_id":"y"} 2!duplicate_custom_id )");
    FileSourceOptions options = options_of(folder / "in");
    options.done.add(0);
    FileSource resumed(std::move(options));
    EXPECT_EQ(shown(read_all(resumed)), R"(1:{"custom_id":"y"} 2!duplicate_custom_id )");
}

TEST(FileSource, CutsALineThatIsLongerThanItsLimitAndRefusesIt) {
    const TempFolder folder;
    write_text(folder / "in", std::string(1'000'000, 'x') + "\nshort\n");
    FileSourceOptions options = options_of(folder / "in");
    options.record_bytes_max = 1000;
    FileSource source(std::move(options));
    const auto deliveries = read_all(source);
    EXPECT_EQ(shown(deliveries), "0!payload_too_large 1:short ");
    EXPECT_EQ(deliveries.front().record.value->size(), 1000U);
}

TEST(FileSource, HandsOverLargeLinesAFewAtATimeSoThatMemoryStaysBounded) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 8; ++i) text += std::string(3 << 20, 'x') + "\n";
    write_text(folder / "in", text);
    FileSource source(options_of(folder / "in"));
    Nobody nobody;
    std::size_t seen = 0;
    while (!source.exhausted()) {
        const auto deliveries = source.poll(std::chrono::seconds(10), 100, nobody);
        EXPECT_LE(deliveries.size(), 2U);
        seen += deliveries.size();
    }
    EXPECT_EQ(seen, 8U);
}

TEST(FileSource, DeliversNothingWithoutRoomAndCountsWhatIsLeft) {
    const TempFolder folder;
    write_text(folder / "in", "a\nb\nc\n");
    FileSourceOptions options = options_of(folder / "in");
    options.total = 3;
    FileSource source(std::move(options));
    Nobody nobody;
    EXPECT_TRUE(source.poll(std::chrono::milliseconds(1), 0, nobody).empty());
    EXPECT_EQ(source.poll(std::chrono::seconds(10), 1, nobody).size(), 1U);
    EXPECT_EQ(source.backlog(), 2);
}

// Pins: a sample of a file that repeats itself every 20 lines held only one kind of line.
TEST(FileSource, SpreadsASampleOverTheWholeFileAndOverWhatRepeatsInIt) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 1000; ++i) text += fmt::format("{}\n", i % 20);
    write_text(folder / "in", text);
    const auto sample = [&](std::int64_t count) {
        FileSourceOptions options = options_of(folder / "in");
        options.chosen = spread_sample(folder / "in", {.records = RecordFormat::lines}, count, 1000);
        FileSource source(std::move(options));
        std::vector<std::pair<std::int64_t, std::string>> lines;
        for (const Delivery& delivery : read_all(source)) lines.emplace_back(delivery.record.source.offset, *delivery.record.value);
        return lines;
    };
    const auto lines = sample(50);
    ASSERT_EQ(lines.size(), 50U);
    std::set<std::string> kinds;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(lines[i].first / 20, static_cast<std::int64_t>(i)) << "one of each 20";
        kinds.insert(lines[i].second);
    }
    EXPECT_GT(kinds.size(), 10U) << "of 20";
    EXPECT_EQ(sample(50), lines);
    EXPECT_EQ(sample(1000).size(), 1000U);
    EXPECT_EQ(sample(2000).size(), 1000U);
}

TEST(FileReader, KeepsLineEndsAndCommasInsideQuotesTogether) {
    const TempFolder folder;
    write_text(folder / "in.csv", "id,text\r\n1,\"two\nlines, \"\"quoted\"\"\"\r\n2,5\" pipe\n3,last");
    FileReader reader(folder / "in.csv", {.records = RecordFormat::csv}, 1000);
    std::string seen;
    while (const auto record = reader.next(std::chrono::seconds(1))) seen += fmt::format("[{}:{}]", record->line, record->text);
    EXPECT_EQ(seen, "[1:id,text][2:1,\"two\nlines, \"\"quoted\"\"\"][4:2,5\" pipe][5:3,last]");
}

TEST(FileReader, NamesTheLineOfAQuoteThatSwallowsTheRestOfTheFile) {
    const TempFolder folder;
    write_text(folder / "in.csv", "id,text\n1,\"a\nb\"\n2,\"open\n3,c\n4,d\n");
    try {
        summarize_file(folder / "in.csv", {.records = RecordFormat::csv});
        ADD_FAILURE() << "accepted";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("in line 4 is never closed"), std::string::npos) << error.what();
    }
}

// The number of a row comes from its line: messages name it, and samples and resumed runs select rows by it.
TEST(FileSource, NumbersTheRowsOfATableByTheirLinesAndNamesAnIdThatWasThereBefore) {
    const TempFolder folder;
    write_text(folder / "in.csv", "id,text\n1,\"a\nb\"\n2,c\n1,d\n");
    const Table table({.csv = true, .id_column = "id", .prompt_template = "{{ text }}"}, "id,text");
    FileSourceOptions options = options_of(folder / "in.csv");
    options.format.records = RecordFormat::csv;
    options.table = &table;
    FileSource source(std::move(options));
    const auto deliveries = read_all(source);
    ASSERT_EQ(deliveries.size(), 3U);
    EXPECT_EQ(deliveries[0].record.source.offset, 1);
    EXPECT_EQ(deliveries[1].record.source.offset, 3);
    ASSERT_TRUE(deliveries[2].refusal);
    EXPECT_EQ(deliveries[2].refusal->message, "line 5 has the same id as line 2, '1': give each its own");
}

// Pins: each line of such a file ended as an error of its own, which named none of the causes.
TEST(FileReader, AFileOfAnotherKindIsOneErrorThatSaysWhatToDo) {
    const TempFolder folder;
    const auto error_of = [&](const std::string& bytes, RecordFormat format = RecordFormat::lines) -> std::string {
        write_text(folder / "in", bytes);
        try {
            FileReader(folder / "in", {.records = format}, 1000).next(std::chrono::seconds(1));
        } catch (const InputError& error) {
            EXPECT_THAT(error.what(), testing::StartsWith((folder / "in").string() + ": "));
            return error.what();
        }
        return "accepted";
    };
    using testing::HasSubstr;
    EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"), HasSubstr("this is a Git LFS pointer"));
    EXPECT_THAT(error_of("\xfd"
                         "7zXZ"),
                HasSubstr("compressed with xz"));
    EXPECT_THAT(error_of("PK\x03\x04", RecordFormat::csv), HasSubstr("an Excel workbook; save the table as CSV"));
    EXPECT_THAT(error_of(std::string("\xff\xfe{\0", 4)), HasSubstr("the file is UTF-16; save it as UTF-8"));
    EXPECT_THAT(error_of(std::string("\xfe\xff\0{", 4)), HasSubstr("UTF-16"));
    EXPECT_THAT(error_of(std::string("i\0d\0", 4), RecordFormat::csv), HasSubstr("UTF-16"));
    EXPECT_THAT(error_of("\xef\xbb\xbf\n [{\"id\":1},\n"),
                HasSubstr("a JSON array; write each of its elements in a line of its own: jq -c"));
    EXPECT_THAT(error_of("{\n  \"id\": 1\n}\n"), HasSubstr("objects of several lines; write each in one line: jq -c . FILE"));
    for (const char* good : {"", "\n\n", "{}", "{}\n", "{ \"id\": 1}\n", "text\n"}) EXPECT_EQ(error_of(good), "accepted") << good;
    EXPECT_EQ(error_of("[x],id\n", RecordFormat::csv), "accepted");
}

TEST(FileReader, SumsUpAFileAndNoticesAChangedByte) {
    const TempFolder folder;
    write_text(folder / "in.csv", "id\n1\n\n2\n");
    const FileSummary before = summarize_file(folder / "in.csv", {.records = RecordFormat::csv});
    EXPECT_EQ(before.records, 2);
    EXPECT_EQ(before.content.bytes, 8);
    write_text(folder / "in.csv", "id\n1\n\n3\n");
    EXPECT_NE(summarize_file(folder / "in.csv", {.records = RecordFormat::csv}).content.hash, before.content.hash);
}

TEST(RecordSet, HoldsEachRecordOnce) {
    RecordSet set;
    EXPECT_TRUE(set.add(70));
    EXPECT_FALSE(set.add(70));
    EXPECT_TRUE(set.contains(70));
    EXPECT_FALSE(set.contains(6));
    EXPECT_FALSE(set.contains(1'000'000));
    EXPECT_EQ(set.size(), 1);
}

TEST(TextSet, TellsNewTextsFromKnownOnesThroughItsGrowth) {
    TextSet set;
    for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(set.add(fmt::format("job-{}", i), i)) << i;
    for (int i = 0; i < 20'000; ++i) ASSERT_FALSE(set.add(fmt::format("job-{}", i), 0)) << i;
    for (int i = 0; i < 20'000; ++i) ASSERT_EQ(set.place_of(fmt::format("job-{}", i)), i);
    EXPECT_EQ(set.size(), 20'000U);
}

}  // namespace
}  // namespace lorry::consumer
