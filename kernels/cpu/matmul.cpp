// The ops matmul and activated_matmul: divides rows and panels into pieces for threads.
#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/matmul_cut.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/views.h"

namespace lorry::kernels::cpu {

namespace {

// The length up to which activations are computed in DotKernels::whole_rows, so that these stay in the second-level cache. Longer ones get
// fewer rows at a time, and with fewer than whole_rows_least the op takes another way.
constexpr std::int64_t whole_row_bytes = 6400;
constexpr std::int64_t whole_rows_least = 32;
// With fewer rows of float32, kernels multiply several panels side by side; then a separate activation is faster.
constexpr std::int64_t activated_rows_least = 8;

// Of codes, as the kernels read them: pairs of bfloat16 or float32, in whole cache lines.
std::int64_t decoded_panel_bytes(const Panels& panels) {
    const std::int64_t elements = (panels.in_features + 1) / 2 * 2 * panels.width;
    return cache_lines_of(elements * (panels.group == 2 ? 2 : 4)) * cache_line_bytes;
}

}  // namespace

template <class Work>
void CpuBackend::cut_matmul(const Factors& factors, const Panels& panels, std::int64_t panels_together, const Work& work) {
    const std::int64_t rows = factors.in.rows;
    const MatmulCut cut = cut_of_matmul(rows, panels, panels_together, pool_.threads(), factors.block);
    pool_.run(cut.chunks * cut.runs, cut.piece, [&](std::int64_t begin, std::int64_t end, int thread) {
        while (begin < end) {
            const std::int64_t chunk = begin / cut.runs;
            const std::int64_t chunk_end = std::min(end, (chunk + 1) * cut.runs);
            const std::int64_t row_begin = rows * chunk / cut.chunks;
            work(MatmulPiece{.row_begin = row_begin,
                             .rows = rows * (chunk + 1) / cut.chunks - row_begin,
                             .begin = begin - chunk * cut.runs,
                             .end = chunk_end - chunk * cut.runs,
                             .thread = thread,
                             .ends_share = cut.chunks == 1 && chunk_end == ThreadPool::share_begin(cut.runs, thread + 1, pool_.threads())});
            begin = chunk_end;
        }
    });
}

const std::byte* CpuBackend::first_weights(const PackedWeight* next, int thread) const {
    if (next == nullptr) return nullptr;
    const Panels& panels = static_cast<const CpuWeight&>(*next).panels();
    return panels.panel(ThreadPool::share_begin(panels.part_count(), thread, pool_.threads()));
}

CpuBackend::Factors CpuBackend::factors_of(const Matrix& in, const CpuWeight& weight) {
    const DotKernels* const dot = weight.dot();
    if (weight.panels().coding) {
        Factors factors{.in = in, .dot = dot == nullptr ? nullptr : dot->matmul};
        factors.block = cache_block_of(dot, in.rows, stride_bytes(in), pool_.threads());
        factors.block.panels = 1;
        const CodedKernels& codes = dot == nullptr ? kernels_.coded : kernels_.coded_pairs;
        // Of a decoded panel.
        if (codes.matmul == nullptr || in.rows > coded_rows_max) factors.scratch_bytes = decoded_panel_bytes(weight.panels());
        unpacked_scratch_.make(static_cast<std::size_t>(pool_.threads() * factors.scratch_bytes));
        return factors;
    }
    if (dot == nullptr) return {.in = in, .block = cache_block_of(dot, in.rows, stride_bytes(in), pool_.threads())};
    const std::int64_t panel_weights = weight.panels().stretches() * int4_stretch * weight.panels().width;
    Factors factors{
        .in = in, .dot = dot->matmul, .activated = dot->activated, .scratch_bytes = dot->unpacked == nullptr ? 0 : panel_weights};
    if (dot->wide != nullptr && in.rows >= dot->wide->rows_least) {
        const std::int64_t row_bytes = int8_scale_offset(in.columns) * 2 + static_cast<std::int64_t>(sizeof(float));
        const std::int64_t stride = cache_lines_of(row_bytes) * cache_line_bytes / static_cast<std::int64_t>(bytes_of(in.format));
        factors.in.stride = stride;
        factors.in.data = widened_scratch_.make(static_cast<std::size_t>(in.rows * stride_bytes(factors.in)));
        run_rows(in.rows, in.columns, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t row = begin; row < end; ++row) dot->wide->widen(row_of(in, row), row_of(factors.in, row), in.columns);
        });
        factors.dot = dot->wide->matmul;
        factors.scratch_bytes = panel_weights * 2;
    }
    unpacked_scratch_.make(static_cast<std::size_t>(pool_.threads() * factors.scratch_bytes));
    factors.block = cache_block_of(dot, in.rows, stride_bytes(factors.in), pool_.threads());
    if (factors.block.panels > 1) factors.parked_bytes = factors.block.panels * factors.block.rows * dot->panel_width * 4;
    parked_scratch_.make(static_cast<std::size_t>(pool_.threads() * factors.parked_bytes));
    return factors;
}

