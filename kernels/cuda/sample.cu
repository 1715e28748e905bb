// Draws tokens and looks up log-probabilities, one block per row of logits, and copies drawn tokens into the next step. Sums are in float64
// and in an order given by the sizes of the vocabulary and of the logits, and the random number is a function of (seed, position), so a
// row's result does not depend on the other rows. Launched by sample.cpp and graphs.cpp.
//
// top_k and top_p find the lightest kept weight by narrowing its range to a sixteenth with each pass: weights are not negative, so their
// bits order as they do. The cut is the lightest kept weight and, among tokens of equal weight, the highest kept id. The draw walks the
// kept tokens in the order of ids, as the CPU does: first over pieces of the vocabulary, then over pieces of a piece.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/philox.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = 1024;
constexpr int tokens_per_thread = 32;  // at least, while there are fewer threads than allowed

using Key = unsigned long long;

constexpr int warps_most = threads_most / warp_size;

// A key's bits are found four at a time: each pass over the row sums the remaining candidates by their next digit.
constexpr int digit_bits = 4;
constexpr int digits = 1 << digit_bits;

struct Shared {
    double doubles[warps_most * digits];
    int ints[warps_most * digits];
    Key keys[warps_most];
};

__device__ std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
__device__ float float_of(std::uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Orders logits: the larger one first, the lower id among equals, NaN after everything. No two ids have the same key.
__device__ Key key_of(float x, int id) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t order = x != x ? 0U : (bits >> 31U) != 0U ? ~bits : bits | 0x80000000U;
    return (Key{order} << 32U) | ~static_cast<std::uint32_t>(id);
}
__device__ int id_of(Key key) { return static_cast<int>(~static_cast<std::uint32_t>(key)); }

// One row of the batch, as its block sees it.
struct Row {
    const float* logits;
    float* weights;
    int vocabulary;
    DrawTable draw;

    template <class Work>
    __device__ void each_token(const Work& work) const {
        for (int i = thread_in_block(); i < vocabulary; i += block_threads()) work(i);
    }
};

__device__ Key largest_of(const Row& row, const float* logits, Shared& shared, Key below) {
    Key key = 0;
    row.each_token([&](int i) {
        const Key mine = key_of(logits[i], i);
        if (mine < below) key = larger(key, mine);
    });
    return block_largest(key, shared.keys);
}

// 1 + how many tokens come before this one in the order of keys.
__device__ int rank_of(const Row& row, TokenId token, Shared& shared) {
    const Key own = key_of(row.logits[token], token);
    int before = 0;
    row.each_token([&](int i) { before += key_of(row.logits[i], i) > own ? 1 : 0; });
    return block_sum(before, shared.ints) + 1;
}

// Computes the log of the sum of exponentials, then looks up what was requested: the most likely tokens, and the targets with their ranks.
__device__ double look_up(const SampleTask& task, const Row& row, Key largest, Shared& shared) {
    const float most = row.logits[id_of(largest)];
    double sum = 0.0;
    row.each_token([&](int i) { sum += static_cast<double>(expf(row.logits[i] - most)); });
    const double log_sum = static_cast<double>(most) + log(block_sum(sum, shared.doubles));
    const auto logprob = [&](TokenId token) { return static_cast<float>(static_cast<double>(row.logits[token]) - log_sum); };
    for (int i = thread_in_block(); i < row.draw.target_count; i += block_threads()) {
        task.target_logprobs[row.draw.target_begin + i] = logprob(task.targets[row.draw.target_begin + i]);
    }
    for (int i = 0; row.draw.ranks != 0 && i < row.draw.target_count; ++i) {
        const int rank = rank_of(row, task.targets[row.draw.target_begin + i], shared);
        if (thread_in_block() == 0) task.target_ranks[row.draw.target_begin + i] = rank;
    }
    Key last = ~Key{0};
    for (int i = 0; i < row.draw.top_count; ++i) {
        last = largest_of(row, row.logits, shared, last);
        if (thread_in_block() == 0) task.tops[row.draw.top_begin + i] = {id_of(last), logprob(id_of(last))};
    }
    return log_sum;
}

// What the row's lists say about a token, stored in place of its weight.
constexpr std::uint32_t in_prompt = 1U << 31U;
constexpr std::uint32_t is_changed = 1U << 30U;  // biased or banned; the bits below count the token in the output

__device__ float penalized(const DrawTable& draw, float x, std::uint32_t mark) {
    const std::uint32_t count = mark & (is_changed - 1U);
    if ((mark & in_prompt) != 0 || count > 0) x = x > 0.0F ? x / draw.repetition_penalty : x * draw.repetition_penalty;
    return count > 0 ? x - (draw.frequency_penalty * static_cast<float>(count) + draw.presence_penalty) : x;
}

