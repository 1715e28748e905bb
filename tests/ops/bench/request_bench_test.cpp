// The lines that ops/bench-peers and `lorry bench requests` exchange.
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "ops/bench/request_bench.h"
#include "schema/json.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_encoder.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

// The answers of `lorry bench requests` to these lines.
std::vector<schema::Json> answers_of(const std::filesystem::path& model, const std::filesystem::path& adapters, const std::string& lines) {
    Settings settings;
    settings.model = model;
    settings.threads = 2;
    EngineSetup setup(settings);
    const AdapterFolders folders(adapters, "base", setup.model().config(), setup.texts());
    std::istringstream in(lines);
    std::ostringstream out;
    answer_request_lines(setup, folders, 0.5, in, out);
    std::istringstream answers(out.str());
    std::vector<schema::Json> parsed;
    for (std::string line; std::getline(answers, line);) parsed.push_back(schema::Json::parse(line).value());
    return parsed;
}

std::vector<schema::Json> answers_to(const std::string& lines) {
    const tests::TinyModel tiny;
    return answers_of(tiny.model, tiny.adapters, lines);
}

std::vector<schema::Json> answers_of_encoder(const std::string& kind, const std::string& lines) {
    const tests::TinyEncoder encoder(kind);
    const tests::TempFolder no_adapters;
    return answers_of(encoder.model, no_adapters.path(), lines);
}

// Pins: answers have as many tokens as asked for and the order of the requests, whatever runs beside them and with whichever adapter.
TEST(RequestBench, LinesOfRequestsAreAnsweredWithTheTokensTheyDrew) {
    const std::string plain = R"({"prompt": [1, 5], "output_tokens": 2, "adapter": "plain"})";
    const std::string base = R"({"prompt": [3, 1, 4], "output_tokens": 5, "adapter": null})";
    const auto answers = answers_to(R"({"batch": 1, "requests": [)" + base + ", " + plain + ", " + base + "]}\n" +
                                    R"({"batch": 8, "requests": [)" + plain + ", " + base + "]}\n");
    ASSERT_EQ(answers.size(), 3U);
    EXPECT_EQ(answers[0].find("load_seconds")->as_number(), 0.5);
    EXPECT_NE(answers[0].find("settings")->as_string()->find("weights in bfloat16"), std::string::npos);
    const auto& alone = *answers[1].find("outputs")->as_array();
    ASSERT_EQ(alone.size(), 3U);
    EXPECT_EQ(alone[0].as_array()->size(), 5U);
    EXPECT_EQ(alone[1].as_array()->size(), 2U);
    EXPECT_EQ(alone[2].dump(), alone[0].dump());
    const auto& together = *answers[2].find("outputs")->as_array();
    EXPECT_EQ(together[0].dump(), alone[1].dump());
    EXPECT_EQ(together[1].dump(), alone[0].dump());
}

TEST(RequestBench, ALineOfRequestsThatCannotBeRunIsRefused) {
    for (const char* wrong : {"no JSON", R"({"requests": [{"prompt": [1], "output_tokens": 1}]})", R"({"batch": 1, "requests": []})",
                              R"({"batch": 1, "requests": [{"prompt": [131], "output_tokens": 1}]})",
                              R"({"batch": 1, "requests": [{"prompt": [1], "output_tokens": 0}]})",
                              R"({"batch": 1, "requests": [{"prompt": [1], "output_tokens": 1, "schema": {}}]})",
                              R"({"batch": 1, "requests": [{"prompt": [1], "output_tokens": 1, "schema": "{\"type\": 1}"}]})",
                              R"({"batch": 1, "requests": [{"prompt": [1], "output_tokens": 1, "adapter": "nobody"}]})"}) {
        EXPECT_THROW(answers_to(wrong), std::runtime_error) << wrong;
    }
}

// Pins: a schema ends the answer, whatever runs beside it, and leaves other requests as they are.
TEST(RequestBench, AnAnswerMatchesTheSchemaOfItsRequest) {
    const std::filesystem::path model = std::filesystem::path(LORRY_SOURCE_DIR) / "ops/example/model";
    const tests::TempFolder no_adapters;
    const std::string free = R"({"prompt": [300, 5], "output_tokens": 12, "adapter": null})";
    const std::string structured = R"({"prompt": [300, 5], "output_tokens": 12, "adapter": null, "schema": "{\"enum\": [17, true]}"})";
    const auto answers = answers_of(model, no_adapters.path(),
                                    R"({"batch": 1, "requests": [)" + free + "]}\n" + R"({"batch": 2, "requests": [)" + structured + ", " +
                                        free + ", " + structured + "]}\n");
    const auto& outputs = *answers[2].find("outputs")->as_array();
    EXPECT_EQ(outputs[1].dump(), answers[1].find("outputs")->as_array()->front().dump());
    EXPECT_EQ(outputs[2].dump(), outputs[0].dump());
    std::vector<engine::TokenId> tokens;
    for (const schema::Json& token : *outputs[0].as_array()) tokens.push_back(static_cast<engine::TokenId>(*token.as_integer()));
    const std::string text = engine::Tokenizer::load(model).decode(tokens, true);
    EXPECT_TRUE(text == "17" || text == "true") << text;
}

// Pins: the line's task says what an output is, and a text gives the same alone and beside others.
TEST(RequestBench, TextsAreEncodedAsTheTaskSays) {
    const std::string one = R"({"prompt": [2, 9, 8, 3], "adapter": null})";
    const std::string other = R"({"prompt": [2, 7, 3], "adapter": null})";
    for (const auto& [kind, task, width] :
         {std::tuple{"bert", "embed", 36U}, std::tuple{"bert-seq", "classify", 3U}, std::tuple{"bert-tokens", "token_classify", 4U}}) {
        const std::string begin = fmt::format(R"({{"task": "{}", "batch": 4, "requests": [)", task);
        const auto answers = answers_of_encoder(kind, begin + one + "]}\n" + begin + other + ", " + one + "]}\n");
        const auto& alone = *answers[1].find("outputs")->as_array();
        const auto& together = *answers[2].find("outputs")->as_array();
        EXPECT_EQ(alone[0].as_array()->size(), width) << kind;
        EXPECT_EQ(together[1].dump(), alone[0].dump()) << kind;
        EXPECT_NE(together[0].dump(), alone[0].dump()) << kind;
    }
}

TEST(RequestBench, ATaskThatTheModelDoesNotDoIsRefused) {
    const std::string requests = R"("batch": 1, "requests": [{"prompt": [2, 3]}]})";
    EXPECT_THROW(answers_of_encoder("bert", R"({"task": "classify", )" + requests), std::runtime_error);
    EXPECT_THROW(answers_of_encoder("bert", R"({"task": "fly", )" + requests), std::runtime_error);
    EXPECT_THROW(answers_of_encoder("bert", "{" + requests), std::runtime_error);
}

}  // namespace
}  // namespace lorry::ops
