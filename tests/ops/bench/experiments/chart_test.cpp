// Charts as text: round ticks, words that must not become markup, and one whole picture.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/bench/experiments/chart.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using enum AxisScale;

std::string ticks(AxisScale scale, double low, double high) { return fmt::format("{:.6g}", fmt::join(round_ticks(scale, low, high), " ")); }

TEST(Chart, TicksAreRoundNumbersAroundTheValues) {
    EXPECT_EQ(ticks(linear, 0, 1), "0 0.2 0.4 0.6 0.8 1");
    EXPECT_EQ(ticks(linear, 0, 97), "0 20 40 60 80 100");
    EXPECT_EQ(ticks(linear, 0, 101), "0 20 40 60 80 100 120");
    EXPECT_EQ(ticks(linear, 3, 4800), "0 1000 2000 3000 4000 5000");
    EXPECT_EQ(ticks(linear, 0, 0.0031), "0 0.001 0.002 0.003 0.004");
    EXPECT_EQ(ticks(linear, -3, 3), "-3 -2 -1 0 1 2 3");
    EXPECT_EQ(ticks(linear, 5, 5), "5 5.2 5.4 5.6 5.8 6");
}

TEST(Chart, TicksOfLogarithmicAxesArePowers) {
    EXPECT_EQ(ticks(log2, 1, 64), "1 2 4 8 16 32 64");
    EXPECT_EQ(ticks(log2, 3, 5), "2 4 8");
    EXPECT_EQ(ticks(log2, 1, 65536), "1 4 16 64 256 1024 4096 16384 65536");
    EXPECT_EQ(ticks(log10, 0.3, 40), "0.2 0.5 1 2 5 10 20 50");
    EXPECT_EQ(ticks(log10, 0.06, 12), "0.05 0.1 0.2 0.5 1 2 5 10 20");
    EXPECT_EQ(ticks(log10, 1000, 1000), "1000 2000");
    EXPECT_EQ(ticks(log10, 0.01, 100000), "0.01 0.1 1 10 100 1000 10000 100000");
}

TEST(Chart, WordsAreNoMarkup) { EXPECT_EQ(escape_xml("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;"); }

TEST(Chart, BarsShowTheirValuesAboveTheirCategories) {
    const std::string svg = svg_of({.name = "bars",
                                    .title = "Bars",
                                    .y = {"MiB"},
                                    .categories = {"float32", "<int8>", "int4"},
                                    .series = {{.name = "weights", .points = {{0, 1234.4}, {1, 308.6}, {2, 999.7}}}}});
    for (const char* part : {">MiB</text>", ">float32</text>", ">&lt;int8&gt;</text>", ">1,234</text>", ">309</text>", ">1,000</text>"})
        EXPECT_NE(svg.find(part), std::string::npos) << part << " is not in\n" << svg;
}

// Pins the whole picture. After an intended change, check the new picture and replace the old one.
TEST(Chart, AChartOfLinesIsThisPicture) {
    const std::string svg = svg_of({.name = "lines",
                                    .title = "Time & length",
                                    .x = {"tokens", log2},
                                    .y = {"ms", log10},
                                    .series = {{.name = "with", .points = {{16, 1.5}, {32, 1.6}, {64, 1.8}}},
                                               {.name = "without", .points = {{16, 3}, {32, 7.25}, {64, 31}}}},
                                    .note = "tiny, weights in bfloat16, on a processor with a name that is so long that it and what comes "
                                            "behind it need two lines, on 2026-11-24"});
    EXPECT_EQ(svg, tests::read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/charts/lines.svg"));
}

}  // namespace
}  // namespace lorry::ops
