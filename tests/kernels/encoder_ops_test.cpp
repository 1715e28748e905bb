// The ops that only encoders and heads use, on each instruction set: full masks, biases by distance, types of tokens, norms after the
// residual, pooling, and weights that keep every bit.
#include <algorithm>
#include <cmath>

#include "tests/kernels/cpu_devices.h"
#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

class EncoderOps : public OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Cpu, EncoderOps, ::testing::ValuesIn(cpu_devices()), name_of);

struct Mask {
    std::optional<std::int64_t> window;
    bool biased = false;
};

// Attention in double precision: each token sees those at a distance below the window, or all.
Table full_attention(const reference::AttentionShape& shape, const Table& qkv, const Mask& mask, const Table& bias) {
    const std::int64_t size = shape.head_dim;
    const std::int64_t context = (bias.columns + 1) / 2;
    Table out(qkv.rows, shape.heads * size);
    for (std::int64_t row = 0; row < qkv.rows; ++row) {
        const std::int64_t reach = mask.window.value_or(qkv.rows) - 1;
        const std::int64_t first = std::max<std::int64_t>(0, row - reach);
        const std::int64_t last = std::min(qkv.rows - 1, row + reach);
        for (std::int64_t head = 0; head < shape.heads; ++head) {
            const std::int64_t k = (shape.heads + head / (shape.heads / shape.kv_heads)) * size;
            const std::int64_t v = k + shape.kv_heads * size;
            std::vector<double> scores;
            for (std::int64_t token = first; token <= last; ++token) {
                double score = 0.0;
                for (std::int64_t d = 0; d < size; ++d) score += qkv.at(row, head * size + d) * qkv.at(token, k + d);
                scores.push_back(score * shape.scale + (mask.biased ? bias.at(head, token - row + context - 1) : 0.0));
            }
            const std::vector<double> weights = reference::log_softmax(scores);
            for (std::int64_t token = first; token <= last; ++token) {
                const double weight = std::exp(weights[static_cast<std::size_t>(token - first)]);
                for (std::int64_t d = 0; d < size; ++d) out.at(row, head * size + d) += weight * qkv.at(token, v + d);
            }
        }
    }
    return out;
}

// Whole sequences in one step, over a cache full of NaN.
std::vector<Table> attend(Backend& backend, const reference::AttentionShape& shape, const std::vector<const Table*>& sequences,
                          const Mask& mask, const Table& bias) {
    const KvShape kv{1, shape.kv_heads, shape.head_dim};
    const auto cache = backend.make_kv_cache(kv, 64, 0);
    poison(backend, *cache);
    std::vector<std::vector<BlockId>> blocks;
    std::vector<StepSequence> parts;
    std::int64_t rows = 0;
    BlockId next = 3;
    for (const Table* sequence : sequences) {
        auto& own = blocks.emplace_back();
        for (std::int64_t token = 0; token < sequence->rows; token += backend.block_size()) own.push_back(next++);
        parts.push_back({.row_begin = rows, .row_count = sequence->rows, .position = 0, .blocks = {}});
        rows += sequence->rows;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].blocks = blocks[i];
    Table qkv(rows, sequences.front()->columns);
    std::int64_t at = 0;
    for (const Table* sequence : sequences) {
        std::ranges::copy(sequence->data, qkv.data.begin() + at * qkv.columns);
        at += sequence->rows;
    }
    const std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows), 0);
    const StepInputs step{.rows = rows, .tokens = zeros, .positions = zeros, .rope_rows = zeros, .sequences = parts, .sample_rows = {}};
    const Memory in(backend, qkv);
    const Memory out(backend, rows, shape.heads * shape.head_dim);
    // What follows a row of biases is read and must not matter.
    const Memory biases(backend, bias, Format::float32, backend.block_size());
    backend.begin_step(step);
    backend.rope_store({.qkv = in.matrix(),
                        .heads = shape.heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .rope_table = {},
                        .cache = *cache,
                        .layer = 0,
                        .step = step});
    backend.attention({.out = out.matrix(),
                       .qkv = in.matrix(),
                       .heads = shape.heads,
                       .kv_heads = shape.kv_heads,
                       .head_dim = shape.head_dim,
                       .scale = static_cast<float>(shape.scale),
                       .mask = AttentionMask::full,
                       .window = mask.window,
                       .bias_by_distance = mask.biased ? biases.matrix() : Matrix{},
                       .cache = *cache,
                       .layer = 0,
                       .step = step});
    EXPECT_TRUE(out.padding_is_untouched());
    const Table all = out.read();
    backend.finish_step();
    std::vector<Table> tables;
    at = 0;
    for (const Table* sequence : sequences) {
        Table& table = tables.emplace_back(sequence->rows, all.columns);
        std::copy_n(all.data.begin() + at * all.columns, table.data.size(), table.data.begin());
        at += sequence->rows;
    }
    return tables;
}