// Writes the logits with biases, bans, the mask and penalties to the row's weights.
__device__ void change_logits(const SampleTask& task, const Row& row) {
    const DrawTable& draw = row.draw;
    auto* const marks = reinterpret_cast<std::uint32_t*>(row.weights);
    const LogitChange* const changes = task.changes + draw.change_begin;
    const TokenId* const counted = task.counted + draw.prompt_begin;
    const std::uint32_t* const allowed = task.allowed + draw.allowed_begin;
    const auto is_allowed = [&](int i) {
        return draw.allowed_words == 0 || (i / 32 < draw.allowed_words && (allowed[i / 32] >> (i % 32) & 1U) != 0);
    };
    row.each_token([&](int i) { marks[i] = 0; });
    barrier();
    for (int i = thread_in_block(); i < draw.change_count; i += block_threads()) atomic_or(&marks[changes[i].token], is_changed);
    for (int i = thread_in_block(); i < draw.prompt_count; i += block_threads()) atomic_or(&marks[counted[i]], in_prompt);
    for (int i = thread_in_block(); i < draw.output_count; i += block_threads()) atomic_add(&marks[counted[draw.prompt_count + i]], 1U);
    if (draw.counts_own != 0 && thread_in_block() == 0) atomic_add(&marks[task.token_of_row[task.row_of[block().x]]], 1U);
    barrier();
    row.each_token([&](int i) {
        const std::uint32_t mark = marks[i];
        if ((mark & is_changed) != 0) return;
        row.weights[i] = is_allowed(i) ? penalized(draw, row.logits[i], mark) : -INFINITY;
    });
    barrier();  // all threads have seen which marks to leave
    for (int i = thread_in_block(); i < draw.change_count; i += block_threads()) {
        const LogitChange change = changes[i];
        const float x = penalized(draw, row.logits[change.token] + change.bias, marks[change.token]);
        row.weights[change.token] = change.banned == 0 && is_allowed(change.token) ? x : -INFINITY;
    }
    barrier();
}

// Tokens from the heaviest down to this one are kept.
struct Cut {
    std::uint32_t bits = 0;
    int id = 0x7FFFFFFF;
    __device__ bool keeps(float weight, int i) const { return bits_of(weight) > bits || (bits_of(weight) == bits && i <= id); }
    __device__ double kept(float weight, int i) const { return keeps(weight, i) ? static_cast<double>(weight) : 0.0; }
};

// How tokens are measured: by number or by weight. is_one() is true if at most one token remains among those that weigh at least
// `lightest`.
struct CountTokens {
    using Sum = int;
    static __device__ int of(float) { return 1; }
    static __device__ bool is_one(int sum, float) { return sum == 1; }
    static __device__ int* scratch(Shared& shared) { return shared.ints; }
};
struct AddWeights {
    using Sum = double;
    static __device__ double of(float weight) { return static_cast<double>(weight); }
    static __device__ bool is_one(double sum, float lightest) { return sum < 2.0 * static_cast<double>(lightest); }
    static __device__ double* scratch(Shared& shared) { return shared.doubles; }
};

// Lanes that differ in this bit exchange halves of their values and add what they keep. A template, not a loop, so that values stay in
// registers.
template <int half, class T>
__device__ void exchange_halves(T (&values)[digits]) {
    const bool is_upper = (lane() & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
        const T lower = values[i];
        const T upper = values[i + half];
        values[i] = (is_upper ? upper : lower) + shuffle_xor(is_upper ? lower : upper, half);
    }
    if constexpr (half > 1) exchange_halves<half / 2>(values);
}

// The block's sums of each thread's sixteen values: lane i gets the sum of value i % 16, in an order that does not depend on the values.
template <class T>
__device__ T block_sums(T (&values)[digits], T* scratch) {
    exchange_halves<digits / 2>(values);
    values[0] += shuffle_xor(values[0], digits);
    if (lane() < digits) scratch[warp() * digits + lane()] = values[0];
    barrier();
    T sum = 0;
    for (int i = 0; i < block_threads() / warp_size; ++i) sum += scratch[i * digits + lane() % digits];
    barrier();
    return sum;
}

// Measures the row's tokens by the digit that digit_of(weight, id) returns, with the result as in block_sums(). A negative digit leaves a
// token out.
template <class Measure, class DigitOf>
__device__ typename Measure::Sum measure_digits(const Row& row, Shared& shared, const DigitOf& digit_of) {
    typename Measure::Sum sums[digits] = {};
    row.each_token([&](int i) {
        const int digit = digit_of(row.weights[i], i);
        if (digit < 0) return;
        const auto measured = Measure::of(row.weights[i]);
#pragma unroll
        for (int j = 0; j < digits; ++j) sums[j] += j == digit ? measured : typename Measure::Sum{0};
    });
    return block_sums(sums, Measure::scratch(shared));
}

