// Packs the adapters once, then runs op by op.
#include "ops/bench/experiments/lora_ways.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "kernels/cpu/pack.h"
#include "kernels/processors.h"

namespace lorry::ops {
namespace {

using kernels::cpu::CpuLora;

void copy_panels(const kernels::cpu::Panels& from, const kernels::cpu::Panels& to) {
    CHECK(from.memory.bytes() == to.memory.bytes(), "adapters of one rank have the same packed size");
    std::memcpy(to.memory.data(), from.memory.data(), from.memory.bytes());
}

void copy_lora(const CpuLora& from, const CpuLora& to) {
    copy_panels(from.a(), to.a());
    for (std::size_t i = 0; i < from.parts().size(); ++i) copy_panels(from.parts()[i].b, to.parts()[i].b);
}

}  // namespace

LoraWays::LoraWays(const engine::ModelConfig& config, const kernels::CpuOptions& options, const LoraShape& shape)
    : backend_(kernels::make_cpu_backend(options)), pool_(options.threads > 0 ? options.threads : kernels::usable_processors()) {
    std::int64_t features_max = 0;
    for (const engine::LinearModule& module : engine::layout_of(config).linears) {
        if (module.layer > 0 || module.projection == engine::Projection::head) continue;
        sites_[static_cast<std::size_t>(module.projection)].modules.push_back(module);
        features_max = std::max({features_max, module.in_features, module.out_features});
    }
    std::mt19937_64 random(1);
    std::uniform_real_distribution<float> any(-0.1F, 0.1F);
    noise_.resize(static_cast<std::size_t>(features_max * shape.rank * 2));
    for (float& value : noise_) value = any(random);

    for (Site& site : sites_) {
        const engine::LinearModule& last = site.modules.back();
        site.in = make_matrix(shape.rows, last.in_features);
        site.out = make_matrix(shape.rows, last.out_begin + last.out_features);
        auto* const in = static_cast<float*>(site.in.data);
        std::generate(in, in + site.in.rows * site.in.columns, [&] { return any(random); });
    }
    adapters_.resize(static_cast<std::size_t>(std::min(config.layers, shape.layers)));
    for (std::vector<Loras>& layer : adapters_) {
        for (std::int64_t i = 0; i < shape.adapters; ++i) layer.push_back(make_loras(shape.rank, i));
    }
    for (std::int64_t row = 0; row < shape.rows; ++row) gathered_.push_back(make_loras(shape.rank, 0));
}

kernels::Matrix LoraWays::make_matrix(std::int64_t rows, std::int64_t columns) {
    buffers_.push_back(backend_->allocate(static_cast<std::size_t>(rows * columns) * sizeof(float)));
    return {.data = buffers_.back()->data(), .rows = rows, .columns = columns, .stride = columns};
}

LoraWays::Loras LoraWays::make_loras(std::int64_t rank, std::int64_t number) {
    const auto part_of_noise = [&](std::int64_t out_features, std::int64_t in_features) {
        const auto begin = static_cast<std::size_t>(number * 61) % (noise_.size() / 2);
        return kernels::WeightPart{.data = noise_.data() + begin, .out_features = out_features, .in_features = in_features};
    };
    Loras loras;
    for (std::size_t i = 0; i < sites; ++i) {
        std::vector<kernels::LoraPart> parts;
        for (const engine::LinearModule& module : sites_[i].modules) {
            parts.push_back({.a = part_of_noise(rank, module.in_features),
                             .b = part_of_noise(module.out_features, rank),
                             .out_begin = module.out_begin});
        }
        loras[i] = backend_->pack_lora(parts);
    }
    return loras;
}

double LoraWays::run(LoraWay way, std::int64_t rows, std::int64_t adapters) {
    CHECK(adapters <= rows && rows <= std::ssize(gathered_), "every adapter has a row");
    for (const Site& site : sites_) std::fill_n(static_cast<float*>(site.out.data), site.out.rows * site.out.columns, 0.0F);
    std::vector<Segment> segments;
    for (std::int64_t i = 0; i < adapters; ++i) {
        const std::int64_t begin = i * rows / adapters;
        segments.push_back({begin, (i + 1) * rows / adapters - begin, static_cast<std::size_t>(i)});
    }
    const auto begin = std::chrono::steady_clock::now();
    for (const std::vector<Loras>& layer : adapters_) {
        if (way == LoraWay::gathered) {
            add_gathered(layer, segments);
            continue;
        }
        for (std::size_t site = 0; site < sites; ++site) {
            std::vector<kernels::LoraGroup> groups;
            for (const Segment& segment : segments)
                groups.push_back({segment.row_begin, segment.row_count, layer[segment.adapter][site].get()});
            if (way == LoraWay::segments) {
                add(site, groups);
            } else {
                for (const kernels::LoraGroup& group : groups) add(site, {&group, 1});
            }
        }
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void LoraWays::add(std::size_t site, std::span<const kernels::LoraGroup> groups) {
    backend_->lora({.out = sites_[site].out, .in = sites_[site].in, .groups = groups});
}

// Copies each row's adapter weights, then multiplies every row with its own copy.
void LoraWays::add_gathered(const std::vector<Loras>& adapters, std::span<const Segment> segments) {
    std::vector<std::size_t> adapter_of;
    for (const Segment& segment : segments)
        adapter_of.insert(adapter_of.end(), static_cast<std::size_t>(segment.row_count), segment.adapter);
    pool_.each(std::ssize(adapter_of), [&](std::int64_t at) {
        const auto row = static_cast<std::size_t>(at);
        for (std::size_t site = 0; site < sites; ++site) {
            copy_lora(static_cast<const CpuLora&>(*adapters[adapter_of[row]][site]), static_cast<const CpuLora&>(*gathered_[row][site]));
        }
    });
    for (std::size_t site = 0; site < sites; ++site) {
        std::vector<kernels::LoraGroup> groups;
        for (std::size_t row = 0; row < adapter_of.size(); ++row) {
            groups.push_back({static_cast<std::int64_t>(row), 1, gathered_[row][site].get()});
        }
        add(site, groups);
    }
}

std::span<const float> LoraWays::added(engine::Projection projection) const {
    const kernels::Matrix& out = sites_[static_cast<std::size_t>(projection)].out;
    return {static_cast<const float*>(out.data), static_cast<std::size_t>(out.rows * out.columns)};
}

}  // namespace lorry::ops
