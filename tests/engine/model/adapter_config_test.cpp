// The limits of adapter_config.json. What its keys mean is tested with the golden adapters.
#include "engine/model/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "schema/json.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled configs_without_tsan{"AdapterConfig.*", {tests::Label::not_tsan}};

using schema::Json;

std::string error_with(const char* key, Json value) {
    Json config = Json::object({{"peft_type", "LORA"}, {"target_modules", Json::array({"q_proj"})}});
    config.set(key, std::move(value));
    const auto parsed = AdapterConfig::parse(config.dump());
    return parsed ? "accepted" : parsed.error();
}

TEST(AdapterConfig, ListsHaveALimit) {
    Json names = Json::array({});
    Json numbers = Json::array({});
    Json patterns = Json::object({});
    for (int i = 0; i < 10'000; ++i) {
        names.push(fmt::format("m{}", i));
        numbers.push(i);
        patterns.set(fmt::format("m{}", i), 4);
    }
    for (const char* key : {"target_modules", "exclude_modules", "modules_to_save", "layers_pattern"}) {
        EXPECT_EQ(error_with(key, names), "accepted") << key;
    }
    EXPECT_EQ(error_with("rank_pattern", patterns), "accepted");
    names.push("one more");
    numbers.push(10'000);
    patterns.set("one more", 4);
    for (const char* key : {"target_modules", "exclude_modules", "modules_to_save", "layers_pattern"}) {
        EXPECT_EQ(error_with(key, names), fmt::format("{} has 10001 elements; at most 10000 are supported", key));
    }
    for (const char* key : {"rank_pattern", "alpha_pattern"}) {
        EXPECT_EQ(error_with(key, patterns), fmt::format("{} has 10001 elements; at most 10000 are supported", key));
    }
    EXPECT_EQ(error_with("layers_to_transform", numbers), "layers_to_transform has 10001 elements; at most 10000 are supported");
}

// Pins: each pattern had a limit, and a file of a megabyte could have gigabytes of them.
TEST(AdapterConfig, PatternsHaveALimitTogether) {
    Json patterns = Json::object({});
    for (int i = 0; i < 80; ++i) patterns.set(fmt::format("(a{{9}}{}){{300}}", i), 4);
    EXPECT_THAT(error_with("rank_pattern", patterns), testing::HasSubstr("the regular expressions are too large together"));
}

// Pins: such a scale is infinite, and every job of the adapter failed.
TEST(AdapterConfig, AnAlphaThatIsInfiniteInFloat32IsRefused) {
    EXPECT_THAT(error_with("lora_alpha", 1e39), testing::HasSubstr("it must be a number that fits into float32"));
    EXPECT_THAT(error_with("alpha_pattern", Json::object({{"q_proj", -1e39}})), testing::HasSubstr("fits into float32"));
    EXPECT_EQ(error_with("lora_alpha", 1e38), "accepted");
}

TEST(AdapterConfig, KeysThatAskForNothingOrOnlyMatterToTrainingAreIgnored) {
    for (const char* text : {"null", "false", "{}", "[]", "\"\""}) {
        EXPECT_EQ(error_with("key_of_tomorrow", Json::parse(text).value()), "accepted") << text;
        EXPECT_EQ(error_with("use_qalora", Json::parse(text).value()), "accepted") << text;
    }
    EXPECT_EQ(error_with("velora_config", Json::object({{"num_groups", 64}})), "accepted");
    EXPECT_EQ(error_with("monteclora_config", Json::object({{"num_samples", 8}})), "accepted");
    EXPECT_EQ(error_with("init_lora_weights", "mica"), "accepted");
}

TEST(AdapterConfig, OtherKeysWithAValueAreRefusedByName) {
    for (const char* text : {"true", "0", "[1]", "\"x\""}) {
        EXPECT_EQ(error_with("key_of_tomorrow", Json::parse(text).value()),
                  fmt::format("key_of_tomorrow = {} is not supported; the key is unknown, and ignoring it could change the results", text));
    }
    EXPECT_EQ(error_with("kasa_config", Json::object({{"beta", 1}})),
              "kasa_config = {\"beta\":1} is not supported; its base weights were changed; convert it to plain LoRA");
    EXPECT_THAT(error_with("init_lora_weights", "pissa"), testing::HasSubstr("init_lora_weights = \"pissa\" is not supported"));
}

}  // namespace
}  // namespace lorry::engine
