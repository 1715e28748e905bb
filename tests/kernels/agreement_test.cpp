// Compares every op on every device with the reference, over odd shapes.
#include <cmath>
#include <limits>

#include "tests/kernels/devices.h"
#include "tests/support/labels.h"

namespace lorry::kernels::testing {

namespace {

using reference::Table;

class Agreement : public OnEachDevice {};

// Matmuls do not depend on the format of the KV cache.
const tests::Labelled activated_matmuls{"*.ActivatedMatmul*/cuda_fp8_kv:*.ActivatedMatmul*/cuda_library_*", {tests::Label::not_asan}};
// On a GPU these are three ops, which have tests of their own.
const tests::Labelled updates_on_gpus{"*.ActivatedMatmulAdds*/cuda_*", {tests::Label::not_asan}};
// Races between the emulated GPU's threads and blocks. What is left out does not run on a GPU or repeats the others at length.
const tests::Labelled agreement_with_tsan{"*/cuda_bfloat16:-*.OpsWriteTheInputFormat*:*.RowsOfManyThousandColumns*:*.ActivatedMatmul*",
                                          {tests::Label::tsan_cuda}};

TEST_P(Agreement, MatmulOfAnyShapeSourceFormatAndNumberOfParts) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    struct Shape {
        std::int64_t rows, in, out;
    };
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 64, 130}, Shape{2, 33, 65}, Shape{3, 20, 31}, Shape{4, 7, 96}, Shape{5, 12, 48},
                               Shape{6, 100, 17}, Shape{7, 64, 33}, Shape{12, 129, 64}, Shape{13, 50, 40}, Shape{25, 576, 70},
                               Shape{37, 48, 32}, Shape{150, 64, 80}, Shape{500, 9, 35}}) {
        for (const Format format : {Format::float32, Format::float16, Format::bfloat16}) {
            const bool transposed = number(0, 1) == 1;
            const bool accumulate = number(0, 1) == 1;
            const bool biased = number(0, 1) == 1;
            SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.in << " x " << shape.out << ' ' << kernels::name_of(format)
                                              << (transposed ? " transposed" : "") << (accumulate ? " accumulate" : "")
                                              << (biased ? " bias" : ""));
            const double deviation = 1.0 / std::sqrt(static_cast<double>(shape.in));
            const Part first(normal(shape.out, shape.in, deviation), format, transposed);
            const auto role = number(0, 1) == 1 ? WeightRole::projection : WeightRole::gate_up;
            const std::int64_t others = role == WeightRole::gate_up ? shape.out : shape.out % 16 == 0 ? 16 : 5;
            const Part second(normal(others, shape.in, deviation), Format::float32, false);
            const WeightPart views[] = {first.view(), second.view()};
            const auto weight = backend_->pack_weight(views, role);
            ASSERT_EQ(weight->out_features(), shape.out + others);
            ASSERT_EQ(weight->in_features(), shape.in);

            Table stored(shape.out + others, shape.in);
            std::copy(first.stored.data.begin(), first.stored.data.end(), stored.data.begin());
            std::copy(second.stored.data.begin(), second.stored.data.end(), stored.data.begin() + std::ssize(first.stored.data));
            const Table x = reference::rounded(normal(shape.rows, shape.in), input());
            const Table bias = normal(1, shape.out + others);
            const Table before = normal(shape.rows, shape.out + others);
            const Memory in(*backend_, x, weight->input_format());
            const Memory out(*backend_, before);
            const Memory bias_memory(*backend_, bias);
            backend_->matmul({.out = out.matrix(),
                              .in = in.matrix(),
                              .weight = *weight,
                              .bias = biased ? bias_memory.vector() : Vector{},
                              .accumulate = accumulate});

            Table want = reference::matmul(stored_inputs(x, weight->input_format()), stored_weight(stored, *weight, weights()));
            for (std::int64_t row = 0; row < want.rows; ++row) {
                for (std::int64_t i = 0; i < want.columns; ++i) {
                    want.at(row, i) += (biased ? bias.at(0, i) : 0.0) + (accumulate ? before.at(row, i) : 0.0);
                }
            }
            expect_close(out.read(), want, tolerance(GetParam().matmul(), weights()));
            EXPECT_TRUE(out.padding_is_untouched());
        }
    }
}

