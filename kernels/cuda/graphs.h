// Decoding steps as CUDA graphs: what a step of so many rows launches, taken down at start and captured. Used by CudaBackend.
//
// A graph has no key that could be wrong: a step follows it launch by launch, and is launched as the graph if it made each of its launches
// with the very same arguments. So all that may differ between two such steps has to stand in tables at fixed places.
#pragma once

#include <variant>
#include <vector>

#include "kernels/cuda/cublaslt/library_matmul.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

using Task =
    std::variant<EmbedTask, NormTask, MatmulTask, LoraTask, GroupBiasTask, RopeTask, AttentionTask, ActivationTask, GatherTask, WidenTask>;
// What multiplies.
struct Multiplier {
    LibraryMatmul* library = nullptr;  // null: our own kernel multiplies everything
    MatmulScratch& scratch;
};
void run(const Task& task, const Multiplier& multiplier, cudaStream_t stream);

class StepGraph {
public:
    // `rows`: of the step that it was taken down from, and the most that one which follows it may have.
    StepGraph(std::int64_t rows, std::vector<Task> tasks) : rows_(rows), tasks_(std::move(tasks)) {}
    // The multiplier's scratch is the graph's from here on: it does not grow any more.
    void capture(const Multiplier& multiplier, const Stream& stream);

    std::int64_t rows() const { return rows_; }

    // How far a step has come.
    struct Follower {
        std::size_t at = 0;
        std::vector<std::size_t> made;  // of tasks before `at`; the others had no adapter
        bool has_adapters = false;
    };
    // The step makes this launch next: false if the graph does not.
    bool follow(const Task& task, Follower& follower) const;
    bool is_complete(const Follower& follower) const { return follower.at == tasks_.size(); }
    // What the next low-rank update of a step is told in, if it is like this one; null: there is none.
    const LoraWork* place_of(LoraTask task, const Follower& follower) const;
    void launch(const Follower& follower, const Stream& stream) const;
    // What the step made so far, one by one.
    void run_made(const Follower& follower, const Multiplier& multiplier, const Stream& stream) const;

private:
    // A step whose rows have no adapters at all, or none for this projection, leaves it out. In the graph it then finds no work.
    static bool is_of_adapters(const Task& task) {
        return std::holds_alternative<LoraTask>(task) || std::holds_alternative<WidenTask>(task);
    }

    std::int64_t rows_;
    std::vector<Task> tasks_;
    std::vector<Graph> graphs_;  // without adapters, with them
};

}  // namespace lorry::kernels::cuda