std::byte* CpuBackend::unpacked_scratch(const Factors& factors, int thread) const {
    return unpacked_scratch_.data() + thread * factors.scratch_bytes;
}

float* CpuBackend::sums_scratch(const Factors& factors, int thread) const {
    return reinterpret_cast<float*>(sums_scratch_.data()) + thread * factors.sums;
}

PanelProduct CpuBackend::product_of(const Panels& panels, const Vector& bias, const Factors& factors, const MatmulPiece& piece,
                                    std::int64_t begin, std::int64_t end) const {
    return {.panels = panels,
            .begin = begin,
            .end = end,
            .in = factors.in.slice_rows(piece.row_begin, piece.rows),
            .bias = floats(bias),
            .scratch = unpacked_scratch(factors, piece.thread),
            .parked = factors.parked_bytes == 0 ? nullptr : parked_scratch_.data() + piece.thread * factors.parked_bytes};
}

void CpuBackend::multiply_codes(const PanelProduct& product, DotMatmulKernel dot) const {
    const CodedKernels& codes = dot == nullptr ? kernels_.coded : kernels_.coded_pairs;
    const Panels& panels = product.panels;
    if (codes.matmul != nullptr && product.in.rows <= coded_rows_max) {
        codes.matmul(coded_task(product), 0, product.end - product.begin);
        return;
    }
    for (std::int64_t panel = product.begin; panel < product.end; ++panel) {
        codes.decode(panels.coded_from(panel), product.scratch);
        PanelProduct one = product;
        one.begin = panel;
        one.end = panel + 1;
        one.out += (panel - product.begin) * panels.width;
        if (dot != nullptr) {
            DotTask task = dot_task(one);
            task.panels = product.scratch;
            task.next = panels.panel((panel + 1) % panels.count());
            dot(task, 0, 1);
        } else {
            MatmulTask task = matmul_task(one);
            task.panels = product.scratch;
            kernels_.matmul(task, 0, 1);
        }
    }
}

void CpuBackend::multiply(const PanelProduct& product, DotMatmulKernel dot) const {
    if (product.panels.coding) return multiply_codes(product, dot);
    if (dot != nullptr) {
        dot(dot_task(product), 0, product.end - product.begin);
    } else {
        kernels_.matmul(matmul_task(product), 0, product.end - product.begin);
    }
}

void CpuBackend::execute(const MatmulArgs& args) {
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    float* const out = floats(args.out);
    if (args.in.rows == 0) return;
    const Factors factors = factors_of(args.in, weight);
    cut_matmul(factors, panels, 1, [&](const MatmulPiece& piece) {
        for (std::int64_t begin = piece.begin; begin < piece.end;) {
            const std::int64_t end = std::min(piece.end, (begin / panels.part_count() + 1) * panels.part_count());
            PanelProduct product = product_of(panels, args.bias, factors, piece, begin, end);
            product.out = out + piece.row_begin * args.out.stride + panels.output_of(begin);
            product.out_stride = args.out.stride;
            product.accumulate = args.accumulate;
            if (piece.ends_share && end == piece.end) product.next = first_weights(args.next, piece.thread);
            multiply(product, factors.dot);
            begin = end;
        }
    });
}

