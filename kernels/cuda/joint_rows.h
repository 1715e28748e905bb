// Converts rows of float32, of which several blocks compute parts, to fp8 in place. A row's scale is known once the whole row is stored, so
// the block that stores the last part converts it; which block that is does not change the result. Included by attention.cu.
//
// A block stores its parts of some rows, notes the largest element of each part, and then quantizes the rows that are complete.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

constexpr int joint_rows_most = 128;  // of which one block has parts

// In the block's shared memory.
struct JointScratch {
    int any[row_threads_max / warp_size];
    bool is_whole[joint_rows_most];
    float inverse[joint_rows_most];  // of the scales of complete rows
};

// largest: magnitude_bits of the largest element of a part or of some of its elements.
__device__ inline void note_largest(const JointRows& joint, std::int64_t row, std::uint32_t largest) {
    atomic_max(&joint.progress[row].largest, largest);
}

// Quantizes the complete ones of `count` rows from `first` on. Several rows may share a round, in which all loads precede all stores,
// because codes overwrite floats of the same or an earlier round. at_once: loads of a thread that are in flight together, of four registers
// each.
template <bool aligned, int at_once>
__device__ void quantize_rows(const JointRows& joint, std::int64_t first, int count, const JointScratch& scratch) {
    const int fours = (joint.columns + static_cast<int>(row_four) - 1) / static_cast<int>(row_four);
    const auto codes_of = [&](int row) { return static_cast<Fp8*>(joint.rows.data) + (first + row) * joint.rows.stride; };
    for (int begin = 0; begin < count * fours; begin += at_once * block_threads()) {
        // each(place, row, column), for the thread's fours of this round.
        const auto for_each = [&](const auto& each) {
#pragma unroll
            for (int place = 0; place < at_once; ++place) {
                const int at = begin + place * block_threads() + thread_in_block();
                if (at < count * fours && scratch.is_whole[at / fours]) each(place, at / fours, at % fours * static_cast<int>(row_four));
            }
        };
        Floats kept[std::size_t{at_once}];
        for_each([&](int place, int row, int column) {
            kept[place] = load_four<aligned>(reinterpret_cast<const float*>(codes_of(row)), column, joint.columns);
        });
        barrier();
        for_each([&](int place, int row, int column) {
            for (float& x : kept[place].at) x *= scratch.inverse[row];
            store_four<aligned>(codes_of(row), column, joint.columns, kept[place]);
        });
    }
}

// Called by all threads of a block that has stored parts of `count` rows from `first` on: parts_of(i) of row first + i.
template <int at_once, class PartsOf>
__device__ void quantize_whole_rows(const JointRows& joint, std::int64_t first, int count, JointScratch& scratch, const PartsOf& parts_of) {
    barrier();  // all threads of the block have stored their elements
    int any = 0;
    for (int i = thread_in_block(); i < count; i += block_threads()) {
        RowProgress& progress = joint.progress[first + i];
        const auto parts = static_cast<std::uint32_t>(parts_of(i));
        scratch.is_whole[i] = arrive(&progress.parts, parts) + parts == static_cast<std::uint32_t>(joint.parts);
        if (!scratch.is_whole[i]) continue;
        any = 1;
        const float scale = fp8_scale(progress.largest);
        joint.rows.scales[first + i] = scale;
        scratch.inverse[i] = 1.0F / scale;
        progress = {};  // for the next launch
    }
    if (block_largest(any, scratch.any) == 0) return;
    const bool are_aligned = joint.columns % row_four == 0 && joint.rows.row_bytes() % sizeof(Floats) == 0 &&
                             reinterpret_cast<std::uintptr_t>(joint.rows.data) % sizeof(Floats) == 0;
    if (are_aligned) {
        quantize_rows<true, at_once>(joint, first, count, scratch);
    } else {
        quantize_rows<false, at_once>(joint, first, count, scratch);
    }
}

}  // namespace lorry::kernels::cuda
