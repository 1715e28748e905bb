// CUDA's execution model on the host: each thread of a block is a fiber, blocks run one after another, and threads wait for each other at
// barriers and warp operations exactly where the programming guide says they do. Between two such places they run in an order drawn from a
// seed, so that a missing barrier shows as a wrong result. Used by emulation/device.h; for tests, not for production.
//
// Checked, and thrown as a Fault: threads that wait for each other forever, a barrier or warp operation that only some threads reach, a
// shuffle that reads a lane outside the mask, shared memory beyond what the launch requested, copies that are never waited for, and
// misaligned ldmatrix rows, cp.async and accesses to several elements. Shared memory is an allocation of exactly the requested size, filled
// with NaN, for the address sanitizer.
// Under the thread sanitizer, accesses that no barrier, warp operation or launch orders are races: between threads of a block, and between
// blocks. Each block runs on one of several sets of fibers, chosen at random, because only accesses by different sets are unordered
// (fiber.h).
// Not modelled: blocks that wait for other blocks, weak memory order, registers, speed. The rounding inside an mma is not the hardware's.
//
// Any thread may launch; launches wait for each other. Call everything else from inside a kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

namespace lorry::kernels::cuda::emulation {

constexpr int warp_size = 32;

// A kernel broke a rule of the execution model; the message names the place, block and threads.
class Fault : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

struct Index3 {
    int x = 0;
    int y = 0;
    int z = 0;
};

// The order in which threads run between the places where they wait.
enum class Order : std::uint8_t {
    random,      // any order, drawn from the seed
    ascending,   // lane 0 first
    descending,  // the last lane first
    run_ahead,   // by priorities drawn per block: one thread is always far ahead, one far behind
};
struct Schedule {
    Order order = Order::random;
    std::uint64_t seed = 1;
};
// Applies to all launches from now on. The same launches after the same schedule run in the same order.
void set_schedule(const Schedule& schedule);

struct Shape {
    Index3 grid;  // blocks
    int threads = 0;
    std::size_t shared_bytes = 0;
};
// Runs `body` as every thread of every block. Throws the Fault that a thread ran into; the kernel is then abandoned where it is.
void run(const Shape& shape, const std::function<void()>& body);

// Number of ldmatrix operations whose rows shared banks, since the program started.
std::uint64_t bank_conflicts();
void count_bank_conflict();

// Properties of the running thread.
int thread_in_block();
int block_threads();
Index3 block();
Index3 grid();

[[noreturn]] void fault(const std::string& what, const std::source_location& where);
std::byte* shared_memory(std::size_t bytes, const std::source_location& where);
void barrier(const std::source_location& where);

// One operation of a warp: all lanes bring their operands to the same place, and the last one to arrive computes for all.
enum class WarpOperation : std::uint8_t { barrier, shuffle, ballot, multiply, load_matrix };
using Operands = std::array<void*, warp_size>;  // by lane
void warp_operation(WarpOperation operation, void* operands, void (*compute)(const Operands& all), const std::source_location& where);

// cp.async: completes at once or at the wait, at random. Copies `bytes` bytes of `from`, then zeros up to 16.
void copy_async(void* to, const void* from, int bytes, const std::source_location& where);
void copy_async_commit();
void copy_async_wait(int groups_in_flight);

}  // namespace lorry::kernels::cuda::emulation