TEST_P(EncoderOps, AttentionOverWholeTextsAgreesAndIsTheSameBitForBitAlone) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::vector<reference::AttentionShape> shapes = {
        {.heads = 12, .kv_heads = 12, .head_dim = 32, .scale = 0.177, .window = {}},
        {.heads = 4, .kv_heads = 4, .head_dim = 12, .scale = 0.3, .window = {}},
        {.heads = 6, .kv_heads = 2, .head_dim = 64, .scale = 0.125, .window = {}},
    };
    for (const auto& shape : shapes) {
        for (const Mask& mask : {Mask{}, Mask{5, false}, Mask{17, false}, Mask{{}, true}, Mask{9, true}}) {
            SCOPED_TRACE(::testing::Message() << shape.head_dim << " wide, window " << mask.window.value_or(0) << ", bias " << mask.biased);
            const Table bias = normal(shape.heads, 2 * 120 - 1);
            std::vector<Table> sequences;
            for (const std::int64_t length : {1, 16, 17, 100, 64, 3}) {
                sequences.push_back(normal(length, (shape.heads + 2 * shape.kv_heads) * shape.head_dim));
            }
            std::vector<const Table*> all;
            for (const Table& sequence : sequences) all.push_back(&sequence);
            const auto together = attend(*backend_, shape, all, mask, bias);
            const auto one_thread = GetParam().make(1);
            const Format stored = GetParam().kv == KvFormat::int8 ? Format::int8_rows : weights();
            for (std::size_t i = 0; i < all.size(); ++i) {
                SCOPED_TRACE(::testing::Message() << sequences[i].rows << " tokens");
                const Table prepared = reference::prepare_qkv(shape, sequences[i], {}, {}, {}, 1e-6, stored);
                const char* const kind = GetParam().kv == KvFormat::int8 ? "int8_attention" : "paired_attention";
                expect_close(together[i], full_attention(shape, prepared, mask, bias), tolerance(kind, weights()));
                EXPECT_EQ(attend(*one_thread, shape, {all[i]}, mask, bias).front().data, together[i].data);
            }
        }
    }
}

TEST_P(EncoderOps, EmbedAddsTypes) {
    const Part tokens(normal(7, 20), Format::float32, false);
    const Part types(normal(2, 20), Format::float32, false);
    const WeightPart token_view = tokens.view();
    const WeightPart type_view = types.view();
    const auto token_weight = backend_->pack_weight({&token_view, 1}, WeightRole::embedding);
    const auto type_weight = backend_->pack_weight({&type_view, 1}, WeightRole::embedding);
    const Table token_table = stored_weight(tokens.stored, *token_weight, weights());
    const Table type_table = stored_weight(types.stored, *type_weight, weights());
    const std::vector<TokenId> ids{6, 0, 3};
    const std::vector<std::int32_t> places{0, 1, 2};
    const std::vector<std::int32_t> given{1, 0, 1};
    const std::vector<BlockId> blocks{0};
    const StepSequence sequence{.row_begin = 0, .row_count = 3, .position = 0, .blocks = blocks};
    for (const bool all_zero : {false, true}) {
        StepInputs step{.rows = 3, .tokens = ids, .positions = places, .rope_rows = {}, .sequences = {&sequence, 1}, .sample_rows = {}};
        if (!all_zero) step.token_types = given;
        backend_->begin_step(step);
        const Memory out(*backend_, 3, 20);
        backend_->embed({.out = out.matrix(), .tokens = *token_weight, .types = type_weight.get(), .step = step});
        for (std::int64_t row = 0; row < 3; ++row) {
            const auto at = static_cast<std::size_t>(row);
            for (std::int64_t i = 0; i < 20; ++i) {
                const double token = reference::rounded(token_table.at(ids[at], i), Format::float32);
                const double type = reference::rounded(type_table.at(all_zero ? 0 : given[at], i), Format::float32);
                EXPECT_EQ(out.read().at(row, i), reference::rounded(token + type, Format::float32));
            }
        }
        backend_->finish_step();
    }
}

