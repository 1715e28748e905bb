// Weights as quantized checkpoints store them: codes of 4 or 8 bits, what each code means, and scales. One description serves all formats:
// engine/model/coded_tensors.cpp reads each of them into it, and backends pack it or decode it.
#pragma once

#include <array>
#include <cstdint>

namespace lorry::kernels {

// What a code means before its zero point is subtracted.
// table: 4 bits, an index of CodedPart::table.
// integer: 8 bits, an integer from -128 to 127.
// e4m3: 8 bits, a floating-point number of 1 sign, 4 exponent and 3 fraction bits without infinities; not NaN.
enum class CodeKind : std::uint8_t { table, integer, e4m3 };

// W[o, i] = (meaning of codes[o, i] - zeros[o, g]) * scales[o, g] with g = group_of[i], in float32: the difference is exact, the product is
// rounded once.
struct CodedPart {
    CodeKind kind = CodeKind::table;
    std::array<float, 16> table{};
    const std::uint8_t* codes = nullptr;     // [out, in], each in a byte of its own
    std::int64_t groups = 1;                 // of inputs that share a scale
    const std::int32_t* group_of = nullptr;  // [in]
    const float* scales = nullptr;           // [out, groups]
    const std::int8_t* zeros = nullptr;      // [out, groups]; null: there are none
    bool rounds_inputs = false;              // inputs become int8 with a scale per row; integers, one group, no zeros
};

}  // namespace lorry::kernels
