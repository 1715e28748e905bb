// Each call's contract fires, with the call's name and both sizes. No device is needed, because the contract sees only sizes.
#include "kernels/contract.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace lorry::kernels::testing {

namespace {

class SomeWeight final : public PackedWeight {
public:
    SomeWeight(std::int64_t out_features, std::int64_t in_features) : out_features_(out_features), in_features_(in_features) {}
    std::int64_t out_features() const override { return out_features_; }
    std::int64_t in_features() const override { return in_features_; }
    std::size_t bytes() const override { return 0; }
    Format input_format() const override { return Format::bfloat16; }

private:
    std::int64_t out_features_;
    std::int64_t in_features_;
};

class SomeLora final : public PackedLora {
public:
    std::int64_t in_features() const override { return 8; }
    std::int64_t out_end() const override { return 12; }
    std::int64_t rank_sum() const override { return 4; }
    std::size_t bytes() const override { return 0; }
};

class SomeCache final : public KvCache {
public:
    explicit SomeCache(bool lends_blocks = false) : lends_blocks_(lends_blocks) {}
    const KvShape& shape() const override { return shape_; }
    std::int64_t blocks() const override { return 4; }
    std::size_t bytes() const override { return 2048; }
    SlotRange slots() const override { return {1024, 2048}; }
    bool lends_blocks() const override { return lends_blocks_; }

private:
    KvShape shape_{.layers = 2, .kv_heads = 2, .head_dim = 4};
    bool lends_blocks_;
};

std::array<float, 1024> memory;

Matrix matrix(std::int64_t rows, std::int64_t columns, Format format = Format::float32) {
    return {.data = memory.data(), .format = format, .rows = rows, .columns = columns, .stride = columns};
}
Vector vector(std::int64_t size) { return {.data = memory.data(), .size = size}; }

// Two rows of one sequence whose tokens are in block 3.
struct TwoRows {
    std::vector<TokenId> tokens{5, 6};
    std::vector<std::int32_t> positions{0, 1};
    std::vector<std::int32_t> rope_rows{0, 1};
    std::vector<std::int32_t> sample_rows{1};
    std::vector<BlockId> blocks{3};
    std::vector<StepSequence> sequences{{.row_begin = 0, .row_count = 2, .position = 0, .blocks = blocks}};
    StepInputs inputs{.rows = 2,
                      .tokens = tokens,
                      .drawn = {},
                      .positions = positions,
                      .rope_rows = rope_rows,
                      .sequences = sequences,
                      .sample_rows = sample_rows};
};

class Contract : public ::testing::Test {
protected:
    void check(const Op& op) const { check(op, two_.inputs); }
    static void check(const Op& op, const StepInputs& begun) {
        contract::check_op(op, {.rows = 2, .block_size = 16, .sequences = begun.sequences});
    }
    static void check(const StepInputs& step) { contract::check_step(step, {.block_size = 16, .queued_max = 1}); }

    const TwoRows two_;
    SomeCache cache_;
    const SomeLora lora_;
    const SomeWeight weight_{12, 8};  // also a table of 12 tokens
    const SomeWeight positions_{2, 8};

