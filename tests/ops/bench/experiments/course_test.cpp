// `lorry bench course` on a tiny model: what it counts, what it writes, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "ops/bench/experiments/course_bench.h"
#include "ops/bench/experiments/lora_ways.h"
#include "ops/bench/experiments/quantize.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

using schema::Json;
using tests::ProgramResult;

ProgramResult course(const std::vector<std::string>& more) {
    std::vector<std::string> words = {LORRY_PROGRAM, "bench", "course", "--quick", "--threads", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return tests::run_program_of(std::move(words));
}

// A column of an experiment as text: "16 32 64".
std::string column(const Json& all, std::string_view experiment, std::string_view key) {
    std::string text;
    for (const Json& one : *all.find("experiments")->as_array()) {
        if (*one.find("name")->as_string() != experiment) continue;
        for (const Json& row : *one.find("rows")->as_array()) text += (text.empty() ? "" : " ") + row.find(key)->dump();
    }
    return text;
}

// Pins: every experiment leaves its rows in the JSON, its charts as files, and both on a page that loads nothing from elsewhere.
TEST(Course, WritesFiguresChartsAndAPage) {
    const tests::TinyModel tiny;
    const std::filesystem::path out = tiny.folder / "new" / "course";
    const ProgramResult result = course({"--model", tiny.model.string(), "--out", out.string()});
    ASSERT_EQ(result.exit_code, 0) << result.err;

    const Json all = Json::parse(tests::read_whole(out / "course.json")).value();
    EXPECT_EQ(*all.find("model")->as_string(), "tiny");
    EXPECT_EQ(*all.find("weights")->as_string(), "bfloat16");
    EXPECT_FALSE(all.find("date")->as_string()->empty());
    EXPECT_EQ(column(all, "kv-cache", "tokens"), "16.0 32.0 64.0 128.0");
    EXPECT_EQ(column(all, "batch", "batch"), "1.0 2.0 4.0 8.0");
    std::string formats;
    for (const StorageFormat& format : storage_formats) {
        Settings settings;
        format.put_into(settings);
        formats += fmt::format("{}\"{}\"", formats.empty() ? "" : " ", storage_name(storage_options(settings)));
    }
    EXPECT_EQ(column(all, "memory", "weights"), formats);
    EXPECT_EQ(column(all, "multi-lora", "rows"), "1.0 2.0 4.0 8.0 1.0 2.0 4.0 8.0");
    EXPECT_EQ(column(all, "mixing", "adapter_share"), "0.0 0.25 0.5 0.75 1.0");
    EXPECT_EQ(column(all, "streaming", "load"), "0.25 0.5 0.75 1.0 1.5");
    // Eight jobs, four at a time; the fourth and the eighth write 30 tokens, the others 10. Either two batches of 30 steps run, or three
    // short jobs run one after another beside a long one, and the second long one starts after 20 steps.
    EXPECT_EQ(column(all, "queue", "steps"), "60.0 50.0 60.0 50.0");
    EXPECT_EQ(column(all, "quantize", "weights"), R"("float32" "bfloat16" "int8" "float32" "bfloat16" "int8")");

    const std::string page = tests::read_whole(out / "course.html");
    std::size_t pictures = 0;
    for (const auto& file : std::filesystem::directory_iterator(out)) {
        if (file.path().extension() != ".svg") continue;
        ++pictures;
        EXPECT_NE(page.find(tests::read_whole(file.path())), std::string::npos) << file.path();
    }
    EXPECT_EQ(pictures, 12U);
    for (const CourseRow& row : course_table()) {
        EXPECT_NE(page.find(row.title), std::string::npos) << row.title;
        EXPECT_NE(result.out.find(row.title), std::string::npos) << row.title;
    }
    for (const char* outside : {"href=", "src=", "url(", "@import"}) EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

// Pins: narrower weights are smaller and change probabilities, but not much; float32 is compared with itself.
TEST(Course, NarrowerClassifiersAreSmallerAndAgree) {
    const tests::TinyModel tiny;
    const ProgramResult result = course({"--model", tiny.model.string(), "--out", tiny.folder.path().string(), "--only", "quantize"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json all = Json::parse(tests::read_whole(tiny.folder / "course.json")).value();
    const Json& experiment = all.find("experiments")->as_array()->front();
    const auto& rows = *experiment.find("rows")->as_array();
    ASSERT_EQ(rows.size(), 6U);
    const auto number = [&](std::size_t row, const char* key) { return *rows[row].find(key)->as_number(); };
    for (const std::size_t first : {0U, 3U}) {
        EXPECT_EQ(number(first, "same_class"), 1.0);
        EXPECT_EQ(number(first, "largest_change"), 0.0);
        for (const std::size_t row : {first + 1, first + 2}) {
            EXPECT_LT(number(row, "weight_bytes"), number(row - 1, "weight_bytes"));
            EXPECT_GT(number(row, "largest_change"), 0.0);
            EXPECT_LT(number(row, "largest_change"), 0.1);
            EXPECT_GE(number(row, "same_class"), 0.75);
        }
    }
    EXPECT_NE(experiment.find("finding")->as_string()->find("% of 8 texts keep their class"), std::string::npos);
    EXPECT_NE(tests::read_whole(tiny.folder / "quantize-time.svg").find("classifiers of the base size with random weights, on "),
              std::string::npos);
}

TEST(Course, AgreementCountsClassesAndTheLargestChange) {
    const Probabilities exact = {{0.5, 0.25, 0.25}, {0.25, 0.75, 0.0}};
    const Agreement agreement = agreement_of(exact, {{0.375, 0.5, 0.125}, {0.0, 1.0, 0.0}});
    EXPECT_EQ(agreement.same_class, 0.5);
    EXPECT_EQ(agreement.largest_change, 0.25);
    EXPECT_EQ(agreement_of(exact, exact).same_class, 1.0);
    EXPECT_EQ(agreement_of(exact, exact).largest_change, 0.0);
}

TEST(Course, OnlyWhatIsAskedForRuns) {
    const tests::TinyModel tiny;
    const ProgramResult result = course({"--model", tiny.model.string(), "--out", tiny.folder.path().string(), "--only", "memory,queue"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json all = Json::parse(tests::read_whole(tiny.folder / "course.json")).value();
    ASSERT_EQ(all.find("experiments")->as_array()->size(), 2U);
    EXPECT_EQ(*all.find("experiments")->as_array()->front().find("name")->as_string(), "queue");
}

TEST(Course, WrongCallsAreRefusedWithTheReason) {
    const tests::TinyModel tiny;
    const std::string model = tiny.model.string();
    struct Case {
        std::vector<std::string> words;
        int exit_code;
        const char* reason;
    };
    for (const Case& wrong : {Case{{"--only", "tea"}, 2, "--only"}, Case{{"--random-weights", "tea"}, 2, "--random-weights"},
                              Case{{"--model", model, "--random-weights", "gpt2"}, 2, "not both"},
                              Case{{"--model", model, "--device", "cuda"}, 2, "--device cuda"},
                              Case{{"--model", model, "--kv-memory", "20KiB"}, 2, "--kv-memory"},
                              Case{{"--model", model, "--out", model + "/config.json"}, 1, "config.json"}}) {
        std::vector<std::string> words = wrong.words;
        if (std::ranges::find(words, "--out") == words.end()) words.insert(words.end(), {"--out", tiny.folder.path().string()});
        const ProgramResult result = course(words);
        EXPECT_EQ(result.exit_code, wrong.exit_code) << result.err;
        EXPECT_NE(result.err.find(wrong.reason), std::string::npos) << result.err;
    }
}

// Pins: the three ways compute the same numbers, so only their time differs.
TEST(Course, AllWaysToApplyAdaptersAddTheSameBits) {
    const tests::TinyModel tiny;
    LoraWays ways(engine::ModelConfig::load(tiny.model), {.threads = 2}, {.adapters = 3, .rank = 5, .rows = 7});
    const auto added = [&](LoraWay way) {
        ways.run(way, 7, 3);
        std::vector<float> all;
        for (const auto projection :
             {engine::Projection::qkv, engine::Projection::output, engine::Projection::gate_up, engine::Projection::down}) {
            const std::span<const float> part = ways.added(projection);
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    };
    const std::vector<float> segments = added(LoraWay::segments);
    EXPECT_EQ(std::ranges::count(segments, 0.0F), 0);
    EXPECT_EQ(added(LoraWay::loop), segments);
    EXPECT_EQ(added(LoraWay::gathered), segments);
    // With another number of adapters, rows use other adapters' weights.
    ways.run(LoraWay::segments, 7, 1);
    EXPECT_FALSE(
        std::ranges::equal(ways.added(engine::Projection::qkv), std::span(segments).first(ways.added(engine::Projection::qkv).size())));
}

}  // namespace
}  // namespace lorry::ops
