// Decoding steps as CUDA graphs: the launches of a step of a given number of rows, recorded at start and captured. Used by CudaBackend.
//
// Graphs are not looked up by a key, which could be wrong: a step follows a graph launch by launch and is launched as that graph if all
// launches have exactly the same arguments. Everything that may differ between two such steps is therefore in tables at fixed addresses.
#pragma once

#include <variant>
#include <vector>

#include "kernels/cuda/cublaslt/library_matmul.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

using Task = std::variant<EmbedTask, NormTask, MatmulTask, LoraTask, GroupBiasTask, RopeTask, AttentionTask, ActivationTask, ScaleTask,
                          GatherTask, WidenTask>;
// The library or our own kernel, whichever multiplies, and its scratch memory.
struct Multiplier {
    LibraryMatmul* library = nullptr;  // null: our own kernel multiplies everything
    MatmulScratch& scratch;
};
void run(const Task& task, const Multiplier& multiplier, cudaStream_t stream);

class StepGraph {
public:
    // rows: of the recorded step; a step that follows the graph may have at most as many.
    StepGraph(std::int64_t rows, std::vector<Task> tasks) : rows_(rows), tasks_(std::move(tasks)) {}
    // From here on the graph refers to the multiplier's scratch memory, which must not grow any more.
    void capture(const Multiplier& multiplier, const Stream& stream);

    std::int64_t rows() const { return rows_; }

    // A step's progress along the graph.
    struct Follower {
        std::size_t at = 0;
        std::vector<std::size_t> made;  // the tasks before `at` that the step launched; it skipped the others, which are adapters'
        bool has_adapters = false;
    };
    // Advances by the step's next launch; false if the graph's next launch is another.
    bool follow(const Task& task, Follower& follower) const;
    bool is_complete(const Follower& follower) const { return follower.at == tasks_.size(); }
    // The work list that the graph's next low-rank update reads, if that update equals this one; null: it does not.
    const LoraWork* place_of(LoraTask task, const Follower& follower) const;
    void launch(const Follower& follower, const Stream& stream) const;
    // Launches what the step launched so far, one by one.
    void run_made(const Follower& follower, const Multiplier& multiplier, const Stream& stream) const;

private:
    // A step may skip such a launch, if its rows have no adapters or none for this projection. In the graph it then finds no work.
    static bool is_of_adapters(const Task& task) {
        return std::holds_alternative<LoraTask>(task) || std::holds_alternative<WidenTask>(task);
    }

    std::int64_t rows_;
    std::vector<Task> tasks_;
    std::vector<Graph> graphs_;  // without adapters, with them
};

}  // namespace lorry::kernels::cuda
