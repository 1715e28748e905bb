// One function for each op and each other call; see contract.h.
#include "kernels/contract.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::kernels::contract {

namespace {

// Checks for one call, whose failures begin with its name.
struct Checks {
    const char* call;

    // "norm: out.columns is 7, but in.columns is 8"
    void equal(const char* what, std::int64_t size, const char* as, std::int64_t wanted) const {
        CHECK(size == wanted, fmt::format("{}: {} is {}, but {} is {}", call, what, size, as, wanted));
    }
    // "embed: a token is 40, which is not in [0, 40)"
    void within(const char* what, std::int64_t index, std::int64_t end) const {
        CHECK(index >= 0 && index < end, fmt::format("{}: {} is {}, which is not in [0, {})", call, what, index, end));
    }
    void positive(const char* what, std::int64_t size) const {
        CHECK(size > 0, fmt::format("{}: {} is {}, which is not positive", call, what, size));
    }
    // Memory for its rows, in any format.
    void matrix(const char* name, const Matrix& matrix) const {
        if (matrix.rows == 0) return;
        CHECK(matrix.data != nullptr, fmt::format("{}: {} has {} rows and no memory", call, name, matrix.rows));
        CHECK(matrix.stride >= stride_least(matrix.format, matrix.columns),
              fmt::format("{}: {}.stride is {}, but {} columns of {} need {}", call, name, matrix.stride, matrix.columns,
                          name_of(matrix.format), stride_least(matrix.format, matrix.columns)));
        CHECK(matrix.format != Format::fp8_rows || matrix.row_scales != nullptr,
              fmt::format("{}: {} has rows of fp8 and no memory for their scales", call, name));
    }
    void format(const char* name, const Matrix& in, Format wanted) const {
        CHECK(in.format == wanted, fmt::format("{}: {} is {}, but must be {}", call, name, name_of(in.format), name_of(wanted)));
    }
    void float32(const char* name, const Matrix& in) const {
        format(name, in, Format::float32);
        matrix(name, in);
    }
    // Empty, or an element for each of `wanted`.
    void optional(const char* what, const Vector& vector, const char* as, std::int64_t wanted) const {
        if (!vector.empty()) equal(what, vector.size, as, wanted);
    }
    // Rows [begin, begin + count) of `rows`.
    void group(std::int64_t begin, std::int64_t count, std::int64_t rows) const {
        CHECK(begin >= 0 && count >= 0 && begin + count <= rows,
              fmt::format("{}: a group has rows [{}, {}) of {}", call, begin, begin + count, rows));
    }
    void of_step(const StepInputs& inputs, const BegunStep& step) const {
        equal("step.rows", inputs.rows, "the begun step's rows", step.rows);
        CHECK(inputs.sequences.data() == step.sequences.data() && inputs.sequences.size() == step.sequences.size(),
              fmt::format("{}: step.sequences are not those of the begun step", call));
    }

    void heads(const Matrix& qkv, std::int64_t count, std::int64_t kv_heads, std::int64_t head_dim) const {
        positive("heads", count);
        positive("kv_heads", kv_heads);
        positive("head_dim", head_dim);
        equal("qkv.columns", qkv.columns, "(heads + 2 * kv_heads) * head_dim", (count + 2 * kv_heads) * head_dim);
        float32("qkv", qkv);
    }
    void layer_of(const KvCache& cache, std::int64_t layer, std::int64_t kv_heads, std::int64_t head_dim) const {
        equal("kv_heads", kv_heads, "the cache's kv_heads", cache.shape().kv_heads);
        equal("head_dim", head_dim, "the cache's head_dim", cache.shape().head_dim);
        within("layer", layer, cache.shape().layers);
    }
};

template <class Args>
constexpr Checks checks_of(const Args&) {
    return {Args::op_name};
}

void check(const EmbedArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    checks.float32("out", args.out);
    checks.equal("out.rows", args.out.rows, "step.rows", args.step.rows);
    checks.equal("out.columns", args.out.columns, "tokens.in_features", args.tokens.in_features());
    const auto look_up = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            checks.within("a token", args.step.tokens[static_cast<std::size_t>(row)], args.tokens.out_features());
    };
    std::int64_t row_least = 0;
    for (const OwnEmbedding& own : args.own) {
        CHECK(own.row >= row_least && own.row < args.out.rows,
              fmt::format("embed: rows of their own do not ascend within {}", args.out.rows));
        look_up(row_least, own.row);
        row_least = own.row + 1;
        checks.equal("a table's in_features", own.table->in_features(), "tokens.in_features", args.tokens.in_features());
        checks.within("an index", own.index, own.table->out_features());
    }
    look_up(row_least, args.out.rows);
    if (args.types != nullptr) {
        checks.equal("types.in_features", args.types->in_features(), "tokens.in_features", args.tokens.in_features());
        for (const std::int32_t type : args.step.token_types) checks.within("a token type", type, args.types->out_features());
    }
    if (args.positions == nullptr) return;
    checks.equal("positions.in_features", args.positions->in_features(), "tokens.in_features", args.tokens.in_features());
    const std::int64_t positions = args.positions->out_features();
    for (const std::int32_t position : args.step.positions) checks.within("a position", position, positions);
}