TEST_P(Agreement, EmbedReadsRowsOfTheTiedHeadExactly) {
    for (const std::int64_t columns : {19, 20}) {
        const Part tokens(normal(37, columns), Format::float32, false);
        const Part positions(normal(11, columns), Format::float32, false);
        const WeightPart token_view = tokens.view();
        const WeightPart position_view = positions.view();
        const auto token_weight = backend_->pack_weight({&token_view, 1}, WeightRole::embedding);
        const auto position_weight = backend_->pack_weight({&position_view, 1}, WeightRole::embedding);
        const Table token_table = stored_weight(tokens.stored, *token_weight, weights());
        const Table position_table = stored_weight(positions.stored, *position_weight, weights());
        const std::vector<TokenId> ids{36, 0, 16, 15, 36};
        const std::vector<std::int32_t> places{0, 1, 10, 3, 4};
        const std::vector<BlockId> blocks{0};
        const StepSequence sequence{.row_begin = 0, .row_count = 5, .position = 0, .blocks = blocks};
        const StepInputs step{
            .rows = 5, .tokens = ids, .positions = places, .rope_rows = {}, .sequences = {&sequence, 1}, .sample_rows = {}};
        backend_->begin_step(step);
        for (const bool learned : {false, true}) {
            const Memory out(*backend_, 5, columns, Format::float32, 4);
            backend_->embed(
                {.out = out.matrix(), .tokens = *token_weight, .positions = learned ? position_weight.get() : nullptr, .step = step});
            Table want(5, columns);
            for (std::int64_t row = 0; row < 5; ++row) {
                for (std::int64_t i = 0; i < columns; ++i) {
                    const auto at = static_cast<std::size_t>(row);
                    want.at(row, i) = reference::rounded(token_table.at(ids[at], i), Format::float32);
                    if (learned) want.at(row, i) += reference::rounded(position_table.at(places[at], i), Format::float32);
                    want.at(row, i) = reference::rounded(want.at(row, i), Format::float32);
                }
            }
            EXPECT_EQ(out.read().data, want.data);
            EXPECT_TRUE(out.padding_is_untouched());
        }
        backend_->finish_step();
    }
}

// Rows of `columns` columns followed by `padding` elements. Unless both are multiples of 4, a GPU moves elements one by one.
struct Width {
    std::int64_t columns, padding;
};

TEST_P(Agreement, NormsOfAnyWidth) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const auto& [columns, padding] :
         {Width{1, 3}, Width{7, 1}, Width{16, 4}, Width{20, 3}, Width{65, 3}, Width{576, 3}, Width{576, 4}}) {
        for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
            for (const bool biased : {false, true}) {
                SCOPED_TRACE(::testing::Message() << columns << " columns");
                const Table x = normal(9, columns, 3.0);
                const Table weight = normal(1, columns);
                const Table bias = normal(1, columns);
                const Memory in(*backend_, x, Format::float32, padding);
                const Memory out(*backend_, 9, columns, Format::float32, padding);
                const Memory weight_memory(*backend_, weight);
                const Memory bias_memory(*backend_, bias);
                backend_->norm({.kind = kind,
                                .out = out.matrix(),
                                .in = in.matrix(),
                                .weight = weight_memory.vector(),
                                .bias = biased ? bias_memory.vector() : Vector{},
                                .epsilon = 1e-5F});
                expect_close(out.read(), reference::norm(kind, x, weight.data, biased ? bias.data : std::vector<double>{}, 1e-5),
                             tolerance("norm", weights()));
                EXPECT_TRUE(out.padding_is_untouched());
            }
        }
    }
}

