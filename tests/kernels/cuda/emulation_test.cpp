// The emulated GPU itself: warp operations compute what the PTX ISA specifies, and it catches each kind of mistake that it claims to catch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"
#include "tests/support/labels.h"

namespace lorry::kernels::cuda {

namespace {

using emulation::Fault;
using emulation::Order;
using emulation::Schedule;

constexpr int threads = 64;
constexpr Order all_orders[] = {Order::random, Order::ascending, Order::descending, Order::run_ahead};

// The result of a launch: "" or the message of its fault.
template <class... Parameters, class... Arguments>
std::string fault_of(void (*kernel)(Parameters...), const Launch& how, Arguments... arguments) {
    try {
        launch(kernel, how, arguments...);
    } catch (const Fault& fault) {
        return fault.what();
    }
    return "";
}

// Under the thread sanitizer, only the tests run that show that it sees races.
const tests::Labelled emulation_without_tsan{"Emulation.*", {tests::Label::not_tsan}};

struct Neighbours {
    int values[threads];
};
__global__ void read_neighbour(int* out, bool waits) {
    auto& shared = shared_memory<Neighbours>();
    shared.values[thread_in_block()] = thread_in_block();
    if (waits) barrier();
    out[thread_in_block()] = shared.values[(thread_in_block() + 1) % threads];
}

std::vector<int> neighbours(bool waits, const Schedule& schedule) {
    emulation::set_schedule(schedule);
    std::vector<int> out(threads);
    launch(read_neighbour, {.blocks = {}, .threads = threads, .shared_bytes = sizeof(Neighbours), .stream = nullptr}, out.data(), waits);
    return out;
}

TEST(Emulation, AMissingBarrierShowsInEveryOrderAndABarrierHelpsInEvery) {
    std::vector<int> right(threads);
    for (int i = 0; i < threads; ++i) right[static_cast<std::size_t>(i)] = (i + 1) % threads;
    for (const Order order : all_orders) {
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
            EXPECT_EQ(neighbours(true, {order, seed}), right);
            EXPECT_NE(neighbours(false, {order, seed}), right);
        }
    }
}

struct Reused {
    float values[threads];
};
__global__ void overwrite_too_early(float* out, bool waits) {
    auto& shared = shared_memory<Reused>();
    float sum = 0.0F;
    for (int round = 0; round < 2; ++round) {
        shared.values[thread_in_block()] = static_cast<float>(round);
        barrier();
        sum += shared.values[threads - 1 - thread_in_block()];
        if (waits) barrier();
    }
    out[thread_in_block()] = sum;
}

TEST(Emulation, ABufferThatIsOverwrittenBeforeAllHaveReadItShows) {
    const Launch how{.blocks = {}, .threads = threads, .shared_bytes = sizeof(Reused), .stream = nullptr};
    const std::vector<float> right(threads, 1.0F);
    int caught = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        emulation::set_schedule({Order::random, seed});
        std::vector<float> out(threads);
        launch(overwrite_too_early, how, out.data(), true);
        EXPECT_EQ(out, right);
        launch(overwrite_too_early, how, out.data(), false);
        caught += out != right ? 1 : 0;
    }
    EXPECT_GE(caught, 19);
}

__global__ void two_barriers() {
    if (thread_in_block() % 2 == 0) {
        barrier();
    } else {
        barrier();
    }
}
__global__ void half_a_warp_sums(int* out) {
    if (lane() < 16) out[0] = warp_sum(1);
}
__global__ void wait_for_each_other() {
    if (lane() < 16) {
        barrier();
    } else {
        warp_barrier();
    }
}
__global__ void sum_different_things(int* out) { out[thread_in_block()] = lane() < 16 ? shuffle_xor(1, 1) : shuffle_xor(2, 1); }

TEST(Emulation, DivergentBarriersAndWarpOperationsAreFaults) {
    const Launch how{.blocks = {}, .threads = threads, .shared_bytes = 0, .stream = nullptr};
    std::vector<int> out(threads);
    for (const Order order : all_orders) {
        emulation::set_schedule({order, 3});
        EXPECT_NE(fault_of(two_barriers, how).find("while others wait at the one at"), std::string::npos);
        EXPECT_NE(fault_of(half_a_warp_sums, how, out.data()).find("a shuffle"), std::string::npos);
        EXPECT_NE(fault_of(wait_for_each_other, how).find("wait for each other forever"), std::string::npos);
        EXPECT_NE(fault_of(sum_different_things, how, out.data()).find("waits in a shuffle at"), std::string::npos);
        // The device works again after each fault.
        EXPECT_EQ(neighbours(true, {order, 3})[0], 1);
    }
}

