// Reading and writing Parquet: files that pyarrow wrote (tests/data/tables), copies of them, files made of JSON lines, and damaged files.
#include "engine/text/parquet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/parquet_lines.h"
#include "consumer/file/reader.h"
#include "engine/files.h"
#include "schema/base64.h"
#include "schema/json.h"
#include "tests/support/labels.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry::consumer {
namespace {

// No other thread takes part.
const tests::Labelled parquet_without_tsan{"*", {tests::Label::not_tsan}};

using engine::ParquetKind;
using engine::ParquetWriter;
using schema::Json;
using testing::HasSubstr;
using tests::read_whole;
using tests::TempFolder;
using tests::thrown_by;
using tests::write_text;

const std::filesystem::path tables = std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/tables";

std::vector<std::string> rows_in(const std::filesystem::path& file, std::optional<std::vector<std::string>> columns = std::nullopt) {
    FileReader reader(file, {.records = RecordFormat::parquet, .columns = std::move(columns)}, std::size_t{1} << 30);
    std::vector<std::string> rows;
    while (auto record = reader.next(std::chrono::seconds(1))) {
        EXPECT_EQ(record->line, std::ssize(rows) + 1);
        rows.push_back(std::move(record->text));
    }
    EXPECT_EQ(parquet_facts(file).rows, std::ssize(rows));
    return rows;
}

std::string error_in(const std::filesystem::path& file, std::optional<std::vector<std::string>> columns = std::nullopt) {
    try {
        rows_in(file, std::move(columns));
    } catch (const InputError& error) {
        return error.what();
    }
    return "none";
}

// The rows as the lines of a text, each written as Json writes it.
std::string normal(const std::vector<std::string>& rows) {
    std::string text;
    for (const std::string& row : rows) text += Json::parse(row).value().dump() + "\n";
    return text;
}

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

TEST(Parquet, ReadsEveryTypeAsTheValuesThatPyarrowWrote) {
    const std::vector<std::string> expected = split_lines(read_whole(tables / "types.jsonl"));
    const std::vector<std::string> rows = rows_in(tables / "types.parquet");
    ASSERT_EQ(rows.size(), expected.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const Json want = Json::parse(expected[row]).value();
        const Json got = Json::parse(rows[row]).value();
        for (const auto& [name, value] : *want.as_object()) {
            ASSERT_NE(got.find(name), nullptr) << name;
            EXPECT_EQ(got.find(name)->dump(), value.dump()) << "row " << row << ", " << name;
        }
    }
    EXPECT_EQ(normal(rows_in(tables / "types.parquet", std::vector<std::string>{"text"})).substr(0, 17), R"({"text":"w5 w6"})"
                                                                                                         "\n");
}

TEST(Parquet, ReadsEachCompressionVersionOfPagesAndEncoding) {
    const auto first = rows_in(tables / "none-2.parquet");
    ASSERT_EQ(first.size(), 40U);
    EXPECT_EQ(first[3], R"({"id":3,"text":null,"words":["w0","w1","w2"]})");
    for (const char* file : {"snappy-1", "gzip-1", "gzip-2", "zstd-2", "lz4-1", "delta"}) {
        EXPECT_EQ(rows_in(tables / fmt::format("{}.parquet", file)), first) << file;
    }
}

TEST(Parquet, BytesThatAreNotTextAreRefusedByNameIfTheyAreRead) {
    EXPECT_THAT(error_in(tables / "bytes.parquet"), HasSubstr("bytes.parquet: row 2, column 'image': holds bytes that are not UTF-8 text"));
    EXPECT_EQ(error_in(tables / "bytes.parquet", std::vector<std::string>{"text"}), "none");
}

TEST(Parquet, AFileOfAnotherKindOrCutOffSaysSo) {
    const TempFolder folder;
    const std::string whole = read_whole(tables / "zstd-2.parquet");
    const auto error_of = [&](const std::string& bytes) {
        write_text(folder / "in.parquet", bytes);
        return error_in(folder / "in.parquet");
    };
    EXPECT_THAT(error_of(""), HasSubstr("in.parquet: the file is not Parquet"));
    EXPECT_THAT(error_of("id,text\n1,a text of some length\n"), HasSubstr("the file is not Parquet"));
    EXPECT_THAT(error_of(whole.substr(0, whole.size() - 5)), HasSubstr("the file ends in the middle"));
    EXPECT_THAT(error_of("PARE" + whole.substr(4, whole.size() - 8) + "PARE"), HasSubstr("encrypted"));
    EXPECT_THAT(error_of(whole.substr(0, 40) + whole.substr(whole.size() - 8)), HasSubstr("claims more metadata than the file has bytes"));
    EXPECT_THAT(error_of(whole.substr(0, 4) + whole.substr(400)), testing::Ne("none")) << "pages are gone, the end is whole";
    EXPECT_THAT(error_in(folder / "nothing.parquet"), HasSubstr("cannot be opened: No such file"));
}

// Pins: a hundred bytes took 8 GiB, or ended the program. The script beside the folder says what each file claims.
TEST(Parquet, FilesThatClaimMoreThanTheyHaveAreRefusedBeforeMemoryIsTaken) {
    EXPECT_EQ(rows_in(tables / "hostile" / "good.parquet"), std::vector<std::string>{R"({"text":"hello"})"});
    EXPECT_EQ(rows_in(tables / "hostile" / "good_gzip.parquet"), std::vector<std::string>{R"({"text":"hello"})"});
    const auto error_of = [](const std::string& name) { return error_in(tables / "hostile" / (name + ".parquet")); };
    EXPECT_THAT(error_of("bomb"), HasSubstr("a page unpacks to more bytes than it claims"));
    EXPECT_THAT(error_of("size"), HasSubstr("a page claims 2147483647 bytes; 268435456 are read at most"));
    EXPECT_THAT(error_of("dictionary"), HasSubstr("a page of 9 bytes claims 2147483647 values"));
    EXPECT_THAT(error_of("values"), HasSubstr("a page of 9 bytes claims 2147483647 values"));
    EXPECT_THAT(error_of("list"), HasSubstr("claims 536870911 values, more than are read"));
    EXPECT_THAT(error_of("lengths"), HasSubstr("a page claims more values than it has"));
    EXPECT_THAT(error_of("suffixes"), HasSubstr("a page claims more values than it has"));
    EXPECT_THAT(error_of("rows"), HasSubstr("after row 1: Unexpected end"));
    EXPECT_THAT(error_of("children"), HasSubstr("its metadata is damaged"));
    EXPECT_THAT(error_of("deep"), HasSubstr("nested more than 64 levels deep"));
}

// Pins: a page of a column that is only copied was found to be too large when all rows had been computed.
TEST(Parquet, PagesOfColumnsThatNoRowUsesAreReadBeforeTheyAreCopied) {
    const std::filesystem::path file = tables / "hostile" / "size_beside_id.parquet";
    EXPECT_EQ(rows_in(file, std::vector<std::string>{"id"}), std::vector<std::string>{R"({"id":"hello"})"});
    try {
        check_parquet(file);
        FAIL() << "a page is too large";
    } catch (const InputError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("size_beside_id.parquet: row group 1, column 'text': a page claims 2147483647 bytes; 268435456 are read"));
    }
    check_parquet(tables / "types.parquet");
}

