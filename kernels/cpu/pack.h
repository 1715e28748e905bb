// Weights, adapters and the KV cache in the layouts that the CPU kernels read. Made by the backend, possibly on a loader's thread: nothing
// here is shared.
//
// A weight is cut into panels of `width` outputs. A panel holds, for each group of input features, a row of its outputs' weights. The last
// panel and the last group are padded with zeros. A group is one feature if inputs are float32, else as many as the dot kernel takes; int4
// is laid out as kernels.h describes. Gate and up have separate panels, so that a gate's panel and the one for the same columns of `up` can
// be multiplied in turn, whatever their width: there is a gap in the places after the gate's last panel if it is not full. Kernels that
// activate get shared panels instead: the first half of each holds some of the gate's outputs, the second half the same columns of `up`.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/memory.h"

namespace lorry::kernels::cpu {

struct PanelShape {
    Storage storage = Storage::float32;
    std::int64_t width = 0;
    std::int64_t group = 1;
    bool pairs_parts = false;  // two parts share panels
    std::int64_t lanes = 0;    // of a vector; for codes
};

// What codes in panels mean: see CodedPanels.
struct Coding {
    CodeKind kind = CodeKind::table;
    std::int64_t lanes = 0;  // of the kernels' vectors
    CodeOrder order = CodeOrder::pairs;
    ScaleFormat scale_format = ScaleFormat::float32;
    std::array<float, 16> table{};
    std::int64_t groups = 0;
    std::vector<std::byte> scales;       // in scale_format
    std::vector<std::int8_t> zeros;      // empty: there are none
    std::vector<std::int32_t> group_of;  // [in_features]
    std::vector<CodeRun> runs;
};

// Weights in panels: outputs [0, out_features) of in_features inputs each. A `place` is an output's position in the panels, each of which
// has `width` places; it differs from the output if there are gaps or if parts share panels.
struct Panels {
    Memory memory;
    Storage storage = Storage::float32;
    std::int64_t width = 0;
    std::int64_t group = 1;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    std::int64_t parts = 1;             // of equal size, with separate panels or halves of panels
    bool pairs_parts = false;           // halves of panels
    std::vector<float> scales;          // int8, int4: [count * width] a weight is its int8 times its output's scale
    std::vector<std::int32_t> offsets;  // int8, int4: [count * width] -128 times the sum of an output's int8s
    std::optional<Coding> coding;       // codes

    std::int64_t part_features() const { return out_features / parts; }
    std::int64_t part_width() const { return pairs_parts ? width / parts : width; }                  // outputs of a part in a panel
    std::int64_t part_count() const { return (part_features() + part_width() - 1) / part_width(); }  // panels
    std::int64_t count() const { return pairs_parts ? part_count() : parts * part_count(); }
    // The first output of a panel.
    std::int64_t output_of(std::int64_t panel) const {
        return panel / part_count() * part_features() + panel % part_count() * part_width();
    }
    // The number of outputs in this panel and the later ones of its part.
    std::int64_t outputs_from(std::int64_t panel) const { return part_features() - panel % part_count() * part_width(); }
    std::int64_t groups() const { return (in_features + group - 1) / group; }
    std::int64_t stretches() const { return (in_features + int4_stretch - 1) / int4_stretch; }
    std::int64_t place_of(std::int64_t output) const {
        const std::int64_t part = output / part_features();
        const std::int64_t of_part = output % part_features();
        if (pairs_parts) return of_part / part_width() * width + part * part_width() + of_part % part_width();
        return part * part_count() * width + of_part;
    }
    // The index of element W[place, input] is place_at(place) + input_at(input). Groups are powers of two. Not for int4.
    std::int64_t place_at(std::int64_t place) const { return place / width * panel_elements() + place % width * group; }
    std::int64_t input_at(std::int64_t input) const { return (input & -group) * width + (input & (group - 1)); }
    const std::byte* panel(std::int64_t index) const {
        return memory.data() + memory.bytes() / static_cast<std::size_t>(count()) * static_cast<std::size_t>(index);
    }
    std::int64_t panel_elements() const { return groups() * group * width; }
    // int4: the byte with the factors of W[place, input], and the byte whose low or high half is its nibble.
    std::int64_t factors_at(std::int64_t place, std::int64_t input) const { return stretch_at(place, input) + place % width; }
    std::int64_t nibble_at(std::int64_t place, std::int64_t input) const {
        return stretch_at(place, input) + width + input % int4_stretch / 8 * width * 4 + place % width * 4 + input % 4;
    }
    std::int64_t stretch_at(std::int64_t place, std::int64_t input) const {
        return (place / width * stretches() + input / int4_stretch) * int4_stretch_bytes(width);
    }
    // codes: where a panel has them.
    CodeLayout code_layout() const {
        return {.kind = coding->kind, .order = coding->order, .pairs = group == 2, .width = width, .lanes = coding->lanes};
    }
    // codes: as task of the kernels, from a panel on.
    CodedPanels coded_from(std::int64_t panel) const;
    std::size_t bytes() const;
};

struct PackOptions {
    float scale = 1.0F;      // weights are multiplied by it
    Place* place = nullptr;  // the memory's source, which outlives the panels; null: memory of their own
    bool apart = false;      // the parts, of equal size, get panels of their own, or halves of panels if the shape says so
};

// How weights that are not quantized are stored in panels.
Storage storage_of(Format weights);

// Concatenates the parts along out_features. If the place has no memory, only the sizes of the panels are set.
Panels pack_panels(std::span<const WeightPart> parts, const PanelShape& shape, const PackOptions& options = {});

// Whether the parts' codes can share panels: they have the same meanings and groups, and scales that kernels can prepare.
bool share_codes(std::span<const WeightPart> parts);

// Row `output` of the weight, as float32: to[i] (+)= W[output, i] for all in_features.
void unpack_row(const Panels& panels, std::int64_t output, float* to, bool accumulate);

class CpuWeight final : public PackedWeight {
public:
    // dot: the kernels that multiply it, null if inputs are float32; outlives the weight. input: what matmul's `in` must be.
    CpuWeight(Panels panels, const DotKernels* dot, Format input) : panels_(std::move(panels)), dot_(dot), input_(input) {}
    std::int64_t out_features() const override { return panels_.out_features; }
    std::int64_t in_features() const override { return panels_.in_features; }
    std::size_t bytes() const override { return panels_.bytes(); }
    Format input_format() const override { return input_; }
    const Panels& panels() const { return panels_; }
    const DotKernels* dot() const { return dot_; }

private:
    Panels panels_;
    const DotKernels* dot_;
    Format input_;
};

// The A matrices of all parts are adjacent in one narrow weight, without padding between their ranks; each part has its own B.
class CpuLora final : public PackedLora {
public:
    struct Part {
        std::int64_t out_begin = 0;
        std::int64_t rank_begin = 0;  // its first row in `a`
        Panels b;                     // [out_features, rank], scale included
    };

