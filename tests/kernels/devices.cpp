// Devices, memory and tolerances of the kernel tests; see devices.h.
#include "tests/kernels/devices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"

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

std::unique_ptr<Backend> Device::make(int threads) const {
    if (needs && !cpu::supported(*needs)) return nullptr;
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
    }
    return result;
}

std::string name_of(const ::testing::TestParamInfo<Device>& info) { return info.param.name; }

void OnEachDevice::SetUp() {
    backend_ = GetParam().make();
    if (backend_ == nullptr) GTEST_SKIP() << "this processor does not support " << cpu::name_of(*GetParam().needs);
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

Memory::Memory(Backend& backend, std::int64_t rows, std::int64_t columns, std::int64_t padding) {
    const std::vector<float> fill(static_cast<std::size_t>(rows * (columns + padding)), untouched);
    buffer_ = backend.allocate(fill.size() * sizeof(float));
    backend.upload(buffer_->data(), std::as_bytes(std::span(fill)));
    matrix_ = {buffer_->data(), Format::float32, rows, columns, columns + padding};
}

Memory::Memory(Backend& backend, const reference::Table& from, std::int64_t padding) : Memory(backend, from.rows, from.columns, padding) {
    auto* const to = static_cast<float*>(matrix_.data);
    for (std::int64_t row = 0; row < from.rows; ++row) {
        for (std::int64_t i = 0; i < from.columns; ++i) to[row * matrix_.stride + i] = static_cast<float>(from.at(row, i));
    }
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
    const auto* const from = static_cast<const float*>(matrix_.data) + row * matrix_.stride;
    return {from, from + matrix_.columns};
}

bool Memory::padding_is_untouched() const {
    const auto* const data = static_cast<const float*>(matrix_.data);
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
        for (std::int64_t i = matrix_.columns; i < matrix_.stride; ++i) {
            if (data[row * matrix_.stride + i] != untouched) return false;
        }
    }
    return true;
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