void check(const NormArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.matrix("out", args.out);
    checks.float32("in", args.in);
    checks.equal("out.rows", args.out.rows, "in.rows", args.in.rows);
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    if (args.kind == NormKind::none) {
        CHECK(args.weight.empty() && args.bias.empty(), "norm: there is a weight or a bias, and nothing to normalize");
        return;
    }
    checks.equal("weight.size", args.weight.size, "in.columns", args.in.columns);
    checks.optional("bias.size", args.bias, "in.columns", args.in.columns);
}

// What matmul and activated_matmul have in common.
void check_factors(const Checks& checks, const auto& args) {
    checks.format("in", args.in, args.weight.input_format());
    checks.matrix("in", args.in);
    checks.equal("in.columns", args.in.columns, "weight.in_features", args.weight.in_features());
    checks.optional("bias.size", args.bias, "weight.out_features", args.weight.out_features());
}

void check(const MatmulArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    check_factors(checks, args);
    checks.float32("out", args.out);
    checks.equal("out.rows", args.out.rows, "in.rows", args.in.rows);
    checks.equal("out.columns", args.out.columns, "weight.out_features", args.weight.out_features());
}

// Adapters' updates that read `in` and add to `out`.
void check_groups(const Checks& checks, std::span<const LoraGroup> groups, const Matrix& in, const Matrix& out) {
    std::int64_t row_end = 0;
    for (const LoraGroup& group : groups) {
        checks.group(group.row_begin, group.row_count, in.rows);
        CHECK(group.row_begin >= row_end,
              fmt::format("lora: a group begins at row {}, before row {} where the last one ends", group.row_begin, row_end));
        row_end = group.row_begin + group.row_count;
        if (group.lora == nullptr) continue;
        checks.equal("in.columns", in.columns, "lora.in_features", group.lora->in_features());
        CHECK(group.lora->out_end() <= out.columns,
              fmt::format("lora: an adapter adds to outputs up to {}, but out.columns is {}", group.lora->out_end(), out.columns));
    }
}

void check(const LoraArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("out", args.out);
    checks.matrix("in", args.in);
    checks.equal("out.rows", args.out.rows, "in.rows", args.in.rows);
    check_groups(checks, args.groups, args.in, args.out);
}

void check(const GroupBiasArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("out", args.out);
    for (const BiasGroup& group : args.groups) {
        checks.optional("scale.size", group.scale, "out.columns", args.out.columns);
        checks.optional("bias.size", group.bias, "out.columns", args.out.columns);
        checks.group(group.row_begin, group.row_count, args.out.rows);
    }
}