void CpuBackend::execute(const ActivatedMatmulArgs& args) {
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    const DotKernels* const dot = weight.dot();
    const std::int64_t width = args.out.columns;
    const std::int64_t parts = args.gated ? 2 : 1;
    if (panels.parts != parts || (dot == nullptr && args.in.rows < activated_rows_least)) return run_matmul_then_activation(args);
    const bool has_kernels =
        !panels.coding && dot != nullptr && dot->activated != nullptr && lora_by_pairs_ && kernels_.bfloat16_dot->updates != nullptr;
    const bool adds_updates = has_kernels && are_of_parts(args.groups, width);
    if (!args.groups.empty() && !adds_updates) return run_matmul_then_activation(args);
    if (args.in.rows == 0) return;

    Factors factors = factors_of(args.in, weight);
    factors.updates = {.groups = args.groups, .shrunk = shrink_all(args.in, args.groups), .all = {}};
    const std::int64_t panels_together = panels.pairs_parts ? 1 : parts;
    const bool own_rows = cut_of_matmul(args.in.rows, panels, panels_together, pool_.threads(), factors.block).own_rows;
    // Threads with their own rows compute updates where they add them. Few rows wait for memory, which is read faster if each adapter's B
    // is read in one go.
    if (factors.updates.shrunk.columns > 0 && !own_rows) {
        expand_all(factors.updates, width, args.sums);
        factors.updates.all = args.sums;
    }
    // For a panel's outputs, or for the updates that are added to them.
    if (factors.activated == nullptr) {
        factors.sums = factors.block.rows * parts * panels.width;
    } else if (!args.groups.empty()) {
        factors.sums = factors.block.rows * parts * updates_together(panels, factors);
    }
    sums_scratch_.floats(pool_.threads() * factors.sums);
    if (args.out.format != Format::int8_rows) {
        cut_matmul(factors, panels, panels_together, [&](const MatmulPiece& piece) {
            run_activated_piece(args, factors, piece, args.out.slice_rows(piece.row_begin, piece.rows));
        });
        return;
    }
    // The scale of an int8 row is known only when the whole row is computed, so rows are float32 first. If threads have their own rows, and
    // enough of them fit into the cache, a thread computes whole rows; but weights that must be unpacked first need more rows at a time.
    const std::int64_t whole_rows = dot == nullptr ? 0 : dot->whole_rows;
    const std::int64_t rows_max = std::min(whole_rows, whole_rows * whole_row_bytes / (width * static_cast<std::int64_t>(sizeof(float))));
    const bool unpacks = factors.scratch_bytes > 0;
    if (rows_max >= whole_rows_least && !unpacks && own_rows) {
        run_activated_rows(args, factors, rows_max);
        return;
    }
    const Matrix activated = args.sums.slice_columns(0, width);
    cut_matmul(factors, panels, panels_together, [&](const MatmulPiece& piece) {
        run_activated_piece(args, factors, piece, activated.slice_rows(piece.row_begin, piece.rows));
    });
    store_rows(activated, args.out);
}

std::int64_t CpuBackend::panel_width_of_b() const { return lora_by_pairs_ ? kernels_.bfloat16_dot->panel_width : kernels_.panel_width; }

std::int64_t CpuBackend::updates_together(const Panels& panels, const Factors& factors) const {
    return std::max(panel_width_of_b(), factors.block.panels * panels.part_width());
}

void CpuBackend::run_activated_kernel(const ActivatedMatmulArgs& args, const Factors& factors, const MatmulPiece& piece,
                                      const Matrix& out) {
    const Panels& panels = static_cast<const CpuWeight&>(args.weight).panels();
    const bool has_updates = factors.updates.shrunk.columns > 0 && factors.updates.all.rows == 0;
    const std::int64_t b_width = panel_width_of_b();
    for (std::int64_t begin = piece.begin; begin < piece.end;) {
        const std::int64_t column = begin * panels.part_width();
        const std::int64_t b_panel = column / b_width;
        const std::int64_t updated_end = (b_panel * b_width + updates_together(panels, factors)) / panels.part_width();
        const std::int64_t end = has_updates ? std::min(piece.end, updated_end) : piece.end;
        const Matrix place = out.slice_columns(column, out.columns - column);
        PanelProduct product = product_of(panels, args.bias, factors, piece, begin, end);
        product.out_stride = place.stride;
        if (piece.ends_share && end == piece.end) product.next = first_weights(args.next, piece.thread);
        ActivatedDotTask task{dot_task(product), kind_of(args.kind)};
        if (place.format == Format::bfloat16) {
            task.out_bfloat16 = row_of(place, 0);
        } else {
            task.out = floats(place);
        }
        if (factors.updates.all.rows > 0) {
            task.addend = floats(factors.updates.all) + piece.row_begin * factors.updates.all.stride + column;
            task.addend_stride = factors.updates.all.stride;
            task.addend_part = out.columns;
        } else if (has_updates) {
            const std::int64_t b_panels = (end * panels.part_width() + b_width - 1) / b_width - b_panel;
            const std::int64_t sums_stride = panels.parts * b_panels * b_width;
            float* const sums = sums_scratch(factors, piece.thread);
            expand_columns(factors.updates,
                           {.row_begin = piece.row_begin,
                            .panel = b_panel,
                            .panels = b_panels,
                            .width = b_width,
                            .parts = panels.parts,
                            .part_features = args.out.columns},
                           {.data = sums, .format = Format::float32, .rows = piece.rows, .columns = sums_stride, .stride = sums_stride});
            task.addend = sums + column - b_panel * b_width;
            task.addend_stride = sums_stride;
            task.addend_part = b_panels * b_width;
        }
        factors.activated(task, 0, end - begin);
        begin = end;
    }
}

