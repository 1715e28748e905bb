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

// LongRoPE (arXiv 2402.13753), as transformers computes it: each frequency has a divisor of its own.
std::vector<float> longrope_frequencies(const RopeConfig& rope, std::int64_t rotated, std::int64_t length) {
    const std::vector<double>& factors = length > rope.original_max_positions ? rope.long_factors : rope.short_factors;
    std::vector<float> inverse(static_cast<std::size_t>(rotated / 2));
    for (std::size_t j = 0; j < inverse.size(); ++j) {
        const float exponent = static_cast<float>(2 * j) / static_cast<float>(rotated);
        inverse[j] = 1.0F / (static_cast<float>(factors[j]) * static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent))));
    }
    return inverse;
}

double longrope_attention_factor(const RopeConfig& rope) {
    if (rope.attention_factor) return *rope.attention_factor;
    if (rope.factor <= 1.0) return 1.0;
    return std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max_positions)));
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

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t rotated, std::int64_t length) {
    RopeFrequencies out;
    switch (rope.kind) {
        case RopeConfig::Kind::none: break;
        case RopeConfig::Kind::standard: out.inverse = standard_frequencies(rope.theta, rotated); break;
        case RopeConfig::Kind::linear:
            out.inverse = standard_frequencies(rope.theta, rotated);
            for (float& frequency : out.inverse) frequency /= static_cast<float>(rope.factor);
            break;
        case RopeConfig::Kind::dynamic:
            out.inverse =
                standard_frequencies(length > rope.original_max_positions ? dynamic_theta(rope, rotated, length) : rope.theta, rotated);
            break;
        case RopeConfig::Kind::llama3:
            out.inverse = standard_frequencies(rope.theta, rotated);
            scale_llama3(rope, out.inverse);
            break;
        case RopeConfig::Kind::yarn:
            out.inverse = standard_frequencies(rope.theta, rotated);
            scale_yarn(rope, rotated, out.inverse);
            out.attention_factor = static_cast<float>(yarn_attention_factor(rope));
            break;
        case RopeConfig::Kind::longrope:
            out.inverse = longrope_frequencies(rope, rotated, length);
            out.attention_factor = static_cast<float>(longrope_attention_factor(rope));
            break;
    }
    return out;
}

namespace {

bool has_long_rows(const RopeConfig& rope) {
    return rope.kind == RopeConfig::Kind::longrope && rope.configured_positions > rope.original_max_positions;
}

}  // namespace

// Rows of longrope's short factors are counted as if there were one for each position.
std::size_t rope_position_bytes(const ModelConfig& config) {
    const int tables = 1 + (config.window_rope ? 1 : 0) + (has_long_rows(config.rope) ? 1 : 0);
    return rope_row_bytes(config) * static_cast<std::size_t>(tables);
}

std::optional<std::int64_t> rope_length_of(const RopeConfig& rope, std::int64_t prompt_tokens, std::int64_t tokens_max) {
    const std::int64_t original = rope.original_max_positions;
    if (rope.kind == RopeConfig::Kind::dynamic && prompt_tokens > original) return prompt_tokens;
    if (has_long_rows(rope) && std::min(tokens_max, rope.configured_positions) > original) return original + 1;
    return std::nullopt;
}

RopeTable::RopeTable(const ModelConfig& config, kernels::Backend& backend, std::int64_t rows_max)
    : rope_(config.rope),
      head_dim_(config.head_dim),
      rotated_(config.rotated()),
      positions_(rope_.kind == RopeConfig::Kind::none ? 0 : config.max_positions),
      // Two steps may be queued at once.
      ring_(rope_.kind == RopeConfig::Kind::dynamic ? 2 * rows_max : 0),
      backend_(backend) {
    const bool has_long = has_long_rows(rope_);
    common_.rows = has_long ? std::min(rope_.original_max_positions, positions_) : positions_;
    long_ = {.begin = common_.rows, .rows = has_long ? positions_ : 0};
    if (positions_ > 0) buffer_ = backend.allocate(static_cast<std::size_t>(long_.begin + long_.rows + ring_) * rope_row_bytes(config));
}

kernels::Matrix RopeTable::matrix() const {
    if (buffer_ == nullptr) return {};
    return {.data = buffer_->data(), .rows = long_.begin + long_.rows + ring_, .columns = head_dim_, .stride = head_dim_};
}

std::size_t RopeTable::bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }

std::int32_t RopeTable::row(std::int64_t position, std::optional<std::int64_t> rope_length) {
    if (buffer_ == nullptr) return 0;
    CHECK(position >= 0 && position < positions_, "sequences end at the context limit");
    const bool is_dynamic = rope_.kind == RopeConfig::Kind::dynamic;
    if (is_dynamic && rope_length && position < *rope_length) {
        if (prompt_tokens_ != *rope_length) {
            prompt_frequencies_ = rope_frequencies(rope_, rotated_, *rope_length);
            prompt_tokens_ = *rope_length;
        }
        const std::int64_t row = positions_ + ring_next_;
        ring_next_ = (ring_next_ + 1) % ring_;
        write_rows(row, position, 1, prompt_frequencies_);
        return static_cast<std::int32_t>(row);
    }
    Stretch& stretch = rope_length && !is_dynamic ? long_ : common_;
    CHECK(position < stretch.rows, "a request with the common frequencies ends within the original context");
    write_until(stretch, position);
    return static_cast<std::int32_t>(stretch.begin + position);
}

void RopeTable::write_until(Stretch& stretch, std::int64_t position) {
    while (position >= stretch.done) {
        const bool is_dynamic = rope_.kind == RopeConfig::Kind::dynamic;
        const bool grows = is_dynamic && stretch.done >= rope_.original_max_positions;
        const std::int64_t end = is_dynamic && !grows ? std::min(rope_.original_max_positions, stretch.rows) : stretch.rows;
        const std::int64_t count = grows ? 1 : std::min(rows_per_growth, end - stretch.done);
        const std::int64_t length = grows ? stretch.done + 1 : &stretch == &long_ ? rope_.original_max_positions + 1 : 0;
        write_rows(stretch.begin + stretch.done, stretch.done, count, rope_frequencies(rope_, rotated_, length));
        stretch.done += count;
    }
}

void RopeTable::write_rows(std::int64_t row_begin, std::int64_t position_begin, std::int64_t count, const RopeFrequencies& frequencies) {
    const auto width = static_cast<std::size_t>(head_dim_);
    const std::size_t half = width / 2;
    std::vector<float> values(static_cast<std::size_t>(count) * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const auto position = static_cast<float>(position_begin + static_cast<std::int64_t>(i));
        float* const cosines = values.data() + i * width;
        for (std::size_t j = 0; j < frequencies.inverse.size(); ++j) {
            const float angle = position * frequencies.inverse[j];
            cosines[j] = frequencies.attention_factor * static_cast<float>(std::cos(static_cast<double>(angle)));
            cosines[half + j] = frequencies.attention_factor * static_cast<float>(std::sin(static_cast<double>(angle)));
        }
        std::fill(cosines + frequencies.inverse.size(), cosines + half, 1.0F);
    }
    float* const to = static_cast<float*>(buffer_->data()) + static_cast<std::size_t>(row_begin) * width;
    backend_.upload(to, std::as_bytes(std::span(values)));
}

}  // namespace lorry::engine
