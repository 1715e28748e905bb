// Queued steps: each has its own tables and results until it is finished, and the next one reads its tokens before the host knows
// them.
#include <numeric>

#include "tests/kernels/devices.h"
#include "tests/support/labels.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

constexpr std::int64_t vocabulary = 40;
constexpr std::int64_t hidden = 24;

std::vector<Device> devices_with_steps_queued() {
    std::vector<Device> gpus = devices();
    std::erase_if(gpus, [](const Device& device) { return !device.is_gpu(); });
    return gpus;
}

class StepsQueued : public OnEachDevice {
protected:
    void SetUp() override {
        OnEachDevice::SetUp();
        if (backend_ == nullptr) return;
        ASSERT_EQ(backend_->steps_queued_max(), 2);
        const Part part(normal(vocabulary, hidden), Format::float32, false);
        const WeightPart view = part.view();
        tokens_ = backend_->pack_weight({&view, 1}, WeightRole::embedding);
        table_ = stored_weight(part.stored, *tokens_, weights());
    }

    // One row per token, each a sequence of its own that begins with it.
    struct Step {
        explicit Step(std::vector<TokenId> ids) : tokens(std::move(ids)), zeros(tokens.size(), 0), sampled(tokens.size()) {
            std::iota(sampled.begin(), sampled.end(), 0);
            for (std::int64_t row = 0; row < std::ssize(tokens); ++row) sequences.push_back({row, 1, 0, blocks});
        }
        StepInputs inputs() const {
            return {.rows = std::ssize(tokens),
                    .tokens = tokens,
                    .drawn = drawn,
                    .positions = zeros,
                    .rope_rows = zeros,
                    .sequences = sequences,
                    .sample_rows = sampled};
        }
        std::vector<TokenId> tokens;
        std::vector<DrawnRow> drawn;
        std::vector<std::int32_t> zeros;
        std::vector<std::int32_t> sampled;
        std::vector<BlockId> blocks{0};
        std::vector<StepSequence> sequences;
    };

    void embed(const Memory& out, const Step& step) { backend_->embed({.out = out.matrix(), .tokens = *tokens_, .step = step.inputs()}); }

    Table rows_of(const std::vector<TokenId>& ids) const {
        Table rows(std::ssize(ids), hidden);
        for (std::int64_t row = 0; row < rows.rows; ++row) {
            for (std::int64_t i = 0; i < hidden; ++i) rows.at(row, i) = table_.at(ids[static_cast<std::size_t>(row)], i);
        }
        return rows;
    }

    // Logits whose largest is at `ids`.
    Table logits_for(const std::vector<TokenId>& ids) {
        Table logits = normal(std::ssize(ids), vocabulary);
        for (std::int64_t row = 0; row < logits.rows; ++row) logits.at(row, ids[static_cast<std::size_t>(row)]) = 20.0;
        return logits;
    }

    static std::vector<TokenId> tokens_of(const std::vector<SampleResult>& results) {
        std::vector<TokenId> ids;
        for (const SampleResult& result : results) ids.push_back(result.token);
        return ids;
    }

    std::unique_ptr<PackedWeight> tokens_;
    Table table_{0, 0};
};

// Pins: the next step's tables overwrite those that the device has yet to read; results arrive with the wrong step.
TEST_P(StepsQueued, HaveTablesAndResultsOfTheirOwn) {
    std::vector<std::vector<TokenId>> asked;
    std::vector<std::vector<TokenId>> drawn;
    for (TokenId step = 0; step < 6; ++step) {
        auto& ids = asked.emplace_back();
        auto& draws = drawn.emplace_back();
        for (TokenId row = 0; row <= step % 4; ++row) ids.push_back((7 * step + row) % TokenId{vocabulary});
        for (TokenId row = 0; row <= step % 4; ++row) draws.push_back((11 * step + 3 * row) % TokenId{vocabulary});
    }
    std::vector<Memory> outs;
    std::vector<Memory> logits;
    std::vector<std::vector<SampleResult>> results;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        outs.emplace_back(*backend_, std::ssize(asked[i]), hidden);
        logits.emplace_back(*backend_, logits_for(drawn[i]));
        results.emplace_back(asked[i].size());
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
        {
            const Step step(asked[i]);
            backend_->begin_step(step.inputs());
            embed(outs[i], step);
            const std::vector<SampleRow> rows(asked[i].size(), {.temperature = 0.0F});
            backend_->sample({.logits = logits[i].matrix(), .rows = rows, .results = results[i]});
        }
        if (i == 0) continue;
        backend_->finish_step();
        EXPECT_EQ(tokens_of(results[i - 1]), drawn[i - 1]);
    }
    backend_->finish_step();
    EXPECT_EQ(tokens_of(results.back()), drawn.back());
    for (std::size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(outs[i].read().data, rows_of(asked[i]).data);
}

