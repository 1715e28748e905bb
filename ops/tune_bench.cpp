// Packs the same weights for each instruction set, then runs op by op. Weights and inputs are noise: zeros need less power than numbers do.
#include "ops/tune_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include <fmt/format.h>

#include "engine/model.h"
#include "engine/model_layout.h"
#include "kernels/cpu/isa.h"
#include "ops/bench_requests.h"

namespace lorry::ops {
namespace {

using kernels::CpuIsa;
using kernels::CpuOptions;
using kernels::Matrix;

constexpr std::array<std::int64_t, 4> row_counts = {1, 8, 64, 512};
// int4 is not among them: it is int8 but for how its weights are read, and what is faster for one is for the other.
constexpr std::array formats = {CpuOptions{.weights = kernels::Format::float32}, CpuOptions{.weights = kernels::Format::bfloat16},
                                CpuOptions{.weights = kernels::Format::bfloat16, .quantize = kernels::Quantization::int8}};

double real(std::int64_t number) { return static_cast<double>(number); }

template <class Run>
double seconds_of(const Run& run) {
    const engine::Clock::time_point begin = engine::Clock::now();
    run();
    return std::chrono::duration<double>(engine::Clock::now() - begin).count();
}

// A backend with one instruction set, and float32 noise in its memory.
class NoisyBackend {
public:
    explicit NoisyBackend(const CpuOptions& options) : backend_(kernels::make_cpu_backend(options)) {}
    kernels::Backend& operator*() const { return *backend_; }
    kernels::Backend* operator->() const { return backend_.get(); }

    // [rows, columns] of float32, or room for a narrower format.
    Matrix make(std::int64_t rows, std::int64_t columns) {
        buffers_.push_back(backend_->allocate(static_cast<std::size_t>(rows * columns) * sizeof(float)));
        auto* const data = static_cast<float*>(buffers_.back()->data());
        std::mt19937 random(1);
        std::generate(data, data + rows * columns, [&] { return static_cast<float>(random()) * 0x1p-32F - 0.5F; });
        return {.data = data, .rows = rows, .columns = columns, .stride = columns};
    }

private:
    std::unique_ptr<kernels::Backend> backend_;
    std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

// The matmuls of a model's layers.
class LayerMatmuls {
public:
    LayerMatmuls(const engine::ModelConfig& config, const CpuOptions& options, std::int64_t rows_max) : backend_(options) {
        for (const engine::LinearModule& module : engine::layout_of(config).linears) {
            // A projection's modules are one matrix, and all layers have the same.
            if (module.layer > 0 || module.out_begin > 0 || module.projection == engine::Projection::head) continue;
            const std::int64_t out_features = engine::out_features_of(config, module.projection);
            const Matrix noise = backend_.make(std::max(out_features, rows_max), module.in_features);
            const kernels::WeightPart part{.data = noise.data, .out_features = out_features, .in_features = module.in_features};
            Site& site = sites_.emplace_back();
            for (std::int64_t layer = 0; layer < config.layers; ++layer)
                site.weights.push_back(backend_->pack_weight({&part, 1}, kernels::WeightRole::projection));
            site.out = backend_.make(rows_max, out_features);
            // As in the model, the op before the matmul writes its inputs in the format that it reads.
            site.in = backend_.make(rows_max, module.in_features);
            site.in.format = site.weights.front()->input_format();
            const std::vector<float> ones(static_cast<std::size_t>(module.in_features), 1.0F);
            backend_->norm(
                {.out = site.in, .in = noise.slice_rows(0, rows_max), .weight = {ones.data(), module.in_features}, .epsilon = 1e-6F});
        }
    }

    // Of one layer, in seconds.
    double run(std::size_t layer, std::int64_t rows) {
        return seconds_of([&] {
            for (const Site& site : sites_)
                backend_->matmul({.out = site.out.slice_rows(0, rows), .in = site.in.slice_rows(0, rows), .weight = *site.weights[layer]});
        });
    }