void check(const RopeStoreArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    checks.heads(args.qkv, args.heads, args.kv_heads, args.head_dim);
    checks.layer_of(args.cache, args.layer, args.kv_heads, args.head_dim);
    checks.equal("qkv.rows", args.qkv.rows, "step.rows", args.step.rows);
    checks.optional("q_norm.size", args.q_norm, "head_dim", args.head_dim);
    checks.optional("k_norm.size", args.k_norm, "head_dim", args.head_dim);
    if (args.rope_table.rows > 0) {
        CHECK(args.head_dim % 2 == 0, fmt::format("rope_store: head_dim is {}, which is not even", args.head_dim));
        checks.float32("rope_table", args.rope_table);
        checks.equal("rope_table.columns", args.rope_table.columns, "head_dim", args.head_dim);
        checks.equal("step.rope_rows.size", std::ssize(args.step.rope_rows), "step.rows", args.step.rows);
        for (const std::int32_t row : args.step.rope_rows) checks.within("a rope row", row, args.rope_table.rows);
    }
    // The blocks that the rows are stored in; attention checks all of a sequence.
    const std::int64_t blocks = args.cache.blocks();
    for (const StepSequence& sequence : args.step.sequences) {
        const std::int64_t end = sequence.position + sequence.row_count;
        for (std::int64_t block = sequence.position / step.block_size; block * step.block_size < end; ++block) {
            checks.within("a block", sequence.blocks[static_cast<std::size_t>(block)], blocks);
        }
    }
}

// [rows, heads * context], where `context` is whole blocks of tokens and no sequence is longer.
void check_bias_by_token(const Checks& checks, const char* name, const Matrix& bias, std::int64_t heads, const BegunStep& step) {
    checks.float32(name, bias);
    const std::int64_t context = bias.columns / heads;
    CHECK(bias.columns == heads * context && context % step.block_size == 0,
          fmt::format("{}: {}.columns is {}, which is not whole blocks of {} tokens for each of {} heads", checks.call, name, bias.columns,
                      step.block_size, heads));
    for (const StepSequence& sequence : step.sequences) checks.within("a token", sequence.position + sequence.row_count - 1, context);
}

// All tokens of its sequences are rows of the step.
void check_whole(const Checks& checks, const BegunStep& step) {
    for (const StepSequence& sequence : step.sequences) {
        CHECK(sequence.position == 0, fmt::format("{}: {} tokens of a sequence are not in this step", checks.call, sequence.position));
    }
}

void check(const DisentangledBiasArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    check_whole(checks, step);
    checks.heads(args.qkv, args.heads, args.heads, args.head_dim);
    checks.equal("qkv.rows", args.qkv.rows, "step.rows", args.step.rows);
    checks.equal("out.rows", args.out.rows, "step.rows", args.step.rows);
    check_bias_by_token(checks, "out", args.out, args.heads, step);
    const std::int64_t distances = (std::ssize(args.position_of_distance) + 1) / 2;
    checks.equal("position_of_distance.size", std::ssize(args.position_of_distance), "2 * distances - 1", 2 * distances - 1);
    for (const StepSequence& sequence : args.sequences) checks.within("a distance", sequence.row_count - 1, distances);
    CHECK(std::ranges::is_sorted(args.position_of_distance), "disentangled_bias: position_of_distance descends");
    for (const StepSequence& sequence : args.sequences) checks.group(sequence.row_begin, sequence.row_count, step.rows);
    CHECK(args.keys.rows > 0 || args.queries.rows > 0, "disentangled_bias: there are neither keys nor queries");
    for (const Matrix& positions : {args.keys, args.queries}) {
        if (positions.rows == 0) continue;
        checks.float32("positions", positions);
        checks.equal("positions.columns", positions.columns, "heads * head_dim", args.heads * args.head_dim);
        checks.within("a relative position", args.position_of_distance.front(), positions.rows);
        checks.within("a relative position", args.position_of_distance.back(), positions.rows);
    }
}

void check_cap(const Checks& checks, const std::optional<float>& cap) {
    CHECK(!cap || *cap > 0.0F, fmt::format("{}: cap is {}, which is not positive", checks.call, *cap));
}