TEST_P(StepsQueued, ReadTheTokensThatTheStepBeforeDraws) {
    const std::vector<TokenId> drawn{31, 0, 39};
    const Memory logits(*backend_, logits_for(drawn));
    std::vector<SampleResult> results(3);
    const std::vector<SampleRow> rows(3, {.temperature = 0.0F});
    const Step first({1, 2, 3});
    backend_->begin_step(first.inputs());
    backend_->sample({.logits = logits.matrix(), .rows = rows, .results = results});

    Step second({0, 8, 0, 0});
    second.drawn = {{.row = 0, .sample_row = 2}, {.row = 2, .sample_row = 0}, {.row = 3, .sample_row = 1}};
    const Memory out(*backend_, 4, hidden);
    backend_->begin_step(second.inputs());
    embed(out, second);
    backend_->finish_step();
    backend_->finish_step();
    EXPECT_EQ(tokens_of(results), drawn);
    EXPECT_EQ(out.read().data, rows_of({39, 8, 31, 0}).data);
}

// Pins: a draw is the same whether the host knows the output's last token or not.
TEST_P(StepsQueued, PenalizeTheTokenThatTheHostDoesNotKnow) {
    const std::vector<TokenId> drawn{31, 5, 31, 7};
    const Memory first_logits(*backend_, logits_for(drawn));
    const std::vector<SampleRow> plain(4, {.temperature = 0.0F});
    const Table flat = normal(4, vocabulary, 0.1);
    const Memory logits(*backend_, flat);
    const std::vector<TokenId> prompt{1, 2, 31};
    const std::vector<TokenId> output{4, 5, 4};
    std::vector<SampleRow> rows(4, {.temperature = 0.7F, .prompt = prompt, .output = output});
    rows[0].frequency_penalty = 1.5F;
    rows[1].presence_penalty = 1.5F;
    rows[2].repetition_penalty = 1.5F;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].seed = i;
    std::vector<std::vector<TokenId>> whole;
    for (const TokenId token : drawn) {
        whole.push_back(output);
        whole.back().push_back(token);
    }
    std::size_t differences = 0;
    for (std::uint64_t position = 0; position < 30; ++position) {
        std::vector<SampleResult> results(4);
        std::vector<SampleResult> known(4);
        std::vector<SampleResult> ignored(4);
        const auto draw = [&](std::vector<SampleRow> those, std::vector<SampleResult>& to, bool of_drawn) {
            const Step first({1, 2, 3, 4});
            backend_->begin_step(first.inputs());
            backend_->sample({.logits = first_logits.matrix(), .rows = plain, .results = results});
            Step second({0, 0, 0, 0});
            for (std::int64_t row = 0; row < 4; ++row) second.drawn.push_back({row, row});
            backend_->begin_step(second.inputs());
            for (std::size_t i = 0; i < those.size(); ++i) {
                those[i].position = position;
                those[i].ends_with_drawn = of_drawn;
            }
            backend_->sample({.logits = logits.matrix(), .rows = those, .results = to});
            backend_->finish_step();
            backend_->finish_step();
        };
        std::vector<SampleRow> with_all = rows;
        for (std::size_t i = 0; i < rows.size(); ++i) with_all[i].output = whole[i];
        draw(with_all, known, false);
        draw(rows, ignored, false);
        std::vector<SampleResult> got(4);
        draw(rows, got, true);
        EXPECT_EQ(tokens_of(got), tokens_of(known));
        differences += tokens_of(known) != tokens_of(ignored) ? 1U : 0U;
    }
    EXPECT_GT(differences, 0U) << "the last token had no effect in any row";
}

const tests::Labelled steps_with_tsan{"*/cuda_bfloat16", {tests::Label::tsan_cuda}};
INSTANTIATE_TEST_SUITE_P(Op, StepsQueued, ::testing::ValuesIn(devices_with_steps_queued()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
