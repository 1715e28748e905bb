// rope_store and attention together, as a model uses them: compared with the reference, over a poisoned cache. Results must be the same bit
// for bit however a sequence is divided into steps and whatever other rows the step has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/pack.h"
#include "kernels/cuda/fp8.h"
#include "tests/kernels/devices.h"
#include "tests/support/labels.h"

namespace lorry::kernels::testing {

namespace {

using reference::AttentionShape;
using reference::Table;

struct Shape {
    AttentionShape heads;
    bool rotates = true;
    bool normalizes = false;
};

const std::vector<Shape> shapes = {
    {{.heads = 9, .kv_heads = 3, .head_dim = 64, .scale = 0.125, .window = {}}},
    {{.heads = 4, .kv_heads = 4, .head_dim = 12, .scale = 0.3, .window = {}}, false},
    {{.heads = 6, .kv_heads = 2, .head_dim = 20, .scale = 0.25, .window = 5}},
    {{.heads = 5, .kv_heads = 1, .head_dim = 80, .scale = 0.11, .window = 16}, true, true},
    {{.heads = 2, .kv_heads = 1, .head_dim = 128, .scale = 0.09, .window = 33}, true, true},
    {{.heads = 2, .kv_heads = 1, .head_dim = 256, .scale = 0.06, .window = {}}},
    {{.heads = 3, .kv_heads = 1, .head_dim = 132, .scale = 0.09, .window = 40}},
    {{.heads = 4, .kv_heads = 2, .head_dim = 96, .scale = 0.1, .window = {}}},
    {{.heads = 14, .kv_heads = 2, .head_dim = 24, .scale = 0.2, .window = {}}},
    {{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0.7, .window = 1}},
    {{.heads = 32, .kv_heads = 1, .head_dim = 16, .scale = 0.25, .window = {}}},
};

// One sequence: its inputs and its blocks.
struct Sequence {
    Table qkv;  // [tokens, q | k | v]
    std::vector<BlockId> blocks;
    std::int64_t tokens() const { return qkv.rows; }
};

// `rows` tokens of sequence `index` from `position` on.
struct Slice {
    std::size_t index = 0;
    std::int64_t position = 0;
    std::int64_t rows = 0;
};

class AttentionTest : public OnEachDevice {
protected:
    static constexpr std::int64_t layers = 2;
    static constexpr std::int64_t layer = 1;
    static constexpr std::int64_t blocks_total = 40;

    void make(const Shape& shape, const std::vector<std::int64_t>& lengths) {
        shape_ = shape;
        const AttentionShape& heads = shape.heads;
        rope_ = Table();
        if (shape.rotates) {
            rope_ = Table(std::max<std::int64_t>(200, *std::max_element(lengths.begin(), lengths.end())), heads.head_dim);
            for (std::int64_t row = 0; row < rope_.rows; ++row) {
                for (std::int64_t i = 0; i < heads.head_dim / 2; ++i) {
                    const double angle =
                        static_cast<double>(row) * std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(heads.head_dim));
                    rope_.at(row, i) = reference::rounded(std::cos(angle), Format::float32);
                    rope_.at(row, heads.head_dim / 2 + i) = reference::rounded(std::sin(angle), Format::float32);
                }
            }
        }
        q_norm_ = normal(1, heads.head_dim);
        k_norm_ = normal(1, heads.head_dim);
        std::vector<BlockId> free;
        for (BlockId block = 0; block < blocks_total; ++block) free.push_back(block);
        std::shuffle(free.begin(), free.end(), random_);
        sequences_.clear();
        for (const std::int64_t length : lengths) {
            Sequence sequence{normal(length, (heads.heads + 2 * heads.kv_heads) * heads.head_dim), {}};
            for (std::int64_t token = 0; token < length; token += backend_->block_size()) {
                sequence.blocks.push_back(free.back());
                free.pop_back();
            }
            sequences_.push_back(std::move(sequence));
        }
    }

    // A cache full of NaN: memory that was not written must not be read.
    std::unique_ptr<KvCache> poisoned_cache(Backend& backend) const {
        auto cache = backend.make_kv_cache({layers, shape_.heads.kv_heads, shape_.heads.head_dim}, blocks_total, 0);
        EXPECT_EQ(cache->bytes(), backend.kv_block_bytes({layers, shape_.heads.kv_heads, shape_.heads.head_dim}) * blocks_total);
        poison(backend, *cache);
        return cache;
    }

