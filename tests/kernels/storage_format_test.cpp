// The tables of storage formats: names, sizes, and the error of a device that lacks a format.
#include "kernels/storage_format.h"

#include <gtest/gtest.h>

#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

TEST(StorageFormat, EveryRowIsFoundByItsName) {
    for (const WeightFormat& row : weight_formats()) {
        EXPECT_EQ(quantization_of(row.name), row.quantization);
        EXPECT_EQ(kernels::name_of(row.quantization), std::string(row.name));
        EXPECT_TRUE(row.on_cpu || row.on_gpu) << row.name;
    }
    for (const CacheFormat& row : cache_formats()) {
        EXPECT_EQ(kv_format_of(row.name), row.format);
        EXPECT_TRUE(row.on_cpu || row.on_gpu) << row.name;
    }
    EXPECT_EQ(quantization_of("int3"), std::nullopt);
    EXPECT_EQ(kv_format_of("none"), std::nullopt);
}

TEST(StorageFormat, BytesAreThoseOfProjectionsAndOfEmbeddings) {
    const auto bytes = [](Quantization quantize, Format weights = Format::bfloat16) {
        return stored_bytes({.weights = weights, .quantize = quantize}, 1600, 33);
    };
    EXPECT_EQ(bytes(Quantization::none), 2 * 1633U);
    EXPECT_EQ(bytes(Quantization::none, Format::float32), 4 * 1633U);
    EXPECT_EQ(bytes(Quantization::int8), 1633U);
    EXPECT_EQ(bytes(Quantization::int4), 900U + 33U);
    EXPECT_EQ(bytes(Quantization::fp8), 1600U + 2 * 33U);
}

TEST(StorageFormat, ADeviceThatLacksOneSaysWhatToChoose) {
    EXPECT_EQ(obstacle(Quantization::int4, DeviceKind::cpu), std::nullopt);
    EXPECT_EQ(obstacle(Quantization::fp8, DeviceKind::cpu), "the CPU has no fp8 weights: choose int8 or int4");
    EXPECT_EQ(obstacle(Quantization::int8, DeviceKind::gpu), "the GPU has no int8 weights: choose fp8");
    EXPECT_EQ(obstacle(KvFormat::fp8, DeviceKind::cpu), "the CPU has no fp8 KV cache: choose int8");
    EXPECT_EQ(obstacle(StorageOptions{.weights = Format::float16}, DeviceKind::gpu),
              "the GPU stores weights as float32 or bfloat16, not float16: choose one of these");
    EXPECT_EQ(obstacle(StorageOptions{}, DeviceKind::gpu), std::nullopt);
}

class PackedFormats : public OnEachDevice {};

// Pins: the table's description of a format and what a backend packs drift apart.
TEST_P(PackedFormats, HaveTheInputAndAboutTheSizeOfTheTable) {
    const Quantization quantize = GetParam().quantize;
    const Part part(normal(96, 160), Format::float32, false);
    const WeightPart view = part.view();
    for (const WeightRole role : {WeightRole::projection, WeightRole::embedding}) {
        const Quantization stored = role == WeightRole::embedding ? weight_format(quantize).embeddings : quantize;
        const auto weight = backend_->pack_weight({&view, 1}, role);
        EXPECT_EQ(weight->input_format(), weight_format(stored).input.value_or(weight->input_format()));
        const std::size_t count = 96 * 160;
        const std::size_t bytes = stored_bytes({.weights = weights(), .quantize = stored}, count, 0);
        EXPECT_GE(weight->bytes(), bytes);
        // Scales and padding take more; far less than the next wider format does.
        EXPECT_LE(weight->bytes(), bytes + bytes / 4);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, PackedFormats, ::testing::ValuesIn(devices()), name_of);

}  // namespace

}  // namespace lorry::kernels::testing
