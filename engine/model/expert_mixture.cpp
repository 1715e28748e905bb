// Routes rows to experts, runs each expert on its rows and adds up what they make of each row.
#include "engine/model/expert_mixture.h"

#include <algorithm>
#include <cmath>

namespace lorry::engine {

using kernels::Matrix;

void Routing::choose(std::span<const float> scores) {
    chosen_.clear();
    factors_.clear();
    const auto experts = static_cast<std::size_t>(config_.count);
    for (std::size_t row = 0; row < scores.size() / experts; ++row) choose_of_row(scores.subspan(row * experts, experts));
    group();
}

void Routing::choose_of_row(std::span<const float> scores) {
    const auto chosen = static_cast<std::size_t>(config_.chosen);
    best_.clear();  // by score, descending
    const auto score_of = [&](std::int32_t expert) { return scores[static_cast<std::size_t>(expert)]; };
    for (std::int32_t expert = 0; expert < std::ssize(scores); ++expert) {
        const auto place = std::ranges::find_if(best_, [&](std::int32_t other) { return score_of(expert) > score_of(other); });
        if (place == best_.end() && best_.size() == chosen) continue;
        best_.insert(place, expert);
        if (best_.size() > chosen) best_.pop_back();
    }
    const float largest = score_of(best_.front());
    std::ranges::sort(best_);
    float sum = 0.0F;
    if (config_.normalized) {
        for (const std::int32_t expert : best_) sum += std::exp(score_of(expert) - largest);
    } else {
        for (const float score : scores) sum += std::exp(score - largest);
    }
    for (const std::int32_t expert : best_) factors_.push_back(std::exp(score_of(expert) - largest) / sum);
    chosen_.insert(chosen_.end(), best_.begin(), best_.end());
}

void Routing::group() {
    groups_.assign(static_cast<std::size_t>(config_.count), {});
    for (const std::int32_t expert : chosen_) ++groups_[static_cast<std::size_t>(expert)].count;
    std::int64_t begin = 0;
    for (std::size_t expert = 0; expert < groups_.size(); ++expert) {
        groups_[expert].expert = static_cast<std::int64_t>(expert);
        groups_[expert].begin = begin;
        begin += groups_[expert].count;
        groups_[expert].count = 0;
    }
    rows_.resize(chosen_.size());
    places_.resize(chosen_.size());
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
        Group& group = groups_[static_cast<std::size_t>(chosen_[i])];
        const std::int64_t place = group.begin + group.count++;
        places_[i] = static_cast<std::int32_t>(place);
        rows_[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(i / static_cast<std::size_t>(config_.chosen));
    }
    std::erase_if(groups_, [](const Group& group) { return group.count == 0; });
}

ExpertMixture::ExpertMixture(const ModelConfig& config, AdaptedOps& ops, kernels::Backend& backend, std::int64_t rows_max)
    : config_(config),
      ops_(ops),
      backend_(backend),
      routing_(*config.experts),
      scored_(backend, rows_max, config.hidden),
      scores_(backend, rows_max, config.experts->count),
      shared_scores_(backend, rows_max, 1),
      picked_(backend, rows_max * config.experts->chosen, config.hidden),
      expert_out_(backend, rows_max * config.experts->chosen, config.hidden),
      gate_up_(backend, rows_max, (config.gated ? 2 : 1) * config.experts->intermediate),
      activated_(backend, rows_max, config.experts->intermediate) {}

void ExpertMixture::score(const Layer& layer, const Site& site, const Matrix& scored) {
    const Matrix scores = scores_.view(scored.rows);
    ops_.project({.site = site,
                  .projection = Projection::router,
                  .weight = *layer.router.weight,
                  .bias = layer.router.bias,
                  .out = scores,
                  .in = scored});
    CHECK(scores.stride == scores.columns, "rows of float32 are dense");
    read_scores_.resize(static_cast<std::size_t>(scores.rows * scores.columns));
    backend_.read_back(std::as_writable_bytes(std::span(read_scores_)), scores.data);
    routing_.choose(read_scores_);
    if (layer.shared_gate.weight == nullptr) return;
    ops_.project({.site = site,
                  .projection = Projection::shared_gate,
                  .weight = *layer.shared_gate.weight,
                  .bias = layer.shared_gate.bias,
                  .out = shared_scores_.view(scored.rows),
                  .in = scored});
}

void ExpertMixture::add(const Layer& layer, const Site& site, const Addition& addition) {
    const auto places = static_cast<std::int64_t>(routing_.rows().size());
    const Matrix picked = picked_.view(places, addition.in.format);
    backend_.pick_rows({.out = picked, .in = addition.in, .rows = routing_.rows()});
    for (const Routing::Group& group : routing_.groups()) run(layer, site, group, picked);
    backend_.mix_rows({.out = addition.residual,
                       .in = expert_out_.view(places),
                       .places = routing_.places(),
                       .factors = routing_.factors(),
                       .shared = addition.shared,
                       .shared_scores = addition.shared.rows > 0 ? shared_scores_.view(addition.shared.rows) : Matrix{}});
}

void ExpertMixture::run(const Layer& layer, const Site& site, const Routing::Group& group, const Matrix& picked) {
    const Mlp& expert = layer.experts[static_cast<std::size_t>(group.expert)];
    adapters_.clear();
    add_groups_among(site.adapters, routing_.rows().subspan(static_cast<std::size_t>(group.begin), static_cast<std::size_t>(group.count)),
                     adapters_);
    const bool is_last = &group == &routing_.groups().back();
    const Site of_expert{.layer = site.layer, .expert = group.expert, .adapters = adapters_};
    const Matrix activated = activated_.view(group.count, expert.down.weight->input_format());
    ops_.activate({.site = of_expert,
                   .mlp = expert,
                   .out = activated,
                   .sums = gate_up_.view(group.count),
                   .in = picked.slice_rows(group.begin, group.count)});
    ops_.project({.site = of_expert,
                  .projection = Projection::down,
                  .weight = *expert.down.weight,
                  .bias = expert.down.bias,
                  .out = expert_out_.view(picked.rows).slice_rows(group.begin, group.count),
                  .in = activated,
                  .next = is_last ? nullptr : layer.experts[static_cast<std::size_t>((&group + 1)->expert)].gate_up.weight.get()});
}

}  // namespace lorry::engine
