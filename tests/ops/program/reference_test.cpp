// The pages of docs/ that are printed from the program's own tables are what the program prints.
#include "ops/program/reference.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <fmt/format.h>

#include "ops/metric_table.h"
#include "ops/settings.h"
#include "schema/error_code.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

// The first line in which two texts differ: "line 3: 'a' is 'b' in the file".
std::string first_difference(const std::string& program, const std::string& file) {
    std::istringstream said(program);
    std::istringstream written(file);
    for (int number = 1;; ++number) {
        std::string expected;
        std::string found;
        const bool more = static_cast<bool>(std::getline(said, expected));
        if (!std::getline(written, found) && !more) return "only in how the last line ends";
        if (expected != found) return fmt::format("line {}: the program says '{}', the file '{}'", number, expected, found);
    }
}

TEST(Reference, PagesInDocsAreWhatTheProgramPrints) {
    for (const ReferencePage& page : reference_pages()) {
        const std::string file = tests::read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "docs" / fmt::format("{}.md", page.name));
        const std::string text = page.text();
        EXPECT_TRUE(text == file) << fmt::format("docs/{}.md has drifted: {}\nrun: build/lorry docs {} > docs/{}.md", page.name,
                                                 first_difference(text, file), page.name, page.name);
    }
}

TEST(Reference, IsPrintedByLorryDocs) {
    const tests::ProgramResult settings = tests::run_program_of({LORRY_PROGRAM, "docs", "settings"});
    EXPECT_EQ(settings.exit_code, 0);
    EXPECT_TRUE(settings.out.starts_with("# Settings\n")) << settings.out;
    const tests::ProgramResult nothing = tests::run_program_of({LORRY_PROGRAM, "docs", "nothing"});
    EXPECT_EQ(nothing.exit_code, 2);
    EXPECT_NE(nothing.err.find("there is no page 'nothing'; the pages are settings|"), std::string::npos) << nothing.err;
}

// docs/jobs.md lists the codes by the stage that finds them.
TEST(Reference, JobsPageNamesEachErrorCode) {
    const std::string page = tests::read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "docs" / "jobs.md");
    for (const schema::ErrorCode code : schema::error_codes) {
        EXPECT_NE(page.find(fmt::format("`{}`", name_of(code))), std::string::npos) << name_of(code);
    }
}

// A second row with the same name would never be read.
TEST(Reference, TablesHaveEachNameOnce) {
    std::set<std::string> names;
    for (const Setting& setting : setting_table()) EXPECT_TRUE(names.insert(setting.key).second) << setting.key;
    for (const MetricGroup& group : metric_table()) {
        for (const Metric& metric : group.rows) EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    }
}

}  // namespace
}  // namespace lorry::ops
