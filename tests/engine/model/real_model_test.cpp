// A public embedding model, which ops/setup --tests installs, embeds as sentence-transformers does.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/engine.h"
#include "engine/files.h"
#include "engine/model/weights.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"

namespace lorry::engine {
namespace {

double cosine(std::span<const float> a, std::span<const float> b) {
    const auto dot = [](std::span<const float> x, std::span<const float> y) {
        return std::inner_product(x.begin(), x.end(), y.begin(), 0.0, std::plus(),
                                  [](float one, float other) { return static_cast<double>(one) * static_cast<double>(other); });
    };
    return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

TEST(RealModel, EmbedsAsSentenceTransformersDoes) {
    const std::filesystem::path folder = std::filesystem::path(LORRY_SOURCE_DIR) / ".deps/minilm/model";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing: run ops/setup --tests";
    const auto goldens = tests::golden_folder() / "sentence";
    const auto sentences = schema::Json::parse(*read_text(goldens / "sentences.json"));
    const std::string file = *read_text(goldens / "sentences.safetensors");
    const auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
    ASSERT_TRUE(sentences && tensors);
    const std::vector<float> expected = to_float(tensors->front());

    const auto backend = tests::float32_backend();
    const EngineOptions options{.sequences_max = 16, .step_rows_max = 256};
    const auto model = Model::load(folder, *backend, options.step_rows_max, options.sample_rows_max());
    const Tokenizer tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(model->config().embedder);
    EXPECT_TRUE(model->config().embedder->normalized);
    Engine engine(*model, *backend, tokenizer, options);
    const auto limit = static_cast<std::size_t>(engine.context_max());
    EXPECT_EQ(limit, 256U) << "max_seq_length";
    RequestId id = 0;
    for (const schema::Json& sentence : *sentences->as_array()) {
        auto encoding = tokenizer.encode_pair(*sentence.as_string(), std::nullopt, EncodeLimit{.max_tokens = limit});
        ASSERT_TRUE(encoding) << encoding.error();
        Request request;
        request.id = id++;
        request.prompt = std::move(encoding->ids);
        request.pooling = PoolingTask::embed;
        engine.submit(std::move(request));
    }
    StepOutput output;
    std::size_t seen = 0;
    while (engine.step(output)) {
        for (const Result& result : output.results) {
            ASSERT_FALSE(result.error) << result.error->message;
            const std::size_t size = result.pooled.size();
            EXPECT_GE(cosine(result.pooled, std::span(expected).subspan(result.id * size, size)), 0.99999) << "sentence " << result.id;
            ++seen;
        }
    }
    EXPECT_EQ(seen, id);
}

}  // namespace
}  // namespace lorry::engine