// Pins: a cap before the scale, one that the sum gets instead of what is added, and places in rows that are not written.
TEST_P(Agreement, ScaledAndCappedRowsOfAnyWidth) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const auto& [columns, padding] : {Width{1, 3}, Width{20, 3}, Width{64, 4}, Width{577, 3}}) {
        for (const std::optional<float> cap : {std::optional<float>(), std::optional(2.5F)}) {
            for (const bool accumulates : {false, true}) {
                SCOPED_TRACE(::testing::Message() << columns << " columns, cap " << cap.value_or(0.0F) << (accumulates ? ", added" : ""));
                const Table x = normal(5, columns, 3.0);
                const Table sum = normal(5, columns);
                const Memory in(*backend_, x, Format::float32, padding);
                const Memory out(*backend_, sum, Format::float32, padding);
                backend_->scale({.out = out.matrix(), .in = in.matrix(), .scale = 0.75F, .cap = cap, .accumulate = accumulates});
                Table want(5, columns);
                for (std::size_t i = 0; i < want.data.size(); ++i) {
                    const double scaled = x.data[i] * 0.75;
                    want.data[i] = (accumulates ? sum.data[i] : 0.0) + (cap ? *cap * std::tanh(scaled / *cap) : scaled);
                }
                expect_close(out.read(), want, tolerance("activation", weights()));
                EXPECT_TRUE(out.padding_is_untouched());
                if (accumulates) continue;
                backend_->scale({.out = in.matrix(), .in = in.matrix(), .scale = 0.75F, .cap = cap});
                EXPECT_EQ(in.read().data, out.read().data) << "in place";
            }
        }
    }
}

// Pins: rows that are only converted, which layers without a norm before them need (OLMo 2).
TEST_P(Agreement, RowsWithoutANormAreConverted) {
    const Table x = normal(3, 45, 2.0);
    const Memory in(*backend_, x);
    for (const Format format : GetParam().narrow_formats()) {
        const Memory out(*backend_, 3, 45, format);
        backend_->norm({.kind = NormKind::none, .out = out.matrix(), .in = in.matrix(), .weight = {}, .bias = {}});
        expect_close(out.read(), stored_inputs(in.read(), format), tolerance("narrow", weights()));
    }
}

TEST_P(Agreement, ActivationsOverTheirWholeRange) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const auto kind :
         {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu, ActivationKind::tanh}) {
        for (const bool gated : {false, true}) {
            SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << (gated ? " gated" : ""));
            const std::int64_t width = gated ? 204 : 203;
            Table x = normal(6, gated ? 2 * width : width, 2.0);
            // Row 0 sweeps from where the negative side is zero to where the positive side is linear; row 1 has extreme exponents.
            for (std::int64_t i = 0; i < width; ++i) x.at(0, i) = reference::rounded(-10.0 + 0.1 * static_cast<double>(i), Format::float32);
            const double ends[] = {0.0, 1e-30, -1e-30, 100.0, -100.0, 1e4, -1e4};
            for (std::int64_t i = 0; i < 7; ++i) x.at(1, i) = reference::rounded(ends[i], Format::float32);
            const Memory in(*backend_, x, Format::float32, 4);
            const Memory out(*backend_, 6, width, Format::float32, 4);
            backend_->activation({.kind = kind, .gated = gated, .out = out.matrix(), .in = in.matrix()});
            Table want(6, width);
            for (std::int64_t row = 0; row < 6; ++row) {
                for (std::int64_t i = 0; i < width; ++i) {
                    want.at(row, i) = reference::activate(kind, x.at(row, i)) * (gated ? x.at(row, width + i) : 1.0);
                }
            }
            expect_close(out.read(), want, tolerance("activation", weights()));
            EXPECT_TRUE(out.padding_is_untouched());
        }
    }
}

