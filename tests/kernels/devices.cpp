// Devices, memory and tolerances of the kernel tests; see devices.h.
#include "tests/kernels/devices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/devices.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/pack.h"
#include "tests/support/labels.h"
#if defined(LORRY_CUDA_EMULATED)
#include "kernels/cuda/emulation/cublaslt.h"
#else
#include <iostream>

#include "kernels/cuda/cublaslt/library.h"
#include "kernels/cuda/cublaslt/tuner.h"
#endif

namespace lorry::kernels::testing {

namespace {

// Memory is filled with a number that would show in every sum.
std::byte untouched_byte(std::size_t index) { return static_cast<std::byte>(std::bit_cast<std::uint32_t>(-12345.0F) >> (8 * (index % 4))); }

constexpr Tolerance tolerances[] = {
    {"matmul", 2e-5, 2e-5,
     "sums of up to 600 products of order 1/sqrt(600), each rounded to 24 bits; weights and inputs are rounded beforehand"},
    {"library_matmul", 1e-4, 1e-4, "as matmul; the library cuts its sums as it likes"},
    {"library_fp8_matmul", 4e-3, 4e-3, "as matmul; tensor cores of 9.0 add up 13 bits of fp8's products for a while"},
    {"norm", 1e-5, 1e-5, "one sum of up to 600 squares, a root and a division"},
    {"activation", 2e-6, 2e-6, "a polynomial of a few terms; values beyond 1 count relatively"},
    {"disentangled_bias", 2e-5, 2e-5, "two sums of up to 64 products in float32, whatever the weights' format"},
    {"attention", 2e-5, 1e-2, "two sums and an exponential; with bfloat16, rounding a key that lies between two values may go either way"},
    {"int8_attention", 2e-2, 2e-2,
     "weights are rounded to 1/65534 of the largest; rounding a query or key that lies between two integers may go either way"},
    {"fp8_attention", 5e-2, 5e-2, "as attention; a key or value of 4 bits that lies between two of its numbers may go either way"},
    {"paired_attention", 2e-5, 2e-2, "queries and weights are rounded to bfloat16 as well: each changes a weight by up to 1/256 of it"},
    {"lora", 2e-5, 2e-5, "two matmuls; the factors are rounded beforehand"},
    {"lora_by_pairs", 2e-5, 1e-2, "A x is rounded to bfloat16 as well: where it lies between two values it may go either way"},
    {"narrow", 1e-7, 1e-7, "the same value; reading an int8 or an fp8 back rounds once"},
    {"logprob", 1e-5, 1e-5, "one sum of exponentials in pieces"},
};

#if defined(LORRY_CUDA_EMULATED)
Expected<cuda::lt::Functions, std::string> open_library() { return cuda::emulation::cublaslt(); }

// Three algorithms with the same order over the input features.
std::vector<cuda::MatmulRange> algorithms_for(const cuda::MatmulShape&) {
    using cuda::emulation::CublasLtAlgorithm;
    return {{64, cuda::emulation::words_of(CublasLtAlgorithm::for_few_rows)},
            {112, cuda::emulation::words_of(CublasLtAlgorithm::plain)},
            {cuda::matmul_rows_max, cuda::emulation::words_of(CublasLtAlgorithm::for_many_rows)}};
}
#else
Expected<cuda::lt::Functions, std::string> open_library() { return cuda::open_cublaslt(cuda::cublaslt_places()); }

// The algorithms that `lorry bench tune` finds, whether or not they are faster. ops/gpu-check counts the lines printed here.
std::vector<cuda::MatmulRange> algorithms_for(const cuda::MatmulShape& shape) {
    const cuda::TuneOptions quick{.seconds = 0.0, .walked_bytes = 1, .copied_bytes = 4096, .square = 256};
    const cuda::Tuning tuning = cuda::tune_matmuls({&shape, 1}, quick, open_library);
    std::vector<cuda::MatmulRange> ranges;
    for (const cuda::MatmulRow& row : cuda::rows_of(tuning, tuning.matmuls.front())) ranges.push_back(row.range);
    std::cout << "cuBLASLt " << (ranges.empty() ? "does not multiply " : "multiplies ") << shape.out_features << " x " << shape.in_features
              << ' ' << kernels::name_of(shape.inputs) << '\n';
    return ranges;
}
#endif

std::unique_ptr<Backend> make_library_backend(const CudaOptions& options) {
    static_cast<void>(cuda::choose_device());
    const cuda::lt::Functions library = *open_library();
    const bool has_fp8 = !cuda::fp8_obstacle(cuda::chip_of_device(), library.get_version());
    const auto ranges_of = [=](const cuda::MatmulShape& shape) {
        const std::int64_t multiple = cuda::features_multiple(shape.inputs);
        const bool may_be_in_a_table =
            shape.out_features % multiple == 0 && shape.in_features % multiple == 0 && (has_fp8 || shape.inputs != Format::fp8_rows);
        return may_be_in_a_table ? algorithms_for(shape) : std::vector<cuda::MatmulRange>{};
    };
    return std::make_unique<cuda::CudaBackend>(
        options, cuda::MatmulChoice{std::make_unique<cuda::LibraryMatmul>(library, cuda::MatmulTable{ranges_of, "every shape"}),
                                    "cuBLASLt for every shape"});
}

}  // namespace

// The 16-lane kernels themselves are checked where a machine has them.
const tests::Labelled emulated_lanes{"*/emulated_*", {tests::Label::not_asan, tests::Label::not_tsan}};
// All instruction sets share their threads' code, so one of them will do.
const tests::Labelled other_instruction_sets{"*/scalar_*:*/avx512*", {tests::Label::not_tsan}};
// Under the thread sanitizer the emulated GPU has tests of its own: those with the label tsan_cuda.
const tests::Labelled gpus_without_tsan{"*/cuda_*", {tests::Label::not_tsan}};
// All formats run with threads in one order, drawn anew at each start. These formats also run in the fixed orders, which find what that may
// miss; attention_test.cpp and invariance_test.cpp add the fp8 cache and the kernels that only float32 has.
const tests::Labelled gpus_in_orders{"Op/*/cuda_bfloat16:Op/*/cuda_fp8", {tests::Label::in_orders}};

std::string Device::lacks() const {
    if (is_gpu() && cuda_obstacle()) return *cuda_obstacle();
    if (has_library && !open_library()) return open_library().error();
    if (is_gpu()) return "";
    return cpu::supported(*needs) ? "" : std::string("this processor does not support ") + cpu::name_of(*needs);
}

const char* Device::matmul() const {
    if (!has_library) return "matmul";
    return quantize == Quantization::fp8 ? "library_fp8_matmul" : "library_matmul";
}

bool Device::multiplies_pairs() const {
    if (weights != Format::bfloat16) return false;
    if (is_gpu()) return true;
    return (kernels != nullptr ? *kernels : cpu::kernels_of(*needs)).bfloat16_dot != nullptr;
}

bool Device::multiplies_by_tiles() const {
    if (weights != Format::bfloat16 || quantize != Quantization::none) return false;
    return kernels != nullptr ? kernels == &emulated_avx512amx_kernels() : needs == CpuIsa::avx512amx;
}

std::unique_ptr<Backend> Device::make(int threads) const {
    if (!lacks().empty()) return nullptr;
    if (has_library) return make_library_backend({.storage = {.weights = weights, .quantize = quantize}});
    const StorageOptions storage{.weights = weights, .quantize = quantize, .kv = kv};
    if (is_gpu()) return make_cuda_backend({.storage = storage});
    if (kernels != nullptr) {
        const cpu::DotKernels* dot = weights == Format::bfloat16 ? kernels->bfloat16_dot : nullptr;
        const cpu::DotKernels& int4 = int4_kernels != nullptr ? *int4_kernels : cpu::int4_kernels_of(CpuIsa::scalar);
        if (quantize != Quantization::none) dot = int4.unpacked;
        const cpu::CpuBackend::Parts parts{
            .kernels = *kernels, .dot = quantize == Quantization::int4 ? &int4 : dot, .embedding_dot = dot};
        return std::make_unique<cpu::CpuBackend>(parts, threads, storage);
    }
    return make_cpu_backend({.threads = threads, .isa = needs, .storage = storage});
}

std::vector<Device> devices() {
    std::vector<Device> result;
    std::vector<CpuIsa> isas{CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512bf16};
    // Few machines have it, and its emulation runs everywhere: without it, do not report a skip for each test.
    if (cpu::supported(CpuIsa::avx512amx)) isas.push_back(CpuIsa::avx512amx);
    for (const Format weights : {Format::float32, Format::bfloat16}) {
        const std::string suffix = std::string("_") + kernels::name_of(weights);
        for (const CpuIsa isa : isas) {
            result.push_back({.name = cpu::name_of(isa) + suffix, .weights = weights, .needs = isa});
        }
        result.push_back(
            {.name = "emulated_avx512" + suffix, .weights = weights, .needs = CpuIsa::avx2, .kernels = &emulated_avx512_kernels()});
        result.push_back({.name = "cuda" + suffix, .weights = weights});
    }
    result.push_back({.name = "cuda_fp8", .weights = Format::bfloat16, .quantize = Quantization::fp8});
    result.push_back({.name = "cuda_fp8_kv", .weights = Format::bfloat16, .kv = KvFormat::fp8});
    result.push_back({.name = "cuda_library_bfloat16", .weights = Format::bfloat16, .has_library = true});
    result.push_back({.name = "cuda_library_fp8", .weights = Format::bfloat16, .quantize = Quantization::fp8, .has_library = true});
    result.push_back({.name = "emulated_avx512bf16_bfloat16",
                      .weights = Format::bfloat16,
                      .needs = CpuIsa::avx2,
                      .kernels = &emulated_avx512bf16_kernels()});
    result.push_back({.name = "emulated_avx512bf16_int8",
                      .weights = Format::bfloat16,
                      .needs = CpuIsa::avx2,
                      .quantize = Quantization::int8,
                      .kernels = &emulated_avx512bf16_kernels()});
    result.push_back({.name = "emulated_avx512amx_bfloat16",
                      .weights = Format::bfloat16,
                      .needs = CpuIsa::avx2,
                      .kernels = &emulated_avx512amx_kernels()});
    for (const Quantization quantize : {Quantization::int8, Quantization::int4}) {
        result.push_back({.name = std::string("emulated_avx512amx_") + kernels::name_of(quantize),
                          .weights = Format::bfloat16,
                          .needs = CpuIsa::avx2,
                          .quantize = quantize,
                          .kernels = &emulated_avx512amx_kernels(),
                          .int4_kernels = &emulated_avx512amx_int4_kernels()});
        for (const CpuIsa isa : isas) {
            result.push_back({.name = std::string(cpu::name_of(isa)) + "_" + kernels::name_of(quantize),
                              .weights = Format::bfloat16,
                              .needs = isa,
                              .quantize = quantize});
        }
    }
    for (const CpuIsa isa : isas) {
        result.push_back(
            {.name = std::string(cpu::name_of(isa)) + "_int8_kv", .weights = Format::bfloat16, .needs = isa, .kv = KvFormat::int8});
    }
    return result;
}

std::string name_of(const ::testing::TestParamInfo<Device>& info) { return info.param.name; }

void OnEachDevice::SetUp() {
    backend_ = GetParam().make();
    if (backend_ == nullptr) GTEST_SKIP() << GetParam().lacks();
    // The same numbers in every run, unless --gtest_random_seed is given.
    const auto wanted = static_cast<std::uint64_t>(::testing::GTEST_FLAG(random_seed));
    seed_ = wanted != 0 ? wanted : 20261121;
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
}

reference::Table OnEachDevice::normal(std::int64_t rows, std::int64_t columns, double deviation) {
    std::normal_distribution<double> distribution(0.0, deviation);
    reference::Table table(rows, columns);
    for (double& value : table.data) value = reference::rounded(distribution(random_), Format::float32);
    return table;
}

LoraAdapter OnEachDevice::adapter_of(const std::vector<LoraSlice>& slices, std::int64_t in_features) {
    LoraAdapter adapter{.slices = slices, .a = {}, .b = {}, .packed = {}};
    const auto deviation = [](std::int64_t inputs) { return 1.0 / std::sqrt(static_cast<double>(inputs)); };
    for (const LoraSlice& slice : slices) {
        adapter.a.emplace_back(normal(slice.rank, in_features, deviation(in_features)), Format::bfloat16, false);
        adapter.b.emplace_back(normal(slice.size, slice.rank, deviation(slice.rank)), Format::float16, false);
    }
    std::vector<LoraPart> parts;
    for (std::size_t i = 0; i < slices.size(); ++i)
        parts.push_back({adapter.a[i].view(), adapter.b[i].view(), slices[i].scale, slices[i].begin});
    adapter.packed = backend_->pack_lora(parts);
    return adapter;
}

std::int64_t OnEachDevice::number(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution(low, high)(random_); }

Memory::Memory(Backend& backend, std::int64_t rows, std::int64_t columns, Format format, std::int64_t padding) : backend_(backend) {
    matrix_ = {nullptr, format, rows, columns, stride_least(format, columns) + padding};
    const std::size_t scales_begin = static_cast<std::size_t>(rows) * row_bytes();
    std::vector<std::byte> fill(scales_begin + (format == Format::fp8_rows ? static_cast<std::size_t>(rows) * sizeof(float) : 0));
    for (std::size_t i = 0; i < fill.size(); ++i) fill[i] = untouched_byte(i);
    buffer_ = backend.allocate(fill.size());
    backend.upload(buffer_->data(), fill);
    matrix_.data = buffer_->data();
    if (format == Format::fp8_rows) matrix_.row_scales = reinterpret_cast<float*>(static_cast<std::byte*>(buffer_->data()) + scales_begin);
}

Memory::Memory(Backend& backend, const reference::Table& from, Format format, std::int64_t padding)
    : Memory(backend, from.rows, from.columns, format, padding) {
    const reference::Table stored = stored_inputs(from, format);
    std::vector<std::byte> bytes = download(0, from.rows);
    std::vector<float> scales;
    for (std::int64_t row = 0; row < from.rows; ++row) {
        std::byte* const to = bytes.data() + static_cast<std::size_t>(row) * row_bytes();
        const float scale = format == Format::fp8_rows ? reference::fp8_scale(from, row) : reference::input_scale(from, row);
        for (std::int64_t i = 0; i < from.columns; ++i) {
            const auto value = static_cast<float>(stored.at(row, i));
            const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
            if (format == Format::float32) std::memcpy(to + i * 4, &value, 4);
            if (format == Format::bfloat16) std::memcpy(to + i * 2, &half, 2);
            if (format == Format::int8_rows) to[i] = static_cast<std::byte>(128 + (scale > 0.0F ? std::lrintf(value / scale) : 0));
            if (format == Format::fp8_rows) to[i] = static_cast<std::byte>(cuda::fp8_of(value / scale).bits);
        }
        if (format == Format::int8_rows) std::memcpy(to + cpu::int8_scale_offset(from.columns), &scale, 4);
        scales.push_back(scale);
    }
    backend.upload(buffer_->data(), bytes);
    if (format == Format::fp8_rows) backend.upload(matrix_.row_scales, std::as_bytes(std::span(scales)));
}

std::vector<std::byte> Memory::download(std::int64_t row_begin, std::int64_t rows) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes());
    backend_.read_back(bytes, static_cast<const std::byte*>(matrix_.data) + static_cast<std::size_t>(row_begin) * row_bytes());
    return bytes;
}

