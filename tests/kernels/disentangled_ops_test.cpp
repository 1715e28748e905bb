// The ops and arguments that only encoders use, on the devices that have them: the bias of disentangled attention, attention with a bias by
// token, unfold, and an activation that is added to what is there.
#include <algorithm>
#include <cmath>

#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

// One step of whole sequences.
struct Whole {
    std::vector<std::vector<BlockId>> blocks;
    std::vector<StepSequence> sequences;
    std::vector<std::int32_t> zeros;
    StepInputs inputs;
    std::int64_t longest = 0;

    Whole(const std::vector<std::int64_t>& lengths, std::int64_t block_size) {
        BlockId block = 0;
        std::int64_t row = 0;
        for (const std::int64_t length : lengths) {
            auto& own = blocks.emplace_back();
            for (std::int64_t token = 0; token < length; token += block_size) own.push_back(block++);
            sequences.push_back({.row_begin = row, .row_count = length, .position = 0, .blocks = {}});
            row += length;
            longest = std::max(longest, length);
        }
        for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].blocks = blocks[i];
        zeros.assign(static_cast<std::size_t>(row), 0);
        inputs = {.rows = row, .tokens = zeros, .positions = zeros, .rope_rows = zeros, .sequences = sequences, .sample_rows = {}};
    }
    std::int64_t block_count() const { return blocks.back().back() + 1; }
};

// Distances of at most 6 have a position of their own; farther ones share the outermost.
std::vector<std::int32_t> positions_of(std::int64_t context) {
    std::vector<std::int32_t> out;
    for (std::int64_t distance = 1 - context; distance < context; ++distance)
        out.push_back(static_cast<std::int32_t>(7 + std::clamp<std::int64_t>(distance, -7, 7)));
    return out;
}

class DisentangledOps : public OnEachDevice {
protected:
    static constexpr std::int64_t context = 80;

    struct Shape {
        std::int64_t heads, head_dim;
        bool has_keys, has_queries;
    };
    // Runs the op for a step of these rows of q | k | v.
    Table bias_of(const Shape& shape, const Whole& whole, const Table& qkv, const Memory& keys, const Memory& queries) const {
        const Memory in(*backend_, qkv);
        const Memory out(*backend_, qkv.rows, shape.heads * context);
        backend_->begin_step(whole.inputs);
        backend_->disentangled_bias({.out = out.matrix(),
                                     .qkv = in.matrix(),
                                     .heads = shape.heads,
                                     .head_dim = shape.head_dim,
                                     .scale = 0.3F,
                                     .position_of_distance = distances_,
                                     .keys = shape.has_keys ? keys.matrix() : Matrix{},
                                     .queries = shape.has_queries ? queries.matrix() : Matrix{},
                                     .sequences = whole.sequences,
                                     .step = whole.inputs});
        backend_->finish_step();
        EXPECT_TRUE(out.padding_is_untouched());
        return out.read();
    }

    const std::vector<std::int32_t> distances_ = positions_of(context);
};

TEST_P(DisentangledOps, DisentangledBiasAgreesWithTheReference) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const Shape& shape : {Shape{3, 10, true, true}, Shape{2, 64, true, false}, Shape{1, 33, false, true}, Shape{4, 16, true, true}}) {
        SCOPED_TRACE(::testing::Message() << shape.heads << " heads of " << shape.head_dim);
        const std::int64_t width = shape.heads * shape.head_dim;
        const Whole whole({1, 2, 17, 70, 16}, backend_->block_size());
        const double deviation = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
        const Table qkv = normal(whole.inputs.rows, 3 * width);
        const Table keys = normal(15, width, deviation);
        const Table queries = normal(15, width, deviation);
        const Table got = bias_of(shape, whole, qkv, Memory(*backend_, keys), Memory(*backend_, queries));
        for (const StepSequence& sequence : whole.sequences) {
            const auto part = [&](const Table& from, std::int64_t column, std::int64_t columns) {
                Table rows(sequence.row_count, columns);
                for (std::int64_t row = 0; row < rows.rows; ++row)
                    for (std::int64_t i = 0; i < columns; ++i) rows.at(row, i) = from.at(sequence.row_begin + row, column + i);
                return rows;
            };
            for (std::int64_t head = 0; head < shape.heads; ++head) {
                const Table want = reference::disentangled_bias({.q = part(qkv, head * shape.head_dim, shape.head_dim),
                                                                 .k = part(qkv, width + head * shape.head_dim, shape.head_dim),
                                                                 .keys = shape.has_keys ? &keys : nullptr,
                                                                 .queries = shape.has_queries ? &queries : nullptr,
                                                                 .column = head * shape.head_dim,
                                                                 .scale = 0.3F,
                                                                 .position_of_distance = distances_});
                expect_close(part(got, head * context, sequence.row_count), want, tolerance("disentangled_bias", weights()));
            }
        }
    }
}

// Pins: products that depend on the rows beside them, or on how many distances a sequence has.
TEST_P(DisentangledOps, DisentangledBiasIsTheSameBitForBitAloneAndPacked) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Shape shape{3, 20, true, true};
    const Table qkv = normal(57, 3 * 60);
    const Memory keys(*backend_, normal(15, 60));
    const Memory queries(*backend_, normal(15, 60));
    const Table packed = bias_of(shape, Whole({5, 40, 12}, backend_->block_size()), qkv, keys, queries);
    Table own(40, qkv.columns);
    std::copy_n(qkv.data.begin() + 5 * qkv.columns, own.data.size(), own.data.begin());
    const Table alone = bias_of(shape, Whole({40}, backend_->block_size()), own, keys, queries);
    for (std::int64_t row = 0; row < 40; ++row) {
        for (std::int64_t head = 0; head < 3; ++head) {
            for (std::int64_t token = 0; token < 40; ++token)
                ASSERT_EQ(alone.at(row, head * context + token), packed.at(5 + row, head * context + token)) << row << ' ' << token;
        }
    }
}