// Pins: rows with an adapter between the two ops and rows without one get the same bits.
TEST_P(Agreement, ActivatedMatmulIsAMatmulAndThenAnActivation) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    std::vector<Format> formats = GetParam().narrow_formats();
    formats.push_back(Format::float32);
    struct Shape {
        std::int64_t in_features, width;
        bool gated;
        std::vector<std::int64_t> rows;
        int threads = 2;
        ActivationKind kind = ActivationKind::silu;
    };
    for (const Shape& shape :
         {Shape{67, 35, false, {1, 9, 500}}, Shape{67, 35, true, {1, 9, 500}}, Shape{67, 96, false, {1, 9, 500}, 1},
          Shape{67, 96, true, {1, 9, 480, 500}}, Shape{67, 144, false, {1, 9, 500}}, Shape{67, 144, true, {1, 9, 500}, 3},
          Shape{67, 100, true, {1, 9, 500}}, Shape{9, 96, true, {500}, 3}, Shape{67, 35, false, {9}, 2, ActivationKind::gelu_tanh}}) {
        const auto backend = GetParam().make(shape.threads);
        const std::int64_t out_features = shape.gated ? 2 * shape.width : shape.width;
        const Part gate(normal(shape.width, shape.in_features, 0.2), Format::float32, false);
        const Part up(normal(shape.width, shape.in_features, 0.2), Format::float32, false);
        const WeightPart views[] = {gate.view(), up.view()};
        const auto weight =
            backend->pack_weight(std::span(views).first(shape.gated ? 2 : 1), shape.gated ? WeightRole::gate_up : WeightRole::projection);
        const Memory bias(*backend, normal(1, out_features));
        for (const std::int64_t rows : shape.rows) {
            const Memory in(*backend, reference::rounded(normal(rows, shape.in_features), input()), weight->input_format());
            for (const Format format : formats) {
                SCOPED_TRACE(::testing::Message()
                             << rows << " x " << shape.in_features << " x " << shape.width << (shape.gated ? " gated " : " ")
                             << kernels::name_of(format) << ", " << shape.threads << " threads");
                const Vector some_bias = number(0, 1) == 1 ? bias.vector() : Vector{};
                const Memory sums(*backend, rows, out_features);
                const Memory own_sums(*backend, rows, out_features);
                const Memory want(*backend, rows, shape.width, format);
                const Memory got(*backend, rows, shape.width, format);
                backend->matmul({.out = sums.matrix(), .in = in.matrix(), .weight = *weight, .bias = some_bias});
                backend->activation({.kind = shape.kind, .gated = shape.gated, .out = want.matrix(), .in = sums.matrix()});
                backend->activated_matmul({.kind = shape.kind,
                                           .gated = shape.gated,
                                           .out = got.matrix(),
                                           .sums = own_sums.matrix(),
                                           .in = in.matrix(),
                                           .weight = *weight,
                                           .bias = some_bias});
                EXPECT_EQ(got.read().data, want.read().data);
                EXPECT_TRUE(got.padding_is_untouched());
                EXPECT_TRUE(own_sums.padding_is_untouched());
            }
        }
    }
}

// Pins: the bits do not depend on whether updates are added within the matmul, because the rows beside decide whether they are.
TEST_P(Agreement, ActivatedMatmulAddsUpdatesBeforeTheActivation) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    std::vector<Format> formats = GetParam().narrow_formats();
    formats.push_back(Format::float32);
    constexpr std::int64_t in_features = 67;
    struct Shape {
        std::int64_t width;
        bool gated;
        std::vector<std::int64_t> rows;
    };
    for (const Shape& shape : {Shape{96, true, {1, 11, 61, 500}}, Shape{70, true, {11, 500}}, Shape{75, false, {11, 500}}}) {
        const std::int64_t out_features = shape.gated ? 2 * shape.width : shape.width;
        const Part gate(normal(shape.width, in_features, 0.2), Format::float32, false);
        const Part up(normal(shape.width, in_features, 0.2), Format::float32, false);
        const WeightPart views[] = {gate.view(), up.view()};
        const auto weight =
            backend_->pack_weight(std::span(views).first(shape.gated ? 2 : 1), shape.gated ? WeightRole::gate_up : WeightRole::projection);
        const Memory bias(*backend_, normal(1, out_features));
        const std::int64_t last = out_features - shape.width;
        const LoraAdapter both = shape.gated ? adapter_of({{0, shape.width, 16, 2.0F}, {last, shape.width, 5, 1.0F}}, in_features)
                                             : adapter_of({{0, shape.width, 50, 2.0F}}, in_features);
        const LoraAdapter one = adapter_of({{last, shape.width, 70, 1.0F}}, in_features);
        // Not of one part: its outputs begin or end within one.
        const LoraAdapter other = adapter_of({{1, out_features - 2, 8, 1.0F}}, in_features);
        for (const std::int64_t rows : shape.rows) {
            const std::int64_t cut = rows / 4;
            std::vector<LoraGroup> groups{{cut, 1, both.packed.get()}};
            if (rows > 8) {
                groups = {{1, cut, both.packed.get()},
                          {cut + 1, 1, one.packed.get()},
                          {cut + 2, 1, nullptr},
                          {cut + 4, rows / 2, one.packed.get()}};
            }
            const Memory in(*backend_, reference::rounded(normal(rows, in_features), input()), weight->input_format());
            for (const bool of_parts : {true, false}) {
                if (!of_parts) groups.front().lora = other.packed.get();
                for (const Format format : formats) {
                    SCOPED_TRACE(::testing::Message() << rows << " x " << shape.width << (shape.gated ? " gated " : " ")
                                                      << kernels::name_of(format) << (of_parts ? "" : ", an update across parts"));
                    const Memory sums(*backend_, rows, out_features);
                    const Memory own_sums(*backend_, rows, out_features);
                    const Memory want(*backend_, rows, shape.width, format);
                    const Memory got(*backend_, rows, shape.width, format);
                    backend_->matmul({.out = sums.matrix(), .in = in.matrix(), .weight = *weight, .bias = bias.vector()});
                    backend_->lora({.out = sums.matrix(), .in = in.matrix(), .groups = groups});
                    backend_->activation({.kind = ActivationKind::silu, .gated = shape.gated, .out = want.matrix(), .in = sums.matrix()});
                    backend_->activated_matmul({.kind = ActivationKind::silu,
                                                .gated = shape.gated,
                                                .out = got.matrix(),
                                                .sums = own_sums.matrix(),
                                                .in = in.matrix(),
                                                .weight = *weight,
                                                .bias = bias.vector(),
                                                .groups = groups});
                    ASSERT_EQ(got.read().data, want.read().data);
                    EXPECT_TRUE(got.padding_is_untouched());
                    EXPECT_TRUE(own_sums.padding_is_untouched());
                }
            }
        }
    }
}