struct Staged {
    alignas(16) float values[threads * 4];
};
// groups: in flight after the wait; 0 is correct.
template <int groups, bool waits_for_others>
__global__ void copy_reversed(float* out, const float* in) {
    auto& shared = shared_memory<Staged>();
    const int i = thread_in_block();
    copy_async(&shared.values[i * 4], in + i * 4, true);
    copy_async_commit();
    copy_async_wait<groups>();
    if (waits_for_others) barrier();
    for (int j = 0; j < 4; ++j) out[i * 4 + j] = shared.values[threads * 4 - 1 - i * 4 - j];
    copy_async_wait<0>();
}
__global__ void forget_a_copy(const float* in) {
    auto& shared = shared_memory<Staged>();
    copy_async(&shared.values[thread_in_block() * 4], in + thread_in_block() * 4, true);
    copy_async_commit();
}
__global__ void copy_to_the_side(const float* in) {
    auto& shared = shared_memory<Staged>();
    copy_async(&shared.values[1], in, true);
}

TEST(Emulation, ACopyThatIsNotWaitedForShows) {
    const Launch how{.blocks = {}, .threads = threads, .shared_bytes = sizeof(Staged), .stream = nullptr};
    alignas(16) std::array<float, threads * 4> in{};
    std::iota(in.begin(), in.end(), 1.0F);
    std::vector<float> right(in.rbegin(), in.rend());
    for (const Order order : all_orders) {
        emulation::set_schedule({order, 8});
        std::vector<float> out(in.size());
        launch(copy_reversed<0, true>, how, out.data(), in.data());
        EXPECT_EQ(out, right);
        launch(copy_reversed<1, true>, how, out.data(), in.data());
        EXPECT_NE(out, right) << "one group too many in flight";
        launch(copy_reversed<0, false>, how, out.data(), in.data());
        EXPECT_NE(out, right) << "others' copies are not waited for";
        EXPECT_NE(fault_of(forget_a_copy, how, in.data()).find("never waited for"), std::string::npos);
        EXPECT_NE(fault_of(copy_to_the_side, how, in.data()).find("not multiples of 16"), std::string::npos);
    }
}

__global__ void use_shared(int* out) { out[0] = shared_memory<Neighbours>().values[0]; }
__global__ void load_misaligned(std::uint32_t* out) {
    auto& shared = shared_memory<Staged>();
    std::uint32_t r[4];
    load_matrices(r, reinterpret_cast<const Bfloat16*>(shared.values) + 1);
    out[thread_in_block()] = r[0];
}

struct alignas(16) FourFloats {
    float at[4];
};
__global__ void reverse_fours(float* out, const float* in, int offset) {
    const FourFloats x = load_whole(reinterpret_cast<const FourFloats*>(in + thread_in_block() * 4));
    store_whole(reinterpret_cast<FourFloats*>(out + thread_in_block() * 4 + offset), {x.at[3], x.at[2], x.at[1], x.at[0]});
}

TEST(Emulation, FoursMoveAtOnceFromMultiplesOfTheirSizeAlone) {
    const Launch how{.blocks = {}, .threads = threads, .shared_bytes = 0, .stream = nullptr};
    alignas(16) std::array<float, threads * 4> in{};
    alignas(16) std::array<float, threads * 4 + 4> out{};
    std::iota(in.begin(), in.end(), 1.0F);
    launch(reverse_fours, how, out.data(), in.data(), 0);
    EXPECT_EQ(out[0], 4.0F);
    EXPECT_EQ(out[threads * 4 - 1], in[threads * 4 - 4]);
    EXPECT_NE(fault_of(reverse_fours, how, out.data(), in.data(), 1).find("an access of 16 bytes at an address"), std::string::npos);
    EXPECT_NE(fault_of(reverse_fours, how, out.data(), in.data() + 2, 0).find("an access of 16 bytes at an address"), std::string::npos);
}

__global__ void sum_of_block(int* out) { out[thread_in_block()] = block_sum(1 << warp(), &shared_memory<Neighbours>().values[0]); }

