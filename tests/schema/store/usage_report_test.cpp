// Usage as people and programs read it: groups, costs, and each form.
#include "schema/store/usage_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::schema {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

UsageRow row(int day, const std::string& tenant, const std::string& model, std::int64_t tokens) {
    return {.day = std::chrono::sys_days(std::chrono::year(2026) / 11 / day),
            .tenant = tenant,
            .key = "k",
            .model = model,
            .adapter = "",
            .jobs = 1,
            .usage = {.prompt_tokens = tokens, .completion_tokens = tokens / 2, .cached_tokens = tokens / 4}};
}

const std::vector<UsageRow> rows = {row(1, "a", "base", 4'000'000), row(1, "b", "base", 400), row(2, "a", "tags", 40)};
const Prices prices{.currency = "EUR",
                    .models = {{"base", {.prompt = 1.0, .completion = 2.0, .cached = 0.5}}, {"tags", {.prompt = 3.0, .completion = 0.0}}},
                    .others = {}};

TEST(UsageReport, SumsUpWhatDiffersInOtherColumnsOnly) {
    EXPECT_EQ(csv_of(report_usage(rows, {UsageColumn::tenant}, prices)),
              "tenant,jobs,prompt_tokens,completion_tokens,cached_tokens,cost,currency\r\n"
              "a,2,4000040,2000020,1000010,7.500120,EUR\r\n"
              "b,1,400,200,100,0.000750,EUR\r\n");
    EXPECT_EQ(csv_of(report_usage(rows, {UsageColumn::model, UsageColumn::day}, {})),
              "model,day,jobs,prompt_tokens,completion_tokens,cached_tokens\r\n"
              "base,2026-11-01,2,4000400,2000200,1000100\r\n"
              "tags,2026-11-02,1,40,20,10\r\n");
    EXPECT_THAT(cells_of(report_usage(rows, {UsageColumn::adapter, UsageColumn::key}, prices)),
                ElementsAre(ElementsAre("ADAPTER", "KEY", "JOBS", "PROMPT", "COMPLETION", "CACHED", "EUR"),
                            ElementsAre("-", "k", "3", "4000440", "2000220", "1000110", "7.500870")));
    EXPECT_THAT(cells_of(report_usage(rows, {UsageColumn::day}, {})).back(), ElementsAre("all", "3", "4000440", "2000220", "1000110"));
}

TEST(UsageReport, WhatHasNoPriceHasNoCost) {
    std::vector<UsageRow> more = rows;
    more.push_back(row(2, "b", "new", 8));
    const UsageReport report = report_usage(more, {UsageColumn::tenant}, prices);
    EXPECT_THAT(csv_of(report), HasSubstr("b,2,408,204,102,,EUR\r\n"));
    EXPECT_THAT(json_of(report).dump(), HasSubstr(R"("cached_tokens":102,"cost":null})"));
    EXPECT_THAT(cells_of(report).back(), ElementsAre("all", "4", "4000448", "2000224", "1000112", "no price"));
    Prices with_others = prices;
    with_others.others = {.prompt = 1.0, .completion = 1.0};
    EXPECT_THAT(csv_of(report_usage(more, {UsageColumn::model}, with_others)), HasSubstr("new,1,8,4,2,0.000012,EUR\r\n"));
}

TEST(UsageReport, NamesAreQuotedAndNoFormulas) {
    const std::vector<UsageRow> strange = {row(1, "a,\"b\"", "base", 4), row(1, "=1+1", "base", 4), row(1, "", "base", 4)};
    const UsageReport report = report_usage(strange, {UsageColumn::tenant}, {});
    EXPECT_THAT(csv_of(report), HasSubstr("\r\n,1,4,2,1\r\n'=1+1,1,4,2,1\r\n\"a,\"\"b\"\"\",1,4,2,1\r\n"));
    EXPECT_THAT(json_of(report).dump(), HasSubstr(R"({"tenant":null,"jobs":1,)"));
}

TEST(UsageReport, ColumnsAndDaysHaveTheirForms) {
    EXPECT_THAT(*usage_columns("model,day"), ElementsAre(UsageColumn::model, UsageColumn::day));
    for (const char* wrong : {"", "days", "day,", ",day", "day, key", "Day"}) {
        EXPECT_THAT(usage_columns(wrong).error(), HasSubstr("allowed are day, tenant, key, model, adapter")) << wrong;
    }
    EXPECT_EQ(usage_columns("day,day").error(), "the column 'day' is named twice");
    EXPECT_EQ(parse_day("2024-02-29"), std::chrono::sys_days(std::chrono::year(2024) / 2 / 29));
    for (const char* wrong :
         {"", "2023-02-29", "2026-13-01", "2026-1-1", "26-11-01", "2026/11/01", "2026-11-01T", "2026-11-0x", "-026-11-01"}) {
        EXPECT_FALSE(parse_day(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace lorry::schema