    const EmbedArgs embed_{.out = matrix(2, 8), .tokens = weight_, .positions = &positions_, .step = two_.inputs};
    const NormArgs norm_{.out = matrix(2, 8), .in = matrix(2, 8), .weight = vector(8), .bias = {}};
    const MatmulArgs matmul_{.out = matrix(2, 12), .in = matrix(2, 8, Format::bfloat16), .weight = weight_, .bias = vector(12)};
    const std::vector<LoraGroup> lora_groups_{{0, 1, &lora_}, {1, 1, nullptr}};
    const LoraArgs lora_args_{.out = matrix(2, 12), .in = matrix(2, 8), .groups = lora_groups_};
    const std::vector<BiasGroup> bias_groups_{{.row_begin = 0, .row_count = 2, .scale = vector(12), .bias = vector(12)}};
    const GroupBiasArgs group_bias_{.out = matrix(2, 12), .groups = bias_groups_};
    const RopeStoreArgs rope_store_{.qkv = matrix(2, 32),
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .rope_table = matrix(2, 4),
                                    .q_norm = vector(4),
                                    .k_norm = {},
                                    .cache = cache_,
                                    .layer = 1,
                                    .step = two_.inputs};
    const AttentionArgs attention_{.out = matrix(2, 16),
                                   .qkv = matrix(2, 32),
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 4,
                                   .window = 1,
                                   .cache = cache_,
                                   .layer = 1,
                                   .step = two_.inputs};
    const ActivationArgs activation_{.gated = true, .out = matrix(2, 6), .in = matrix(2, 12)};
    const ScaleArgs scale_{.out = matrix(2, 6), .in = matrix(2, 6)};
    const ActivatedMatmulArgs activated_matmul_{
        .gated = true, .out = matrix(2, 6), .sums = matrix(2, 12), .in = matrix(2, 8, Format::bfloat16), .weight = weight_, .bias = {}};
    const GatherRowsArgs gather_rows_{.out = matrix(1, 8), .in = matrix(2, 8), .step = two_.inputs};
    const std::vector<std::int32_t> positions_of_distance_{0, 1, 2};
    const DisentangledBiasArgs disentangled_bias_{.out = matrix(2, 32),
                                                  .qkv = matrix(2, 24),
                                                  .heads = 2,
                                                  .head_dim = 4,
                                                  .position_of_distance = positions_of_distance_,
                                                  .keys = matrix(3, 8),
                                                  .queries = {},
                                                  .sequences = two_.sequences,
                                                  .step = two_.inputs};
    const UnfoldArgs unfold_{.width = 3, .out = matrix(2, 24), .in = matrix(2, 8), .step = two_.inputs};
    const std::vector<PoolSegment> segments_{{.row_begin = 0, .row_count = 2}};
    const std::vector<float> factors_{0.5F};
    const PoolArgs pool_{.out = matrix(1, 8), .in = matrix(2, 8), .segments = segments_, .factors = factors_};
    const ClampedGateArgs clamped_gate_{.out = matrix(2, 6), .in = matrix(2, 12), .alpha = 1.7F, .limit = 7.0F};
    const std::vector<std::int32_t> picked_{1, 0, 1};
    const PickRowsArgs pick_rows_{.out = matrix(3, 8), .in = matrix(2, 8), .rows = picked_};
    const std::vector<std::int32_t> places_{0, 2, 1, 2};
    const std::vector<float> shares_{0.5F, 0.5F, 0.25F, 0.75F};
    const MixRowsArgs mix_rows_{.out = matrix(2, 8),
                                .in = matrix(3, 8),
                                .places = places_,
                                .factors = shares_,
                                .shared = matrix(2, 8),
                                .shared_scores = matrix(2, 1)};
    const std::vector<SampleRow> sample_{SampleRow{}};
    mutable std::vector<SampleResult> results_{1};
    const SampleArgs sample_args_{.logits = matrix(1, 12), .rows = sample_, .results = results_};
};

// A copy of arguments with some of them changed.
template <class Args, class Change>
Args with(Args args, const Change& change) {
    change(args);
    return args;
}

using ContractDeathTest = Contract;

TEST_F(Contract, EveryOpOfItsOwnShapesPasses) {
    const std::array ops = {
        Op(&embed_),     Op(&norm_),       Op(&matmul_),      Op(&lora_args_),        Op(&group_bias_),  Op(&rope_store_),
        Op(&attention_), Op(&activation_), Op(&scale_),       Op(&activated_matmul_), Op(&gather_rows_), Op(&disentangled_bias_),
        Op(&unfold_),    Op(&pool_),       Op(&sample_args_), Op(&clamped_gate_),     Op(&pick_rows_),   Op(&mix_rows_)};
    std::set<std::string> names;
    for (const Op& op : ops) {
        check(op);
        names.insert(name_of(op));
    }
    EXPECT_EQ(names.size(), std::variant_size_v<Op>) << "an op is missing above, or two have one name";
    check(two_.inputs);
}

TEST_F(ContractDeathTest, ExpertsReadRowsOfTheirInputs) {
    const auto rows = with(pick_rows_, [](auto& args) { args.in.rows = 1; });
    EXPECT_DEATH(check(&rows), "pick_rows: a row is 1, which is not in .0, 1.");
    const auto out = with(pick_rows_, [](auto& args) { args.out.rows = 2; });
    EXPECT_DEATH(check(&out), "pick_rows: out.rows is 2, but rows.size is 3");
    const auto places = with(mix_rows_, [](auto& args) { args.in.rows = 2; });
    EXPECT_DEATH(check(&places), "mix_rows: a place is 2, which is not in .0, 2.");
    const auto few = with(mix_rows_, [&](auto& args) { args.factors = args.factors.first(3); });
    EXPECT_DEATH(check(&few), "mix_rows: factors.size is 3, but places.size is 4");
    const auto uneven = with(mix_rows_, [](auto& args) { args.out.rows = 3; });
    EXPECT_DEATH(check(&uneven), "mix_rows: places.size is 4, which is not a multiple of 3 rows");
    const auto scores = with(mix_rows_, [](auto& args) { args.shared_scores.rows = 1; });
    EXPECT_DEATH(check(&scores), "mix_rows: shared_scores.rows is 1, but out.rows is 2");
    const auto limit = with(clamped_gate_, [](auto& args) { args.limit = 0.0F; });
    EXPECT_DEATH(check(&limit), "clamped_gate: alpha and limit must be positive");
    const auto sinks = with(attention_, [&](auto& args) { args.sinks = vector(3); });
    EXPECT_DEATH(check(&sinks), "attention: sinks.size is 3, but heads is 4");
}

TEST_F(ContractDeathTest, EmbedReadsRowsOfItsTables) {
    const auto bad = with(embed_, [](auto& args) { args.out.columns = 7; });
    EXPECT_DEATH(check(&bad), "embed: out.columns is 7, but tokens.in_features is 8");
    const SomeWeight small{6, 8};
    const EmbedArgs beyond{.out = embed_.out, .tokens = small, .step = two_.inputs};
    EXPECT_DEATH(check(&beyond), "embed: a token is 6, which is not in .0, 6.");
    const SomeWeight few{1, 8};
    const auto short_table = with(embed_, [&](auto& args) { args.positions = &few; });
    EXPECT_DEATH(check(&short_table), "embed: a position is 1, which is not in .0, 1.");
    const auto with_own = [&](std::vector<OwnEmbedding> own, const char* error) {
        const auto args = with(embed_, [&](auto& changed) { changed.own = own; });
        EXPECT_DEATH(check(&args), error);
    };
    with_own({{.row = 1, .table = &few}, {.row = 1, .table = &few}}, "embed: rows of their own do not ascend within 2");
    with_own({{.row = 2, .table = &few}}, "embed: rows of their own do not ascend within 2");
    with_own({{.row = 0, .table = &few, .index = 1}}, "embed: an index is 1, which is not in .0, 1.");
    const SomeWeight narrow{4, 7};
    with_own({{.row = 0, .table = &narrow}}, "embed: a table's in_features is 7, but tokens.in_features is 8");
}

TEST_F(ContractDeathTest, NormKeepsShapes) {
    const auto narrow = with(norm_, [](auto& args) { args.out.rows = 1; });
    EXPECT_DEATH(check(&narrow), "norm: out.rows is 1, but in.rows is 2");
    const auto weights = with(norm_, [](auto& args) { args.weight.size = 7; });
    EXPECT_DEATH(check(&weights), "norm: weight.size is 7, but in.columns is 8");
    const auto format = with(norm_, [](auto& args) { args.in.format = Format::bfloat16; });
    EXPECT_DEATH(check(&format), "norm: in is bfloat16, but must be float32");
    const auto nothing = with(norm_, [](auto& args) { args.out.data = nullptr; });
    EXPECT_DEATH(check(&nothing), "norm: out has 2 rows and no memory");
    const auto stride = with(norm_, [](auto& args) { args.out.stride = 7; });
    EXPECT_DEATH(check(&stride), "norm: out.stride is 7, but 8 columns of float32 need 8");
    const auto scales = with(norm_, [](auto& args) { args.out.format = Format::fp8_rows; });
    EXPECT_DEATH(check(&scales), "norm: out has rows of fp8 and no memory for their scales");
}

TEST_F(ContractDeathTest, MatmulsHaveTheWeightsShape) {
    const auto in = with(matmul_, [](auto& args) { args.in.columns = 7; });
    EXPECT_DEATH(check(&in), "matmul: in.columns is 7, but weight.in_features is 8");
    const auto format = with(matmul_, [](auto& args) { args.in.format = Format::float32; });
    EXPECT_DEATH(check(&format), "matmul: in is float32, but must be bfloat16");
    const auto bias = with(matmul_, [](auto& args) { args.bias.size = 3; });
    EXPECT_DEATH(check(&bias), "matmul: bias.size is 3, but weight.out_features is 12");
    const auto width = with(activated_matmul_, [](auto& args) { args.out.columns = 5; });
    EXPECT_DEATH(check(&width), "activated_matmul: sums.columns is 12, but 2 . out.columns is 10");
}

TEST_F(ContractDeathTest, AdaptersGroupsLieInTheRows) {
    const auto narrow = with(lora_args_, [](auto& args) { args.out.columns = 11; });
    EXPECT_DEATH(check(&narrow), "lora: an adapter adds to outputs up to 12, but out.columns is 11");
    const std::vector<LoraGroup> twice{{0, 2, &lora_}, {1, 1, &lora_}};
    const auto overlapping = with(lora_args_, [&](auto& args) { args.groups = twice; });
    EXPECT_DEATH(check(&overlapping), "lora: a group begins at row 1, before row 2 where the last one ends");
    const std::vector<BiasGroup> outside{{.row_begin = 1, .row_count = 2, .scale = {}, .bias = vector(12)}};
    const auto beyond = with(group_bias_, [&](auto& args) { args.groups = outside; });
    EXPECT_DEATH(check(&beyond), "group_bias: a group has rows .1, 3. of 2");
    const std::vector<BiasGroup> short_scale{{.row_begin = 0, .row_count = 2, .scale = vector(11), .bias = {}}};
    const auto scaled = with(group_bias_, [&](auto& args) { args.groups = short_scale; });
    EXPECT_DEATH(check(&scaled), "group_bias: scale.size is 11, but out.columns is 12");
}

TEST_F(ContractDeathTest, RopeStoreAndAttentionAreOfTheCacheAndTheStep) {
    const auto layer = with(rope_store_, [](auto& args) { args.layer = 2; });
    EXPECT_DEATH(check(&layer), "rope_store: layer is 2, which is not in .0, 2.");
    const auto norms = with(rope_store_, [](auto& args) { args.q_norm.size = 8; });
    EXPECT_DEATH(check(&norms), "rope_store: q_norm.size is 8, but head_dim is 4");
    const auto table = with(rope_store_, [](auto& args) { args.rope_table.rows = 1; });
    EXPECT_DEATH(check(&table), "rope_store: a rope row is 1, which is not in .0, 1.");
    const auto heads = with(attention_, [](auto& args) { args.heads = 3; });
    EXPECT_DEATH(check(&heads), "attention: qkv.columns is 32, but .heads . 2 . kv_heads. . head_dim is 28");
    const auto window = with(attention_, [](auto& args) { args.window = 0; });
    EXPECT_DEATH(check(&window), "attention: window is 0, which is not positive");
    TwoRows lost;
    lost.blocks.front() = 4;
    const RopeStoreArgs stored{.qkv = rope_store_.qkv,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 4,
                               .rope_table = {},
                               .q_norm = {},
                               .k_norm = {},
                               .cache = cache_,
                               .step = lost.inputs};
    EXPECT_DEATH(check(&stored), "rope_store: step.sequences are not those of the begun step");
    EXPECT_DEATH(check(&stored, lost.inputs), "rope_store: a block is 4, which is not in .0, 4.");
    const AttentionArgs read{
        .out = attention_.out, .qkv = attention_.qkv, .heads = 4, .kv_heads = 2, .head_dim = 4, .cache = cache_, .step = lost.inputs};
    EXPECT_DEATH(check(&read, lost.inputs), "attention: a block is 4, which is not in .0, 4.");
    EXPECT_DEATH(contract::check_op(&attention_, {.rows = 3, .block_size = 16}),
                 "attention: step.rows is 2, but the begun step's rows is 3");
}

TEST_F(ContractDeathTest, DisentangledBiasHasAPositionForEachDistance) {
    const auto terms = with(disentangled_bias_, [](auto& args) { args.keys = {}; });
    EXPECT_DEATH(check(&terms), "disentangled_bias: there are neither keys nor queries");
    const auto few = with(disentangled_bias_, [](auto& args) { args.keys.rows = 2; });
    EXPECT_DEATH(check(&few), "disentangled_bias: a relative position is 2, which is not in .0, 2.");
    const auto near = with(disentangled_bias_, [&](auto& args) { args.position_of_distance = args.position_of_distance.first(1); });
    EXPECT_DEATH(check(&near), "disentangled_bias: a distance is 1, which is not in .0, 1.");
    const auto blocks = with(disentangled_bias_, [](auto& args) { args.out.columns = 8; });
    EXPECT_DEATH(check(&blocks), "disentangled_bias: out.columns is 8, which is not whole blocks of 16 tokens for each of 2 heads");
    const auto rows = with(attention_, [](auto& args) { args.bias_by_token = matrix(1, 64); });
    EXPECT_DEATH(check(&rows), "attention: bias_by_token.rows is 1, but step.rows is 2");
}

TEST_F(ContractDeathTest, UnfoldHasAsManyNeighboursOnEitherSide) {
    const auto even = with(unfold_, [](auto& args) { args.width = 2; });
    EXPECT_DEATH(check(&even), "unfold: width is 2, which is not odd");
    const auto wide = with(unfold_, [](auto& args) { args.width = 5; });
    EXPECT_DEATH(check(&wide), "unfold: out.columns is 24, but width . in.columns is 40");
}

TEST_F(ContractDeathTest, ActivationIsHalfAsWideAsGateAndUp) {
    const auto wide = with(activation_, [](auto& args) { args.in.columns = 11; });
    EXPECT_DEATH(check(&wide), "activation: in.columns is 11, but 2 . out.columns is 12");
}

TEST_F(ContractDeathTest, ScaleKeepsShapesAndCapsArePositive) {
    const auto wide = with(scale_, [](auto& args) { args.in.columns = 5; });
    EXPECT_DEATH(check(&wide), "scale: out.columns is 6, but in.columns is 5");
    const auto capped = with(scale_, [](auto& args) { args.cap = 0.0F; });
    EXPECT_DEATH(check(&capped), "scale: cap is 0, which is not positive");
    const auto scores = with(attention_, [](auto& args) { args.cap = -1.0F; });
    EXPECT_DEATH(check(&scores), "attention: cap is -1, which is not positive");
}

TEST_F(ContractDeathTest, GatherRowsTakesRowsThatThereAre) {
    const auto rows = with(gather_rows_, [](auto& args) { args.in.rows = 1; });
    EXPECT_DEATH(check(&rows), "gather_rows: a sample row is 1, which is not in .0, 1.");
    const auto format = with(gather_rows_, [](auto& args) { args.out.format = Format::bfloat16; });
    EXPECT_DEATH(check(&format), "gather_rows: out is bfloat16, but must be float32");
}

TEST_F(ContractDeathTest, SampleReadsTokensOfTheVocabulary) {
    const std::vector<TokenId> outside{12};
    const std::vector<TokenBias> bias{{12, 1.0F}};
    for (const auto& [row, what] :
         {std::pair{SampleRow{.logit_bias = bias}, "a biased token"}, std::pair{SampleRow{.banned = outside}, "a banned token"},
          std::pair{SampleRow{.targets = outside}, "a token whose log-probability is wanted"},
          std::pair{SampleRow{.repetition_penalty = 2.0F, .prompt = outside}, "a penalized token"},
          std::pair{SampleRow{.presence_penalty = 1.0F, .output = outside}, "a penalized token"}}) {
        const SampleArgs args{.logits = sample_args_.logits, .rows = {&row, 1}, .results = results_};
        EXPECT_DEATH(check(&args), std::string("sample: ") + what + " is 12, which is not in .0, 12.");
    }
    const std::vector<TokenId> last{11};
    const SampleRow of_fewer{.vocabulary = 11, .targets = last};
    const SampleRow of_more{.vocabulary = 13};
    const SampleArgs few_tokens{.logits = sample_args_.logits, .rows = {&of_fewer, 1}, .results = results_};
    const SampleArgs more_tokens{.logits = sample_args_.logits, .rows = {&of_more, 1}, .results = results_};
    EXPECT_DEATH(check(&few_tokens), "sample: a token whose log-probability is wanted is 11, which is not in .0, 11.");
    EXPECT_DEATH(check(&more_tokens), "sample: a row's vocabulary is 13, but logits.columns is 12");
    const SampleRow unread{.prompt = outside, .output = outside};
    const SampleArgs without_penalties{.logits = sample_args_.logits, .rows = {&unread, 1}, .results = results_};
    check(&without_penalties);
    const auto few = with(sample_args_, [](auto& args) { args.results = {}; });
    EXPECT_DEATH(check(&few), "sample: results.size is 0, but rows.size is 1");
}

TEST_F(ContractDeathTest, AStepHasSequencesAndBlocksForItsRows) {
    const auto tokens = with(two_.inputs, [&](auto& step) { step.tokens = step.tokens.first(1); });
    EXPECT_DEATH(check(tokens), "begin_step: tokens.size is 1, but rows is 2");
    const auto sequences = with(two_.inputs, [&](auto& step) { step.sequences = {}; });
    EXPECT_DEATH(check(sequences), "begin_step: the sequences' rows is 0, but rows is 2");
    const std::vector<StepSequence> negative{{.row_begin = 0, .row_count = 3, .blocks = two_.blocks},
                                             {.row_begin = 3, .row_count = -1, .blocks = two_.blocks}};
    const auto fewer = with(two_.inputs, [&](auto& step) { step.sequences = negative; });
    EXPECT_DEATH(check(fewer), "begin_step: a sequence has -1 rows from position 0");
    const std::vector<StepSequence> later{{.row_begin = 0, .row_count = 2, .position = 15, .blocks = two_.blocks}};
    const auto blocks = with(two_.inputs, [&](auto& step) { step.sequences = later; });
    EXPECT_DEATH(check(blocks), "begin_step: a sequence of 17 tokens has 1 blocks of 16 tokens");
    const DrawnRow row{.row = 0, .sample_row = 0};
    const auto drawn = with(two_.inputs, [&](auto& step) { step.drawn = {&row, 1}; });
    EXPECT_DEATH(check(drawn), "begin_step: drawn rows need a backend with several queued steps");
}

TEST_F(ContractDeathTest, WeightsAreOfPartsThatFitTogether) {
    const WeightPart part{.data = memory.data(), .out_features = 4, .in_features = 8};
    const WeightPart other{.data = memory.data(), .out_features = 5, .in_features = 8};
    const auto both = std::array{part, other};
    contract::check_weight(both, WeightRole::projection);
    EXPECT_DEATH(contract::check_weight(both, WeightRole::gate_up), "pack_weight: a part's out_features is 5, but the first part's is 4");
    EXPECT_DEATH(contract::check_weight({}, WeightRole::projection), "pack_weight: the number of parts is 0, which is not positive");
    const auto empty = with(part, [](auto& one) { one.data = nullptr; });
    EXPECT_DEATH(contract::check_weight({&empty, 1}, WeightRole::projection), "pack_weight: a part has no memory");
    const LoraPart lora{.a = part, .b = {.data = memory.data(), .out_features = 6, .in_features = 4}};
    const auto twice = std::array{lora, lora};
    contract::check_lora({&lora, 1});
    EXPECT_DEATH(contract::check_lora(twice), "pack_lora: parts overlap: outputs .0, 6. and .0, 6.");
    const auto rank = with(lora, [](auto& one) { one.b.in_features = 3; });
    EXPECT_DEATH(contract::check_lora({&rank, 1}), "pack_lora: A's rank is 4, but B's rank is 3");
}

TEST_F(ContractDeathTest, CachesHaveBlocksAndSlots) {
    EXPECT_DEATH(contract::check_kv_cache({.layers = 1, .kv_heads = 1, .head_dim = 8}, 0), "make_kv_cache: blocks is 0");
    EXPECT_DEATH(contract::check_copy(cache_, 0, 4), "copy_block: the destination is 4, which is not in .0, 4.");
    contract::check_slot(cache_, {1024, 2048});
    contract::check_slot(SomeCache(true), {0, 2048});
    EXPECT_DEATH(contract::check_slot(cache_, {512, 2048}), "make_slot: bytes .512, 2048. are not in the cache's .1024, 2048.");
    EXPECT_DEATH(contract::check_slot(cache_, {1024, 1100}), "make_slot: bytes .1024, 1100. are not aligned to 256");
}

// Pins: a backend whose public functions check nothing.
TEST_F(ContractDeathTest, ABackendChecksBeforeItComputes) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = {}, .storage = {}});
    const auto narrow = with(norm_, [](auto& args) { args.out.rows = 1; });
    EXPECT_DEATH(backend->norm(narrow), "norm: out.rows is 1, but in.rows is 2");
    EXPECT_DEATH(static_cast<void>(backend->pack_lora({})), "pack_lora: the number of parts is 0");
}

}  // namespace

}  // namespace lorry::kernels::testing