// Panel by panel, so that the activation's inputs stay in the cache.
void CpuBackend::run_activated_piece(const ActivatedMatmulArgs& args, const Factors& factors, const MatmulPiece& piece, const Matrix& out) {
    if (factors.activated != nullptr) return run_activated_kernel(args, factors, piece, out);
    const auto& weight = static_cast<const CpuWeight&>(args.weight);
    const Panels& panels = weight.panels();
    const std::int64_t sums_stride = panels.parts * panels.width;
    float* const sums = sums_scratch(factors, piece.thread);
    for (std::int64_t panel = piece.begin; panel < piece.end; ++panel) {
        const std::int64_t column = panel * panels.width;
        const std::int64_t columns = std::min(panels.width, out.columns - column);
        for (std::int64_t part = 0; part < panels.parts; ++part) {
            const std::int64_t index = part * panels.part_count() + panel;
            const bool is_last = part + 1 == panels.parts;
            const std::byte* next = panels.panel(is_last ? (panel + 1) % panels.part_count() : index + panels.part_count());
            if (is_last && panel + 1 == piece.end && piece.ends_share) next = first_weights(args.next, piece.thread);
            PanelProduct product = product_of(panels, args.bias, factors, piece, index, index + 1);
            product.out = sums + part * columns;
            product.out_stride = sums_stride;
            product.next = next;
            multiply(product, factors.dot);
        }
        const Matrix to = out.slice_columns(column, columns);
        ActivationTask task{.kind = kind_of(args.kind),
                            .gated = args.gated,
                            .in = sums,
                            .in_stride = sums_stride,
                            .out = sums,
                            .out_stride = sums_stride,
                            .width = columns};
        if (to.format == Format::float32) {
            task.out = floats(to);
            task.out_stride = to.stride;
        }
        kernels_.activation(task, 0, piece.rows);
        if (to.format == Format::float32) continue;
        for (std::int64_t i = 0; i < piece.rows; ++i) store_row(to, i, sums + i * sums_stride);
    }
}

void CpuBackend::run_activated_rows(const ActivatedMatmulArgs& args, const Factors& factors, std::int64_t rows_max) {
    const std::int64_t rows = args.in.rows;
    const std::int64_t width = args.out.columns;
    const std::int64_t panels = static_cast<const CpuWeight&>(args.weight).panels().part_count();
    const std::int64_t blocks = (rows + rows_max * pool_.threads() - 1) / (rows_max * pool_.threads()) * pool_.threads();
    float* const activated_of_all = activated_scratch_.floats(pool_.threads() * rows_max * width);
    pool_.run(blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t block = begin; block < end; ++block) {
            const std::int64_t row = rows * block / blocks;
            const Matrix activated{.data = activated_of_all + thread * rows_max * width,
                                   .format = Format::float32,
                                   .rows = rows * (block + 1) / blocks - row,
                                   .columns = width,
                                   .stride = width};
            run_activated_piece(args, factors, {.row_begin = row, .rows = activated.rows, .begin = 0, .end = panels, .thread = thread},
                                activated);
            for (std::int64_t i = 0; i < activated.rows; ++i) store_row(args.out, row + i, floats(activated) + i * width);
        }
    });
}

}  // namespace lorry::kernels::cpu