TEST_P(Agreement, LoraOfMixedRanksPartsAndRowsWithoutAdapter) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const bool by_pairs = GetParam().multiplies_pairs();
    const Format read = by_pairs ? Format::bfloat16 : input();
    const std::int64_t in_features = 47;
    const std::int64_t out_features = 100;
    // A fused projection, a single slice of odd rank, and a rank larger than the inputs.
    std::vector<LoraAdapter> adapters;
    for (const std::vector<LoraSlice>& slices : std::vector<std::vector<LoraSlice>>{
             {{0, 40, 8, 2.0F}, {40, 30, 8, 2.0F}, {70, 30, 16, 0.5F}}, {{33, 7, 3, 1.0F}}, {{0, 100, 64, 0.25F}}})
        adapters.push_back(adapter_of(slices, in_features));
    EXPECT_EQ(adapters[0].packed->rank_sum(), 32);
    EXPECT_EQ(adapters[1].packed->rank_sum(), 3);

    const std::vector<LoraGroup> groups{{2, 5, adapters[0].packed.get()},
                                        {7, 1, adapters[1].packed.get()},
                                        {8, 3, nullptr},
                                        {11, 70, adapters[2].packed.get()},
                                        {81, 1, adapters[0].packed.get()}};
    const Table x = reference::rounded(normal(85, in_features), read);
    const Table before = normal(85, out_features);
    const Memory in(*backend_, x, read);
    const Memory out(*backend_, before);
    backend_->lora({.out = out.matrix(), .in = in.matrix(), .groups = groups});

    Table want = before;
    for (const LoraGroup& group : groups) {
        for (const LoraAdapter& adapter : adapters) {
            if (adapter.packed.get() != group.lora) continue;
            for (std::size_t i = 0; i < adapter.slices.size(); ++i) {
                const LoraSlice& slice = adapter.slices[i];
                Table b = adapter.b[i].stored;
                // A scale that is a power of two does not round.
                for (double& value : b.data) value *= static_cast<double>(slice.scale);
                b = reference::rounded(b, weights());
                Table shrunk = reference::matmul(x, reference::rounded(adapter.a[i].stored, weights()));
                if (by_pairs) shrunk = reference::rounded(shrunk, Format::bfloat16);
                const Table update = reference::matmul(shrunk, b);
                for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
                    for (std::int64_t o = 0; o < slice.size; ++o) want.at(row, slice.begin + o) += update.at(row, o);
                }
            }
        }
    }
    expect_close(out.read(), want, tolerance(by_pairs ? "lora_by_pairs" : "lora", weights()));
    EXPECT_TRUE(out.padding_is_untouched());
    // Rows without an adapter keep their bits.
    for (const std::int64_t row : {0, 1, 8, 9, 10, 82, 84}) {
        for (std::int64_t i = 0; i < out_features; ++i)
            EXPECT_EQ(out.read_row(row)[static_cast<std::size_t>(i)], static_cast<float>(before.at(row, i)));
    }
}

