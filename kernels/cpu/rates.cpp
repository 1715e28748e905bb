// Runs each probe a few times on all threads and keeps the best result; see rates.h.
#include "kernels/cpu/rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/memory.h"
#include "kernels/processors.h"
#include "kernels/thread_pool.h"

namespace lorry::kernels::cpu {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t piece_bytes = 1 << 20;
constexpr std::int64_t memory_pieces_least = 256;
constexpr std::int64_t turns = 40'000;  // of a piece of a compute probe, which takes some hundred microseconds
constexpr std::int64_t pieces_per_thread = 24;
constexpr int tries = 5;

// The best rate: what `probe` returns, divided by its seconds.
double best_rate(const std::function<double()>& probe) {
    double best = 0.0;
    for (int i = 0; i < tries; ++i) {
        const Clock::time_point begin = Clock::now();
        const double amount = probe();
        best = std::max(best, amount / std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return best;
}

// The sum of what `work` returns on all threads.
double over_threads(ThreadPool& pool, double (*work)(std::int64_t)) {
    const std::int64_t pieces = pool.threads() * pieces_per_thread;
    std::vector<double> amounts(static_cast<std::size_t>(pieces));
    pool.each(pieces, [&](std::int64_t i) { amounts[static_cast<std::size_t>(i)] = work(turns); });
    double sum = 0.0;
    for (const double amount : amounts) sum += amount;
    return sum;
}

}  // namespace

void Rates::take_better(const Rates& other) {
    copy = std::max(copy, other.copy);
    read = std::max(read, other.read);
    float32 = std::max(float32, other.float32);
    bfloat16_dot = std::max(bfloat16_dot, other.bfloat16_dot);
    int8_dot = std::max(int8_dot, other.int8_dot);
}

Rates measure_rates(int threads, std::optional<CpuIsa> wanted) {
    const CpuIsa isa = usable_isa(wanted);
    ThreadPool pool(threads > 0 ? threads : usable_processors());
    // Two halves, far larger than the caches.
    const std::int64_t memory_pieces = std::max(memory_pieces_least, 2 * (2 * last_caches_bytes(pool.threads()) / piece_bytes));
    const Kernels& kernels = kernels_of(isa);
    const Memory memory(static_cast<std::size_t>(memory_pieces * piece_bytes));
    std::memset(memory.data(), 1, memory.bytes());  // small floats
    const auto bytes = static_cast<double>(memory.bytes());

    Rates rates{.threads = pool.threads()};
    rates.copy = best_rate([&] {
        pool.run(memory_pieces / 2, 1, [&](std::int64_t begin, std::int64_t end, int) {
            std::memcpy(memory.data() + (memory_pieces / 2 + begin) * piece_bytes, memory.data() + begin * piece_bytes,
                        static_cast<std::size_t>((end - begin) * piece_bytes));
        });
        return bytes;
    });
    std::vector<float> sums(static_cast<std::size_t>(pool.threads()));
    rates.read = best_rate([&] {
        pool.run(memory_pieces, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            const auto* const from = reinterpret_cast<const float*>(memory.data() + begin * piece_bytes);
            sums[static_cast<std::size_t>(thread)] += kernels.sum(from, (end - begin) * piece_bytes / std::int64_t{sizeof(float)});
        });
        return bytes;
    });
    CHECK(std::ranges::any_of(sums, [](float sum) { return sum > 0.0F; }), "the sums of what was read are used");
    rates.float32 = best_rate([&] { return over_threads(pool, kernels.multiply_adds); });
    // Measured even if the kernels do not use it: a limit is what the processor could do.
    const bool tiles = supported(CpuIsa::avx512amx);
    if (tiles || supported(CpuIsa::avx512bf16)) {
        const DotKernels& dot = *kernels_of(tiles ? CpuIsa::avx512amx : CpuIsa::avx512bf16).bfloat16_dot;
        rates.bfloat16_dot = best_rate([&] { return over_threads(pool, dot.operations); });
    }
    const DotKernels& dot = int8_kernels_of(tiles ? CpuIsa::avx512amx : isa);
    rates.int8_dot = best_rate([&] { return over_threads(pool, dot.operations); });
    return rates;
}

}  // namespace lorry::kernels::cpu
