// Adapters borrow unheld blocks of a GPU's KV cache and give them back, and results do not change. The GPU is emulated or real.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

constexpr const char* names[] = {"plain", "patterns", "regex", "rank12-rslora", "layers-list", "saved-head"};

// One of them shows the races there are.
const tests::Labelled one_lends_under_tsan{"Lending.*:-Lending.AdaptersTake*", {tests::Label::not_tsan}};

class Lending : public testing::Test {
protected:
    // A new engine with so many blocks and so many bytes for adapters.
    Engine& start(std::int64_t blocks, std::int64_t sequences_max, std::size_t adapter_bytes) {
        engine_.reset();
        EngineOptions options{.sequences_max = sequences_max, .step_rows_max = rows_max};
        options.kv_bytes = static_cast<std::size_t>(blocks) * backend_->kv_block_bytes(model_->kv_shape());
        options.adapter_bytes = adapter_bytes;
        engine_ = std::make_unique<Engine>(*model_, *backend_, tests::gpt2_tokenizer(), options);
        lent_most_ = 0;
        resident_most_ = 0;
        return *engine_;
    }
    std::size_t largest() const {
        std::size_t bytes = 0;
        for (const char* name : names) {
            const auto files = AdapterFiles::read(tests::golden_folder() / "adapters" / name, "", *model_);
            bytes = std::max(bytes, (*files)->slot_bytes(*backend_));
        }
        return bytes;
    }
    Request request(RequestId id, std::optional<std::size_t> adapter, std::int64_t prompt_tokens, std::int64_t max_tokens) const {
        Request one;
        one.id = id;
        for (std::int64_t i = 0; i < prompt_tokens; ++i)
            one.prompt.push_back(static_cast<kernels::TokenId>((static_cast<std::uint64_t>(i * i) + id) % 130));
        if (adapter) {
            const auto folder = tests::golden_folder() / "adapters" / names[*adapter];
            one.adapter = AdapterSource{.hash = inspect_adapter(folder, model_->config())->hash, .folder = folder};
        }
        one.max_tokens = max_tokens;
        return one;
    }
    std::map<RequestId, std::vector<kernels::TokenId>> run(const std::vector<Request>& requests) {
        for (const Request& one : requests) engine_->submit(one);
        std::map<RequestId, std::vector<kernels::TokenId>> tokens;
        StepOutput output;
        for (int idle = 0; engine_->has_work() && idle < 1000;) {
            const bool went_on = engine_->step(output);
            if (!went_on) engine_->wait_for_adapters(std::chrono::milliseconds(20));
            idle = went_on ? 0 : idle + 1;
            engine_->check_integrity();
            lent_most_ = std::max(lent_most_, engine_->stats().kv_blocks_lent);
            resident_most_ = std::max(resident_most_, engine_->stats().adapters.resident_bytes);
            for (const Result& result : output.results) {
                EXPECT_FALSE(result.error) << result.error->message;
                tokens[result.id] = result.tokens;
            }
        }
        EXPECT_FALSE(engine_->has_work()) << "requests are stuck";
        return tokens;
    }

    static constexpr std::int64_t rows_max = 256;
    const std::unique_ptr<kernels::Backend> backend_ = kernels::make_cuda_backend({.storage = {.weights = kernels::Format::float32}});
    const std::unique_ptr<Model> model_ = Model::load(tests::golden_folder() / "checkpoints" / "llama-gqa-linear", *backend_, rows_max, 64);
    std::unique_ptr<Engine> engine_;
    std::int64_t lent_most_ = 0;
    std::size_t resident_most_ = 0;
};

