// Three ways to add the low-rank updates of many adapters to the rows of one batch, over the same kernels: one call per adapter; gathering
// each row's weights first; and one call over row groups, as in the engine. Called by `lorry bench course`.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/model_layout.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace lorry::ops {

enum class LoraWay : std::uint8_t { loop, gathered, segments };

struct LoraShape {
    std::int64_t adapters = 8;
    std::int64_t rank = 16;   // on all linear modules
    std::int64_t rows = 64;   // at most
    std::int64_t layers = 8;  // maximum; enough that the weights do not stay in the cores' own caches
};

// Random adapters for a model's shapes, and inputs and outputs of its projections.
class LoraWays {
public:
    LoraWays(const engine::ModelConfig& config, const kernels::CpuOptions& options, const LoraShape& shape);

    std::int64_t layers() const { return std::ssize(adapters_); }
    // Adds all layers' updates to the first `rows` rows, which are sorted by adapter and divided evenly among the first `adapters`. Returns
    // the time in seconds.
    double run(LoraWay way, std::int64_t rows, std::int64_t adapters);
    // What the last run added to a projection's outputs: [maximum rows, out_features].
    std::span<const float> added(engine::Projection projection) const;

private:
    static constexpr std::size_t sites = 4;  // the projections of a layer, in their order
    struct Site {
        std::vector<engine::LinearModule> modules;
        kernels::Matrix in;
        kernels::Matrix out;
    };
    using Loras = std::array<std::unique_ptr<kernels::PackedLora>, sites>;
    struct Segment {
        std::int64_t row_begin = 0;
        std::int64_t row_count = 0;
        std::size_t adapter = 0;
    };

    kernels::Matrix make_matrix(std::int64_t rows, std::int64_t columns);
    Loras make_loras(std::int64_t rank, std::int64_t number);
    void add(std::size_t site, std::span<const kernels::LoraGroup> groups);
    void add_gathered(const std::vector<Loras>& adapters, std::span<const Segment> segments);

    std::unique_ptr<kernels::Backend> backend_;
    kernels::ThreadPool pool_;  // copies the gathered weights
    std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
    std::vector<float> noise_;  // all weights are slices of it
    std::array<Site, sites> sites_;
    std::vector<std::vector<Loras>> adapters_;  // [layer][adapter]
    std::vector<Loras> gathered_;               // [row]: room for one layer
};

}  // namespace lorry::ops