// Pins: a bias that is read from another row, head or token, and one that changes which tokens a row sees.
TEST_P(DisentangledOps, AttentionAddsABiasByToken) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t heads = 3;
    constexpr std::int64_t head_dim = 16;
    const Whole whole({17, 3, 70}, backend_->block_size());
    const Table values = normal(whole.inputs.rows, 3 * heads * head_dim);
    const Table bias = normal(whole.inputs.rows, heads * context);
    const Memory qkv(*backend_, values);
    const Memory bias_memory(*backend_, bias);
    const Memory out(*backend_, whole.inputs.rows, heads * head_dim);
    const auto cache = backend_->make_kv_cache({1, heads, head_dim}, whole.block_count(), 0);
    poison(*backend_, *cache);
    backend_->begin_step(whole.inputs);
    backend_->rope_store({.qkv = qkv.matrix(),
                          .heads = heads,
                          .kv_heads = heads,
                          .head_dim = head_dim,
                          .rope_table = {},
                          .q_norm = {},
                          .k_norm = {},
                          .cache = *cache,
                          .step = whole.inputs});
    backend_->attention({.out = out.matrix(),
                         .qkv = qkv.matrix(),
                         .heads = heads,
                         .kv_heads = heads,
                         .head_dim = head_dim,
                         .scale = 0.25F,
                         .mask = AttentionMask::full,
                         .bias_by_distance = {},
                         .bias_by_token = bias_memory.matrix(),
                         .cache = *cache,
                         .step = whole.inputs});
    backend_->finish_step();
    Table want(whole.inputs.rows, heads * head_dim);
    for (const StepSequence& sequence : whole.sequences) {
        for (std::int64_t row = sequence.row_begin; row < sequence.row_begin + sequence.row_count; ++row) {
            for (std::int64_t head = 0; head < heads; ++head) {
                std::vector<double> scores;
                for (std::int64_t token = 0; token < sequence.row_count; ++token) {
                    double score = bias.at(row, head * context + token);
                    for (std::int64_t d = head * head_dim; d < (head + 1) * head_dim; ++d)
                        score += 0.25 * values.at(row, d) * values.at(sequence.row_begin + token, heads * head_dim + d);
                    scores.push_back(score);
                }
                const std::vector<double> logs = reference::log_softmax(scores);
                for (std::int64_t token = 0; token < sequence.row_count; ++token) {
                    for (std::int64_t d = head * head_dim; d < (head + 1) * head_dim; ++d)
                        want.at(row, d) += std::exp(logs[static_cast<std::size_t>(token)]) *
                                           values.at(sequence.row_begin + token, 2 * heads * head_dim + d);
                }
            }
        }
    }
    // Keys and values are rounded as the cache stores them.
    const char* const kind = GetParam().kv == KvFormat::int8 ? "int8_attention" : "paired_attention";
    expect_close(out.read(), want, tolerance(kind, weights()));
}

// Pins: neighbours of another sequence, and rows in a narrow format.
TEST_P(DisentangledOps, UnfoldPutsNeighboursOfTheSameSequenceSideBySide) {
    const Whole whole({1, 4, 3}, backend_->block_size());
    const Table x = normal(8, 21);
    const Memory in(*backend_, x);
    const Memory out(*backend_, 8, 5 * 21);
    const Memory narrow(*backend_, 8, 5 * 21, Format::bfloat16);
    backend_->begin_step(whole.inputs);
    backend_->unfold({.width = 5, .out = out.matrix(), .in = in.matrix(), .step = whole.inputs});
    backend_->unfold({.width = 5, .out = narrow.matrix(), .in = in.matrix(), .step = whole.inputs});
    backend_->finish_step();
    Table want(8, 5 * 21);
    for (const StepSequence& sequence : whole.sequences) {
        for (std::int64_t row = 0; row < sequence.row_count; ++row) {
            for (std::int64_t i = 0; i < 5; ++i) {
                const std::int64_t from = row + i - 2;
                for (std::int64_t c = 0; c < 21 && from >= 0 && from < sequence.row_count; ++c)
                    want.at(sequence.row_begin + row, i * 21 + c) = x.at(sequence.row_begin + from, c);
            }
        }
    }
    EXPECT_EQ(out.read().data, want.data);
    EXPECT_EQ(narrow.read().data, reference::rounded(want, Format::bfloat16).data);
}

TEST_P(DisentangledOps, AnActivationIsAddedToWhatIsThere) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Table x = normal(4, 37);
    const Table before = normal(4, 37);
    const Memory in(*backend_, x);
    const Memory out(*backend_, before);
    backend_->activation({.kind = ActivationKind::gelu, .out = out.matrix(), .in = in.matrix(), .accumulate = true});
    Table want = before;
    for (std::int64_t row = 0; row < 4; ++row)
        for (std::int64_t i = 0; i < 37; ++i) want.at(row, i) += reference::activate(ActivationKind::gelu, x.at(row, i));
    expect_close(out.read(), want, tolerance("activation", weights()));
    EXPECT_TRUE(out.padding_is_untouched());
}

// A GPU refuses them.
std::vector<Device> devices_of_encoders() {
    std::vector<Device> all = devices();
    std::erase_if(all, [](const Device& each) { return each.is_gpu(); });
    return all;
}

INSTANTIATE_TEST_SUITE_P(Op, DisentangledOps, ::testing::ValuesIn(devices_of_encoders()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
