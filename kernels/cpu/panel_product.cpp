// Multiplies rows with one panel of a weight in any format; see panel_product.h.
#include "kernels/cpu/panel_product.h"

#include "kernels/cpu/views.h"

namespace lorry::kernels::cpu {

namespace {

const float* bias_of(const PanelProduct& product) {
    return product.bias == nullptr ? nullptr : product.bias + product.panels.output_of(product.begin);
}

}  // namespace

DotTask dot_task(const PanelProduct& product) {
    const Panels& panels = product.panels;
    const std::int64_t place = product.begin * panels.width;
    return {.in = row_of(product.in, 0),
            .in_stride = stride_bytes(product.in),
            .panels = panels.panel(product.begin),
            .next = product.next,
            .scales = panels.scales.empty() ? nullptr : panels.scales.data() + place,
            .offsets = panels.offsets.empty() ? nullptr : panels.offsets.data() + place,
            .scratch = product.scratch,
            .parked = product.parked,
            .bias = bias_of(product),
            .out = product.out,
            .out_stride = product.out_stride,
            .part_stride = panels.pairs_parts ? panels.part_features() : 0,
            .accumulate = product.accumulate,
            .rows = product.in.rows,
            .in_features = panels.in_features,
            .out_features = panels.outputs_from(product.begin)};
}

CodedTask coded_task(const PanelProduct& product) {
    return {.panels = product.panels.coded_from(product.begin),
            .in = row_of(product.in, 0),
            .in_stride = stride_bytes(product.in),
            .bias = bias_of(product),
            .out = product.out,
            .out_stride = product.out_stride,
            .accumulate = product.accumulate,
            .rows = product.in.rows,
            .out_features = product.panels.outputs_from(product.begin)};
}

MatmulTask matmul_task(const PanelProduct& product) {
    const Panels& panels = product.panels;
    return {.in = floats(product.in),
            .in_stride = product.in.stride,
            .panels = panels.panel(product.begin),
            .bfloat16 = panels.storage == Storage::bfloat16,
            .bias = bias_of(product),
            .out = product.out,
            .out_stride = product.out_stride,
            .accumulate = product.accumulate,
            .rows = product.in.rows,
            .in_features = panels.in_features,
            .out_features = panels.outputs_from(product.begin)};
}

}  // namespace lorry::kernels::cpu