void check(const AttentionArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    checks.heads(args.qkv, args.heads, args.kv_heads, args.head_dim);
    checks.layer_of(args.cache, args.layer, args.kv_heads, args.head_dim);
    CHECK(args.heads % args.kv_heads == 0, fmt::format("attention: {} kv_heads do not divide {} heads", args.kv_heads, args.heads));
    checks.matrix("out", args.out);
    checks.equal("qkv.rows", args.qkv.rows, "step.rows", args.step.rows);
    checks.equal("out.rows", args.out.rows, "step.rows", args.step.rows);
    checks.equal("out.columns", args.out.columns, "heads * head_dim", args.heads * args.head_dim);
    if (args.window) checks.positive("window", *args.window);
    check_cap(checks, args.cap);
    checks.optional("sinks.size", args.sinks, "heads", args.heads);
    if (const Matrix& bias = args.bias_by_distance; bias.rows > 0) {
        checks.float32("bias_by_distance", bias);
        checks.equal("bias_by_distance.rows", bias.rows, "heads", args.heads);
        CHECK(bias.stride >= bias.columns + step.block_size,
              "attention: bias_by_distance has no room for a block of tokens after its rows");
        for (const StepSequence& sequence : args.step.sequences) {
            checks.within("a distance", sequence.position + sequence.row_count - 1, (bias.columns + 1) / 2);
        }
    }
    if (const Matrix& bias = args.bias_by_token; bias.rows > 0) {
        CHECK(args.bias_by_distance.rows == 0, "attention: there are two biases");
        checks.equal("bias_by_token.rows", bias.rows, "step.rows", args.step.rows);
        check_bias_by_token(checks, "bias_by_token", bias, args.heads, step);
    }
    const std::int64_t blocks = args.cache.blocks();
    for (const StepSequence& sequence : args.step.sequences) {
        for (const BlockId block : sequence.blocks) checks.within("a block", block, blocks);
    }
}

void check(const ActivationArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.matrix("out", args.out);
    checks.float32("in", args.in);
    checks.equal("in.rows", args.in.rows, "out.rows", args.out.rows);
    checks.equal("in.columns", args.in.columns, args.gated ? "2 * out.columns" : "out.columns", args.out.columns * (args.gated ? 2 : 1));
    if (args.accumulate) checks.float32("out", args.out);
}

void check(const ClampedGateArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.matrix("out", args.out);
    checks.float32("in", args.in);
    checks.equal("in.rows", args.in.rows, "out.rows", args.out.rows);
    checks.equal("in.columns", args.in.columns, "2 * out.columns", 2 * args.out.columns);
    CHECK(args.limit > 0.0F && args.alpha > 0.0F, "clamped_gate: alpha and limit must be positive");
}

void check(const ScaleArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("out", args.out);
    checks.float32("in", args.in);
    checks.equal("out.rows", args.out.rows, "in.rows", args.in.rows);
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    check_cap(checks, args.cap);
}

void check(const UnfoldArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    check_whole(checks, step);
    checks.matrix("out", args.out);
    checks.float32("in", args.in);
    CHECK(args.width > 0 && args.width % 2 == 1, fmt::format("unfold: width is {}, which is not odd", args.width));
    checks.equal("in.rows", args.in.rows, "step.rows", args.step.rows);
    checks.equal("out.rows", args.out.rows, "step.rows", args.step.rows);
    checks.equal("out.columns", args.out.columns, "width * in.columns", args.width * args.in.columns);
}

void check(const ActivatedMatmulArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    check_factors(checks, args);
    checks.float32("sums", args.sums);
    checks.matrix("out", args.out);
    checks.equal("sums.rows", args.sums.rows, "in.rows", args.in.rows);
    checks.equal("sums.columns", args.sums.columns, "weight.out_features", args.weight.out_features());
    checks.equal("out.rows", args.out.rows, "in.rows", args.in.rows);
    checks.equal("sums.columns", args.sums.columns, args.gated ? "2 * out.columns" : "out.columns",
                 args.out.columns * (args.gated ? 2 : 1));
    check_groups(checks, args.groups, args.in, args.sums);
}

void check(const GatherRowsArgs& args, const BegunStep& step) {
    const Checks checks = checks_of(args);
    checks.of_step(args.step, step);
    checks.format("out", args.out, args.in.format);
    checks.matrix("out", args.out);
    checks.matrix("in", args.in);
    checks.equal("out.rows", args.out.rows, "step.sample_rows.size", std::ssize(args.step.sample_rows));
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    for (const std::int32_t row : args.step.sample_rows) checks.within("a sample row", row, args.in.rows);
}

