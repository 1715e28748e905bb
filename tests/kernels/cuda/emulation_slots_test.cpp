// Slots of the GPU's KV cache: adapters are loaded and dropped while ops run. Uses the emulated GPU, which runs queued work as late as
// possible.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/emulation/runtime.h"

namespace lorry::kernels::cuda {

namespace {

class Slots : public ::testing::Test {
protected:
    static constexpr KvShape shape{.layers = 1, .kv_heads = 1, .head_dim = 64};
    static constexpr std::int64_t blocks = 4;

    // Rank 8, so that each output is 8 * 100 * a * b for inputs of 1.
    static LoraPart part_of(const std::vector<float>& a, const std::vector<float>& b) {
        return {.a = {.data = a.data(), .format = Format::float32, .out_features = 8, .in_features = 100},
                .b = {.data = b.data(), .format = Format::float32, .out_features = 100, .in_features = 8}};
    }
    static std::vector<float> all(float value) { return std::vector<float>(800, value); }

    const std::unique_ptr<Backend> backend_ = make_cuda_backend({.storage = {.weights = Format::float32}});
    const std::unique_ptr<KvCache> cache_ = backend_->make_kv_cache(shape, blocks, std::size_t{1} << 20);
};

// Pins: loading and dropping adapters while the batch runs must not stop the device.
TEST_F(Slots, AnAdapterIsLoadedAndDroppedWithoutWaitingForTheDevice) {
    const std::vector<float> values = all(0.5F);
    const LoraPart part = part_of(values, values);
    const std::uint64_t before = emulation::device_wide_waits();
    const SlotRange own = cache_->slots();
    for (int i = 0; i < 3; ++i) {
        const auto slot = backend_->make_slot(*cache_, {own.begin, own.begin + (std::size_t{1} << 19)});
        const auto lora = slot->pack_lora({&part, 1});
        const auto bias = slot->allocate(400);
        slot->upload(bias->data(), std::as_bytes(std::span(values).first(100)));
        EXPECT_EQ(lora->bytes(), (8 * 104 + 100 * 8) * sizeof(float));
        const auto head = slot->pack_weight({&part.b, 1}, WeightRole::embedding);
        EXPECT_EQ(head->bytes(), 100 * 64 * sizeof(float));
        EXPECT_EQ(slot->used(), slot_aligned(lora->bytes()) + slot_aligned(400) + slot_aligned(head->bytes()));
    }
    EXPECT_EQ(emulation::device_wide_waits(), before);
}

// Pins: queued ops still read the adapter that had the memory before, although the next one is copied while they run. The slot covers the
// last two blocks, which are contiguous.
TEST_F(Slots, WhatIsPackedIntoUsedMemoryWaitsForTheOpsThatReadIt) {
    const std::size_t block = backend_->kv_block_bytes(shape);
    const SlotRange lent{2 * block, 4 * block};
    ASSERT_TRUE(cache_->lends_blocks());
    const std::vector<float> ones = all(1.0F);
    const std::vector<float> twos = all(2.0F);
    const LoraPart first = part_of(ones, ones);
    const LoraPart second = part_of(ones, twos);
    const auto in = backend_->allocate(100 * sizeof(float));
    const auto out = backend_->allocate(2 * 100 * sizeof(float));
    backend_->upload(in->data(), std::as_bytes(std::span(ones).first(100)));
    const auto add = [&](const PackedLora& lora, std::int64_t row) {
        const LoraGroup group{.row_begin = 0, .row_count = 1, .lora = &lora};
        backend_->lora({.out = Matrix{.data = out->data(), .rows = 2, .columns = 100, .stride = 100}.slice_rows(row, 1),
                        .in = {.data = in->data(), .rows = 1, .columns = 100, .stride = 100},
                        .groups = {&group, 1}});
    };
    const std::vector<TokenId> tokens{0};
    const std::vector<std::int32_t> positions{0};
    const std::vector<BlockId> table{0};
    const StepSequence sequence{.row_count = 1, .blocks = table};
    backend_->begin_step({.rows = 1, .tokens = tokens, .positions = positions, .rope_rows = positions, .sequences = {&sequence, 1}});
    auto slot = backend_->make_slot(*cache_, lent);
    auto lora = slot->pack_lora({&first, 1});
    add(*lora, 0);
    lora.reset();
    slot = backend_->make_slot(*cache_, lent);
    lora = slot->pack_lora({&second, 1});
    add(*lora, 1);
    std::vector<float> results(200);
    backend_->read_back(std::as_writable_bytes(std::span(results)), out->data());
    backend_->finish_step();
    EXPECT_EQ(results.front(), 800.0F);
    EXPECT_EQ(results.back(), 1600.0F);
}

}  // namespace

}  // namespace lorry::kernels::cuda
