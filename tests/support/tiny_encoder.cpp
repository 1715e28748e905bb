// Writes the tokenizer beside the weights; see tiny_encoder.h.
#include "tests/support/tiny_encoder.h"

#include <fmt/format.h>

#include "engine/files.h"
#include "schema/check.h"
#include "tests/support/temp_folder.h"

namespace lorry::tests {
namespace {

constexpr int vocabulary = 67;

std::string tokenizer_json() {
    std::string words = R"("[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"[MASK]":4)";
    for (int i = 5; i < vocabulary; ++i) words += fmt::format(",\"w{}\":{}", i, i);
    const auto special = [](const char* id, int type) { return fmt::format(R"({{"SpecialToken":{{"id":"{}","type_id":{}}}}})", id, type); };
    const auto text = [](const char* id, int type) { return fmt::format(R"({{"Sequence":{{"id":"{}","type_id":{}}}}})", id, type); };
    const std::string single = fmt::format("{},{},{}", special("[CLS]", 0), text("A", 0), special("[SEP]", 0));
    const std::string pair = fmt::format("{},{},{}", single, text("B", 1), special("[SEP]", 1));
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
           R"("pre_tokenizer":{"type":"WhitespaceSplit"},"decoder":null,)"
           R"("post_processor":{"type":"TemplateProcessing","single":[)" +
           single + R"(],"pair":[)" + pair +
           R"(],"special_tokens":{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]},)"
           R"("[SEP]":{"id":"[SEP]","ids":[3],"tokens":["[SEP]"]}}},)"
           R"("model":{"type":"WordLevel","vocab":{)" +
           words + R"(},"unk_token":"[UNK]"}})";
}

}  // namespace

TinyEncoder::TinyEncoder(const std::string& kind)
    : folder(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/models/encoders" / kind, "model.safetensors"), model(folder.path()) {
    write_text(model / "tokenizer.json", tokenizer_json());
    write_text(model / "tokenizer_config.json", "{}");
}

void TinyEncoder::replace_in_config(const std::string& text, const std::string& by) const {
    std::string config = engine::read_text(model / "config.json").value();
    std::size_t at = 0;
    for (; (at = config.find(text, at)) != std::string::npos; at += by.size()) config.replace(at, text.size(), by);
    write_text(model / "config.json", config);
}

}  // namespace lorry::tests
