// Implements padding, pieces and the choice of matmuls; see library_matmul.h.
#include "kernels/cuda/cublaslt/library_matmul.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/cuda/shapes.h"

namespace lorry::kernels::cuda {

namespace {

constexpr std::size_t aligned_bytes = 16;  // alignment of each row, and of the vector of scales

bool is_aligned(const View& view) {
    const auto begins_aligned = [](const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % aligned_bytes == 0; };
    return begins_aligned(view.data) && begins_aligned(view.scales) && view.row_bytes() % aligned_bytes == 0;
}

void copy_rows(const View& to, const View& from, std::int64_t columns, int rows, cudaStream_t stream) {
    const auto height = static_cast<std::size_t>(rows);
    check(cudaMemcpy2DAsync(to.data, to.row_bytes(), from.data, from.row_bytes(), static_cast<std::size_t>(columns) * from.element_bytes(),
                            height, cudaMemcpyDeviceToDevice, stream),
          "copying a matmul's rows");
    if (from.scales == nullptr) return;
    check(cudaMemcpyAsync(to.scales, from.scales, height * sizeof(float), cudaMemcpyDeviceToDevice, stream), "copying their scales");
}

View rows_from(const View& view, int row) {
    View rows = view;
    rows.data = static_cast<std::byte*>(view.data) + static_cast<std::size_t>(row) * view.row_bytes();
    if (view.scales != nullptr) rows.scales = view.scales + row;
    return rows;
}

}  // namespace

LibraryMatmul::LibraryMatmul(const lt::Functions& functions, MatmulTable table) : library_(functions), table_(std::move(table)) {}

bool LibraryMatmul::multiply(const MatmulTask& task, MatmulScratch& scratch, cudaStream_t stream) {
    const MatmulShape shape{task.weight.format, task.out_features, task.in_features};
    const auto [known, is_new] = ranges_.try_emplace(shape);
    if (is_new) known->second = table_.ranges_of(shape);
    if (known->second.empty()) return false;
    for (int begin = 0; begin < task.rows; begin += static_cast<int>(matmul_rows_max)) {
        MatmulTask piece = task;
        piece.out = rows_from(task.out, begin);
        piece.in = rows_from(task.in, begin);
        piece.rows = std::min(task.rows - begin, static_cast<int>(matmul_rows_max));
        multiply_piece(piece, known->second, scratch, stream);
    }
    return true;
}

void LibraryMatmul::multiply_piece(const MatmulTask& task, std::span<const MatmulRange> ranges, MatmulScratch& scratch,
                                   cudaStream_t stream) {
    const std::int64_t bucket = matmul_bucket(task.rows);
    const MatmulAlgorithm& algorithm = range_of(ranges, bucket).algorithm;
    const bool has_room = bucket - task.rows <= task.spare_rows && is_aligned(task.in) && is_aligned(task.out);
    View in = task.in;
    View out = task.out;
    if (!has_room) {
        // The contents of padding rows do not affect other rows.
        in.stride = round_up(task.in_features, in_features_multiple);
        in.data = scratch.in.of<std::byte>(static_cast<std::size_t>(bucket) * in.row_bytes());
        if (in.scales != nullptr) in.scales = scratch.scales.of<float>(static_cast<std::size_t>(bucket));
        out.stride = round_up(task.out_features, aligned_bytes / sizeof(float));
        out.data = scratch.sums.of<std::byte>(static_cast<std::size_t>(bucket) * out.row_bytes());
        copy_rows(in, task.in, task.in_features, task.rows, stream);
        if (task.accumulate) copy_rows(out, task.out, task.out_features, task.rows, stream);
    }
    library_.multiply({.shape = {task.weight.format, task.out_features, task.in_features},
                       .rows = bucket,
                       .out = static_cast<float*>(out.data),
                       .out_stride = out.stride,
                       .in = in.data,
                       .in_stride = in.stride,
                       .in_scales = in.scales,
                       .weight = task.weight.data,
                       .weight_stride = task.weight.stride,
                       .weight_scales = task.weight_scales,
                       .accumulate = task.accumulate},
                      algorithm, stream);
    if (has_room && task.bias == nullptr) return;
    run_add_sums({.out = task.out, .sums = has_room ? View{} : out, .bias = task.bias, .rows = task.rows, .columns = task.out_features},
                 stream);
}

namespace {

// Why fp8 projections use our own kernel while the library multiplies other shapes; empty if they use the library.
std::string fp8_note(std::span<const MatmulRow> rows, const MatmulChip& chip, std::size_t version) {
    if (const auto obstacle = fp8_obstacle(chip, version)) return "; fp8 by own kernels, as " + *obstacle;
    const auto is_its = [&](const MatmulRow& row) {
        return row.chip == chip && row.library == version && row.shape.inputs == Format::fp8_rows;
    };
    if (std::ranges::any_of(rows, is_its)) return "";
    return "; fp8 by own kernels, as there are no rows of it: `lorry bench tune --device cuda --quantize fp8` measures them";
}

}  // namespace

MatmulChoice choose_matmuls(const MatmulRows& measured, const MatmulChip& chip, Quantization quantize, const OpenLibrary& open) {
    const auto without = [](const std::string& reason) { return MatmulChoice{.note = "own kernels, as " + reason, .wants_library = true}; };
    const auto has_chip = [&](const MatmulRow& row) { return row.chip == chip; };
    const auto first = std::ranges::find_if(measured.rows, has_chip);
    if (first == measured.rows.end()) {
        return without(
            fmt::format("{} has no rows for compute capability {}.{} with {} processors: `lorry bench tune --device cuda` "
                        "measures them",
                        measured.from, chip.capability / 10, chip.capability % 10, chip.processors));
    }
    const auto functions = open();
    if (!functions) return without(functions.error());
    const std::size_t version = functions->get_version();
    auto table = table_of(measured.rows, chip, version);
    if (!table) {
        return without(
            fmt::format("{} has rows for cuBLASLt {}, and {} is installed: install that one, or measure this one with `lorry "
                        "bench tune --device cuda`",
                        measured.from, version_text(first->library), version_text(version)));
    }
    const std::string of_fp8 = quantize == Quantization::fp8 ? fp8_note(measured.rows, chip, version) : "";
    return {.library = std::make_unique<LibraryMatmul>(*functions, *std::move(table)),
            .note = fmt::format("cuBLASLt {} for the shapes in {}, own kernels for others{}", version_text(version), measured.from, of_fp8),
            .wants_library = !of_fp8.empty()};
}

}  // namespace lorry::kernels::cuda