// Pins: blocks of any number of warps, whether a power of two or not.
TEST(Emulation, ABlocksSumIsThatOfAllItsWarpsInEachThread) {
    for (const int warps : {1, 2, 3, 5, 8, 13, 25}) {
        std::vector<int> out(static_cast<std::size_t>(warps * warp_size));
        launch(sum_of_block, {.blocks = {}, .threads = warps * warp_size, .shared_bytes = sizeof(Neighbours), .stream = nullptr},
               out.data());
        EXPECT_EQ(out, std::vector<int>(out.size(), warp_size * ((1 << warps) - 1)));
    }
}

TEST(Emulation, SharedMemoryBeyondTheLaunchAndMisalignedRowsAreFaults) {
    std::vector<int> out(threads);
    EXPECT_NE(
        fault_of(use_shared, {.blocks = {}, .threads = threads, .shared_bytes = sizeof(Neighbours) - 4, .stream = nullptr}, out.data())
            .find("256 bytes of shared memory, the launch gave 252"),
        std::string::npos);
    std::vector<std::uint32_t> words(threads);
    EXPECT_NE(fault_of(load_misaligned, {.blocks = {}, .threads = threads, .shared_bytes = sizeof(Staged), .stream = nullptr}, words.data())
                  .find("ldmatrix from an address"),
              std::string::npos);
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void read_beyond(int* out) { out[0] = shared_memory<Neighbours>().values[thread_in_block() + 1]; }

// The copy is made by the emulation, which is compiled without the sanitizer.
TEST(EmulationDeathTest, ReadingOrCopyingFromBeyondMemoryIsSeenByTheAddressSanitizer) {
    std::vector<int> out(threads);
    Launch how{.blocks = {}, .threads = threads, .shared_bytes = sizeof(Neighbours), .stream = nullptr};
    EXPECT_DEATH(launch(read_beyond, how, out.data()), "heap-buffer-overflow");
    how.shared_bytes = sizeof(Staged);
    std::vector<float> copied(threads * 4);
    const std::vector<float> in(threads * 4 - 4);
    EXPECT_DEATH((launch(copy_reversed<0, true>, how, copied.data(), in.data())), "heap-buffer-overflow");
}
#endif

__global__ void count_in_order(int* order, int* next) { order[thread_in_block()] = (*next)++; }

#if defined(__SANITIZE_THREAD__)
__global__ void count_blocks(std::uint32_t* sum, bool atomically) {
    if (thread_in_block() != 0) return;
    if (atomically) {
        atomic_add(sum, 1U);
    } else {
        *sum += 1U;
    }
}

// Exit code 66 is the sanitizer's for a race.
const tests::Labelled emulation_with_tsan{"EmulationDeathTest.*", {tests::Label::not_tsan, tests::Label::tsan_cuda}};

TEST(EmulationDeathTest, APlainSumOverBlocksIsARaceAndAnAtomicOneIsNone) {
    const auto count = [](bool atomically) {
        std::uint32_t sum = 0;
        launch(count_blocks, {.blocks = {20}, .threads = threads, .shared_bytes = 0, .stream = nullptr}, &sum, atomically);
        std::exit(sum == 20 ? 0 : 1);
    };
    EXPECT_EXIT(count(false), ::testing::ExitedWithCode(66), "data race");
    EXPECT_EXIT(count(true), ::testing::ExitedWithCode(0), "");
}

TEST(EmulationDeathTest, AMissingBarrierIsARaceAndABarrierHelps) {
    const auto exchange = [](bool waits) {
        neighbours(waits, {Order::ascending, 1});
        std::exit(0);
    };
    EXPECT_EXIT(exchange(false), ::testing::ExitedWithCode(66), "data race");
    EXPECT_EXIT(exchange(true), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(Emulation, OneSeedIsOneOrderAndAnotherSeedAnother) {
    const auto order_of = [](const Schedule& schedule) {
        emulation::set_schedule(schedule);
        std::vector<int> order(threads);
        int next = 0;
        launch(count_in_order, {.blocks = {}, .threads = threads, .shared_bytes = 0, .stream = nullptr}, order.data(), &next);
        return order;
    };
    std::vector<int> ascending(threads);
    std::iota(ascending.begin(), ascending.end(), 0);
    EXPECT_EQ(order_of({Order::ascending, 1}), ascending);
    EXPECT_EQ(order_of({Order::descending, 1}), std::vector<int>(ascending.rbegin(), ascending.rend()));
    for (const Order order : {Order::random, Order::run_ahead}) {
        EXPECT_EQ(order_of({order, 5}), order_of({order, 5}));
        EXPECT_NE(order_of({order, 5}), order_of({order, 6}));
    }
}

struct Fragments {
    alignas(16) Bfloat16 a[16][24];
    alignas(16) Bfloat16 b[16][24];         // [k][n], two tiles of 8 columns
    alignas(16) Bfloat16 b_turned[16][24];  // [n][k]
};
// d[16, 16] = a b, once with b as stored and once with b transposed.
__global__ void multiply(float* plain, float* turned, const float* a, const float* b) {
    auto& shared = shared_memory<Fragments>();
    for (int i = lane(); i < 256; i += warp_size) {
        shared.a[i / 16][i % 16] = to_bfloat16(a[i]);
        shared.b[i / 16][i % 16] = to_bfloat16(b[i]);
        shared.b_turned[i % 16][i / 16] = to_bfloat16(b[i]);
    }
    warp_barrier();
    std::uint32_t left[4];
    std::uint32_t right[4];
    load_matrices(left, &shared.a[lane() % 16][lane() / 16 * 8]);
    float d[2][4] = {};
    load_matrices_transposed(right, &shared.b[lane() % 16][lane() / 16 * 8]);
    multiply_add(d[0], left, {right[0], right[1]});
    multiply_add(d[1], left, {right[2], right[3]});
    float e[2][4] = {};
    load_matrices(right, &shared.b_turned[lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 8]);
    multiply_add(e[0], left, {right[0], right[1]});
    multiply_add(e[1], left, {right[2], right[3]});
    for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
            const int at = (lane() / 4 + i / 2 * 8) * 16 + n * 8 + lane() % 4 * 2 + i % 2;
            plain[at] = d[n][i];
            turned[at] = e[n][i];
        }
    }
}

TEST(Emulation, MatrixFragmentsMultiplyAsMatricesDo) {
    std::mt19937_64 random(20261121);
    std::vector<float> a(256);
    std::vector<float> b(256);
    // Small integers: every product and sum is exact.
    for (float& x : a) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
    for (float& x : b) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
    std::vector<float> want(256);
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 16; ++column) {
            for (std::size_t k = 0; k < 16; ++k) want[row * 16 + column] += a[row * 16 + k] * b[k * 16 + column];
        }
    }
    std::vector<float> plain(256);
    std::vector<float> turned(256);
    const std::uint64_t conflicts = emulation::bank_conflicts();
    launch(multiply, {.blocks = {}, .threads = warp_size, .shared_bytes = sizeof(Fragments), .stream = nullptr}, plain.data(),
           turned.data(), a.data(), b.data());
    EXPECT_EQ(plain, want);
    EXPECT_EQ(turned, want);
    EXPECT_EQ(emulation::bank_conflicts(), conflicts) << "rows of 48 bytes lie in different banks";
}