TEST_P(EncoderOps, EmbedTakesRowsOfTheirOwnFromOtherTables) {
    const auto pack = [&](const Part& part) {
        const WeightPart view = part.view();
        return backend_->pack_weight({&view, 1}, WeightRole::embedding);
    };
    const Part tokens(normal(7, 20), Format::float32, false);
    const Part few(normal(2, 20), Format::float32, false);
    const Part all(normal(7, 20), Format::float32, false);
    const auto token_weight = pack(tokens);
    const auto few_weight = pack(few);
    const auto all_weight = pack(all);
    const std::vector<TokenId> ids{6, 0, 3, 6, 2};
    const std::vector<std::int32_t> places{0, 1, 2, 3, 4};
    const std::vector<BlockId> blocks{0};
    const StepSequence sequence{.row_begin = 0, .row_count = 5, .position = 0, .blocks = blocks};
    const StepInputs step{.rows = 5, .tokens = ids, .positions = places, .rope_rows = {}, .sequences = {&sequence, 1}, .sample_rows = {}};
    const std::vector<OwnEmbedding> own{{.row = 1, .table = few_weight.get(), .index = 1},
                                        {.row = 3, .table = all_weight.get(), .index = 6}};
    backend_->begin_step(step);
    const Memory out(*backend_, 5, 20);
    backend_->embed({.out = out.matrix(), .tokens = *token_weight, .own = own, .step = step});
    const auto expect_row = [&](std::int64_t row, const Part& part, const PackedWeight& weight, std::int64_t index) {
        const Table table = stored_weight(part.stored, weight, weights());
        for (std::int64_t i = 0; i < 20; ++i)
            EXPECT_EQ(out.read().at(row, i), reference::rounded(table.at(index, i), Format::float32)) << row;
    };
    for (const std::int64_t row : {0, 2, 4}) expect_row(row, tokens, *token_weight, ids[static_cast<std::size_t>(row)]);
    expect_row(1, few, *few_weight, 1);
    expect_row(3, all, *all_weight, 6);
    backend_->finish_step();
}

TEST_P(EncoderOps, NormsInPlaceLeaveTheResidualNormalized) {
    const Table x = normal(9, 37, 3.0);
    const Table weight = normal(1, 37);
    const Memory weight_memory(*backend_, weight);
    std::vector<Format> formats = GetParam().narrow_formats();
    formats.push_back(Format::float32);
    for (const Format format : formats) {
        const Memory apart(*backend_, x);
        const Memory in_place(*backend_, x);
        const Memory wide(*backend_, 9, 37);
        const Memory narrow(*backend_, 9, 37, format);
        const NormArgs args{
            .kind = NormKind::layer, .out = wide.matrix(), .in = apart.matrix(), .weight = weight_memory.vector(), .epsilon = 1e-5F};
        backend_->norm(args);
        NormArgs kept = args;
        kept.out = narrow.matrix();
        kept.in = in_place.matrix();
        kept.in_place = true;
        backend_->norm(kept);
        EXPECT_EQ(in_place.read().data, wide.read().data);
        expect_close(narrow.read(), stored_inputs(wide.read(), format), tolerance("narrow", weights()));
        EXPECT_EQ(apart.read().data, x.data);

        const Memory converted(*backend_, 9, 37, format);
        backend_->norm({.kind = NormKind::none, .out = converted.matrix(), .in = apart.matrix(), .weight = {}, .bias = {}});
        expect_close(converted.read(), stored_inputs(x, format), tolerance("narrow", weights()));
    }
}

TEST_P(EncoderOps, PoolsRowsInTheirOrder) {
    const Table x = normal(30, 21);
    const Memory in(*backend_, x);
    const std::vector<PoolSegment> segments{{0, 1}, {1, 7}, {9, 21}};
    const std::vector<float> factors{1.0F, 0.25F, 0.5F};
    for (const PoolKind kind : {PoolKind::sum, PoolKind::weighted_sum, PoolKind::max}) {
        const Memory out(*backend_, 3, 21);
        backend_->pool({.kind = kind, .out = out.matrix(), .in = in.matrix(), .segments = segments, .factors = factors});
        Table want(3, 21);
        for (std::int64_t at = 0; at < 3; ++at) {
            const PoolSegment& segment = segments[static_cast<std::size_t>(at)];
            for (std::int64_t i = 0; i < 21; ++i) {
                double value = x.at(segment.row_begin, i);
                for (std::int64_t row = 1; row < segment.row_count; ++row) {
                    const double next = x.at(segment.row_begin + row, i);
                    value = kind == PoolKind::max ? std::max(value, next)
                                                  : value + next * (kind == PoolKind::sum ? 1.0 : static_cast<double>(row + 1));
                }
                want.at(at, i) = value * static_cast<double>(factors[static_cast<std::size_t>(at)]);
            }
        }
        expect_close(out.read(), want, tolerance("norm", Format::float32));
        EXPECT_TRUE(out.padding_is_untouched());
    }
}

TEST_P(EncoderOps, ExactWeightsKeepEveryBit) {
    const Table weight = normal(5, 40);
    const Table x = normal(3, 40);
    const Part part(weight, Format::float32, false);
    const WeightPart view = part.view();
    const auto packed = backend_->pack_weight({&view, 1}, WeightRole::exact);
    ASSERT_EQ(packed->input_format(), Format::float32);
    const Memory in(*backend_, x);
    const Memory out(*backend_, 3, 5);
    backend_->matmul({.out = out.matrix(), .in = in.matrix(), .weight = *packed, .bias = {}});
    expect_close(out.read(), reference::matmul(x, weight), tolerance("norm", Format::float32));
}

}  // namespace

}  // namespace lorry::kernels::testing