    // Of all layers.
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

struct AttentionShape {
    const char* name;
    std::int64_t sequences;
    std::int64_t tokens;  // of each, with the rows
    std::int64_t rows;    // of each: its last ones
};
constexpr std::array attention_shapes = {AttentionShape{"attention, 64 rows", 64, 160, 1},
                                         AttentionShape{"attention, 512 rows", 1, 512, 512}};

// Attention in a model's layers.
class LayerAttention {
public:
    LayerAttention(const engine::ModelConfig& config, const CpuOptions& options, const AttentionShape& shape)
        : config_(config),
          shape_(shape),
          element_bytes_(static_cast<double>(kernels::bytes_of(options.weights))),
          backend_(options),
          qkv_(backend_.make(rows_max(), (config.heads + 2 * config.kv_heads) * config.head_dim)),
          out_(backend_.make(rows_max(), config.heads * config.head_dim)),
          zeros_(static_cast<std::size_t>(rows_max())) {
        const std::int64_t blocks = (shape.tokens + backend_->block_size() - 1) / backend_->block_size();
        cache_ = backend_->make_kv_cache(engine::kv_shape_of(config), shape.sequences * blocks);
        for (std::int64_t i = 0; i < shape.sequences * blocks; ++i) blocks_.push_back(static_cast<kernels::BlockId>(i));
        for (std::int64_t i = 0; i < shape.sequences; ++i) {
            const std::span<const kernels::BlockId> own = std::span(blocks_).subspan(static_cast<std::size_t>(i * blocks));
            const kernels::StepSequence whole{.row_count = shape.tokens, .blocks = own.first(static_cast<std::size_t>(blocks))};
            store(whole);
            sequences_.push_back(
                {.row_begin = i * shape.rows, .row_count = shape.rows, .position = shape.tokens - shape.rows, .blocks = whole.blocks});
        }
        step_ = step_of(sequences_);
    }

    double run(std::size_t layer) {
        return seconds_of([&] {
            backend_->attention({.out = out_.slice_rows(0, step_.rows),
                                 .qkv = qkv_.slice_rows(0, step_.rows),
                                 .heads = config_.heads,
                                 .kv_heads = config_.kv_heads,
                                 .head_dim = config_.head_dim,
                                 .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                                 .cache = *cache_,
                                 .layer = static_cast<std::int64_t>(layer),
                                 .step = step_});
        });
    }

    Work work() const {
        // Row i of a sequence sees all tokens up to its own.
        const double seen = real(shape_.rows * (2 * shape_.tokens - shape_.rows + 1)) / 2.0;
        const double sequences = real(config_.layers * shape_.sequences);
        return {.bytes = sequences * real(shape_.tokens * 2 * config_.kv_heads * config_.head_dim) * element_bytes_,
                .operations = sequences * seen * 4.0 * real(config_.heads * config_.head_dim)};
    }

private:
    std::int64_t rows_max() const { return std::max(shape_.tokens, shape_.sequences * shape_.rows); }

    kernels::StepInputs step_of(std::span<const kernels::StepSequence> sequences) const {
        const auto rows = static_cast<std::size_t>(sequences.back().row_begin + sequences.back().row_count);
        return {.rows = static_cast<std::int64_t>(rows),
                .tokens = std::span(zeros_).first(rows),
                .positions = std::span(zeros_).first(rows),
                .sequences = sequences};
    }

    void store(const kernels::StepSequence& sequence) {
        const kernels::StepInputs step = step_of({&sequence, 1});
        backend_->begin_step(step);
        for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
            backend_->rope_store({.qkv = qkv_.slice_rows(0, step.rows),
                                  .heads = config_.heads,
                                  .kv_heads = config_.kv_heads,
                                  .head_dim = config_.head_dim,
                                  .cache = *cache_,
                                  .layer = layer,
                                  .step = step});
        }
        backend_->finish_step();
    }

    const engine::ModelConfig config_;
    const AttentionShape shape_;
    const double element_bytes_;
    NoisyBackend backend_;
    const Matrix qkv_;
    const Matrix out_;
    const std::vector<std::int32_t> zeros_;
    std::unique_ptr<kernels::KvCache> cache_;
    std::vector<kernels::BlockId> blocks_;
    std::vector<kernels::StepSequence> sequences_;
    kernels::StepInputs step_;
};

// The same work with each instruction set, all of it in memory at once.
template <class Layers, class Shape>
std::vector<std::unique_ptr<Layers>> with_each(std::span<const CpuIsa> isas, const engine::ModelConfig& config, CpuOptions options,
                                               const Shape& shape) {
    std::vector<std::unique_ptr<Layers>> all;
    for (const CpuIsa isa : isas) {
        options.isa = isa;
        all.push_back(std::make_unique<Layers>(config, options, shape));
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
    for (CpuOptions options : formats) {
        options.threads = shape.threads;
        const auto add_line = [&](std::string work, const auto& all, const auto& run, const auto& work_of) {
            const Tries tries = shape.quick ? Tries(1, {}) : Tries(3, std::chrono::duration<double>(shape.seconds));
            TuneLine& line = lines.emplace_back(TuneLine{.weights = weights_name(options), .work = std::move(work)});
            for (const auto& one : all) line.speeds.push_back({.work = work_of(*one)});
            // Layer by layer: the shorter a run is, the likelier is one that nobody interrupts.
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
        // Keys and values are stored alike whether weights are quantized or not.
        if (options.quantize != kernels::Quantization::none) continue;
        for (const AttentionShape& one : attention_shapes) {
            const auto all = with_each<LayerAttention>(isas, config, options, one);
            add_line(one.name, all, std::mem_fn(&LayerAttention::run), std::mem_fn(&LayerAttention::work));
        }
    }
    return lines;
}

}  // namespace lorry::ops
