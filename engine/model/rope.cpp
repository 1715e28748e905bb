// Computes the frequencies in float32 and in the same order as transformers, so that long contexts agree with it.
#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lorry::engine {
namespace {

// theta^(-2j/d) for j = 0 … d/2 - 1
std::vector<float> standard_frequencies(double theta, std::int64_t head_dim) {
    std::vector<float> inverse(static_cast<std::size_t>(head_dim / 2));
    for (std::size_t j = 0; j < inverse.size(); ++j) {
        const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_dim);
        inverse[j] = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    }
    return inverse;
}

// The base for a sequence longer than the original context ("NTK-aware" scaling with the current length).
double dynamic_theta(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length) {
    const auto d = static_cast<double>(head_dim);
    const double stretch =
        rope.factor * static_cast<double>(length) / static_cast<double>(rope.original_max_positions) - (rope.factor - 1.0);
    return rope.theta * std::pow(stretch, d / (d - 2.0));
}

// Llama 3.1: divides low frequencies by the factor, keeps high ones, and blends those between.
void scale_llama3(const RopeConfig& rope, std::vector<float>& inverse) {
    const auto context = static_cast<float>(rope.original_max_positions);
    const auto low = static_cast<float>(rope.low_freq_factor);
    const auto high = static_cast<float>(rope.high_freq_factor);
    const auto factor = static_cast<float>(rope.factor);
    for (float& frequency : inverse) {
        const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
        if (wavelength > context / low) {
            frequency /= factor;
        } else if (wavelength >= context / high) {
            const float smooth = (context / wavelength - low) / (high - low);
            frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
        }
    }
}

// YaRN (arXiv 2309.00071): interpolates dimensions that turn less than beta_slow times in the original context, keeps those that turn more
// than beta_fast times, and ramps between.
void scale_yarn(const RopeConfig& rope, std::int64_t head_dim, std::vector<float>& inverse) {
    const auto d = static_cast<double>(head_dim);
    const auto context = static_cast<double>(rope.original_max_positions);
    const auto dimension = [&](double turns) {
        return d * std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
    };
    double low = dimension(rope.beta_fast);
    double high = dimension(rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, d - 1.0);
    if (low == high) high += 0.001;
    for (std::size_t j = 0; j < inverse.size(); ++j) {
        const auto ramp = std::clamp((static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F, 1.0F);
        const float interpolated = inverse[j] / static_cast<float>(rope.factor);
        inverse[j] = interpolated * ramp + inverse[j] * (1.0F - ramp);
    }
}

double yarn_attention_factor(const RopeConfig& rope) {
    if (rope.attention_factor) return *rope.attention_factor;
    const auto scale = [&](double mscale) { return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0; };
    const double mscale = rope.mscale.value_or(0.0);
    const double all_dim = rope.mscale_all_dim.value_or(0.0);
    if (mscale != 0.0 && all_dim != 0.0) return scale(mscale) / scale(all_dim);
    return scale(1.0);
}

// How many rows the table grows by.
constexpr std::int64_t rows_per_growth = 512;

}  // namespace

void limit_context(ModelConfig& config, std::int64_t context_max) {
    if (config.rope.kind == RopeConfig::Kind::none) return;  // the checkpoint has a row for each position
    config.max_positions = std::min(config.max_positions, std::max<std::int64_t>(context_max, 1));
}

std::size_t rope_row_bytes(const ModelConfig& config) {
    return config.rope.kind == RopeConfig::Kind::none ? 0 : static_cast<std::size_t>(config.head_dim) * sizeof(float);
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length) {
    RopeFrequencies out;
    switch (rope.kind) {
        case RopeConfig::Kind::none: break;
        case RopeConfig::Kind::standard: out.inverse = standard_frequencies(rope.theta, head_dim); break;
        case RopeConfig::Kind::linear:
            out.inverse = standard_frequencies(rope.theta, head_dim);
            for (float& frequency : out.inverse) frequency /= static_cast<float>(rope.factor);
            break;
        case RopeConfig::Kind::dynamic:
            out.inverse =
                standard_frequencies(length > rope.original_max_positions ? dynamic_theta(rope, head_dim, length) : rope.theta, head_dim);
            break;
        case RopeConfig::Kind::llama3:
            out.inverse = standard_frequencies(rope.theta, head_dim);
            scale_llama3(rope, out.inverse);
            break;
        case RopeConfig::Kind::yarn:
            out.inverse = standard_frequencies(rope.theta, head_dim);
            scale_yarn(rope, head_dim, out.inverse);
            out.attention_factor = static_cast<float>(yarn_attention_factor(rope));
            break;
    }
    return out;
}

