// Probabilities from the logits of labels, and the likeliest label. Called by reply_pooling.cpp and entities.cpp. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace lorry::consumer {

// Not empty.
inline std::vector<double> softmax(std::span<const double> logits) {
    const double highest = *std::ranges::max_element(logits);
    std::vector<double> out;
    double sum = 0.0;
    for (const double logit : logits) sum += out.emplace_back(std::exp(logit - highest));
    for (double& one : out) one /= sum;
    return out;
}

// The index of the largest, the first among equals.
inline std::size_t likeliest(std::span<const double> scores) {
    return static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
}

}  // namespace lorry::consumer