// Pins: each weight is multiplied by its own input, to the last bit: whole numbers are not rounded in any format.
TEST_P(Agreement, LoraOfWholeNumbersIsExact) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const auto whole = [&](std::int64_t rows, std::int64_t columns, std::int64_t most) {
        Table table(rows, columns);
        for (double& value : table.data) value = static_cast<double>(number(-most, most));
        return table;
    };
    const Format read = GetParam().multiplies_pairs() ? Format::bfloat16 : input();
    for (const std::int64_t rank : {1, 2, 5, 16, 31, 64}) {
        for (const std::int64_t in_features : {3, 32, 101}) {
            SCOPED_TRACE(::testing::Message() << "rank " << rank << ", " << in_features << " inputs");
            // Two parts, the second of which begins wherever the first one's rank ends.
            const Part a(whole(rank, in_features, 1), Format::float32, false);
            const Part b(whole(70, rank, 2), Format::float32, false);
            const Part second_b(whole(33, rank, 2), Format::float32, false);
            const LoraPart parts[] = {{a.view(), b.view(), 2.0F, 0}, {a.view(), second_b.view(), 0.5F, 70}};
            const auto lora = backend_->pack_lora(parts);
            const Table x = whole(37, in_features, 2);
            const Table before = whole(37, 103, 9);
            const Memory in(*backend_, x, read);
            const Memory out(*backend_, before);
            const LoraGroup group{0, 37, lora.get()};
            backend_->lora({.out = out.matrix(), .in = in.matrix(), .groups = {&group, 1}});
            Table want = before;
            const Table shrunk = reference::matmul(x, a.stored);
            const Table first = reference::matmul(shrunk, b.stored);
            const Table second = reference::matmul(shrunk, second_b.stored);
            for (std::int64_t row = 0; row < 37; ++row) {
                for (std::int64_t i = 0; i < 103; ++i) want.at(row, i) += i < 70 ? 2.0 * first.at(row, i) : 0.5 * second.at(row, i - 70);
            }
            ASSERT_EQ(out.read().data, want.data);
        }
    }
}

