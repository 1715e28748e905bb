// Devices, memory and tolerances of the kernel tests; see devices.h.
#include "tests/kernels/devices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/pack.h"

namespace lorry::kernels::testing {

namespace {

constexpr float untouched = -12345.0F;

constexpr Tolerance tolerances[] = {
    {"matmul", 2e-5, 2e-5, "sums of up to 600 products of order 1/sqrt(600), each rounded to 24 bits; weights are rounded beforehand"},
    {"norm", 1e-5, 1e-5, "one sum of up to 600 squares, a root and a division"},
    {"activation", 2e-6, 2e-6, "a polynomial of a few terms; values beyond 1 count relatively"},
    {"attention", 2e-5, 1e-2, "two sums and an exponential; with bfloat16, rounding a key that lies between two values may go either way"},
    {"lora", 2e-5, 2e-5, "two matmuls; the factors are rounded beforehand"},
    {"logprob", 1e-5, 1e-5, "one sum of exponentials in pieces"},
};

}  // namespace

std::string Device::lacks() const {
    if (is_gpu()) return cuda_obstacle().value_or("");
    return cpu::supported(*needs) ? "" : std::string("this processor does not support ") + cpu::name_of(*needs);
}

std::unique_ptr<Backend> Device::make(int threads) const {
    if (!lacks().empty()) return nullptr;
    if (is_gpu()) return make_cuda_backend({.weights = weights});
    if (kernels != nullptr) return std::make_unique<cpu::CpuBackend>(*kernels, threads, weights);
    return make_cpu_backend({.threads = threads, .isa = needs, .weights = weights});
}

std::vector<Device> devices() {
    std::vector<Device> result;
    for (const Format weights : {Format::float32, Format::bfloat16}) {
        const std::string suffix = std::string("_") + kernels::name_of(weights);
        for (const CpuIsa isa : {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512}) {
            result.push_back({cpu::name_of(isa) + suffix, weights, isa, nullptr});
        }
        result.push_back({"emulated_avx512" + suffix, weights, CpuIsa::avx2, &emulated_avx512_kernels()});
        result.push_back({"cuda" + suffix, weights, std::nullopt, nullptr});
    }
    return result;
}

std::string name_of(const ::testing::TestParamInfo<Device>& info) { return info.param.name; }

void OnEachDevice::SetUp() {
    backend_ = GetParam().make();
    if (backend_ == nullptr) GTEST_SKIP() << GetParam().lacks();
    // The same numbers in every run, unless --gtest_random_seed asks for others.
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

std::int64_t OnEachDevice::number(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution(low, high)(random_); }

Memory::Memory(Backend& backend, std::int64_t rows, std::int64_t columns, Format format, std::int64_t padding) : backend_(backend) {
    const std::int64_t stride = columns + padding;
    buffer_ = backend.allocate(static_cast<std::size_t>(rows * stride) * bytes_of(format));
    matrix_ = {buffer_->data(), format, rows, columns, stride};
    upload(std::vector<float>(static_cast<std::size_t>(rows * stride), untouched));
}

Memory::Memory(Backend& backend, const reference::Table& from, Format format, std::int64_t padding)
    : Memory(backend, from.rows, from.columns, format, padding) {
    std::vector<float> values(static_cast<std::size_t>(matrix_.rows * matrix_.stride), untouched);
    for (std::int64_t row = 0; row < from.rows; ++row) {
        for (std::int64_t i = 0; i < from.columns; ++i) {
            values[static_cast<std::size_t>(row * matrix_.stride + i)] = static_cast<float>(reference::rounded(from.at(row, i), format));
        }
    }
    upload(values);
}

void Memory::upload(const std::vector<float>& values) {
    if (matrix_.format == Format::float32) return backend_.upload(buffer_->data(), std::as_bytes(std::span(values)));
    std::vector<std::uint16_t> halves;
    for (const float value : values) halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    backend_.upload(buffer_->data(), std::as_bytes(std::span(halves)));
}

std::vector<float> Memory::download(std::int64_t row_begin, std::int64_t rows) const {
    std::vector<float> values(static_cast<std::size_t>(rows * matrix_.stride));
    const auto* const from =
        static_cast<const std::byte*>(buffer_->data()) + static_cast<std::size_t>(row_begin * matrix_.stride) * bytes_of(matrix_.format);
    if (matrix_.format == Format::float32) {
        backend_.read_back(std::as_writable_bytes(std::span(values)), from);
        return values;
    }
    std::vector<std::uint16_t> halves(values.size());
    backend_.read_back(std::as_writable_bytes(std::span(halves)), from);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16);
    return values;
}

Vector Memory::vector() const { return {static_cast<const float*>(matrix_.data), matrix_.columns}; }

reference::Table Memory::read() const {
    reference::Table table(matrix_.rows, matrix_.columns);
    const std::vector<float> values = download(0, matrix_.rows);
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
        for (std::int64_t i = 0; i < matrix_.columns; ++i) {
            table.at(row, i) = static_cast<double>(values[static_cast<std::size_t>(row * matrix_.stride + i)]);
        }
    }
    return table;
}

std::vector<float> Memory::read_row(std::int64_t row) const {
    std::vector<float> values = download(row, 1);
    values.resize(static_cast<std::size_t>(matrix_.columns));
    return values;
}

bool Memory::padding_is_untouched() const {
    const std::vector<float> values = download(0, matrix_.rows);
    // As the format holds it: upload() drops the bits that bfloat16 lacks.
    const std::uint32_t kept = matrix_.format == Format::float32 ? ~0U : 0xFFFF0000U;
    const auto mark = std::bit_cast<float>(std::bit_cast<std::uint32_t>(untouched) & kept);
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
        for (std::int64_t i = matrix_.columns; i < matrix_.stride; ++i) {
            if (values[static_cast<std::size_t>(row * matrix_.stride + i)] != mark) return false;
        }
    }
    return true;
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