// Of the tokens that weigh `bits` and are kept: the id of number `wanted`, from 1, in the order of ids.
__device__ int id_of_equal(const Row& row, Shared& shared, const Cut& kept, std::uint32_t bits, int wanted) {
    int id = 0;
    int shift = 0;
    while ((row.vocabulary - 1) >> shift >= digits) shift += digit_bits;
    for (; shift >= 0; shift -= digit_bits) {
        const int sum = measure_digits<CountTokens>(row, shared, [&](float weight, int i) {
            const bool is_in_question = bits_of(weight) == bits && kept.keeps(weight, i) && i >> shift >> digit_bits == id;
            return is_in_question ? i >> shift & (digits - 1) : -1;
        });
        int digit = 0;
        for (int there = shuffle_from(sum, 0); there < wanted && digit < digits - 1; there = shuffle_from(sum, digit)) {
            wanted -= there;
            ++digit;
        }
        id = id << digit_bits | digit;
    }
    return id;
}

// How many tokens of this weight must be added to a measure of `above`, which falls short, to reach `target`.
__device__ int equals_wanted(int above, float, int target) { return target - above; }
__device__ int equals_wanted(double above, float weight, double target) {
    const auto falls_short = [&](int count) { return above + count * static_cast<double>(weight) < target; };
    int wanted = larger(static_cast<int>((target - above) / static_cast<double>(weight)), 1);
    while (wanted > 1 && !falls_short(wanted - 1)) --wanted;  // the quotient was rounded
    while (falls_short(wanted)) ++wanted;
    return wanted;
}

// The shortest prefix (heaviest first, lowest id among equals) of the kept tokens that measures at least `target`.
template <class Measure>
__device__ Cut prefix(const Row& row, Shared& shared, const Cut& kept, typename Measure::Sum target) {
    using Sum = typename Measure::Sum;
    std::uint32_t key = 0;  // the digits found so far
    Sum above = 0;          // measure of tokens heavier than all candidates
    std::uint32_t lightest = 0;
    for (int shift = 32 - digit_bits; shift >= 0; shift -= digit_bits) {
        const Sum of_digit = measure_digits<Measure>(row, shared, [&](float weight, int i) {
            // No weight is above 1, whose bits are 0x3F800000: the two highest bits carry no information.
            const std::uint32_t its = bits_of(weight) << 2U;
            return its >> shift >> digit_bits == key && kept.keeps(weight, i) ? static_cast<int>(its >> shift & (digits - 1)) : -1;
        });
        int digit = digits - 1;
        Sum sum = shuffle_from(of_digit, digit);
        for (; digit > 0 && above + sum < target; sum = shuffle_from(of_digit, digit)) {
            above += sum;
            --digit;
        }
        key = key << digit_bits | static_cast<std::uint32_t>(digit);
        lightest = key << shift >> 2U;
        // All candidates are wanted, so the lightest possible weight is as good a cut as the lightest present one.
        if (above + sum <= target || Measure::is_one(sum, float_of(lightest))) return lightest > kept.bits ? Cut{lightest} : kept;
    }
    return {lightest, id_of_equal(row, shared, kept, lightest, equals_wanted(above, float_of(lightest), target))};
}

__device__ Cut cut_of(const Row& row, Shared& shared) {
    Cut cut;
    if (row.draw.top_k > 0 && row.draw.top_k < row.vocabulary) cut = prefix<CountTokens>(row, shared, cut, row.draw.top_k);
    if (row.draw.top_p < 1.0F) {
        double mass = 0.0;
        row.each_token([&](int i) { mass += cut.kept(row.weights[i], i); });
        mass = block_sum(mass, shared.doubles);
        cut = prefix<AddWeights>(row, shared, cut, static_cast<double>(row.draw.top_p) * mass);
    }
    if (float_of(cut.bits) < row.draw.min_p) cut = {bits_of(row.draw.min_p), 0x7FFFFFFF};
    return cut;
}

// The piece that `rest` falls into, given the pieces' weights; subtracts the weight of the pieces before it from `rest`. The last piece
// that weighs anything takes what rounding leaves.
__device__ int piece_of(const double* weights, int pieces, double& rest) {
    int last = 0;
    for (int i = 0; i < pieces; ++i) {
        if (weights[i] > 0.0) last = i;
    }
    int piece = 0;
    while (piece < last && rest >= weights[piece]) rest -= weights[piece++];
    return piece;
}

