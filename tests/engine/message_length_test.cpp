// Messages about files of models and adapters are short, wherever in the file a long text is.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "engine/files.h"
#include "engine/model/adapter.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/text/tokenizer.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled messages_without_tsan{"*", {tests::Label::not_tsan}};

using schema::Json;

constexpr std::size_t message_bytes_max = 2'000;
constexpr std::size_t long_bytes = 20'000;

// Calls `take` with each JSON text that differs from this one in one value or key, which is long.
void for_each_long(const Json& json, const std::function<void(const Json&)>& take) {
    take(std::string(long_bytes, 'x'));
    take(Json::Array(long_bytes / 2, Json(1)));
    if (const Json::Array* elements = json.as_array()) {
        for (std::size_t i = 0; i < elements->size(); ++i) {
            for_each_long((*elements)[i], [&](const Json& element) {
                Json::Array changed = *elements;
                changed[i] = element;
                take(changed);
            });
        }
    }
    if (const Json::Object* members = json.as_object()) {
        for (std::size_t i = 0; i < members->size(); ++i) {
            const auto& [key, value] = (*members)[i];
            const auto with = [&](std::string name, const Json& member) {
                Json::Object changed = *members;
                changed[i] = {std::move(name), member};
                take(changed);
            };
            with(key + std::string(long_bytes, 'x'), value);
            for_each_long(value, [&](const Json& member) { with(key, member); });
        }
    }
}

// Calls `read` with each of these texts and looks at the message of its exception.
void expect_short_messages(const std::string& text, const std::function<void(const std::string&)>& read) {
    int refused = 0;
    for_each_long(Json::parse(text).value(), [&](const Json& changed) {
        const std::string changed_text = changed.dump();
        try {
            read(changed_text);
        } catch (const std::runtime_error& error) {
            const std::string message = error.what();
            EXPECT_LE(message.size(), message_bytes_max) << message.substr(0, 500);
            ++refused;
        }
    });
    EXPECT_GT(refused, 0);
}

void throw_error(const std::string& error) { throw std::runtime_error(error); }

std::string golden_text(const std::string& file) { return read_text(tests::golden_folder() / file).value(); }

// Pins: a shape of 300 KB was quoted whole.
TEST(MessageLength, OfASafetensorsHeader) {
    expect_short_messages(R"({"a":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]},"__metadata__":{"format":"pt"}})",
                          [](const std::string& header) {
                              const auto tensors = parse_safetensors_header(header, 2);
                              if (!tensors) throw_error(tensors.error());
                          });
    EXPECT_LE(shape_text(std::vector<std::int64_t>(long_bytes, 1)).size(), 300U);
}

TEST(MessageLength, OfACheckpointsIndex) {
    const tests::TempFolder folder;
    tests::write_text(folder / "one", "");
    expect_short_messages(R"({"weight_map":{"a":"one"}})", [&](const std::string& index) {
        tests::write_text(folder / "model.safetensors.index.json", index);
        const Checkpoint checkpoint(folder.path());
    });
}

// Pins: target_modules and modules_to_save were quoted whole.
TEST(MessageLength, OfAnAdaptersFiles) {
    const tests::TempFolder folder;
    std::filesystem::copy(tests::golden_folder() / "adapters" / "plain", folder.path(), std::filesystem::copy_options::recursive);
    const ModelConfig model = ModelConfig::load(tests::golden_folder() / "checkpoints" / tests::read_golden(folder.path()).base);
    Json config = Json::parse(golden_text("adapters/plain/adapter_config.json")).value();
    Json one_target = config;
    one_target.set("target_modules", Json::array({"q_proj"}));
    config.set("modules_to_save", Json::array({"norm"}));
    for (const std::string& text : {config.dump(), one_target.dump()}) {
        expect_short_messages(text, [&](const std::string& changed) {
            tests::write_text(folder / "adapter_config.json", changed);
            const auto info = inspect_adapter(folder.path(), model);
            if (!info) throw_error(info.error());
        });
    }
}

// Pins: a long key of rope_scaling was quoted whole.
TEST(MessageLength, OfAModelsConfig) {
    const std::string config = golden_text("checkpoints/llama-gqa-linear/config.json");
    expect_short_messages(config, [](const std::string& changed) { ModelConfig::parse(changed, "", "config.json"); });
}

// Pins: the tokenizers' library quotes a text of the wrong type whole.
TEST(MessageLength, OfATokenizersFiles) {
    const tests::TempFolder folder;
    const std::string tokenizer =
        R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
        R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";
    const std::string config = R"({"eos_token":"a","added_tokens_decoder":{"3":{"content":"<x>","special":true}},"chat_template":"x"})";
    const auto load = [&] { static_cast<void>(Tokenizer::load(folder.path())); };
    tests::write_text(folder / "tokenizer_config.json", config);
    expect_short_messages(tokenizer, [&](const std::string& changed) {
        tests::write_text(folder / "tokenizer.json", changed);
        load();
    });
    tests::write_text(folder / "tokenizer.json", tokenizer);
    expect_short_messages(config, [&](const std::string& changed) {
        tests::write_text(folder / "tokenizer_config.json", changed);
        load();
    });
}

}  // namespace
}  // namespace lorry::engine
