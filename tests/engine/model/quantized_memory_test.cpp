// Loading a quantized checkpoint streams it: neither its numbers nor a second copy of its codes are in memory at once.
#include <gtest/gtest.h>

#include <fstream>

#include <fmt/format.h>

#include "engine/model/model.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/peak_memory.h"
#include "tests/support/temp_folder.h"

namespace lorry {
namespace {

using schema::Json;

const tests::Labelled measures_memory{"QuantizedMemory.*", {tests::Label::not_asan, tests::Label::not_tsan}};

constexpr std::int64_t hidden = 1024;
constexpr std::int64_t intermediate = 2816;
constexpr std::int64_t kv = 256;
constexpr std::int64_t layers = 12;
constexpr std::int64_t vocabulary = 64;
constexpr std::int64_t group = 32;

// Tensors that repeat a few bytes.
class RepeatedTensors {
public:
    void add(const std::string& name, const char* dtype, std::vector<std::int64_t> shape, std::string_view pattern) {
        std::int64_t bytes = dtype == std::string_view("I32") ? 4 : 2;
        Json sizes = Json::Array();
        for (const std::int64_t size : shape) {
            bytes *= size;
            sizes.push(size);
        }
        header_.set(name,
                    Json::object({{"dtype", dtype}, {"shape", std::move(sizes)}, {"data_offsets", Json::array({end_, end_ + bytes})}}));
        end_ += bytes;
        parts_.push_back({bytes, pattern});
    }
    void add_gptq(const std::string& path, std::int64_t outputs, std::int64_t inputs) {
        add(path + ".qweight", "I32", {inputs / 8, outputs}, "\x71\x28\x9e\x53\xba\x04\xcd\x66");
        add(path + ".qzeros", "I32", {inputs / group, outputs / 8}, "\x77");
        add(path + ".scales", "F16", {inputs / group, outputs}, std::string_view("\x00\x20", 2));
    }
    void write(const std::filesystem::path& file) const {
        const std::string text = header_.dump();
        const std::uint64_t length = text.size();
        std::ofstream out(file, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&length), sizeof length);
        out << text;
        for (const auto& [bytes, pattern] : parts_) {
            std::string repeated;
            repeated.reserve(static_cast<std::size_t>(bytes));
            while (std::ssize(repeated) < bytes) repeated += pattern;
            out.write(repeated.data(), bytes);
        }
        ASSERT_TRUE(out.flush().good());
    }

private:
    struct Part {
        std::int64_t bytes;
        std::string_view pattern;
    };
    Json header_ = Json::object({});
    std::int64_t end_ = 0;
    std::vector<Part> parts_;
};

void write_checkpoint(const std::filesystem::path& folder) {
    Json config = *Json::parse(tests::read_whole(tests::golden_folder() / "quantized" / "gptq" / "config.json"));
    Json quantization = *config.find("quantization_config");
    quantization.set("group_size", group);
    config.set("quantization_config", std::move(quantization));
    const auto set = [&](const char* key, std::int64_t value) { config.set(key, value); };
    set("hidden_size", hidden);
    set("intermediate_size", intermediate);
    set("num_hidden_layers", layers);
    set("num_attention_heads", 8);
    set("num_key_value_heads", 2);
    set("head_dim", 128);
    set("vocab_size", vocabulary);
    tests::write_text(folder / "config.json", config.dump());

    RepeatedTensors tensors;
    const auto plain = [&](const std::string& name, std::vector<std::int64_t> shape) {
        tensors.add(name, "F16", std::move(shape), std::string_view("\x00\x38", 2));
    };
    plain("model.embed_tokens.weight", {vocabulary, hidden});
    plain("lm_head.weight", {vocabulary, hidden});
    plain("model.norm.weight", {hidden});
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const std::string path = fmt::format("model.layers.{}.", layer);
        plain(path + "input_layernorm.weight", {hidden});
        plain(path + "post_attention_layernorm.weight", {hidden});
        for (const char* name : {"q_proj", "o_proj"}) tensors.add_gptq(path + "self_attn." + name, hidden, hidden);
        for (const char* name : {"k_proj", "v_proj"}) tensors.add_gptq(path + "self_attn." + name, kv, hidden);
        for (const char* name : {"gate_proj", "up_proj"}) tensors.add_gptq(path + "mlp." + name, intermediate, hidden);
        tensors.add_gptq(path + "mlp.down_proj", hidden, intermediate);
    }
    tensors.write(folder / "model.safetensors");
}

// Pins: a file's pages stayed in memory beside the packed weights; and scales of groups took twice the bytes that they have in the file.
TEST(QuantizedMemory, OfALoadIsLittleMoreThanTheFile) {
    const tests::TempFolder folder;
    write_checkpoint(folder.path());
    const auto file = static_cast<std::int64_t>(std::filesystem::file_size(folder / "model.safetensors"));
    ASSERT_GT(file, 70 << 20);
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    tests::begin_peak_memory();
    const std::int64_t before = tests::peak_memory();
    const auto model = engine::Model::load(folder.path(), *backend, 1, 1);
    const std::int64_t most = (tests::peak_memory() - before) << 10;
    RecordProperty("file_bytes", std::to_string(file));
    RecordProperty("weight_bytes", std::to_string(model->weight_bytes()));
    RecordProperty("peak_bytes", std::to_string(most));
    EXPECT_LT(static_cast<std::int64_t>(model->weight_bytes()), file * 105 / 100);
    // The codes of gate and up in bytes, their scales, their pages of the file, and the end of a map of weights.
    constexpr std::int64_t one_projection = 24 << 20;
    EXPECT_LT(most, file * 105 / 100 + one_projection);
}

}  // namespace
}  // namespace lorry