// Pins: a narrow row is the op's float32 row, rounded once.
TEST_P(Agreement, OpsWriteTheInputFormatOfTheNextMatmul) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    for (const Format format : GetParam().narrow_formats()) {
        for (const auto& [columns, padding] : {Width{4, 3}, Width{35, 3}, Width{96, 3}, Width{96, 8}, Width{203, 3}}) {
            SCOPED_TRACE(::testing::Message() << kernels::name_of(format) << ", " << columns << " columns");
            const Table x = normal(70, 2 * columns, 2.0);
            const Table weight = normal(1, columns);
            const Memory in(*backend_, x, Format::float32, padding);
            const Memory weight_memory(*backend_, weight);
            const Memory wide(*backend_, 70, columns, Format::float32, padding);
            const Memory narrow(*backend_, 70, columns, format, padding);
            const auto expect_rounded = [&] {
                expect_close(narrow.read(), stored_inputs(wide.read(), format), tolerance("narrow", weights()));
                EXPECT_TRUE(narrow.padding_is_untouched());
            };
            for (const Memory* out : {&wide, &narrow}) {
                backend_->norm({.kind = NormKind::rms,
                                .out = out->matrix(),
                                .in = in.matrix().slice_columns(0, columns),
                                .weight = weight_memory.vector(),
                                .bias = {},
                                .epsilon = 1e-5F});
            }
            expect_rounded();
            for (const Memory* out : {&wide, &narrow})
                backend_->activation({.kind = ActivationKind::silu, .gated = true, .out = out->matrix(), .in = in.matrix()});
            expect_rounded();

            const std::vector<std::int32_t> wanted{0, 3, 69};
            const std::vector<std::int32_t> places(70, 0);
            const std::vector<BlockId> blocks(70, 0);
            const StepSequence sequence{.row_begin = 0, .row_count = 70, .position = 0, .blocks = blocks};
            const StepInputs step{
                .rows = 70, .tokens = places, .positions = places, .rope_rows = {}, .sequences = {&sequence, 1}, .sample_rows = wanted};
            backend_->begin_step(step);
            const Memory gathered(*backend_, 3, columns, format, padding);
            backend_->gather_rows({.out = gathered.matrix(), .in = narrow.matrix(), .step = step});
            for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(gathered.read_row(i), narrow.read_row(wanted[static_cast<std::size_t>(i)]));
            backend_->finish_step();

            // A low-rank update reads the row's contents; on a GPU, rows of fp8 are first rounded to the adapters' format.
            if (GetParam().is_gpu() && format != Format::fp8_rows && format != weights()) continue;
            const Part a(normal(8, columns, 0.1), Format::float32, false);
            const Part b(normal(20, 8, 0.1), Format::float32, false);
            const LoraPart part{a.view(), b.view(), 1.0F, 0};
            const auto lora = backend_->pack_lora({&part, 1});
            const LoraGroup group{5, 60, lora.get()};
            const Table before = normal(70, 20);
            const Memory widened(*backend_, narrow.read(), input());
            const Memory from_wide(*backend_, before);
            const Memory from_narrow(*backend_, before);
            backend_->lora({.out = from_wide.matrix(), .in = widened.matrix(), .groups = {&group, 1}});
            backend_->lora({.out = from_narrow.matrix(), .in = narrow.matrix(), .groups = {&group, 1}});
            // An int8 row read as pairs is scaled after the sum, so it is not rounded; the wide row is.
            if (format == Format::int8_rows && GetParam().multiplies_pairs()) {
                const Table shrunk = reference::matmul(narrow.read(), reference::rounded(a.stored, weights()));
                const Table update =
                    reference::matmul(reference::rounded(shrunk, Format::bfloat16), reference::rounded(b.stored, weights()));
                Table want = before;
                for (std::int64_t row = 5; row < 65; ++row) {
                    for (std::int64_t i = 0; i < 20; ++i) want.at(row, i) += update.at(row, i);
                }
                expect_close(from_narrow.read(), want, tolerance("lora_by_pairs", weights()));
            } else {
                EXPECT_EQ(from_narrow.read().data, from_wide.read().data);
            }
        }
    }
}

// Pins: rows wider than what a GPU's threads keep (row.h), where each thread has several groups of four.
TEST_P(Agreement, RowsOfManyThousandColumns) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const std::int64_t columns = 16'404;
    const Table x = normal(2, 2 * columns, 2.0);
    const Table weight = normal(1, columns);
    const Memory in(*backend_, x, Format::float32, 4);
    const Memory weight_memory(*backend_, weight);
    const Memory wide(*backend_, 2, columns, Format::float32, 4);
    const Memory narrow(*backend_, 2, columns, GetParam().narrow_formats().back(), 4);
    const auto expect_rounded = [&] {
        expect_close(narrow.read(), stored_inputs(wide.read(), narrow.matrix().format), tolerance("narrow", weights()));
    };
    for (const Memory* out : {&wide, &narrow}) {
        backend_->norm({.kind = NormKind::layer,
                        .out = out->matrix(),
                        .in = in.matrix().slice_columns(0, columns),
                        .weight = weight_memory.vector(),
                        .bias = {},
                        .epsilon = 1e-5F});
    }
    Table first(2, columns);
    for (std::int64_t row = 0; row < 2; ++row) {
        for (std::int64_t i = 0; i < columns; ++i) first.at(row, i) = x.at(row, i);
    }
    expect_close(wide.read(), reference::norm(NormKind::layer, first, weight.data, {}, 1e-5), tolerance("norm", weights()));
    expect_rounded();
    for (const Memory* out : {&wide, &narrow})
        backend_->activation({.kind = ActivationKind::silu, .gated = true, .out = out->matrix(), .in = in.matrix()});
    expect_rounded();
}