// Pins: no damage ends the program, or is read as other rows without an end.
TEST(Parquet, DamagedFilesAreErrorsOrRows) {
    const TempFolder folder;
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    int errors = 0;
    for (const char* name : {"types", "noted", "snappy-1", "gzip-1", "gzip-2", "lz4-1", "delta"}) {
        const std::string whole = read_whole(tables / fmt::format("{}.parquet", name));
        for (int round = 0; round < 250; ++round) {
            std::string bytes = whole;
            for (int i = 0; i <= round % 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
            write_text(folder / "in.parquet", bytes);
            try {
                ParquetLines lines(folder / "in.parquet", std::nullopt);
                std::vector<char> buffer(1 << 20);
                while (*lines.read(buffer, std::chrono::milliseconds(0)) > 0) continue;
                ParquetWriter copy(folder / "out.parquet", {.input = folder / "in.parquet", .columns = {}, .added = {}});
                const std::int64_t rows = parquet_facts(folder / "in.parquet").rows;
                for (std::int64_t row = 0; row < std::min<std::int64_t>(rows, 100); ++row) copy.add(row, "{}");
                copy.finish();
            } catch (const std::runtime_error& error) {
                EXPECT_THAT(error.what(), HasSubstr(".parquet: "));
                ++errors;
            }
        }
    }
    EXPECT_GT(errors, 100);
}

TEST(Parquet, TypesOfLinesFollowFromTheirValues) {
    const TempFolder folder;
    const std::vector<std::string> lines = {
        R"({"id":1,"b":true,"n":1,"t":"x","mixed":1,"o":[1,2],"big":18446744073709551615})",
        R"({"id":2,"b":null,"n":2.5,"mixed":"one","o":{"a":1.50},"big":1})",
        R"({"id":3,"vector":[0.1,-2],"entities":[{"entity_group":"PER","score":0.5,"word":"ä","start":0,"end":1}],"later":"x"})",
        R"({"id":4,"vector":[],"entities":[],"score":0.25})",
    };
    ParquetWriter writer(folder / "out.parquet", {.input = {},
                                                  .columns = {"id", "empty"},
                                                  .added = {{.name = "vector", .kind = ParquetKind::vector},
                                                            {.name = "entities", .kind = ParquetKind::entities},
                                                            {.name = "score", .kind = ParquetKind::number}}});
    for (const std::string& line : lines) writer.observe(line);
    for (std::size_t i = 0; i < lines.size(); ++i) writer.add(static_cast<std::int64_t>(i), lines[i]);
    writer.finish();
    const auto rows = rows_in(folder / "out.parquet");
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0], R"({"id":1,"empty":null,"b":true,"n":1.0,"t":"x","mixed":"1","o":"[1,2]","big":"18446744073709551615","later":null,)"
                       R"("vector":null,"entities":null,"score":null})");
    EXPECT_EQ(rows[1], R"({"id":2,"empty":null,"b":null,"n":2.5,"t":null,"mixed":"one","o":"{\"a\":1.50}","big":"1","later":null,)"
                       R"("vector":null,"entities":null,"score":null})");
    EXPECT_EQ(rows[2], R"({"id":3,"empty":null,"b":null,"n":null,"t":null,"mixed":null,"o":null,"big":null,"later":"x",)"
                       R"("vector":[0.1,-2.0],"entities":[{"entity_group":"PER","score":0.5,"word":"ä","start":0,"end":1}],"score":null})");
    EXPECT_THAT(rows[3], testing::EndsWith(R"("vector":[],"entities":[],"score":0.25})"));
}