Vector Memory::vector() const { return {static_cast<const float*>(matrix_.data), matrix_.columns}; }

reference::Table Memory::read() const {
    reference::Table table(matrix_.rows, matrix_.columns);
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
        const std::vector<float> values = read_row(row);
        for (std::int64_t i = 0; i < matrix_.columns; ++i) table.at(row, i) = static_cast<double>(values[static_cast<std::size_t>(i)]);
    }
    return table;
}

std::vector<float> Memory::read_row(std::int64_t row) const {
    const std::vector<std::byte> bytes = download(row, 1);
    const std::byte* const from = bytes.data();
    std::vector<float> values(static_cast<std::size_t>(matrix_.columns));
    float scale = 0.0F;
    if (matrix_.format == Format::int8_rows) std::memcpy(&scale, from + cpu::int8_scale_offset(matrix_.columns), 4);
    if (matrix_.format == Format::fp8_rows) backend_.read_back(std::as_writable_bytes(std::span(&scale, 1)), matrix_.row_scales + row);
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t half = 0;
        if (matrix_.format == Format::float32) std::memcpy(&values[i], from + i * 4, 4);
        if (matrix_.format == Format::bfloat16) std::memcpy(&half, from + i * 2, 2);
        if (matrix_.format == Format::bfloat16) values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
        if (matrix_.format == Format::int8_rows) values[i] = static_cast<float>(std::to_integer<int>(from[i]) - 128) * scale;
        if (matrix_.format == Format::fp8_rows) values[i] = cuda::float_of({std::to_integer<std::uint8_t>(from[i])}) * scale;
    }
    return values;
}

