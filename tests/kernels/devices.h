// The backends that this machine can run (the GPU is the emulated one if the program is linked with it), and helpers that fill and read
// their memory. Used by all kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pack.h"
#include "tests/kernels/reference.h"

namespace lorry::kernels::testing {

// The 16-lane kernels built from pairs of 8-lane vectors, to test the logic of AVX-512 on machines that lack it.
const cpu::Kernels& emulated_avx512_kernels();
// The same with sums of bfloat16 products, in the arithmetic of processors that have such an instruction.
const cpu::Kernels& emulated_avx512bf16_kernels();
// The same with sums of bfloat16 and of int8 by matrix tiles.
const cpu::Kernels& emulated_avx512amx_kernels();
const cpu::DotKernels& emulated_avx512amx_int4_kernels();

struct Device {
    std::string name;
    Format weights = Format::float32;
    std::optional<CpuIsa> needs = {};  // the instruction set that the machine must have; nullopt: a GPU
    Quantization quantize = Quantization::none;
    const cpu::Kernels* kernels = nullptr;          // null: made by make_cpu_backend
    const cpu::DotKernels* int4_kernels = nullptr;  // used with `kernels`; null: the scalar ones
    KvFormat kv = KvFormat::as_weights;
    bool has_library = false;  // a GPU on which cuBLASLt multiplies every shape that a table may have

    bool is_gpu() const { return !needs; }
    // The name of the matmul's tolerance.
    const char* matmul() const;
    // Whether adapters are multiplied as pairs of bfloat16, with A x rounded in between.
    bool multiplies_pairs() const;
    // Whether bfloat16 matmuls use matrix tiles, which add up products in their own order.
    bool multiplies_by_tiles() const;
    // The input format of matmuls without dot kernels.
    Format input() const { return is_gpu() ? weights : Format::float32; }
    // The formats that its ops can write besides float32.
    std::vector<Format> narrow_formats() const { return {Format::bfloat16, is_gpu() ? Format::fp8_rows : Format::int8_rows}; }
    // What this machine lacks to run it, as text for people; empty: nothing.
    std::string lacks() const;
    // Null if the machine lacks something.
    std::unique_ptr<Backend> make(int threads = 2) const;
};

// Prints the device of a failed test.
inline void PrintTo(const Device& device, std::ostream* to) { *to << device.name; }

std::vector<Device> devices();
std::string name_of(const ::testing::TestParamInfo<Device>& info);

// A weight part in a checkpoint's format, and its values after rounding.
struct Part {
    Part(const reference::Table& values, Format format, bool is_transposed);
    WeightPart view() const;

    reference::Table stored;  // [out, in]
    Format format;
    bool transposed;
    std::vector<std::byte> bytes;
};

// A low-rank update of outputs [begin, begin + size).
struct LoraSlice {
    std::int64_t begin, size, rank;
    float scale;
};
struct LoraAdapter {
    std::vector<LoraSlice> slices;
    std::vector<Part> a, b;
    std::unique_ptr<PackedLora> packed;
};

// A test on each device; if this machine lacks the device, the test is skipped with the reason.
class OnEachDevice : public ::testing::TestWithParam<Device> {
protected:
    void SetUp() override;
    Format weights() const { return GetParam().weights; }
    Format input() const { return GetParam().input(); }

    std::unique_ptr<Backend> backend_;
    std::uint64_t seed_ = 0;
    std::mt19937_64 random_;

    // Normal numbers, rounded to float32.
    reference::Table normal(std::int64_t rows, std::int64_t columns, double deviation = 1.0);
    std::int64_t number(std::int64_t low, std::int64_t high);
    // The adapter's A and B are of order 1 / sqrt of their inputs.
    LoraAdapter adapter_of(const std::vector<LoraSlice>& slices, std::int64_t in_features);
};

// Device memory of a matrix whose rows are `padding` elements longer than needed, so that a wrong stride shows.
class Memory {
public:
    Memory(Backend& backend, std::int64_t rows, std::int64_t columns, Format format = Format::float32, std::int64_t padding = 3);
    // Holds `from`, rounded to the format.
    Memory(Backend& backend, const reference::Table& from, Format format = Format::float32, std::int64_t padding = 3);
    const Matrix& matrix() const { return matrix_; }
    Vector vector() const;  // of the first row
    reference::Table read() const;
    std::vector<float> read_row(std::int64_t row) const;
    // True if nothing was written beyond the columns.
    bool padding_is_untouched() const;

private:
    std::size_t row_bytes() const { return static_cast<std::size_t>(matrix_.stride) * bytes_of(matrix_.format); }
    std::vector<std::byte> download(std::int64_t row_begin, std::int64_t rows) const;  // whole rows with their padding

    Backend& backend_;
    std::unique_ptr<Buffer> buffer_;
    Matrix matrix_;
};

// Fills a KV cache with NaN: memory that was not written must not be read.
void poison(Backend& backend, KvCache& cache);

reference::Table unpacked_weight(const cpu::Panels& panels);
// The weight and the inputs after rounding, as a matmul with this weight uses them.
reference::Table stored_weight(const reference::Table& values, const PackedWeight& weight, Format weights);
reference::Table stored_inputs(const reference::Table& values, Format format);

// The largest error of a result, relative to max(1, |reference|), and the reason for it.
struct Tolerance {
    const char* op;
    double float32;
    double bfloat16;
    const char* reason;
};
double tolerance(const std::string& op, Format weights);
void expect_close(const reference::Table& got, const reference::Table& want, double tolerance);

}  // namespace lorry::kernels::testing
