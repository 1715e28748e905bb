// Packs the same weights for each instruction set, then runs op by op. Weights and inputs are noise, because multiplying zeros takes less
// power.
#include "ops/bench/tune_bench.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "engine/model/model.h"
#include "engine/model/model_layout.h"
#include "kernels/cpu/isa.h"
#include "ops/bench/attention_bench.h"
#include "ops/bench/workload.h"
#include "ops/engine_setup.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::CpuIsa;
using kernels::CpuOptions;
using kernels::Matrix;
using kernels::StorageOptions;

constexpr std::array<std::int64_t, 4> row_counts = {1, 8, 64, 512};
// Without int4: it differs from int8 only in how its weights are read, so what is faster for one is faster for the other.
constexpr std::array formats = {StorageOptions{.weights = kernels::Format::float32}, StorageOptions{.weights = kernels::Format::bfloat16},
                                StorageOptions{.weights = kernels::Format::bfloat16, .quantize = kernels::Quantization::int8}};

template <class Run>
double time_run(const Run& run) {
    const engine::Clock::time_point begin = engine::Clock::now();
    run();
    return std::chrono::duration<double>(engine::Clock::now() - begin).count();
}

// The matmuls of a model's layers.
class LayerMatmuls {
public:
    LayerMatmuls(const engine::ModelConfig& config, std::unique_ptr<kernels::Backend> backend, std::int64_t rows_max)
        : backend_(std::move(backend)) {
        for (const engine::LinearModule& module : engine::layout_of(config).linears) {
            // A projection's modules are one matrix, and all layers and all experts have the same shapes.
            if (module.layer > 0 || module.out_begin > 0 || module.expert.value_or(0) > 0 || module.projection == engine::Projection::head)
                continue;
            const std::int64_t out_features = module.projection_out;
            const Matrix noise = backend_.make(std::max(out_features, rows_max), module.in_features);
            const kernels::WeightPart part{.data = noise.data, .out_features = out_features, .in_features = module.in_features};
            Site& site = sites_.emplace_back();
            for (std::int64_t layer = 0; layer < config.layers; ++layer)
                site.weights.push_back(backend_->pack_weight({&part, 1}, kernels::WeightRole::projection));
            site.out = backend_.make(rows_max, out_features);
            // As in the model, the op before a matmul writes its input in the format that the matmul reads.
            site.in = backend_.make(rows_max, module.in_features);
            site.in.format = site.weights.front()->input_format();
            const std::vector<float> ones(static_cast<std::size_t>(module.in_features), 1.0F);
            backend_->norm(
                {.out = site.in, .in = noise.slice_rows(0, rows_max), .weight = {ones.data(), module.in_features}, .epsilon = 1e-6F});
        }
    }

    // Time of one layer, in seconds.
    double run(std::size_t layer, std::int64_t rows) {
        return time_run([&] {
            for (const Site& site : sites_)
                backend_->matmul({.out = site.out.slice_rows(0, rows), .in = site.in.slice_rows(0, rows), .weight = *site.weights[layer]});
        });
    }

    // Work of all layers.
    Work work(std::int64_t rows) const {
        Work work;
        for (const Site& site : sites_) {
            for (const auto& weight : site.weights) {
                work.bytes += static_cast<double>(weight->bytes());
                work.operations += 2.0 * real(rows * weight->out_features() * weight->in_features());
            }
        }
        return work;
    }

private:
    struct Site {
        std::vector<std::unique_ptr<kernels::PackedWeight>> weights;  // [layers]
        Matrix in;
        Matrix out;
    };

    NoisyBackend backend_;
    std::vector<Site> sites_;
};

// The same work for each instruction set, all of it in memory at once.
template <class Layers, class Shape>
std::vector<std::unique_ptr<Layers>> with_each(std::span<const CpuIsa> isas, const engine::ModelConfig& config, CpuOptions options,
                                               const Shape& shape) {
    std::vector<std::unique_ptr<Layers>> all;
    for (const CpuIsa isa : isas) {
        options.isa = isa;
        all.push_back(std::make_unique<Layers>(config, kernels::make_cpu_backend(options), shape));
    }
    return all;
}

}  // namespace

std::vector<CpuIsa> tune_isas() {
    std::vector<CpuIsa> isas;
    for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512bf16, CpuIsa::avx512amx}) {
        if (kernels::cpu::supported(isa)) isas.push_back(isa);
    }
    if (isas.empty()) isas.push_back(CpuIsa::scalar);
    return isas;
}

std::vector<TuneLine> measure_isas(const TuneShape& shape, std::span<const CpuIsa> isas) {
    engine::ModelConfig config = shape.config;
    if (shape.quick) config.layers = 1;
    std::vector<TuneLine> lines;
    for (const StorageOptions& storage : formats) {
        const CpuOptions options{.threads = shape.threads, .isa = {}, .storage = storage};
        const auto add_line = [&](std::string work, const auto& all, const auto& run, const auto& work_of) {
            const Tries tries = shape.quick ? Tries(1, {}) : Tries(3, std::chrono::duration<double>(shape.seconds));
            TuneLine& line = lines.emplace_back(TuneLine{.weights = weights_name(storage), .work = std::move(work)});
            for (const auto& one : all) line.speeds.push_back({.work = work_of(*one)});
            // Layer by layer: the shorter a run, the more likely one is not interrupted.
            const std::vector<double> seconds = least_in_turn(tries, static_cast<std::size_t>(config.layers) * all.size(),
                                                              [&](std::size_t i) { return run(*all[i % all.size()], i / all.size()); });
            for (std::size_t i = 0; i < seconds.size(); ++i) line.speeds[i % all.size()].seconds += seconds[i];
        };
        {
            const auto all = with_each<LayerMatmuls>(isas, config, options, row_counts.back());
            for (const std::int64_t rows : row_counts) {
                add_line(
                    fmt::format("matmuls, {} {}", rows, rows == 1 ? "row" : "rows"), all,
                    [&](LayerMatmuls& matmuls, std::size_t layer) { return matmuls.run(layer, rows); },
                    [&](const LayerMatmuls& matmuls) { return matmuls.work(rows); });
            }
        }
        // Keys and values are stored the same way whether or not weights are quantized.
        if (storage.quantize != kernels::Quantization::none) continue;
        for (const AttentionShape& one :
             {AttentionShape{"attention, 64 rows", 64, 160, 1}, AttentionShape{"attention, 512 rows", 1, 512, 512}}) {
            const auto all = with_each<LayerAttention>(isas, config, options, one);
            add_line(
                one.name, all, [](LayerAttention& attention, std::size_t layer) { return attention.run(layer, 1); },
                std::mem_fn(&LayerAttention::work));
        }
    }
    return lines;
}

}  // namespace lorry::ops
