// adapter_config.json of a PEFT adapter. An accepted config gives each module that it targets a rank and a finite scale, in bounded time.
#include <cmath>

#include "engine/model/adapter_config.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto config = lorry::engine::AdapterConfig::parse(lorry::fuzz::text_of(data, size));
    if (!config) {
        lorry::fuzz::check_message(config.error());
        return 0;
    }
    lorry::engine::MatchSteps steps{.left = 100'000};
    for (const char* path :
         {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "transformer.h.3.attn.c_attn", "lm_head", ""}) {
        static_cast<void>(config->saves_module(path));
        if (!config->targets_module(path, steps)) continue;
        const std::int64_t rank = config->rank_of(path, steps);
        CHECK(rank > 0, "a rank is positive");
        CHECK(std::isfinite(config->scale_of(path, rank, steps)), "a scale is finite");
    }
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
