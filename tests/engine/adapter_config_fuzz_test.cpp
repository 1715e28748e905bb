// Parses damaged adapter_config.json texts: the result must be a usable config or an error.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "engine/adapter_config.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"

namespace lorry::engine {
namespace {

constexpr const char* fragments[] = {
    "null", "true",   "-1",          "1e999", "9223372036854775808", "{}", "[]",       "\"\"",         "\"all-linear\"", "[[[[[[[[", "\\",
    "\xff",  ".*(a|b)+", "\"(((((((\"", "\"[\"", "\"a{1,99999}\"",     ",",  "\"r\":",   "\"rank_pattern\":{\".*\":4},",     "0.5"};

TEST(AdapterConfigFuzz, EveryMutatedFileIsAConfigOrAReason) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<std::string> texts;
    for (const std::string& name : tests::golden_names("adapters")) {
        std::ifstream file(tests::golden_folder() / "adapters" / name / "adapter_config.json", std::ios::binary);
        texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    int accepted = 0;
    int refused = 0;
    for (int round = 0; round < 10'000; ++round) {
        std::string text = texts[random() % texts.size()];
        for (auto changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
            const std::size_t at = random() % text.size();
            switch (random() % 6) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text[at] = static_cast<char>('0' + random() % 10); break;
                case 2: text.erase(at, 1 + random() % 8); break;
                case 3: text.insert(at, text.substr(random() % text.size(), random() % 9)); break;
                case 4: text.insert(at, fragments[random() % std::size(fragments)]); break;
                default: {
                    // Replace a whole value, so that the text stays valid JSON and the checks after the parser run.
                    const std::size_t value = text.find(": ", at);
                    if (value == text.npos) break;
                    text.replace(value + 2, text.find_first_of(",\n", value) - value - 2, fragments[random() % std::size(fragments)]);
                }
            }
        }
        const auto config = AdapterConfig::parse(text);
        if (!config) {
            ++refused;
            ASSERT_FALSE(config.error().empty()) << text;
            ASSERT_TRUE(schema::is_valid_utf8(config.error())) << text;
            continue;
        }
        ++accepted;
        for (const char* path : {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head", ""}) {
            MatchSteps steps;
            if (!config->targets_module(path, steps)) continue;
            const std::int64_t rank = config->rank_of(path, steps);
            ASSERT_GT(rank, 0) << text;
            ASSERT_TRUE(std::isfinite(config->scale_of(path, rank, steps))) << text;
        }
    }
    EXPECT_GT(accepted, 500) << "otherwise only the JSON parser is tested";
    EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace lorry::engine