RopeTable::RopeTable(const ModelConfig& config, kernels::Backend& backend, std::int64_t rows_max)
    : rope_(config.rope),
      head_dim_(config.head_dim),
      positions_(rope_.kind == RopeConfig::Kind::none ? 0 : config.max_positions),
      // Two steps may be queued at once.
      ring_(rope_.kind == RopeConfig::Kind::dynamic ? 2 * rows_max : 0),
      fixed_frequencies_(rope_frequencies(rope_, head_dim_, 0)),
      backend_(backend) {
    if (positions_ > 0) buffer_ = backend.allocate(static_cast<std::size_t>(positions_ + ring_) * rope_row_bytes(config));
}

kernels::Matrix RopeTable::matrix() const {
    if (buffer_ == nullptr) return {};
    return {.data = buffer_->data(), .rows = positions_ + ring_, .columns = head_dim_, .stride = head_dim_};
}

std::size_t RopeTable::bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }

bool RopeTable::depends_on_prompt_length(std::int64_t prompt_tokens) const {
    return rope_.kind == RopeConfig::Kind::dynamic && prompt_tokens > rope_.original_max_positions;
}

std::int32_t RopeTable::row(std::int64_t position, std::int64_t prompt_tokens) {
    if (buffer_ == nullptr) return 0;
    CHECK(position >= 0 && position < positions_, "sequences end at the context limit");
    if (position < prompt_tokens && depends_on_prompt_length(prompt_tokens)) {
        if (prompt_tokens_ != prompt_tokens) {
            prompt_frequencies_ = rope_frequencies(rope_, head_dim_, prompt_tokens);
            prompt_tokens_ = prompt_tokens;
        }
        const std::int64_t row = positions_ + ring_next_;
        ring_next_ = (ring_next_ + 1) % ring_;
        write_rows(row, position, 1, prompt_frequencies_);
        return static_cast<std::int32_t>(row);
    }
    while (position >= positions_done_) {
        const bool grows = rope_.kind == RopeConfig::Kind::dynamic && positions_done_ >= rope_.original_max_positions;
        const bool has_fixed_part = rope_.kind == RopeConfig::Kind::dynamic && !grows;
        const std::int64_t end = has_fixed_part ? std::min(rope_.original_max_positions, positions_) : positions_;
        const std::int64_t count = grows ? 1 : std::min(rows_per_growth, end - positions_done_);
        write_rows(positions_done_, positions_done_, count,
                   grows ? rope_frequencies(rope_, head_dim_, positions_done_ + 1) : fixed_frequencies_);
        positions_done_ += count;
    }
    return static_cast<std::int32_t>(position);
}

void RopeTable::write_rows(std::int64_t row_begin, std::int64_t position_begin, std::int64_t count, const RopeFrequencies& frequencies) {
    const auto width = static_cast<std::size_t>(head_dim_);
    const std::size_t half = width / 2;
    std::vector<float> values(static_cast<std::size_t>(count) * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const auto position = static_cast<float>(position_begin + static_cast<std::int64_t>(i));
        for (std::size_t j = 0; j < half; ++j) {
            const float angle = position * frequencies.inverse[j];
            values[i * width + j] = frequencies.attention_factor * static_cast<float>(std::cos(static_cast<double>(angle)));
            values[i * width + half + j] = frequencies.attention_factor * static_cast<float>(std::sin(static_cast<double>(angle)));
        }
    }
    float* const to = static_cast<float*>(buffer_->data()) + static_cast<std::size_t>(row_begin) * width;
    backend_.upload(to, std::as_bytes(std::span(values)));
}

}  // namespace lorry::engine