bool Memory::padding_is_untouched() const {
    const std::vector<std::byte> bytes = download(0, matrix_.rows);
    std::size_t used = static_cast<std::size_t>(matrix_.columns) * bytes_of(matrix_.format);
    // Attention on the GPU converts rows of float32 to fp8 in place.
    if (matrix_.format == Format::int8_rows) used = static_cast<std::size_t>(cpu::int8_scale_offset(matrix_.columns)) + sizeof(float);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i % row_bytes() >= used && bytes[i] != untouched_byte(i)) return false;
    }
    return true;
}

reference::Table stored_weight(const reference::Table& values, const PackedWeight& weight, Format weights) {
    // quantize_test.cpp tests how close int4 is to the values.
    const auto* const on_cpu = dynamic_cast<const cpu::CpuWeight*>(&weight);
    if (on_cpu != nullptr && on_cpu->panels().storage == cpu::Storage::int4) return unpacked_weight(on_cpu->panels());
    if (weight.input_format() == Format::fp8_rows) return reference::fp8_rows(values);
    return weight.input_format() == Format::int8_rows ? reference::quantized_weight(values) : reference::rounded(values, weights);
}

reference::Table unpacked_weight(const cpu::Panels& panels) {
    reference::Table table(panels.out_features, panels.in_features);
    std::vector<float> row(static_cast<std::size_t>(panels.in_features));
    for (std::int64_t output = 0; output < panels.out_features; ++output) {
        cpu::unpack_row(panels, output, row.data(), false);
        for (std::int64_t i = 0; i < panels.in_features; ++i) table.at(output, i) = static_cast<double>(row[static_cast<std::size_t>(i)]);
    }
    return table;
}