    // Runs one step over the slices; adds each row's output to outputs[sequence].
    void step(Backend& backend, KvCache& cache, const std::vector<Slice>& slices,
              std::vector<std::vector<std::vector<float>>>& outputs) const {
        const AttentionShape& heads = shape_.heads;
        std::vector<TokenId> tokens;
        std::vector<std::int32_t> positions;
        std::vector<StepSequence> parts;
        std::int64_t rows = 0;
        for (const Slice& slice : slices) {
            parts.push_back({rows, slice.rows, slice.position, sequences_[slice.index].blocks});
            rows += slice.rows;
        }
        Table qkv(rows, sequences_.front().qkv.columns);
        std::int64_t row = 0;
        for (const Slice& slice : slices) {
            for (std::int64_t i = 0; i < slice.rows; ++i, ++row) {
                for (std::int64_t c = 0; c < qkv.columns; ++c) qkv.at(row, c) = sequences_[slice.index].qkv.at(slice.position + i, c);
                tokens.push_back(0);
                positions.push_back(static_cast<std::int32_t>(slice.position + i));
            }
        }
        const StepInputs inputs{
            .rows = rows, .tokens = tokens, .positions = positions, .rope_rows = positions, .sequences = parts, .sample_rows = {}};
        const Memory in(backend, qkv);
        const Memory out(backend, rows, heads.heads * heads.head_dim);
        const Memory rope(backend, rope_);
        const Memory q_norm(backend, q_norm_);
        const Memory k_norm(backend, k_norm_);
        backend.begin_step(inputs);
        backend.rope_store({.qkv = in.matrix(),
                            .heads = heads.heads,
                            .kv_heads = heads.kv_heads,
                            .head_dim = heads.head_dim,
                            .rope_table = rope.matrix(),
                            .q_norm = shape_.normalizes ? q_norm.vector() : Vector{},
                            .k_norm = shape_.normalizes ? k_norm.vector() : Vector{},
                            .norm_epsilon = 1e-6F,
                            .cache = cache,
                            .layer = layer,
                            .step = inputs});
        const auto attend = [&](const Memory& to) {
            backend.attention({.out = to.matrix(),
                               .qkv = in.matrix(),
                               .heads = heads.heads,
                               .kv_heads = heads.kv_heads,
                               .head_dim = heads.head_dim,
                               .scale = static_cast<float>(heads.scale),
                               .cap = heads.cap ? std::optional(static_cast<float>(*heads.cap)) : std::nullopt,
                               .window = heads.window,
                               .cache = cache,
                               .layer = layer,
                               .step = inputs});
            EXPECT_TRUE(to.padding_is_untouched());
        };
        attend(out);
        for (const Format format : GetParam().narrow_formats()) {
            if (!std::ranges::all_of(qkv.data, [](double value) { return std::isfinite(value); })) break;  // nothing is close to NaN
            const Memory narrow(backend, rows, heads.heads * heads.head_dim, format);
            attend(narrow);
            expect_close(narrow.read(), stored_inputs(out.read(), format), tolerance("narrow", weights()));
            if (format == Format::fp8_rows) expect_fp8_of(out, narrow, attend);
        }
        row = 0;
        outputs.resize(sequences_.size());
        for (const Slice& slice : slices) {
            for (std::int64_t i = 0; i < slice.rows; ++i, ++row) outputs[slice.index].push_back(out.read_row(row));
        }
        backend.finish_step();
    }

    // Pins: a row converted to fp8 before all its heads were stored, or off by a bit for another reason; and state that one layer leaves
    // for the next.
    static void expect_fp8_of(const Memory& wide, const Memory& narrow, const auto& attend) {
        attend(narrow);
        for (std::int64_t row = 0; row < wide.matrix().rows; ++row) {
            std::vector<float> values = wide.read_row(row);
            std::uint32_t largest = 0;
            for (const float x : values) largest = std::max(largest, cuda::magnitude_bits(x));
            const float scale = cuda::fp8_scale(largest);
            for (float& x : values) x = cuda::float_of(cuda::fp8_of(x * (1.0F / scale))) * scale;
            ASSERT_EQ(narrow.read_row(row), values) << "row " << row;
        }
    }