struct Fp8Fragments {
    alignas(16) Fp8 a[16][48];
    alignas(16) Fp8 b[16][48];  // [n][k]
};
// d[16, 16] = a b, by the mma of e4m3 and by the mma of bfloat16 that replace it.
__global__ void multiply_fp8(float* narrow, float* widened, const Fp8* a, const Fp8* b) {
    auto& shared = shared_memory<Fp8Fragments>();
    for (int i = lane(); i < 512; i += warp_size) {
        shared.a[i / 32][i % 32] = a[i];
        shared.b[i % 16][i / 16] = b[i];
    }
    warp_barrier();
    std::uint32_t left[4];
    std::uint32_t right[4];
    load_matrices(left, &shared.a[lane() % 16][lane() / 16 * 16]);
    load_matrices(right, &shared.b[lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 16]);
    float d[2][4] = {};
    multiply_add_e4m3(d[0], left, {right[0], right[1]});
    multiply_add_e4m3(d[1], left, {right[2], right[3]});
    float e[2][4] = {};
    multiply_add_widened(e[0], left, {right[0], right[1]});
    multiply_add_widened(e[1], left, {right[2], right[3]});
    for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
            const int at = (lane() / 4 + i / 2 * 8) * 16 + n * 8 + lane() % 4 * 2 + i % 2;
            narrow[at] = d[n][i];
            widened[at] = e[n][i];
        }
    }
}