reference::Table stored_inputs(const reference::Table& values, Format format) {
    if (format == Format::fp8_rows) return reference::fp8_rows(values);
    return format == Format::int8_rows ? reference::quantized_inputs(values) : reference::rounded(values, format);
}

void poison(Backend& backend, KvCache& cache) {
    const std::vector<std::byte> nan(cache.bytes(), std::byte{0xFF});
    auto* const on_gpu = dynamic_cast<cuda::CudaKvCache*>(&cache);
    backend.upload(on_gpu != nullptr ? on_gpu->data() : dynamic_cast<cpu::CpuKvCache&>(cache).layer(0), nan);
}

Part::Part(const reference::Table& values, Format stored_as, bool is_transposed)
    : stored(reference::rounded(values, stored_as)),
      format(stored_as),
      transposed(is_transposed),
      bytes(values.data.size() * bytes_of(stored_as)) {
    for (std::int64_t o = 0; o < stored.rows; ++o) {
        for (std::int64_t i = 0; i < stored.columns; ++i) {
            const auto at = static_cast<std::size_t>(transposed ? i * stored.rows + o : o * stored.columns + i);
            const auto value = static_cast<float>(stored.at(o, i));
            const auto bits = std::bit_cast<std::uint32_t>(value);
            if (format == Format::float32) {
                std::memcpy(&bytes[at * 4], &value, 4);
                continue;
            }
            auto half = static_cast<std::uint16_t>(bits >> 16);
            if (format == Format::float16) {
                // Exact: the value was rounded to float16 before, and test values are in its normal range or zero.
                const std::uint32_t exponent = (bits >> 23) & 0xFFU;
                const std::uint32_t magnitude = exponent < 113U ? 0U : ((exponent - 112U) << 10) | ((bits >> 13) & 0x3FFU);
                half = static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | magnitude);
                if (exponent < 113U) stored.at(o, i) = 0.0;
            }
            std::memcpy(&bytes[at * 2], &half, 2);
        }
    }
}

WeightPart Part::view() const { return {bytes.data(), format, stored.rows, stored.columns, transposed}; }

double tolerance(const std::string& op, Format weights) {
    for (const Tolerance& row : tolerances) {
        if (op == row.op) return weights == Format::float32 ? row.float32 : row.bfloat16;
    }
    ADD_FAILURE() << "no tolerance for " << op;
    return 0.0;
}

void expect_close(const reference::Table& got, const reference::Table& want, double tolerance) {
    ASSERT_EQ(got.rows, want.rows);
    ASSERT_EQ(got.columns, want.columns);
    double worst = 0.0;
    std::size_t place = 0;
    for (std::size_t i = 0; i < got.data.size(); ++i) {
        const double error = std::abs(got.data[i] - want.data[i]) / std::max(1.0, std::abs(want.data[i]));
        if (!(error <= worst)) {
            worst = error;
            place = i;
        }
    }
    const auto columns = static_cast<std::size_t>(got.columns);
    EXPECT_LE(worst, tolerance) << "row " << place / columns << ", column " << place % columns << ": got " << got.data[place] << ", want "
                                << want.data[place];
}

}  // namespace lorry::kernels::testing