    // a, b: the panels that the kernels read. place: the memory's source; outlives the adapter.
    CpuLora(std::span<const LoraPart> parts, const PanelShape& a, const PanelShape& b, Place& place);
    std::int64_t in_features() const override { return a_.in_features; }
    std::int64_t out_end() const override;
    std::int64_t rank_sum() const override { return a_.out_features; }
    std::size_t bytes() const override;
    const Panels& a() const { return a_; }
    std::span<const Part> parts() const { return parts_; }
    // The part whose outputs begin there, or null.
    const Part* part_at(std::int64_t out_begin) const;

private:
    Panels a_;
    std::vector<Part> parts_;
};

// [layer][block][kv_head][K | V] with K [head_dim][16 tokens] and V [16 tokens][head_dim rounded up to 16].
// bfloat16 pairs, for processors that multiply them: K [head_dim / 2][16 tokens][2] and V [8][head_dim rounded up to 16][2 tokens].
// int8, with scales for each token of each head: K [head_dim / 4][16 tokens][4], V as for pairs, and scales and offsets as kernels.h
// describes.
// A block is not contiguous: each layer has a part of it. So blocks are not lent; slots have separate memory, which costs nothing until it
// is used.
class CpuKvCache final : public KvCache {
public:
    // bfloat16_pairs: head_dim is even.
    CpuKvCache(const KvShape& shape, std::int64_t blocks, KvLayout layout, std::size_t slot_bytes);
    static std::int64_t head_bytes(const KvShape& shape, KvLayout layout);  // of one head in a block
    const KvShape& shape() const override { return shape_; }
    std::int64_t blocks() const override { return blocks_; }
    std::size_t bytes() const override { return memory_.bytes() + slots_.bytes(); }
    SlotRange slots() const override { return {0, slots_.bytes()}; }
    std::byte* slot(const SlotRange& range) const { return slots_.data() + range.begin; }

    KvLayout layout() const { return layout_; }
    std::int64_t value_stride() const { return value_stride_; }  // elements
    std::int64_t value_offset() const;                           // bytes from a head's keys to its values
    std::int64_t head_bytes() const { return head_bytes(shape_, layout_); }
    std::int64_t layer_block_bytes() const { return head_bytes() * shape_.kv_heads; }
    std::byte* layer(std::int64_t index) const { return memory_.data() + index * blocks_ * layer_block_bytes(); }

private:
    KvShape shape_;
    std::int64_t blocks_ = 0;
    KvLayout layout_ = KvLayout::float32;
    std::int64_t value_stride_ = 0;
    Memory memory_;
    SlotArea slots_;
};

}  // namespace lorry::kernels::cpu