TEST(Emulation, FragmentsOfFp8MultiplyAsMatricesDo) {
    std::mt19937_64 random(20261121);
    std::vector<Fp8> a(512);  // [16, 32]
    std::vector<Fp8> b(512);  // [32, 16]
    // Sums of their products are multiples of 2^-18 below 2^6, so all are exact. Both signs, zero and numbers below 2^-6.
    for (Fp8& x : a) x = {static_cast<std::uint8_t>((random() & 0x80U) | random() % 0x20)};
    for (Fp8& x : b) x = {static_cast<std::uint8_t>((random() & 0x80U) | random() % 0x20)};
    std::vector<float> want(256);
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 16; ++column) {
            for (std::size_t k = 0; k < 32; ++k) want[row * 16 + column] += float_of(a[row * 32 + k]) * float_of(b[k * 16 + column]);
        }
    }
    std::vector<float> narrow(256);
    std::vector<float> widened(256);
    launch(multiply_fp8, {.blocks = {}, .threads = warp_size, .shared_bytes = sizeof(Fp8Fragments), .stream = nullptr}, narrow.data(),
           widened.data(), a.data(), b.data());
    EXPECT_EQ(narrow, want);
    EXPECT_EQ(widened, want);
}

TEST(Emulation, WidenedFp8KeepsEveryNumber) {
    for (unsigned bits = 0; bits < 256; ++bits) {
        if ((bits & 0x7FU) == 0x7FU) continue;
        std::uint32_t even = 0;
        std::uint32_t odd = 0;
        widen(bits << 8 | bits << 16, even, odd);
        const float value = float_of({static_cast<std::uint8_t>(bits)});
        EXPECT_EQ(even, pack(0.0F, value));
        EXPECT_EQ(odd, pack(value, 0.0F));
        EXPECT_EQ(to_float(Bfloat16{static_cast<std::uint16_t>(even >> 16)}), value) << "exactly";
    }
}

__global__ void vote_and_sum(std::uint32_t* votes, int* sums, int* picked) {
    votes[thread_in_block()] = ballot(lane() % 3 == 0);
    sums[thread_in_block()] = warp_sum(lane());
    picked[thread_in_block()] = shuffle_from(thread_in_block(), 5);
}

TEST(Emulation, VotesSumsAndShufflesAreOfTheOwnWarp) {
    std::vector<std::uint32_t> votes(threads);
    std::vector<int> sums(threads);
    std::vector<int> picked(threads);
    launch(vote_and_sum, {.blocks = {}, .threads = threads, .shared_bytes = 0, .stream = nullptr}, votes.data(), sums.data(),
           picked.data());
    EXPECT_EQ(votes, std::vector<std::uint32_t>(threads, 0x49249249U));
    EXPECT_EQ(sums, std::vector<int>(threads, 31 * 16));
    EXPECT_EQ(picked[0], 5);
    EXPECT_EQ(picked[threads - 1], 37);
}

// A stream's work runs only when the host waits for it, so a host that does not wait reads wrong values.
TEST(Emulation, WhatIsQueuedRunsInOrderWhenItIsWaitedForAndNotBefore) {
    const Stream stream;
    Event half_way;
    const PinnedMemory there(sizeof(int));
    const PinnedMemory back(sizeof(int));
    const DeviceMemory device(sizeof(int));
    const auto value = [](const PinnedMemory& memory) -> int& { return *reinterpret_cast<int*>(memory.data()); };
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
        check(cudaMemcpyAsync(to, from, sizeof(int), kind, stream.get()), "copying");
    };
    value(there) = 1;
    value(back) = 0;
    copy(device.data(), there.data(), cudaMemcpyHostToDevice);
    half_way.record(stream);
    copy(back.data(), device.data(), cudaMemcpyDeviceToHost);
    value(there) = 2;  // too early
    half_way.wait();
    value(there) = 3;
    EXPECT_EQ(value(back), 0) << "read too early";
    stream.wait();
    EXPECT_EQ(value(back), 2);

    // Memory that is not pinned is read before the call returns, and freeing memory waits for the work that uses it.
    int plain = 4;
    {
        const DeviceMemory freed(sizeof(int));
        copy(freed.data(), &plain, cudaMemcpyHostToDevice);
        plain = 5;
        copy(back.data(), freed.data(), cudaMemcpyDeviceToHost);
    }
    EXPECT_EQ(value(back), 4);
}

