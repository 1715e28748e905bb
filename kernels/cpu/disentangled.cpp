// The disentangled_bias op: each head of each sequence is a piece, which multiplies queries and keys with the relative positions that its
// distances have, and then picks the product of each pair of tokens.
#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/views.h"

namespace lorry::kernels::cpu {

namespace {

// The relative positions that a sequence has, and the scratch of a thread that computes with them.
struct Reach {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t padded = 0;  // whole panels
    // From a token's products to the next: an odd number of cache lines, so that a column of products is spread over the sets of the cache.
    std::int64_t stride = 0;

    Reach(std::span<const std::int32_t> position_of_distance, std::int64_t tokens, std::int64_t panel_width) {
        const std::int64_t middle = (std::ssize(position_of_distance) - 1) / 2;
        const auto at = [&](std::int64_t distance) { return position_of_distance[static_cast<std::size_t>(middle + distance)]; };
        first = at(1 - tokens);
        count = at(tokens - 1) - first + 1;
        padded = (count + panel_width - 1) / panel_width * panel_width;
        stride = ((padded + 15) / 16 | 1) * 16;
    }
    std::int64_t scratch(std::int64_t tokens, std::int64_t head_dim) const { return padded * head_dim + 2 * tokens * stride; }
};

// One head of the relative positions as a matmul's panels: [panels][head_dim][panel_width], with zeros after the last.
void pack_positions(const float* from, std::int64_t from_stride, const Reach& reach, std::int64_t head_dim, std::int64_t panel_width,
                    float* panels) {
    for (std::int64_t position = 0; position < reach.padded; ++position) {
        float* const to = panels + position / panel_width * panel_width * head_dim + position % panel_width;
        const float* const row = from + position * from_stride;
        for (std::int64_t d = 0; d < head_dim; ++d) to[d * panel_width] = position < reach.count ? row[d] : 0.0F;
    }
}

}  // namespace

void CpuBackend::run_bias_piece(const DisentangledBiasArgs& args, const BiasPiece& piece, float* scratch) const {
    const std::int64_t tokens = piece.sequence->row_count;
    const std::int64_t columns = piece.head * args.head_dim;
    const Reach reach(args.position_of_distance, tokens, kernels_.panel_width);
    float* const panels = scratch;
    float* next = panels + reach.padded * args.head_dim;
    // The products of each token's query or key, which begins in this column, with each position; null: there is no such term.
    const auto multiply = [&](const Matrix& positions, std::int64_t column) -> const float* {
        if (positions.rows == 0) return nullptr;
        pack_positions(floats(positions) + reach.first * positions.stride + columns, positions.stride, reach, args.head_dim,
                       kernels_.panel_width, panels);
        float* const products = next;
        next += tokens * reach.stride;
        kernels_.matmul({.in = floats(args.qkv) + piece.sequence->row_begin * args.qkv.stride + column,
                         .in_stride = args.qkv.stride,
                         .panels = panels,
                         .out = products,
                         .out_stride = reach.stride,
                         .rows = tokens,
                         .in_features = args.head_dim,
                         .out_features = reach.count},
                        0, reach.padded / kernels_.panel_width);
        return products - reach.first;
    };
    const float* const of_queries = multiply(args.keys, columns);
    const float* const of_keys = multiply(args.queries, args.heads * args.head_dim + columns);

    const std::int32_t* const own = args.position_of_distance.data() + (std::ssize(args.position_of_distance) - 1) / 2;
    const std::int64_t context = args.out.columns / args.heads;
    // The products of some keys with positions that are near each other stay in the first-level cache while rows pass.
    constexpr std::int64_t keys_together = 64;
    for (std::int64_t begin = 0; begin < tokens; begin += keys_together) {
        const std::int64_t end = std::min(begin + keys_together, tokens);
        for (std::int64_t i = 0; i < tokens; ++i) {
            float* const out = floats(args.out) + (piece.sequence->row_begin + i) * args.out.stride + piece.head * context;
            for (std::int64_t j = begin; j < end; ++j) {
                const std::int64_t position = own[i - j];
                float sum = 0.0F;
                if (of_queries != nullptr) sum += of_queries[i * reach.stride + position];
                if (of_keys != nullptr) sum += of_keys[j * reach.stride + position];
                out[j] = sum * args.scale;
            }
        }
    }
}

void CpuBackend::execute(const DisentangledBiasArgs& args) {
    bias_pieces_.clear();
    std::int64_t floats_most = 0;
    for (const StepSequence& sequence : args.sequences) {
        const Reach reach(args.position_of_distance, sequence.row_count, kernels_.panel_width);
        floats_most = std::max(floats_most, reach.scratch(sequence.row_count, args.head_dim));
        for (std::int64_t head = 0; head < args.heads; ++head) bias_pieces_.push_back({&sequence, head});
    }
    float* const scratch = bias_scratch_.floats(pool_.threads() * floats_most);
    const auto pieces = static_cast<std::int64_t>(bias_pieces_.size());
    pool_.run(pieces, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t at = begin; at < end; ++at)
            run_bias_piece(args, bias_pieces_[static_cast<std::size_t>(at)], scratch + thread * floats_most);
    });
}

}  // namespace lorry::kernels::cpu
