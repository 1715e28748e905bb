// Every op in double precision and as simple as possible: the reference that the tests of
// tests/kernels compare the kernels with. Used by agreement_test.cpp and its neighbours.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backend.h"

namespace lorry::kernels::reference {

// [rows, columns], row-major.
struct Table {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<double> data;

    Table() = default;
    Table(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count), columns(column_count), data(static_cast<std::size_t>(row_count * column_count)) {}
    double& at(std::int64_t row, std::int64_t column) { return data[static_cast<std::size_t>(row * columns + column)]; }
    double at(std::int64_t row, std::int64_t column) const { return data[static_cast<std::size_t>(row * columns + column)]; }
};

// The value after it was stored in this format.
double rounded(double value, Format format);
Table rounded(Table table, Format format);

// A weight's outputs [n, k] and a matmul's inputs [rows, k] after rounding to int8: 127 steps up to the largest of each row.
Table quantized_weight(Table weight);
Table quantized_inputs(Table in);
// The size of a step in one row of inputs.
float input_scale(const Table& in, std::int64_t row);

// Either after rounding to fp8: the nearest e4m3 times the row's scale, with which the largest becomes 448.
Table fp8_rows(Table rows);
float fp8_scale(const Table& rows, std::int64_t row);
// The nearest e4m3, ties to even, at most 448.
double e4m3(double value);

// in [rows, k], weight [n, k]: [rows, n].
Table matmul(const Table& in, const Table& weight);
Table norm(NormKind kind, const Table& in, const std::vector<double>& weight, const std::vector<double>& bias, double epsilon);
double activate(ActivationKind kind, double x);

struct AttentionShape {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    double scale = 1.0;
    std::optional<std::int64_t> window;
    std::optional<double> cap;
};
// The q | k | v rows of one sequence after optional norms and rotation, with k and v rounded to `format` (for rows with scales, each head
// separately; for int8_rows also q). rope [rows, cos | sin] may be empty.
Table prepare_qkv(const AttentionShape& shape, Table qkv, const Table& rope, const std::vector<double>& q_norm,
                  const std::vector<double>& k_norm, double epsilon, Format format);
// Causal attention over prepared rows of one sequence: [rows, heads * head_dim].
Table attention(const AttentionShape& shape, const Table& qkv);

// The bias of one head of disentangled attention for one sequence: [tokens, tokens].
struct DisentangledHead {
    Table q;  // [tokens, head_dim]
    Table k;
    const Table* keys = nullptr;  // [positions, all heads]; null: there is no such term
    const Table* queries = nullptr;
    std::int64_t column = 0;  // of this head in keys and queries
    double scale = 1.0;
    const std::vector<std::int32_t>& position_of_distance;
};
Table disentangled_bias(const DisentangledHead& head);

// The probabilities with which a row's token is drawn: penalties, temperature, top_k, top_p, min_p by full sorting. temperature > 0.
std::vector<double> probabilities(const std::vector<double>& logits, const SampleRow& row);
std::vector<double> adjusted(std::vector<double> logits, const SampleRow& row);
std::vector<double> log_softmax(const std::vector<double>& logits);

}  // namespace lorry::kernels::reference
