// Draws tokens and looks up log-probabilities, a block per row of logits, and puts drawn tokens into the next step. Sums are in float64 and
// in an order given by the vocabulary's size, the random number is a function of (seed, position), so a row's result does not depend on the
// rows beside it.
//
// What top_k and top_p keep is found by bisecting the weights' bits (weights are not negative, so bits order as values): the cut is the
// lightest kept weight and, among its equals, the highest kept id.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = 1024;
constexpr int tokens_per_thread = 32;  // at least, while there are fewer threads than allowed

using Key = unsigned long long;

struct Shared {
    double sums[threads_most];
    double doubles[threads_most / warp_size];
    Key keys[threads_most / warp_size];
    int ints[threads_most / warp_size];
    TokenId token;
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

// Orders logits: the larger one first, the lower id among equals, NaN after everything. Never the same for two ids.
__device__ Key key_of(float x, int id) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t order = x != x ? 0U : (bits >> 31U) != 0U ? ~bits : bits | 0x80000000U;
    return (Key{order} << 32U) | ~static_cast<std::uint32_t>(id);
}
__device__ int id_of(Key key) { return static_cast<int>(~static_cast<std::uint32_t>(key)); }

// One row of the batch as its block sees it.
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

// Log of the sum of exponentials, then what is asked for: the most likely tokens and the targets.
__device__ double look_up(const SampleTask& task, const Row& row, Key largest, Shared& shared) {
    const float most = row.logits[id_of(largest)];
    double sum = 0.0;
    row.each_token([&](int i) { sum += static_cast<double>(expf(row.logits[i] - most)); });
    const double log_sum = static_cast<double>(most) + log(block_sum(sum, shared.doubles));
    const auto logprob = [&](TokenId token) { return static_cast<float>(static_cast<double>(row.logits[token]) - log_sum); };
    for (int i = thread_in_block(); i < row.draw.target_count; i += block_threads()) {
        task.target_logprobs[row.draw.target_begin + i] = logprob(task.targets[row.draw.target_begin + i]);
    }
    Key last = ~Key{0};
    for (int i = 0; i < row.draw.top_count; ++i) {
        last = largest_of(row, row.logits, shared, last);
        if (thread_in_block() == 0) task.tops[row.draw.top_begin + i] = {id_of(last), logprob(id_of(last))};
    }
    return log_sum;
}

// What the row's lists say of a token, gathered in the place of its weight.
constexpr std::uint32_t in_prompt = 1U << 31U;
constexpr std::uint32_t is_changed = 1U << 30U;  // biased or banned; below it stands how often the output has the token

__device__ float penalized(const DrawTable& draw, float x, std::uint32_t mark) {
    const std::uint32_t count = mark & (is_changed - 1U);
    if ((mark & in_prompt) != 0 || count > 0) x = x > 0.0F ? x / draw.repetition_penalty : x * draw.repetition_penalty;
    return count > 0 ? x - (draw.frequency_penalty * static_cast<float>(count) + draw.presence_penalty) : x;
}

// Logits with biases, bans, the mask and penalties, in the row's weights.
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
    barrier();  // everybody has seen which marks to leave
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
};

// How much of the row has a property: tokens, or their weight.
struct CountTokens {
    using Sum = int;
    static __device__ int of(float) { return 1; }
    static __device__ int* scratch(Shared& shared) { return shared.ints; }
};
struct AddWeights {
    using Sum = double;
    static __device__ double of(float weight) { return static_cast<double>(weight); }
    static __device__ double* scratch(Shared& shared) { return shared.doubles; }
};
template <class Measure, class Property>
__device__ typename Measure::Sum measure(const Row& row, Shared& shared, const Property& property) {
    typename Measure::Sum sum = 0;
    row.each_token([&](int i) {
        if (property(row.weights[i], i)) sum += Measure::of(row.weights[i]);
    });
    return block_sum(sum, Measure::scratch(shared));
}