void check(const PickRowsArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.format("out", args.out, args.in.format);
    checks.matrix("out", args.out);
    checks.matrix("in", args.in);
    checks.equal("out.rows", args.out.rows, "rows.size", std::ssize(args.rows));
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    for (const std::int32_t row : args.rows) checks.within("a row", row, args.in.rows);
}

void check(const MixRowsArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("out", args.out);
    checks.float32("in", args.in);
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    checks.equal("factors.size", std::ssize(args.factors), "places.size", std::ssize(args.places));
    CHECK(args.out.rows == 0 || std::ssize(args.places) % args.out.rows == 0,
          fmt::format("mix_rows: places.size is {}, which is not a multiple of {} rows", args.places.size(), args.out.rows));
    for (const std::int32_t place : args.places) checks.within("a place", place, args.in.rows);
    if (args.shared.rows == 0) return;
    checks.float32("shared", args.shared);
    checks.float32("shared_scores", args.shared_scores);
    checks.equal("shared.rows", args.shared.rows, "out.rows", args.out.rows);
    checks.equal("shared.columns", args.shared.columns, "out.columns", args.out.columns);
    checks.equal("shared_scores.rows", args.shared_scores.rows, "out.rows", args.out.rows);
    checks.equal("shared_scores.columns", args.shared_scores.columns, "1", 1);
}

void check(const PoolArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("out", args.out);
    checks.float32("in", args.in);
    checks.equal("out.columns", args.out.columns, "in.columns", args.in.columns);
    checks.equal("segments.size", std::ssize(args.segments), "out.rows", args.out.rows);
    checks.equal("factors.size", std::ssize(args.factors), "out.rows", args.out.rows);
    for (const PoolSegment& segment : args.segments) {
        checks.positive("a segment's row_count", segment.row_count);
        checks.group(segment.row_begin, segment.row_count, args.in.rows);
    }
}

void check(const SampleArgs& args, const BegunStep&) {
    const Checks checks = checks_of(args);
    checks.float32("logits", args.logits);
    checks.positive("logits.columns", args.logits.columns);
    checks.equal("rows.size", std::ssize(args.rows), "logits.rows", args.logits.rows);
    checks.equal("results.size", std::ssize(args.results), "rows.size", std::ssize(args.rows));
    for (const SampleRow& row : args.rows) {
        const std::int64_t vocabulary = row.vocabulary.value_or(args.logits.columns);
        checks.positive("a row's vocabulary", vocabulary);
        CHECK(vocabulary <= args.logits.columns,
              fmt::format("sample: a row's vocabulary is {}, but logits.columns is {}", vocabulary, args.logits.columns));
        const auto tokens = [&](const char* what, std::span<const TokenId> all) {
            for (const TokenId token : all) checks.within(what, token, vocabulary);
        };
        for (const TokenBias& bias : row.logit_bias) checks.within("a biased token", bias.token, vocabulary);
        tokens("a banned token", row.banned);
        tokens("a token whose log-probability is wanted", row.targets);
        if (row.has_repetition_penalty()) tokens("a penalized token", row.prompt);
        if (row.has_repetition_penalty() || row.has_output_penalty()) tokens("a penalized token", row.output);
    }
}

void check_part(const Checks& checks, const WeightPart& part) {
    checks.positive("a part's in_features", part.in_features);
    checks.positive("a part's out_features", part.out_features);
    if (part.coded != nullptr) return;
    CHECK(part.data != nullptr, fmt::format("{}: a part has no memory", checks.call));
    CHECK(!has_row_scales(part.format), fmt::format("{}: a part is {}, but must be floating point", checks.call, name_of(part.format)));
}

}  // namespace

