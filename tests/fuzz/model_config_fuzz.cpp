// config.json and generation_config.json of a model. An accepted config describes a model whose sizes can be multiplied.
#include <cmath>
#include <stdexcept>

#include "engine/model/model_config.h"
#include "engine/model/rope.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::engine {
namespace {

void check_rope(const ModelConfig& config) {
    constexpr std::int64_t head_dim_max = 1024;  // more only takes longer
    if (config.rope.kind == RopeConfig::Kind::none || config.head_dim > head_dim_max) return;
    const RopeFrequencies frequencies = rope_frequencies(config.rope, config.rotated(), config.max_positions);
    CHECK(std::ssize(frequencies.inverse) == config.rotated() / 2, "a frequency for each pair");
    CHECK(std::ranges::all_of(frequencies.inverse, [](float value) { return std::isfinite(value); }), "frequencies are finite");
    CHECK(std::isfinite(frequencies.attention_factor), "the attention factor is finite");
}

void check(const ModelConfig& config) {
    constexpr std::int64_t size_max = 1 << 28;
    CHECK(config.names != nullptr, "a config has a family");
    for (const std::int64_t size :
         {config.hidden, config.intermediate, config.layers, config.heads, config.kv_heads, config.head_dim, config.vocabulary}) {
        CHECK(size >= 1 && size <= size_max, "sizes are positive and below a limit");
    }
    CHECK(config.heads * config.head_dim <= size_max, "a projection's size is below a limit");
    CHECK(config.heads % config.kv_heads == 0, "heads share keys in groups");
    CHECK(config.max_positions >= 1 && config.max_positions <= size_max, "the context is below a limit");
    CHECK(std::ssize(config.windows) == config.layers, "a window for each layer");
    CHECK(std::isfinite(config.norm_epsilon), "the epsilon is finite");
    CHECK(std::ranges::all_of(config.eos_ids, [&](std::int32_t id) { return id >= 0 && id < config.vocabulary; }), "end tokens exist");
    check_rope(config);
}

}  // namespace
}  // namespace lorry::engine

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto [config, generation] = lorry::fuzz::parts_of<2>(lorry::fuzz::text_of(data, size));
    try {
        lorry::engine::check(lorry::engine::ModelConfig::parse(config, generation, "m/config.json"));
    } catch (const std::runtime_error& error) {
        lorry::fuzz::check_message(error.what());
    }
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