__global__ void add_one(int* to) {
    if (thread_in_block() == 0) ++*to;
}

TEST(Emulation, AGraphRunsAsOftenAsItIsLaunchedAndNotWhenItIsMade) {
    const Stream stream;
    const DeviceMemory device(sizeof(int));
    auto* const value = reinterpret_cast<int*>(device.data());
    *value = 0;
    const auto add = [&](cudaStream_t where) { launch(add_one, {.threads = 32, .stream = where}, value); };
    const Graph graph(stream, [&] {
        add(stream.get());
        add(stream.get());
        EXPECT_THROW(stream.wait(), std::runtime_error);
        EXPECT_THROW(DeviceMemory(1), std::runtime_error);
    });
    stream.wait();
    EXPECT_EQ(*value, 0);
    graph.launch(stream);
    add(stream.get());
    graph.launch(stream);
    EXPECT_EQ(*value, 0) << "read too early";
    stream.wait();
    EXPECT_EQ(*value, 5);
}

// Pins: copies larger than the pinned staging memory are complete.
TEST(Emulation, UploadsOfAnyLengthArrive) {
    const auto backend = make_cuda_backend({});
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4} << 20, (std::size_t{4} << 20) + 1, (std::size_t{12} << 20) + 7}) {
        std::vector<std::byte> sent(bytes);
        for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i % 251);
        std::vector<std::byte> received(bytes);
        const auto buffer = backend->allocate(bytes);
        backend->upload(buffer->data(), sent);
        backend->read_back(received, buffer->data());
        EXPECT_EQ(received, sent);
    }
}

// Pins: the GPU's idle time is measured by its own clock; a step whose results are not read has no known end.
TEST(Emulation, TimeBetweenStepsIsCountedWhereTheStepBeforeWasRead) {
    const auto backend = make_cuda_backend({});
    const auto logits = backend->allocate(4 * sizeof(float));
    const std::array<TokenId, 1> zero{};
    const std::array<BlockId, 1> block{};
    const StepSequence sequence{.row_count = 1, .blocks = block};
    const StepInputs step{.rows = 1, .tokens = zero, .positions = zero, .sequences = {&sequence, 1}};
    const SampleRow row{};
    SampleResult result;
    const auto run = [&](bool is_read, double pause) {
        backend->begin_step(step);
        if (is_read) {
            backend->sample(
                {.logits = {.data = logits->data(), .rows = 1, .columns = 4, .stride = 4}, .rows = {&row, 1}, .results = {&result, 1}});
        }
        backend->finish_step();
        emulation::pass(pause);
    };
    run(true, 5.0);
    run(true, 7.0);
    EXPECT_NEAR(backend->info().idle_seconds, 5e-6, 1e-9);
    run(false, 11.0);
    run(true, 13.0);
    EXPECT_NEAR(backend->info().idle_seconds, 12e-6, 1e-9);
    run(true, 0.0);
    EXPECT_NEAR(backend->info().idle_seconds, 25e-6, 1e-9);
}

__global__ void mark_and_count(std::uint32_t* words) {
    atomic_add(&words[thread_in_block() % 2], 1U);
    atomic_or(&words[2], 1U << static_cast<unsigned>(thread_in_block() % 20));
    atomic_max(&words[3], static_cast<std::uint32_t>(block().x * threads + (thread_in_block() * 7) % threads));
    if (arrive(&words[4], 2U) == 2U * (3 * threads - 1)) words[5] = words[4];  // the last thread of all
}

TEST(Emulation, AtomicsOfAllBlocksAddUp) {
    std::uint32_t words[6] = {5, 0, 1U << 31U};
    launch(mark_and_count, {.blocks = {3}, .threads = threads, .shared_bytes = 0, .stream = nullptr}, words);
    EXPECT_EQ(words[0], 5U + 3 * threads / 2);
    EXPECT_EQ(words[1], 3U * threads / 2);
    EXPECT_EQ(words[2], 1U << 31U | 0xFFFFFU);
    EXPECT_EQ(words[3], 3U * threads - 1);
    EXPECT_EQ(words[5], 2U * 3 * threads);
}

}  // namespace

}  // namespace lorry::kernels::cuda