    // The name of the cache's tolerance.
    static const char* kind_of(const KvCache& cache) {
        if (GetParam().kv == KvFormat::int8) return "int8_attention";
        if (GetParam().kv == KvFormat::fp8) return "fp8_attention";
        const auto* const on_cpu = dynamic_cast<const cpu::CpuKvCache*>(&cache);
        return on_cpu != nullptr && on_cpu->layout() == cpu::KvLayout::bfloat16_pairs ? "paired_attention" : "attention";
    }

    Format stored() const {
        switch (GetParam().kv) {
            case KvFormat::as_weights: return weights();
            case KvFormat::int8: return Format::int8_rows;
            case KvFormat::fp8: return Format::fp8_rows;
        }
        return {};
    }

    Table expected(const Sequence& sequence) const {
        const std::vector<double> none;
        const Table prepared = reference::prepare_qkv(shape_.heads, sequence.qkv, rope_, shape_.normalizes ? q_norm_.data : none,
                                                      shape_.normalizes ? k_norm_.data : none, 1e-6, stored());
        return reference::attention(shape_.heads, prepared);
    }

    static Table table_of(const std::vector<std::vector<float>>& rows) {
        Table table(std::ssize(rows), std::ssize(rows.front()));
        for (std::int64_t row = 0; row < table.rows; ++row) {
            for (std::int64_t i = 0; i < table.columns; ++i) {
                table.at(row, i) = static_cast<double>(rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)]);
            }
        }
        return table;
    }

    Shape shape_;
    Table rope_;
    Table q_norm_;
    Table k_norm_;
    std::vector<Sequence> sequences_;
};

TEST_P(AttentionTest, PrefillsOfSeveralSequencesAgreeWithTheReference) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const Shape& shape : shapes) {
        SCOPED_TRACE(::testing::Message() << shape.heads.heads << '/' << shape.heads.kv_heads << " heads of " << shape.heads.head_dim);
        // One token, a full block, one token more than a block, and many blocks; for either block size.
        make(shape, {1, 16, 17, 100, 64});
        const auto cache = poisoned_cache(*backend_);
        std::vector<std::vector<std::vector<float>>> outputs;
        step(*backend_, *cache, {{0, 0, 1}, {1, 0, 16}, {2, 0, 17}, {3, 0, 100}, {4, 0, 64}}, outputs);
        for (std::size_t i = 0; i < sequences_.size(); ++i) {
            SCOPED_TRACE(::testing::Message() << sequences_[i].tokens() << " tokens");
            expect_close(table_of(outputs[i]), expected(sequences_[i]), tolerance(kind_of(*cache), weights()));
        }
    }
}

TEST_P(AttentionTest, ARowIsTheSameBitForBitAloneBatchedChunkedAndDecoded) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const Shape& shape : shapes) {
        SCOPED_TRACE(::testing::Message() << shape.heads.heads << '/' << shape.heads.kv_heads << " heads of " << shape.heads.head_dim);
        make(shape, {50, 37});
        std::vector<std::vector<std::vector<float>>> at_once;
        {
            const auto cache = poisoned_cache(*backend_);
            step(*backend_, *cache, {{0, 0, 50}}, at_once);
            step(*backend_, *cache, {{1, 0, 37}}, at_once);
        }
        std::vector<std::vector<std::vector<float>>> chunked;
        {
            const auto one_thread = GetParam().make(1);
            const auto cache = poisoned_cache(*one_thread);
            step(*one_thread, *cache, {{0, 0, 7}, {1, 0, 16}}, chunked);
            step(*one_thread, *cache, {{1, 16, 20}, {0, 7, 30}}, chunked);
            step(*one_thread, *cache, {{0, 37, 13}, {1, 36, 1}}, chunked);
        }
        EXPECT_EQ(chunked, at_once);
        std::vector<std::vector<std::vector<float>>> decoded;
        {
            const auto three_threads = GetParam().make(3);
            const auto cache = poisoned_cache(*three_threads);
            for (std::int64_t token = 0; token < 50; ++token) {
                std::vector<Slice> slices{{0, token, 1}};
                if (token < 37) slices.push_back({1, token, 1});
                step(*three_threads, *cache, slices, decoded);
            }
        }
        EXPECT_EQ(decoded, at_once);
    }
}

