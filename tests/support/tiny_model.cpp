// Copies and writes the files of a tiny model; see tiny_model.h.
#include "tests/support/tiny_model.h"

#include <fmt/format.h>

namespace lorry::tests {
namespace {

constexpr int vocabulary = 131;

std::filesystem::path data(const std::string& path) { return std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/models" / path; }

std::string tokenizer_json() {
    std::string words;
    for (int i = 0; i < vocabulary; ++i) words += fmt::format("{}\"w{}\":{}", i == 0 ? "" : ",", i, i);
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
           R"("pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,)"
           R"("model":{"type":"WordLevel","vocab":{)" +
           words + R"(},"unk_token":"w0"}})";
}

void copy_adapter(const std::string& from, const std::filesystem::path& to) {
    std::filesystem::create_directories(to);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
        std::filesystem::copy_file(data("adapters/" + from) / file, to / file);
    }
}

}  // namespace

TinyModel::TinyModel() : model(folder / "tiny"), adapters(folder / "adapters") {
    std::filesystem::create_directories(model);
    for (const char* file : {"config.json", "generation_config.json", "model.safetensors"}) {
        std::filesystem::copy_file(data("checkpoints/llama-gqa-linear") / file, model / file);
    }
    write_text(model / "tokenizer.json", tokenizer_json());
    write_text(model / "tokenizer_config.json", "{}");
    write_text(model / "chat_template.jinja",
               "{% for message in messages %}{{ message['role'][0] | replace('u','w1') | replace('s','w2') }} {{ message['content'] }} {% "
               "endfor %}w3");
    copy_adapter("plain", adapters / "plain");
    copy_adapter("rank12-rslora", adapters / "rank12");
    copy_adapter("plain", adapters / "broken");
    std::filesystem::resize_file(adapters / "broken" / "adapter_model.safetensors", 100);
}

}  // namespace lorry::tests
