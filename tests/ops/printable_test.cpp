// Text from strangers on a terminal: nothing of it is obeyed, and all of it can be seen.
#include "ops/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ops/units.h"
#include "schema/json.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

TEST(Printable, ShowsControlCharactersAsTheirEscapes) {
    EXPECT_EQ(printable("plain, äöü €, 漢字, 😀\n\tend"), "plain, äöü €, 漢字, 😀\n\tend");
    EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07"), "\\u001b[2J\\u001b]0;title\\u0007") << "C0";
    EXPECT_EQ(printable("a\rb\bc\x7f"), "a\\u000db\\u0008c\\u007f");
    EXPECT_EQ(printable("\xc2\x9bm"), "\\u009bm") << "C1";
    EXPECT_EQ(printable("\x9bm"), "\uFFFDm") << "C1 as a single byte is not UTF-8";
    EXPECT_EQ(printable("\u202Exyz\u202C\u2066\u2069\u200F\u061C"), "\\u202exyz\\u202c\\u2066\\u2069\\u200f\\u061c") << "bidi";
    EXPECT_EQ(printable("one\ntwo", ""), "one\\u000atwo");
    const std::string once = printable("\x1b\n\u202e");
    EXPECT_EQ(printable(once), once);
}

// Logs are JSON: what is escaped must mean what it did.
TEST(Printable, KeepsTheMeaningOfJson) {
    const std::string text = "\u202e\xc2\x9b\x7f\x1b";
    const auto read = schema::Json::parse(printable(schema::Json(text).dump(), ""));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(*read->as_string(), text);
}

TEST(Printable, AStreamLetsNothingThroughUntilTheFilterEnds) {
    std::ostringstream out;
    {
        const PrintableStream filter(out);
        out << "a\x1b[1m" << '\r' << 7 << std::flush << "\n";
    }
    out << '\r';
    EXPECT_EQ(out.str(), "a\\u001b[1m\\u000d7\n\r");
}

TEST(Printable, TablesHaveOneLineForEachRow) {
    EXPECT_EQ(show_table({{"id", "n"}, {"a\nb\x1b", "1"}}), "id              n\na\\u000ab\\u001b  1\n");
}

TEST(Printable, ErrorsOfTheProgramAreNeutralised) {
    const tests::ProgramResult unknown = tests::run_program_of({LORRY_PROGRAM, "\x1b]0;x\x07"});
    EXPECT_EQ(unknown.err, "lorry: there is no command '\\u001b]0;x\\u0007'; see lorry --help\n");
    const tests::ProgramResult model = tests::run_program_of({LORRY_PROGRAM, "check-model", "/no/\u202e\x1b[31m"});
    EXPECT_EQ(model.exit_code, 2);
    EXPECT_THAT(model.err, testing::HasSubstr("/no/\\u202e\\u001b[31m"));
    // A misspelt flag may carry a password.
    const tests::ProgramResult flag = tests::run_program_of({LORRY_PROGRAM, "topics", "create", "--sasl.password=hunter2"});
    EXPECT_THAT(flag.err, testing::HasSubstr("there is no flag --sasl.password here"));
}

}  // namespace
}  // namespace lorry::ops