// Pins: scores that are capped after they were masked, or without their scale (Gemma 2).
TEST_P(AttentionTest, CappedScoresAgreeWithTheReference) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    make({.heads = {.heads = 4, .kv_heads = 2, .head_dim = 24, .scale = 0.5, .window = 30, .cap = 1.5}}, {1, 50, 33});
    const auto cache = poisoned_cache(*backend_);
    std::vector<std::vector<std::vector<float>>> at_once;
    step(*backend_, *cache, {{0, 0, 1}, {1, 0, 50}, {2, 0, 33}}, at_once);
    for (std::size_t i = 0; i < sequences_.size(); ++i)
        expect_close(table_of(at_once[i]), expected(sequences_[i]), tolerance(kind_of(*cache), weights()));
    std::vector<std::vector<std::vector<float>>> chunked;
    poison(*backend_, *cache);
    step(*backend_, *cache, {{1, 0, 17}, {0, 0, 1}}, chunked);
    step(*backend_, *cache, {{1, 17, 32}, {2, 0, 32}}, chunked);
    step(*backend_, *cache, {{2, 32, 1}, {1, 49, 1}}, chunked);
    EXPECT_EQ(chunked, at_once);
}

// Pins: many weights that each round to zero next to the heaviest, but together are as large.
TEST_P(AttentionTest, ManyLightTokensCountBesideAHeavyOne) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t tokens = 600;
    constexpr std::int64_t heavy = 301;
    make({.heads = {.heads = 1, .kv_heads = 1, .head_dim = 32, .scale = 1.0, .window = {}}, .rotates = false}, {tokens});
    Table& qkv = sequences_.front().qkv;
    for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t i = 0; i < 32; ++i) {
            qkv.at(token, i) = 1.0;
            qkv.at(token, 32 + i) = token == heavy ? std::log(static_cast<double>(tokens)) / 32 : 0.0;
            qkv.at(token, 64 + i) = token == heavy ? -1.0 : 1.0;
        }
    }
    for (double& value : qkv.data) value = reference::rounded(value, weights());
    const auto cache = poisoned_cache(*backend_);
    std::vector<std::vector<std::vector<float>>> outputs;
    step(*backend_, *cache, {{0, 0, tokens}}, outputs);
    expect_close(table_of(outputs.front()), expected(sequences_.front()), tolerance(kind_of(*cache), weights()));
}

// Pins: a context of several spans on the GPU, computed by one block of threads for a prefill and by one block per span for decoding, for
// each way in which warps share heads. Rows of the prefill's last block see pages completely, partly and not at all.
TEST_P(AttentionTest, LongContextsAgreeAndAreTheSameBitForBitAtOnceAndDecoded) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    struct Case {
        Shape shape;
        std::int64_t tokens;
        std::int64_t decoded;
    };
    const std::vector<Case> cases{
        {{{.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25, .window = {}}}, 530, 21},
        {{{.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25, .window = 300}}, 530, 21},
        {{{.heads = 3, .kv_heads = 1, .head_dim = 120, .scale = 0.09, .window = {}}}, 300, 3},
        {{{.heads = 2, .kv_heads = 1, .head_dim = 256, .scale = 0.06, .window = 270}}, 300, 3},
    };
    for (const auto& [shape, tokens, decodes] : cases) {
        SCOPED_TRACE(::testing::Message() << "heads of " << shape.heads.head_dim << ", window " << shape.heads.window.value_or(0));
        make(shape, {tokens});
        std::vector<std::vector<std::vector<float>>> at_once;
        const auto cache = poisoned_cache(*backend_);
        step(*backend_, *cache, {{0, 0, tokens}}, at_once);
        expect_close(table_of(at_once[0]), expected(sequences_[0]), tolerance(kind_of(*cache), weights()));
        std::vector<std::vector<std::vector<float>>> decoded;
        poison(*backend_, *cache);
        step(*backend_, *cache, {{0, 0, tokens - decodes}}, decoded);
        for (std::int64_t token = tokens - decodes; token < tokens; ++token) step(*backend_, *cache, {{0, token, 1}}, decoded);
        EXPECT_EQ(decoded, at_once);
    }
}