// Walks the kept tokens in the order of their ids until a random share of their weight has passed.
__device__ TokenId draw_kept(const Row& row, Shared& shared, const Cut& cut, TokenId otherwise) {
    const auto weight_of = [&](int i) { return cut.kept(row.weights[i], i); };
    const int warps = block_threads() / warp_size;
    int begin = 0;
    int end = row.vocabulary;
    double rest = 0.0;
    for (bool is_whole = true; is_whole || (warps > 1 && end - begin > warp_size); is_whole = false) {
        const int piece_size = (end - begin + block_threads() - 1) / block_threads() * warp_size;
        const int piece_begin = begin + warp() * piece_size;
        double sum = 0.0;
        for (int i = piece_begin + lane(); i < end && i < piece_begin + piece_size; i += warp_size) sum += weight_of(i);
        sum = warp_sum(sum);
        if (lane() == 0) shared.doubles[warp()] = sum;
        barrier();
        if (is_whole) {
            for (int i = 0; i < warps; ++i) rest += shared.doubles[i];
            rest *= uniform(row.draw.seed, row.draw.position);
        }
        begin += piece_of(shared.doubles, warps, rest) * piece_size;
        end = end - begin < piece_size ? end : begin + piece_size;
        barrier();
    }
    // Every warp finds the same token.
    TokenId drawn = otherwise;
    for (int first = begin; first < end; first += warp_size) {
        const double weight = first + lane() < end ? weight_of(first + lane()) : 0.0;
        double through = weight;  // sum of the lanes up to this one
        for (int distance = 1; distance < warp_size; distance *= 2) {
            const double before = shuffle_from(through, larger(lane() - distance, 0));
            if (lane() >= distance) through += before;
        }
        const std::uint32_t weighs = ballot(weight > 0.0);
        const std::uint32_t passes = ballot(weight > 0.0 && rest < through);
        for (int i = 0; i < warp_size; ++i) {
            if ((weighs >> i & 1U) != 0) drawn = first + i;
            if ((passes >> i & 1U) != 0) return drawn;
        }
        rest -= shuffle_from(through, warp_size - 1);
    }
    return drawn;
}

__device__ TokenId draw_token(const SampleTask& task, const Row& row, Key largest, Shared& shared) {
    const float* logits = row.logits;
    const DrawTable& draw = row.draw;
    if (draw.change_count + draw.prompt_count + draw.output_count + draw.counts_own + draw.allowed_words > 0) {
        change_logits(task, row);
        logits = row.weights;
        largest = largest_of(row, logits, shared, ~Key{0});
    }
    const float most = logits[id_of(largest)];
    // Nothing can be weighed against an infinite logit, and if all logits are -inf there is nothing to weigh.
    if (row.draw.temperature <= 0.0F || !isfinite(most)) return id_of(largest);
    barrier();  // all threads have read `most` before a weight overwrites it
    const float factor = 1.0F / row.draw.temperature;
    row.each_token([&](int i) {
        const float weight = expf((logits[i] - most) * factor);
        row.weights[i] = weight == weight ? weight : 0.0F;
    });
    barrier();
    return draw_kept(row, shared, cut_of(row, shared), id_of(largest));
}

__global__ void __launch_bounds__(threads_most) sample(SampleTask task) {
    auto& shared = shared_memory<Shared>();
    const std::int64_t index = block().x;
    const Row row{static_cast<const float*>(task.logits.data) + index * task.logits.stride, task.weights + index * task.vocabulary,
                  task.draws[index].vocabulary, task.draws[index]};
    const Key largest = largest_of(row, row.logits, shared, ~Key{0});
    const double log_sum = row.draw.logprobs != 0 ? look_up(task, row, largest, shared) : 0.0;
    const TokenId token = row.draw.draw != 0 ? draw_token(task, row, largest, shared) : 0;
    if (thread_in_block() == 0) {
        task.results[index] = {token, isfinite(row.logits[id_of(largest)]) ? 1 : 0,
                               static_cast<float>(static_cast<double>(row.logits[token]) - log_sum)};
    }
}

__global__ void take_drawn(TakeDrawnTask task) {
    for (int i = thread_in_block(); i < task.count; i += block_threads()) {
        task.tokens[task.drawn[i].row] = task.results[task.drawn[i].sample_row].token;
    }
}

}  // namespace

void run_sample(const SampleTask& task, cudaStream_t stream) {
    const int threads = threads_for(ceil_div(task.vocabulary, tokens_per_thread), threads_most);
    launch(sample, {.blocks = {task.rows}, .threads = threads, .shared_bytes = sizeof(Shared), .stream = stream}, task);
}

void run_take_drawn(const TakeDrawnTask& task, cudaStream_t stream) {
    launch(take_drawn, {.blocks = {}, .threads = threads_for(task.count, threads_most), .shared_bytes = 0, .stream = stream}, task);
}

}  // namespace lorry::kernels::cuda