// Pins: a row with a value that is not finite keeps such a value when it is narrowed to int8 or fp8.
TEST_P(Agreement, NumbersThatAreNotFiniteSurviveNarrowing) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Table x = normal(2, 40);
        x.at(1, 17) = bad;
        const Memory in(*backend_, x);
        const Memory narrow(*backend_, 2, 40, GetParam().narrow_formats().back());
        backend_->activation({.kind = ActivationKind::relu, .out = narrow.matrix(), .in = in.matrix()});
        for (const float value : narrow.read_row(0)) EXPECT_TRUE(std::isfinite(value));
        for (const float value : narrow.read_row(1)) EXPECT_FALSE(std::isfinite(value));
    }
}

TEST_P(Agreement, GroupScalesAndBiasesAndGatherRowsAreExact) {
    const Table x = normal(40, 21);
    const Table bias = normal(2, 21);
    const Memory rows(*backend_, x);
    const Memory biases(*backend_, bias);
    const Vector first{static_cast<const float*>(biases.matrix().data), 21};
    const Vector second{static_cast<const float*>(biases.matrix().slice_rows(1, 1).data), 21};
    const std::vector<BiasGroup> groups{{.row_begin = 1, .row_count = 2, .scale = {}, .bias = first},
                                        {.row_begin = 3, .row_count = 1, .scale = {}, .bias = {}},
                                        {.row_begin = 4, .row_count = 1, .scale = first, .bias = {}},
                                        {.row_begin = 6, .row_count = 34, .scale = first, .bias = second}};
    backend_->group_bias({.out = rows.matrix(), .groups = groups});
    Table want = x;
    for (std::int64_t row = 0; row < 40; ++row) {
        for (std::int64_t i = 0; i < 21; ++i) {
            double& to = want.at(row, i);
            if (row == 4 || row >= 6) to = reference::rounded(to * bias.at(0, i), Format::float32);
            if (row == 1 || row == 2) to = reference::rounded(to + bias.at(0, i), Format::float32);
            if (row >= 6) to = reference::rounded(to + bias.at(1, i), Format::float32);
        }
    }
    EXPECT_EQ(rows.read().data, want.data);

    const std::vector<std::int32_t> wanted{0, 3, 39};
    const std::vector<std::int32_t> places(40, 0);
    const std::vector<BlockId> blocks(40, 0);
    const StepSequence sequence{.row_begin = 0, .row_count = 40, .position = 0, .blocks = blocks};
    const StepInputs step{
        .rows = 40, .tokens = places, .positions = places, .rope_rows = {}, .sequences = {&sequence, 1}, .sample_rows = wanted};
    backend_->begin_step(step);
    const Memory gathered(*backend_, 3, 21);
    backend_->gather_rows({.out = gathered.matrix(), .in = rows.matrix(), .step = step});
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(gathered.read_row(i), rows.read_row(wanted[static_cast<std::size_t>(i)]));
    EXPECT_TRUE(gathered.padding_is_untouched());
    backend_->finish_step();
}

// Pins: a matmul reads the previous op's result, rounded once.
TEST_P(Agreement, ProducingOpsWriteTheFormatThatMatmulsRead) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Memory in(*backend_, normal(5, 2 * 37));
    const Memory weight(*backend_, normal(1, 2 * 37));
    const auto both = [&](std::int64_t columns, const auto& op) {
        const Memory plain(*backend_, 5, columns);
        const Memory rounded(*backend_, 5, columns, input());
        op(plain.matrix());
        op(rounded.matrix());
        EXPECT_EQ(rounded.read().data, reference::rounded(plain.read(), input()).data);
        EXPECT_TRUE(rounded.padding_is_untouched());
    };
    both(2 * 37, [&](const Matrix& out) {
        backend_->norm({.kind = NormKind::rms, .out = out, .in = in.matrix(), .weight = weight.vector(), .bias = {}, .epsilon = 1e-5F});
    });
    both(37,
         [&](const Matrix& out) { backend_->activation({.kind = ActivationKind::silu, .gated = true, .out = out, .in = in.matrix()}); });
}

INSTANTIATE_TEST_SUITE_P(Op, Agreement, ::testing::ValuesIn(devices()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