// Pins: NaN scores show in their own row and head, and in no other result.
TEST_P(AttentionTest, AQueryThatIsNotANumberSpoilsItsRowAndHeadAlone) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t bad_row = 21;
    constexpr std::int64_t bad_head = 1;
    make(shapes.front(), {40});
    std::vector<std::vector<std::vector<float>>> sound;
    step(*backend_, *poisoned_cache(*backend_), {{0, 0, 40}}, sound);
    const auto head_dim = static_cast<std::size_t>(shape_.heads.head_dim);
    sequences_.front().qkv.at(bad_row, bad_head * shape_.heads.head_dim + 5) = std::numeric_limits<double>::quiet_NaN();
    std::vector<std::vector<std::vector<float>>> outputs;
    step(*backend_, *poisoned_cache(*backend_), {{0, 0, 40}}, outputs);
    for (std::size_t row = 0; row < 40; ++row) {
        for (std::size_t i = 0; i < outputs[0][row].size(); ++i) {
            const bool is_bad = row == std::size_t{bad_row} && i / head_dim == std::size_t{bad_head};
            ASSERT_TRUE(is_bad ? std::isnan(outputs[0][row][i]) : outputs[0][row][i] == sound[0][row][i])
                << "row " << row << ", column " << i << ": " << outputs[0][row][i];
        }
    }
}

// Pins: a NaN key or value shows in every row that sees it, whatever the format of the cache.
TEST_P(AttentionTest, AKeyOrValueThatIsNotANumberShowsInAllRowsThatSeeIt) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t bad_row = 21;
    const AttentionShape& heads = shapes.front().heads;
    for (const std::int64_t part : {heads.heads, heads.heads + heads.kv_heads}) {
        make(shapes.front(), {40});
        sequences_.front().qkv.at(bad_row, part * heads.head_dim + 5) = std::numeric_limits<double>::infinity();
        std::vector<std::vector<std::vector<float>>> outputs;
        step(*backend_, *poisoned_cache(*backend_), {{0, 0, 40}}, outputs);
        const std::int64_t group = heads.heads / heads.kv_heads;
        for (std::size_t row = bad_row; row < 40; ++row) {
            const auto spoiled = std::ranges::count_if(outputs[0][row], [](float value) { return !std::isfinite(value); });
            EXPECT_GE(spoiled, group) << "row " << row;  // at least one dimension of each head that reads it
        }
    }
}

TEST_P(AttentionTest, ACopiedBlockServesAsWellAsTheFirst) {
    make(shapes.front(), {40});
    const auto cache = poisoned_cache(*backend_);
    std::vector<std::vector<std::vector<float>>> whole;
    step(*backend_, *cache, {{0, 0, 40}}, whole);

    std::vector<BlockId>& blocks = sequences_.front().blocks;
    std::vector<std::vector<std::vector<float>>> outputs;
    for (BlockId& block : blocks) {
        BlockId other = 0;
        while (std::find(blocks.begin(), blocks.end(), other) != blocks.end()) ++other;
        backend_->copy_block(*cache, block, other);
        block = other;
    }
    step(*backend_, *cache, {{0, 39, 1}}, outputs);
    EXPECT_EQ(outputs[0][0], whole[0][39]);
}

// These ops do not depend on what multiplies a GPU's weights.
std::vector<Device> devices_by_attention() {
    std::vector<Device> all = devices();
    std::erase_if(all, [](const Device& each) { return each.is_gpu() && (each.has_library || each.quantize != Quantization::none); });
    return all;
}

const tests::Labelled other_caches_in_orders{"*/cuda_fp8_kv:*.Prefills*/cuda_float32", {tests::Label::in_orders}};
const tests::Labelled attention_with_tsan{"*.AQuery*/cuda_bfloat16:*.AKey*/cuda_bfloat16:*.ACopied*/cuda_bfloat16",
                                          {tests::Label::tsan_cuda}};
INSTANTIATE_TEST_SUITE_P(Op, AttentionTest, ::testing::ValuesIn(devices_by_attention()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
