// An experiment of course_bench.cpp: what narrower weights save where classifiers run, and what they change in the classes of texts.
#pragma once

#include <vector>

#include "ops/bench/experiments/course_bench.h"

namespace lorry::ops {

using Probabilities = std::vector<std::vector<double>>;  // [texts][classes]

struct Agreement {
    double same_class = 0.0;      // share of the texts whose likeliest class is the same
    double largest_change = 0.0;  // of any probability
};
// Both have the same texts and classes, in order, and at least one text.
Agreement agreement_of(const Probabilities& one, const Probabilities& other);

// A BERT and a DeBERTa-v2 of the base size with random weights, in float32, bfloat16 and int8: bytes, time per text, classes.
void quantize(Course& course, Experiment& experiment);

}  // namespace lorry::ops