TEST_F(Lending, AdaptersTakeWhatTheKvCacheHasToSpareAndAnswersStayTheSame) {
    std::vector<Request> requests;
    for (RequestId id = 0; id < 24; ++id)
        requests.push_back(request(id, id % 7 == 6 ? std::nullopt : std::optional(id % 7), 5 + static_cast<std::int64_t>(id), 12));
    start(64, 8, std::size_t{16} << 20);
    const auto expected = run(requests);
    EXPECT_EQ(lent_most_, 0) << "adapters have enough memory of their own";

    start(64, 8, largest());
    EXPECT_EQ(run(requests), expected);
    EXPECT_GT(lent_most_, 0);
    EXPECT_LE(lent_most_, 32) << "at most half of the unheld blocks";
    EXPECT_GT(resident_most_, largest());
}

// Pins: a plan counts on lent blocks, and these can be taken back when it is carried out.
TEST_F(Lending, SequencesGetTheirBlocksBack) {
    std::vector<Request> few;
    for (RequestId id = 0; id < 8; ++id) few.push_back(request(id, id % 6, 6, 20));
    // Each of these needs three blocks; together they need more than the pool has.
    std::vector<Request> many;
    for (RequestId id = 100; id < 106; ++id) many.push_back(request(id, std::nullopt, 110, 24));
    start(16, 12, std::size_t{16} << 20);
    const auto expected_few = run(few);
    const auto expected_many = run(many);

    start(16, 12, largest());
    EXPECT_EQ(run(few), expected_few);
    EXPECT_GT(lent_most_, 0);
    const std::int64_t lent = engine_->stats().kv_blocks_lent;
    EXPECT_EQ(run(many), expected_many);
    EXPECT_LT(engine_->stats().kv_blocks_lent, lent);
    std::vector<Request> both = few;
    both.insert(both.end(), many.begin(), many.end());
    auto expected = expected_few;
    expected.insert(expected_many.begin(), expected_many.end());
    EXPECT_EQ(run(both), expected);
}

// Pins: an unused adapter is evicted before a running sequence is preempted.
TEST_F(Lending, ASequenceThatGrowsIsNotPreemptedForAnAdapterThatWaits) {
    start(8, 4, largest());
    std::vector<Request> few;
    for (RequestId id = 0; id < 6; ++id) few.push_back(request(id, id, 6, 30));
    run(few);
    EXPECT_GT(engine_->stats().kv_blocks_lent, 0);
    // Two grow from one block to four, which are all blocks; the others need three for their prompts.
    std::vector<Request> growing;
    for (RequestId id = 10; id < 12; ++id) growing.push_back(request(id, std::nullopt, 50, 180));
    for (RequestId id = 20; id < 26; ++id) growing.push_back(request(id, id - 20, 180, 4));
    run(growing);
    EXPECT_EQ(engine_->stats().preemptions, 0U);
}

// Pins: a request that needs the whole cache while its own adapter's slot is over some of the blocks.
TEST_F(Lending, ARequestThatNeedsAllBlocksGetsThemThoughItsAdapterLiesThere) {
    constexpr std::int64_t blocks = 4;
    std::vector<Request> requests{request(1, 0, 4, 40)};
    for (RequestId id = 2; id < 8; ++id) requests.push_back(request(id, (id - 1) % 6, 4, 16));
    std::vector<Request> whole;
    for (RequestId id = 10; id < 13; ++id) whole.push_back(request(id, id % 6, blocks * backend_->block_size() - 8, 8));
    start(blocks, 3, std::size_t{16} << 20);
    const auto expected = run(requests);
    const auto expected_whole = run(whole);

    start(blocks, 3, largest());
    EXPECT_EQ(run(requests), expected);
    EXPECT_GT(lent_most_, 0);
    EXPECT_EQ(run(whole), expected_whole);

    // Requests of all other adapters run at the same time, so that the batch never runs empty.
    std::vector<Request> all = whole;
    all.insert(all.end(), requests.begin(), requests.end());
    auto expected_all = expected;
    expected_all.insert(expected_whole.begin(), expected_whole.end());
    EXPECT_EQ(run(all), expected_all);
}

}  // namespace
}  // namespace lorry::engine
