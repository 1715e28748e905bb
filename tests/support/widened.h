// Copies golden checkpoints and adapters with a wider MLP, whose new columns are zero. They compute the same, bit for bit, but the width
// selects other kernels. Used by tests/engine/invariance_test.cpp.
#pragma once

#include <filesystem>

namespace lorry::tests {

inline constexpr int golden_intermediate = 92;   // of llama-gqa-linear
inline constexpr int widened_intermediate = 96;  // a multiple of the panels of every instruction set

// `from`: the folder of llama-gqa-linear or of an adapter of it.
void copy_widened(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lorry::tests