// Pins: one integer of more than 64 bits would have failed the output of the whole run at its end.
TEST(Parquet, AddedColumnsHaveTheirTypesAndIntegersBecomeNumbersIfOneDoesNotFit) {
    const TempFolder folder;
    for (const auto& [value, kind, want] : {std::tuple("9007199254740993", ParquetKind::integer, "9007199254740993"),
                                            std::tuple("18446744073709551615", ParquetKind::integer, "1.8446744073709552e+19"),
                                            std::tuple("1e+29", ParquetKind::integer, "1e+29"), std::tuple("7", ParquetKind::number, "7.0"),
                                            std::tuple("true", ParquetKind::boolean, "true")}) {
        ParquetWriter writer(folder / "out.parquet", {.input = {}, .columns = {"a"}, .added = {{.name = "added", .kind = kind}}});
        const std::vector<std::string> lines = {R"({"a":"x","added":null})", fmt::format(R"({{"a":"y","added":{}}})", value)};
        for (const std::string& line : lines) writer.observe(line);
        for (std::size_t i = 0; i < lines.size(); ++i) writer.add(static_cast<std::int64_t>(i), lines[i]);
        writer.finish();
        EXPECT_THAT(rows_in(folder / "out.parquet"),
                    testing::ElementsAre(R"({"a":"x","added":null})", fmt::format(R"({{"a":"y","added":{}}})", want)));
    }
}

