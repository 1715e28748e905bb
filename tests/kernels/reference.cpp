// The ops in double precision, as simple as possible; see reference.h.
#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace lorry::kernels::reference {

double rounded(double value, Format format) {
    const auto single = static_cast<float>(value);
    if (format == Format::float32) return static_cast<double>(single);
    // Keep 8 bits of the significand for bfloat16, 11 for float16 (test values are within its normal range).
    const int bits = format == Format::bfloat16 ? 8 : 11;
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(single), &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

Table rounded(Table table, Format format) {
    for (double& value : table.data) value = rounded(value, format);
    return table;
}

namespace {

float largest_of(const Table& table, std::int64_t row) {
    float largest = 0.0F;
    for (std::int64_t i = 0; i < table.columns; ++i) largest = std::max(largest, std::abs(static_cast<float>(table.at(row, i))));
    return largest;
}

}  // namespace

Table quantized_weight(Table weight) {
    for (std::int64_t n = 0; n < weight.rows; ++n) {
        const float step = largest_of(weight, n) / 127.0F;
        for (std::int64_t k = 0; k < weight.columns; ++k) {
            double& value = weight.at(n, k);
            value = step > 0.0F ? static_cast<double>(std::nearbyint(static_cast<float>(value) / step)) * static_cast<double>(step) : 0.0;
        }
    }
    return weight;
}

float input_scale(const Table& in, std::int64_t row) { return largest_of(in, row) / 127.0F; }

Table quantized_inputs(Table in) {
    for (std::int64_t r = 0; r < in.rows; ++r) {
        const float scale = input_scale(in, r);
        const float inverse = scale > 0.0F ? 127.0F / largest_of(in, r) : 0.0F;
        for (std::int64_t k = 0; k < in.columns; ++k) {
            double& value = in.at(r, k);
            value = static_cast<double>(std::nearbyint(static_cast<float>(value) * inverse)) * static_cast<double>(scale);
        }
    }
    return in;
}

double e4m3(double value) {
    const double magnitude = std::abs(value);
    const int exponent = magnitude > 0.0 ? std::max(std::ilogb(magnitude), -6) : -6;
    const double step = std::ldexp(1.0, exponent - 3);
    return std::copysign(std::min(std::nearbyint(magnitude / step) * step, 448.0), value);
}

float fp8_scale(const Table& rows, std::int64_t row) { return std::max(largest_of(rows, row) / 448.0F, 1e-30F); }

Table fp8_rows(Table rows) {
    for (std::int64_t r = 0; r < rows.rows; ++r) {
        const float scale = fp8_scale(rows, r);
        const float inverse = 1.0F / scale;
        for (std::int64_t k = 0; k < rows.columns; ++k) {
            double& value = rows.at(r, k);
            value = e4m3(static_cast<double>(static_cast<float>(value) * inverse)) * static_cast<double>(scale);
        }
    }
    return rows;
}

Table matmul(const Table& in, const Table& weight) {
    Table out(in.rows, weight.rows);
    for (std::int64_t r = 0; r < in.rows; ++r) {
        for (std::int64_t n = 0; n < weight.rows; ++n) {
            for (std::int64_t k = 0; k < in.columns; ++k) out.at(r, n) += in.at(r, k) * weight.at(n, k);
        }
    }
    return out;
}

Table norm(NormKind kind, const Table& in, const std::vector<double>& weight, const std::vector<double>& bias, double epsilon) {
    Table out(in.rows, in.columns);
    const auto n = static_cast<double>(in.columns);
    for (std::int64_t r = 0; r < in.rows; ++r) {
        double mean = 0.0;
        double squares = 0.0;
        if (kind == NormKind::layer) {
            for (std::int64_t i = 0; i < in.columns; ++i) mean += in.at(r, i) / n;
        }
        for (std::int64_t i = 0; i < in.columns; ++i) squares += (in.at(r, i) - mean) * (in.at(r, i) - mean) / n;
        for (std::int64_t i = 0; i < in.columns; ++i) {
            const auto at = static_cast<std::size_t>(i);
            out.at(r, i) = (in.at(r, i) - mean) / std::sqrt(squares + epsilon) * weight[at] + (bias.empty() ? 0.0 : bias[at]);
        }
    }
    return out;
}

double activate(ActivationKind kind, double x) {
    switch (kind) {
        case ActivationKind::silu: return x / (1.0 + std::exp(-x));
        case ActivationKind::gelu: return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
        case ActivationKind::gelu_tanh:
            return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
        case ActivationKind::relu: return std::max(x, 0.0);
        case ActivationKind::tanh: return std::tanh(x);
    }
    return 0.0;
}

Table prepare_qkv(const AttentionShape& shape, Table qkv, const Table& rope, const std::vector<double>& q_norm,
                  const std::vector<double>& k_norm, double epsilon, Format format) {
    const std::int64_t size = shape.head_dim;
    for (std::int64_t row = 0; row < qkv.rows; ++row) {
        for (std::int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
            const std::vector<double>& weight = head < shape.heads ? q_norm : k_norm;
            Table one(1, size);
            for (std::int64_t d = 0; d < size; ++d) one.at(0, d) = qkv.at(row, head * size + d);
            if (!weight.empty()) one = norm(NormKind::rms, one, weight, {}, epsilon);
            for (std::int64_t d = 0; d < size; ++d) {
                double value = one.at(0, d);
                if (rope.rows > 0) {
                    const std::int64_t half = size / 2;
                    const std::int64_t pair = d % half;
                    const double other = d < half ? -one.at(0, d + half) : one.at(0, d - half);
                    value = value * rope.at(row, pair) + other * rope.at(row, half + pair);
                }
                qkv.at(row, head * size + d) = value;
            }
        }
        if (has_row_scales(format)) {
            for (std::int64_t head = format == Format::int8_rows ? 0 : shape.heads; head * size < qkv.columns; ++head) {
                Table one(1, size);
                for (std::int64_t d = 0; d < size; ++d) one.at(0, d) = qkv.at(row, head * size + d);
                one = format == Format::int8_rows ? quantized_inputs(std::move(one)) : fp8_rows(std::move(one));
                for (std::int64_t d = 0; d < size; ++d) qkv.at(row, head * size + d) = one.at(0, d);
            }
            continue;
        }
        for (std::int64_t i = shape.heads * size; i < qkv.columns; ++i) qkv.at(row, i) = rounded(qkv.at(row, i), format);
    }
    return qkv;
}

Table attention(const AttentionShape& shape, const Table& qkv) {
    const std::int64_t size = shape.head_dim;
    Table out(qkv.rows, shape.heads * size);
    for (std::int64_t row = 0; row < qkv.rows; ++row) {
        const std::int64_t first = shape.window ? std::max<std::int64_t>(0, row + 1 - *shape.window) : 0;
        for (std::int64_t head = 0; head < shape.heads; ++head) {
            const std::int64_t k = (shape.heads + head / (shape.heads / shape.kv_heads)) * size;
            const std::int64_t v = k + shape.kv_heads * size;
            std::vector<double> scores;
            for (std::int64_t token = first; token <= row; ++token) {
                double score = 0.0;
                for (std::int64_t d = 0; d < size; ++d) score += qkv.at(row, head * size + d) * qkv.at(token, k + d);
                score *= shape.scale;
                scores.push_back(shape.cap ? *shape.cap * std::tanh(score / *shape.cap) : score);
            }
            const std::vector<double> weights = log_softmax(scores);
            for (std::int64_t token = first; token <= row; ++token) {
                const double weight = std::exp(weights[static_cast<std::size_t>(token - first)]);
                for (std::int64_t d = 0; d < size; ++d) out.at(row, head * size + d) += weight * qkv.at(token, v + d);
            }
        }
    }
    return out;
}

Table disentangled_bias(const DisentangledHead& head) {
    const std::int64_t tokens = head.q.rows;
    const std::int64_t middle = std::ssize(head.position_of_distance) / 2;
    Table out(tokens, tokens);
    for (std::int64_t i = 0; i < tokens; ++i) {
        for (std::int64_t j = 0; j < tokens; ++j) {
            const std::int64_t position = head.position_of_distance[static_cast<std::size_t>(middle + i - j)];
            double sum = 0.0;
            for (std::int64_t d = 0; d < head.q.columns; ++d) {
                if (head.keys != nullptr) sum += head.q.at(i, d) * head.keys->at(position, head.column + d);
                if (head.queries != nullptr) sum += head.k.at(j, d) * head.queries->at(position, head.column + d);
            }
            out.at(i, j) = sum * head.scale;
        }
    }
    return out;
}

std::vector<double> log_softmax(const std::vector<double>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    std::vector<double> result;
    for (const double logit : logits) result.push_back(logit - largest - std::log(sum));
    return result;
}

std::vector<double> adjusted(std::vector<double> logits, const SampleRow& row) {
    const auto at = [](TokenId token) { return static_cast<std::size_t>(token); };
    for (const TokenBias& bias : row.logit_bias) logits[at(bias.token)] += static_cast<double>(bias.bias);
    for (const TokenId token : row.banned) logits[at(token)] = -std::numeric_limits<double>::infinity();
    for (std::size_t token = 0; !row.allowed.empty() && token < logits.size(); ++token) {
        const bool may = token / 32 < row.allowed.size() && (row.allowed[token / 32] >> (token % 32) & 1U) != 0;
        if (!may) logits[token] = -std::numeric_limits<double>::infinity();
    }
    std::set<TokenId> seen(row.prompt.begin(), row.prompt.end());
    seen.insert(row.output.begin(), row.output.end());
    const auto repetition = static_cast<double>(row.repetition_penalty);
    for (const TokenId token : seen) {
        double& logit = logits[at(token)];
        logit = logit > 0.0 ? logit / repetition : logit * repetition;
    }
    for (const TokenId token : std::set<TokenId>(row.output.begin(), row.output.end())) {
        const auto count = static_cast<double>(std::count(row.output.begin(), row.output.end(), token));
        logits[at(token)] -= static_cast<double>(row.presence_penalty) + static_cast<double>(row.frequency_penalty) * count;
    }
    return logits;
}

std::vector<double> probabilities(const std::vector<double>& logits, const SampleRow& row) {
    std::vector<double> scaled = adjusted(logits, row);
    for (double& logit : scaled) logit /= static_cast<double>(row.temperature);
    scaled = log_softmax(scaled);
    std::vector<std::size_t> order(scaled.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scaled[a] > scaled[b]; });
    if (row.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(row.top_k)));
    double total = 0.0;
    for (const std::size_t token : order) total += std::exp(scaled[token]);
    std::vector<double> result(scaled.size(), 0.0);
    double before = 0.0;
    double kept = 0.0;
    for (const std::size_t token : order) {
        const double mass = std::exp(scaled[token]);
        if (before >= static_cast<double>(row.top_p) * total && before > 0.0) break;
        before += mass;
        if (mass < static_cast<double>(row.min_p) * std::exp(scaled[order.front()])) continue;
        result[token] = mass;
        kept += mass;
    }
    for (double& mass : result) mass /= kept;
    return result;
}

}  // namespace lorry::kernels::reference