// The shortest prefix (heaviest first, lowest id among equals) of what `kept` keeps that measures at least `target`.
template <class Measure>
__device__ Cut prefix(const Row& row, Shared& shared, const Cut& kept, typename Measure::Sum target) {
    // No weight is above 1, whose bits are 0x3F800000.
    std::uint32_t bits = 0;
    for (std::uint32_t bit = 1U << 29U; bit != 0; bit >>= 1U) {
        const std::uint32_t with = bits | bit;
        const auto sum =
            measure<Measure>(row, shared, [&](float weight, int i) { return bits_of(weight) >= with && kept.keeps(weight, i); });
        if (sum >= target) bits = with;
    }
    const auto above = measure<Measure>(row, shared, [&](float weight, int i) { return bits_of(weight) > bits && kept.keeps(weight, i); });
    const auto equal = [&](float weight, int i) { return bits_of(weight) == bits && kept.keeps(weight, i); };
    const int equals = measure<CountTokens>(row, shared, equal);
    // How many of the equals it takes: at least one, as what is above falls short.
    int wanted = 1;
    while (wanted < equals && above + static_cast<typename Measure::Sum>(wanted) * Measure::of(float_of(bits)) < target) ++wanted;
    if (wanted >= equals) return {bits, kept.bits == bits ? kept.id : 0x7FFFFFFF};
    int low = 0;
    int high = row.vocabulary - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (measure<CountTokens>(row, shared, [&](float weight, int i) { return i <= middle && equal(weight, i); }) >= wanted) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return {bits, low};
}

__device__ Cut cut_of(const Row& row, Shared& shared) {
    Cut cut;
    if (row.draw.top_k > 0 && row.draw.top_k < row.vocabulary) cut = prefix<CountTokens>(row, shared, cut, row.draw.top_k);
    if (row.draw.top_p < 1.0F) {
        const double mass = measure<AddWeights>(row, shared, [&](float weight, int i) { return cut.keeps(weight, i); });
        cut = prefix<AddWeights>(row, shared, cut, static_cast<double>(row.draw.top_p) * mass);
    }
    if (float_of(cut.bits) < row.draw.min_p) cut = {bits_of(row.draw.min_p), 0x7FFFFFFF};
    return cut;
}

// Walks the kept tokens, those of thread 0 first, until `chance` of their weight has passed.
__device__ TokenId draw_kept(const Row& row, Shared& shared, const Cut& cut, TokenId otherwise) {
    double sum = 0.0;
    row.each_token([&](int i) { sum += cut.keeps(row.weights[i], i) ? static_cast<double>(row.weights[i]) : 0.0; });
    shared.sums[thread_in_block()] = sum;
    barrier();
    if (thread_in_block() == 0) {
        double total = 0.0;
        for (int i = 0; i < block_threads(); ++i) total += shared.sums[i];
        double rest = row.draw.chance * total;
        // The last thread that has any weight takes what rounding leaves.
        int last = 0;
        for (int i = 0; i < block_threads(); ++i) {
            if (shared.sums[i] > 0.0) last = i;
        }
        int thread = 0;
        while (thread < last && rest >= shared.sums[thread]) rest -= shared.sums[thread++];
        TokenId drawn = otherwise;
        for (int i = thread; i < row.vocabulary; i += block_threads()) {
            if (row.weights[i] <= 0.0F || !cut.keeps(row.weights[i], i)) continue;
            drawn = i;
            rest -= static_cast<double>(row.weights[i]);
            if (rest < 0.0) break;
        }
        shared.token = drawn;
    }
    barrier();
    return shared.token;
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
    // Nothing can be weighed against an infinite logit, and with none above -inf there is nothing to weigh.
    if (row.draw.temperature <= 0.0F || !isfinite(most)) return id_of(largest);
    barrier();  // everybody has read `most` before its place holds a weight
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
                  task.vocabulary, task.draws[index]};
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