TEST(Parquet, ACopyHasTheChosenRowsOfAllTypesAndTheAddedColumns) {
    const TempFolder folder;
    const auto all = rows_in(tables / "types.parquet");
    for (const std::vector<std::int64_t>& chosen : {std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, {1, 3}, {5}, {}}) {
        ParquetWriter writer(folder / "out.parquet",
                             {.input = tables / "types.parquet", .columns = {}, .added = {{.name = "added", .kind = ParquetKind::text}}});
        for (const std::int64_t row : chosen) writer.add(row, fmt::format(R"({{"added":"row {}"}})", row));
        writer.finish();
        const auto rows = rows_in(folder / "out.parquet");
        ASSERT_EQ(rows.size(), chosen.size());
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const std::string& original = all[static_cast<std::size_t>(chosen[i])];
            EXPECT_EQ(rows[i], original.substr(0, original.size() - 1) + fmt::format(R"(,"added":"row {}"}})", chosen[i]));
        }
    }
}

// Arrow's note about a file's columns.
std::string note_in(const std::filesystem::path& file) {
    const std::string bytes = read_whole(file);
    const std::size_t key = bytes.rfind("ARROW:schema");
    const std::size_t begin = key == std::string::npos ? bytes.size() : bytes.find("/////", key);
    const std::string base64 = bytes.substr(std::min(begin, bytes.size()));
    return schema::from_base64(base64.substr(0, base64.find_first_of(std::string_view("\0\x18\x19\x28\x1c", 5)))).value_or("");
}

// Pins: durations became integers, because the note was dropped. pyarrow 26.0.1, polars 2.1.0 and pandas 3.1.1 read this output with the
// types of all its columns.
TEST(Parquet, ACopyKeepsArrowsNoteAndAddsItsColumnsToIt) {
    const TempFolder folder;
    ParquetWriter writer(folder / "out.parquet", {.input = tables / "noted.parquet",
                                                  .columns = {},
                                                  .added = {{.name = "vector", .kind = ParquetKind::vector},
                                                            {.name = "entities", .kind = ParquetKind::entities},
                                                            {.name = "score", .kind = ParquetKind::number},
                                                            {.name = "error", .kind = ParquetKind::text}}});
    writer.add(0, R"({"vector":[1,2],"entities":[],"score":0.5})");
    writer.finish();
    const std::string before = note_in(tables / "noted.parquet");
    const std::string after = note_in(folder / "out.parquet");
    ASSERT_GT(before.size(), 8U);
    EXPECT_THAT(after, HasSubstr(before.substr(8))) << "fields of the old note are referred to";
    std::size_t place = 0;
    for (const char* name :
         {"vector", "element", "entities", "element", "entity_group", "score", "word", "start", "end", "score", "error"}) {
        place = after.find(name, place);
        ASSERT_NE(place, std::string::npos) << name;
    }
    engine::ContentHash hash;
    hash.add_text(after);
    EXPECT_EQ(hash.hex(), "ac76325f579db7077b61466d79341679") << "read the new form with pyarrow, and note its hash here";
}

TEST(Parquet, LargeOutputsHaveSeveralRowGroups) {
    const TempFolder folder;
    ParquetWriter writer(folder / "out.parquet", {.input = {}, .columns = {"a"}, .added = {}});
    const std::string row = R"({"a":")" + std::string(1 << 20, 'x') + "\"}";
    for (int i = 0; i < 130; ++i) writer.add(i, row);
    writer.finish();
    EXPECT_EQ(rows_in(folder / "out.parquet").size(), 130U);
}

TEST(Parquet, AWriterSaysWhatItCannotWrite) {
    const TempFolder folder;
    EXPECT_THAT(thrown_by([&] {
                    ParquetWriter writer(folder / "nowhere" / "out.parquet", {.input = {}, .columns = {"a"}, .added = {}});
                    writer.finish();
                }),
                HasSubstr("nowhere/out.parquet: the file cannot be written: No such file"));
    EXPECT_THAT(thrown_by([&] {
                    ParquetWriter writer(folder / "out.parquet", {.input = tables / "delta.parquet", .columns = {}, .added = {}});
                    writer.add(40, "{}");
                }),
                HasSubstr("the input has no row 41: it was changed"));
}

}  // namespace
}  // namespace lorry::consumer
