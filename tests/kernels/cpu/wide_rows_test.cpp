// Matmuls of rows that do not fit into the cache: panels share each pass over a few of their inputs, and updates are added for all of these
// panels.
#include "kernels/cpu/matmul_cut.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/views.h"
#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

namespace {

class WideRows : public OnEachDevice {};

std::vector<Device> devices_with_tiles() {
    std::vector<Device> all = devices();
    std::erase_if(all, [](const Device& device) {
        return device.name.find("avx512amx") == std::string::npos || device.weights != Format::bfloat16 ||
               device.quantize == Quantization::int4;  // unpacked panel by panel
    });
    return all;
}
INSTANTIATE_TEST_SUITE_P(Op, WideRows, ::testing::ValuesIn(devices_with_tiles()), name_of);

TEST_P(WideRows, AreMultipliedTogetherAsInSmallNumbers) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    constexpr std::int64_t rows = 748;  // of which each of two threads has half
    constexpr std::int64_t at_once = 34;
    constexpr std::int64_t width = 290;  // 19 panels: more than share a pass, and two threads' last groups are smaller than the others
    const std::int64_t in_features = GetParam().quantize == Quantization::none ? 1653 : 3301;
    const Part gate(normal(width, in_features, 0.02), Format::float32, false);
    const Part up(normal(width, in_features, 0.02), Format::float32, false);
    const WeightPart views[] = {gate.view(), up.view()};
    const auto weight = backend_->pack_weight(views, WeightRole::gate_up);
    const Memory bias(*backend_, normal(1, 2 * width));
    const Memory in(*backend_, normal(rows, in_features), weight->input_format());
    const cpu::DotKernels* const dot = static_cast<const cpu::CpuWeight&>(*weight).dot();
    ASSERT_GT(cpu::cache_block_of(dot, rows, cpu::stride_bytes(in.matrix()), 2).panels, 1);
    const LoraAdapter both = adapter_of({{0, width, 16, 2.0F}, {width, width, 5, 1.0F}}, in_features);
    const LoraAdapter one = adapter_of({{width, width, 70, 1.0F}}, in_features);
    const std::vector<LoraGroup> groups{
        {3, 100, both.packed.get()}, {103, 1, one.packed.get()}, {200, 120, one.packed.get()}, {390, 300, both.packed.get()}};

    const Memory sums(*backend_, rows, 2 * width);
    const Memory few_sums(*backend_, rows, 2 * width);
    backend_->matmul({.out = sums.matrix(), .in = in.matrix(), .weight = *weight, .bias = bias.vector()});
    for (std::int64_t row = 0; row < rows; row += at_once) {
        backend_->matmul({.out = few_sums.matrix().slice_rows(row, at_once),
                          .in = in.matrix().slice_rows(row, at_once),
                          .weight = *weight,
                          .bias = bias.vector()});
    }
    ASSERT_EQ(sums.read().data, few_sums.read().data);
    EXPECT_TRUE(sums.padding_is_untouched());

    for (const bool updated : {false, true}) {
        if (updated) backend_->lora({.out = few_sums.matrix(), .in = in.matrix(), .groups = groups});
        for (const Format format : {Format::float32, Format::bfloat16, Format::int8_rows}) {
            const Memory want(*backend_, rows, width, format);
            const Memory got(*backend_, rows, width, format);
            backend_->activation({.kind = ActivationKind::silu, .gated = true, .out = want.matrix(), .in = few_sums.matrix()});
            backend_->activated_matmul({.kind = ActivationKind::silu,
                                        .gated = true,
                                        .out = got.matrix(),
                                        .sums = sums.matrix(),
                                        .in = in.matrix(),
                                        .weight = *weight,
                                        .bias = bias.vector(),
                                        .groups = updated ? std::span<const LoraGroup>(groups) : std::span<const LoraGroup>()});
            ASSERT_EQ(got.read().data, want.read().data) << kernels::name_of(format) << (updated ? " with updates" : "");
            EXPECT_TRUE(got.padding_is_untouched());
        }
    }
}

}  // namespace

}  // namespace lorry::kernels::testing