void check_weight(std::span<const WeightPart> parts, WeightRole role) {
    constexpr Checks checks{"pack_weight"};
    checks.positive("the number of parts", std::ssize(parts));
    for (const WeightPart& part : parts) {
        check_part(checks, part);
        checks.equal("a part's in_features", part.in_features, "the first part's", parts.front().in_features);
        if (role != WeightRole::gate_up) continue;
        checks.equal("a part's out_features", part.out_features, "the first part's", parts.front().out_features);
    }
}

void check_lora(std::span<const LoraPart> parts) {
    constexpr Checks checks{"pack_lora"};
    checks.positive("the number of parts", std::ssize(parts));
    const auto end = [](const LoraPart& part) { return part.out_begin + part.b.out_features; };
    for (const LoraPart& part : parts) {
        check_part(checks, part.a);
        check_part(checks, part.b);
        checks.equal("A's rank", part.a.out_features, "B's rank", part.b.in_features);
        checks.equal("A's in_features", part.a.in_features, "the first part's", parts.front().a.in_features);
        CHECK(part.out_begin >= 0, fmt::format("pack_lora: a part begins at output {}", part.out_begin));
        // Parts are added at the same time.
        for (const LoraPart& other : parts) {
            CHECK(&part == &other || end(part) <= other.out_begin || end(other) <= part.out_begin,
                  fmt::format("pack_lora: parts overlap: outputs [{}, {}) and [{}, {})", part.out_begin, end(part), other.out_begin,
                              end(other)));
        }
    }
}

void check_kv_cache(const KvShape& shape, std::int64_t blocks) {
    constexpr Checks checks{"make_kv_cache"};
    checks.positive("layers", shape.layers);
    checks.positive("kv_heads", shape.kv_heads);
    checks.positive("head_dim", shape.head_dim);
    checks.positive("blocks", blocks);
}

void check_copy(const KvCache& cache, BlockId from, BlockId to) {
    constexpr Checks checks{"copy_block"};
    checks.within("the source", from, cache.blocks());
    checks.within("the destination", to, cache.blocks());
}

void check_slot(const KvCache& cache, const SlotRange& range) {
    const std::size_t begin = cache.lends_blocks() ? 0 : cache.slots().begin;
    const std::size_t end = cache.slots().end;
    CHECK(begin <= range.begin && range.begin <= range.end && range.end <= end,
          fmt::format("make_slot: bytes [{}, {}) are not in the cache's [{}, {})", range.begin, range.end, begin, end));
    CHECK(range.begin % slot_alignment == 0 && range.end % slot_alignment == 0,
          fmt::format("make_slot: bytes [{}, {}) are not aligned to {}", range.begin, range.end, slot_alignment));
}

void check_step(const StepInputs& step, const StepLimits& limits) {
    constexpr Checks checks{"begin_step"};
    checks.equal("tokens.size", std::ssize(step.tokens), "rows", step.rows);
    checks.equal("positions.size", std::ssize(step.positions), "rows", step.rows);
    if (!step.token_types.empty()) checks.equal("token_types.size", std::ssize(step.token_types), "rows", step.rows);
    std::int64_t row_end = 0;
    for (const StepSequence& sequence : step.sequences) {
        CHECK(sequence.row_count >= 0 && sequence.position >= 0,
              fmt::format("begin_step: a sequence has {} rows from position {}", sequence.row_count, sequence.position));
        checks.equal("a sequence's row_begin", sequence.row_begin, "the last one's end", row_end);
        row_end += sequence.row_count;
        const std::int64_t tokens = sequence.position + sequence.row_count;
        CHECK(std::ssize(sequence.blocks) * limits.block_size >= tokens,
              fmt::format("begin_step: a sequence of {} tokens has {} blocks of {} tokens", tokens, std::ssize(sequence.blocks),
                          limits.block_size));
    }
    checks.equal("the sequences' rows", row_end, "rows", step.rows);
    CHECK(step.drawn.empty() || limits.queued_max > 1, "begin_step: drawn rows need a backend with several queued steps");
    for (const DrawnRow& drawn : step.drawn) checks.within("a drawn row", drawn.row, step.rows);
}

void check_op(const Op& op, const BegunStep& step) {
    std::visit([&](const auto* args) { check(*args, step); }, op);
}

}  // namespace lorry::kernels::contract
