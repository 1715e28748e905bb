// Noise for weights and inputs, the trials of a candidate, and the choice; see tuner.h.
#include "kernels/cuda/tuner.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cublaslt_library.h"
#include "kernels/cuda/devices.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

namespace {

constexpr std::int64_t probes = 16;  // rows that are in each bucket: as many as the least holds
// Sums that end around 1, in float32 but in another order and as tensor cores round; one that is kept in bfloat16 is off by twice that. Of
// fp8 they round coarser: 9.0 adds up 13 bits for a while.
float tolerance_of(Format inputs) { return inputs == Format::fp8_rows ? 4e-3F : 1e-3F; }
constexpr int runs_max = 200;
// Codes of fp8, before their scales: hardly one in a million is beyond the largest.
constexpr float fp8_deviation = 90.0F;
constexpr std::size_t noise_elements = std::size_t{1} << 20;
constexpr std::size_t weight_alignment = 256;  // bytes, of one weight among those that are walked through

// The device's time for what `queue` queues on the stream.
template <class Queue>
double seconds_of(const Stream& stream, const Queue& queue) {
    Event begin;
    Event end;
    begin.record(stream);
    queue();
    end.record(stream);
    end.wait();
    return end.seconds_since(begin);
}

// Per run, of as many as fit into the time; the first is not counted.
template <class Run>
double seconds_per_run(const Stream& stream, double seconds, const Run& run) {
    run(0);
    const double first = seconds_of(stream, [&] { run(1); });
    const int runs = static_cast<int>(std::clamp(seconds / std::max(first, 1e-7), 3.0, static_cast<double>(runs_max)));
    return seconds_of(stream,
                      [&] {
                          for (int i = 0; i < runs; ++i) run(i);
                      }) /
           runs;
}

std::uint16_t bfloat16_bits(float x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof(bits));
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// Normal numbers as narrow_of makes them, the same ones over and over.
template <class Narrow>
DeviceMemory noise(std::size_t bytes, float deviation, std::uint64_t seed, const Stream& stream, const Narrow& narrow_of) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<decltype(narrow_of(0.0F))> block(std::min(bytes / sizeof(narrow_of(0.0F)), noise_elements));
    std::generate(block.begin(), block.end(), [&] { return narrow_of(normal(random)); });
    const std::size_t block_bytes = block.size() * sizeof(block.front());
    DeviceMemory memory(bytes);
    for (std::size_t done = 0; done < bytes; done += block_bytes) {
        check(
            cudaMemcpyAsync(memory.data() + done, block.data(), std::min(block_bytes, bytes - done), cudaMemcpyHostToDevice, stream.get()),
            "copying noise");
    }
    stream.wait();
    return memory;
}
DeviceMemory noise(Format format, std::size_t bytes, float deviation, std::uint64_t seed, const Stream& stream) {
    if (format == Format::fp8_rows) return noise(bytes, fp8_deviation, seed, stream, fp8_of);
    return noise(bytes, deviation, seed, stream, bfloat16_bits);
}

template <class T>
DeviceMemory uploaded(const std::vector<T>& table, const Stream& stream) {
    DeviceMemory memory(table.size() * sizeof(T));
    check(cudaMemcpyAsync(memory.data(), table.data(), memory.bytes(), cudaMemcpyHostToDevice, stream.get()), "copying a table");
    stream.wait();
    return memory;
}

// Weights, inputs and outputs of one shape, and what is tried with them.
class ShapeTuner {
public:
    ShapeTuner(const CublasLt& library, const Stream& stream, const MatmulShape& shape, const TuneOptions& options)
        : library_(library), stream_(stream), shape_(shape), options_(options), stride_(round_up(shape.in_features, in_features_multiple)) {
        const bool is_fp8 = shape.inputs == Format::fp8_rows;
        // As ops write them: rows of fp8 in the place of rows of float32.
        in_stride_ = is_fp8 ? shape.in_features * static_cast<std::int64_t>(bytes_of(shape.inputs)) : stride_;
        const std::size_t weight_bytes = static_cast<std::size_t>(shape.out_features) * view(nullptr, stride_).row_bytes();
        weight_stride_ = (weight_bytes + weight_alignment - 1) / weight_alignment * weight_alignment;
        weight_count_ = std::max<std::size_t>(1, options.walked_bytes / weight_stride_);
        const float deviation = 1.0F / std::sqrt(static_cast<float>(shape.in_features));
        weights_ = noise(shape.inputs, weight_count_ * weight_stride_, deviation, 1, stream);
        const std::size_t row_bytes = view(nullptr, in_stride_).row_bytes();
        pool_ = noise(shape.inputs, static_cast<std::size_t>(options.rows_max) * row_bytes, 1.0F, 2, stream);
        if (is_fp8) {
            weight_scales_ = uploaded(scales(shape.out_features, deviation), stream);
            const std::vector<float> row_scales = scales(options.rows_max, 1.0F);
            check(cudaMemcpy2DAsync(pool_.data() + fp8_scale_offset(shape.in_features), row_bytes, row_scales.data(), sizeof(float),
                                    sizeof(float), row_scales.size(), cudaMemcpyHostToDevice, stream.get()),
                  "copying scales");
            stream.wait();
        }
        in_ = DeviceMemory(pool_.bytes());
        out_ = DeviceMemory(static_cast<std::size_t>(options.rows_max * shape.out_features) * sizeof(float));
        probed_ = DeviceMemory(static_cast<std::size_t>(probes * shape.out_features) * sizeof(float));
        for (const std::int64_t rows : matmul_buckets()) {
            if (rows <= options.rows_max) buckets_.push_back(rows);
        }
    }

    TunedMatmul tune() {
        TunedMatmul tuned{.shape = shape_, .buckets = buckets_};
        arrange(probes, 0);
        run_own(probes, 0);
        own_ = read_probes();
        for (const MatmulAlgorithm& algorithm : candidates()) tuned.candidates.push_back(try_out(algorithm));
        for (const std::int64_t rows : buckets_) {
            tuned.own_seconds.push_back(seconds_per_run(stream_, options_.seconds, [&](int i) { run_own(rows, i); }));
        }
        tuned.chosen = choose_candidates(tuned.candidates, buckets_.size());
        return tuned;
    }

    // Of what the library itself would choose for rows_max rows; nullopt: nothing.
    std::optional<double> operations_per_second() {
        arrange(options_.rows_max, 0);
        const std::vector<MatmulAlgorithm> choice = library_.candidates(task(options_.rows_max, 0, false), 1);
        if (choice.empty()) return std::nullopt;
        const double seconds = seconds_per_run(
            stream_, 50e-3, [&](int run) { library_.multiply(task(options_.rows_max, run, false), choice.front(), stream_.get()); });
        return 2.0 * static_cast<double>(options_.rows_max) * static_cast<double>(shape_.out_features) *
               static_cast<double>(shape_.in_features) / seconds;
    }

private:
    // Of all buckets, each once.
    std::vector<MatmulAlgorithm> candidates() const {
        std::vector<MatmulAlgorithm> all;
        for (const std::int64_t rows : buckets_) {
            for (const MatmulAlgorithm& algorithm : library_.candidates(task(rows, 0, false), options_.candidates_max)) {
                if (std::ranges::find(all, algorithm) == all.end()) all.push_back(algorithm);
            }
        }
        return all;
    }

    MatmulCandidate try_out(const MatmulAlgorithm& algorithm) {
        MatmulCandidate candidate{.algorithm = algorithm, .name = library_.describe(algorithm)};
        for (const std::int64_t rows : buckets_) {
            candidate.seconds.emplace_back();
            if (candidate.refusal || !library_.takes(task(rows, 0, false), algorithm)) continue;
            const std::uint64_t bits = try_bits(rows, algorithm, candidate.refusal);
            if (!candidate.refusal && candidate.bits.value_or(bits) != bits) candidate.refusal = MatmulRefusal::rows;
            candidate.bits = bits;
            if (candidate.refusal) continue;
            candidate.seconds.back() = seconds_per_run(stream_, options_.seconds,
                                                       [&](int i) { library_.multiply(task(rows, i, false), algorithm, stream_.get()); });
        }
        return candidate;
    }

    // A hash of the probes' outputs.
    std::uint64_t try_bits(std::int64_t rows, const MatmulAlgorithm& algorithm, std::optional<MatmulRefusal>& refusal) {
        const std::vector<float> elsewhere = outputs_of(rows, algorithm, 1);
        const std::vector<float> outputs = outputs_of(rows, algorithm, 2);
        const std::size_t bytes = outputs.size() * sizeof(float);
        for (std::size_t i = 0; i < outputs.size() && !refusal; ++i) {
            const float want = i < own_.size() ? own_[i] : 2.0F * own_[i - own_.size()];
            // The other way round, a NaN would pass.
            const float off = std::abs(outputs[i] - want);
            if (!(off <= tolerance_of(shape_.inputs) * std::max(1.0F, std::abs(want)))) refusal = MatmulRefusal::value;
        }
        if (!refusal && std::memcmp(outputs.data(), elsewhere.data(), bytes) != 0) refusal = MatmulRefusal::place;
        return XXH3_64bits(outputs.data(), bytes);
    }

    // Of the probes among rows in an order of this seed; behind them, what becomes of them when the same is added to them.
    std::vector<float> outputs_of(std::int64_t rows, const MatmulAlgorithm& algorithm, std::uint64_t seed) {
        arrange(rows, seed);
        std::vector<float> outputs;
        for (const bool accumulate : {false, true}) {
            library_.multiply(task(rows, 0, accumulate), algorithm, stream_.get());
            const std::vector<float> probed = read_probes();
            outputs.insert(outputs.end(), probed.begin(), probed.end());
        }
        return outputs;
    }

    // The first `rows` rows of the pool in an order of this seed as inputs; the probes are the pool's first rows.
    void arrange(std::int64_t rows, std::uint64_t seed) {
        std::vector<std::int32_t> pool_row(static_cast<std::size_t>(rows));
        std::iota(pool_row.begin(), pool_row.end(), 0);
        std::shuffle(pool_row.begin(), pool_row.end(), std::mt19937_64(seed * 10'000 + static_cast<std::uint64_t>(rows)));
        std::vector<std::int32_t> probe_row(probes);
        for (std::size_t row = 0; row < pool_row.size(); ++row) {
            if (pool_row[row] < probes) probe_row[static_cast<std::size_t>(pool_row[row])] = static_cast<std::int32_t>(row);
        }
        probe_rows_ = uploaded(probe_row, stream_);
        const DeviceMemory order = uploaded(pool_row, stream_);
        run_gather({.out = view(in_.data(), in_stride_),
                    .in = view(pool_.data(), in_stride_),
                    .row_of = reinterpret_cast<const std::int32_t*>(order.data()),
                    .rows = static_cast<int>(rows),
                    .columns = static_cast<int>(shape_.in_features)},
                   stream_.get());
        stream_.wait();
    }

    // [probes, out_features]
    std::vector<float> read_probes() const {
        run_gather({.out = {probed_.data(), Format::float32, shape_.out_features},
                    .in = {out_.data(), Format::float32, shape_.out_features},
                    .row_of = reinterpret_cast<const std::int32_t*>(probe_rows_.data()),
                    .rows = static_cast<int>(probes),
                    .columns = static_cast<int>(shape_.out_features)},
                   stream_.get());
        std::vector<float> outputs(static_cast<std::size_t>(probes * shape_.out_features));
        check(cudaMemcpyAsync(outputs.data(), probed_.data(), probed_.bytes(), cudaMemcpyDeviceToHost, stream_.get()), "reading outputs");
        stream_.wait();
        return outputs;
    }

    View view(void* data, std::int64_t stride) const { return {data, shape_.inputs, stride}; }
    // Of codes of fp8, so that they end at this deviation; some twice as large as others.
    static std::vector<float> scales(std::int64_t count, float deviation) {
        std::vector<float> all(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = deviation / fp8_deviation * (1.0F + static_cast<float>(i % 8) / 8.0F) / 1.5F;
        return all;
    }
    std::byte* weight(int run) const { return weights_.data() + static_cast<std::size_t>(run) % weight_count_ * weight_stride_; }

    CublasLtTask task(std::int64_t rows, int run, bool accumulate) const {
        return {.shape = shape_,
                .rows = rows,
                .out = reinterpret_cast<float*>(out_.data()),
                .out_stride = shape_.out_features,
                .in = in_.data(),
                .in_stride = in_stride_,
                .weight = weight(run),
                .weight_stride = stride_,
                .weight_scales = reinterpret_cast<const float*>(weight_scales_.data()),
                .accumulate = accumulate};
    }

    void run_own(std::int64_t rows, int run) const {
        run_matmul({.out = {out_.data(), Format::float32, shape_.out_features},
                    .in = view(in_.data(), in_stride_),
                    .weight = view(weight(run), stride_),
                    .weight_scales = reinterpret_cast<const float*>(weight_scales_.data()),
                    .rows = static_cast<int>(rows),
                    .in_features = static_cast<int>(shape_.in_features),
                    .out_features = static_cast<int>(shape_.out_features)},
                   stream_.get());
        check(cudaGetLastError(), "matmul");
    }

    const CublasLt& library_;
    const Stream& stream_;
    const MatmulShape shape_;
    const TuneOptions options_;
    const std::int64_t stride_;   // elements, of weights
    std::int64_t in_stride_ = 0;  // of inputs
    std::size_t weight_stride_ = 0;
    std::size_t weight_count_ = 0;
    DeviceMemory weights_;
    DeviceMemory weight_scales_;  // of fp8
    DeviceMemory pool_;
    DeviceMemory in_;
    DeviceMemory out_;
    DeviceMemory probed_;
    DeviceMemory probe_rows_;
    std::vector<std::int64_t> buckets_;
    std::vector<float> own_;  // the probes' outputs by our own kernel
};

double copied_per_second(const Stream& stream, std::size_t bytes) {
    const DeviceMemory from(bytes);
    const DeviceMemory to(bytes);
    const double seconds = seconds_per_run(stream, 20e-3, [&](int) {
        check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()), "copying");
    });
    return 2.0 * static_cast<double>(bytes) / seconds;
}

// Of the library's own choice for a large matmul; nullopt: it has none.
std::optional<double> operations_per_second(const CublasLt& library, const Stream& stream, Format inputs, TuneOptions options) {
    const std::int64_t size = options.square;
    options.walked_bytes = 0;
    options.rows_max = inputs == Format::fp8_rows ? std::min(size, matmul_rows_max) : size;
    return ShapeTuner(library, stream, {inputs, size, size}, options).operations_per_second();
}

ChipRates rates_of(const CublasLt& library, const Stream& stream, const TuneOptions& options) {
    ChipRates rates{.copied_per_second = copied_per_second(stream, options.copied_bytes)};
    const auto bfloat16 = operations_per_second(library, stream, Format::bfloat16, options);
    if (!bfloat16) throw std::runtime_error("cuBLASLt has no algorithm for a plain bfloat16 matmul on this GPU");
    rates.operations_per_second = *bfloat16;
    if (!fp8_obstacle(chip_of_device(), library.version()))
        rates.fp8_operations_per_second = operations_per_second(library, stream, Format::fp8_rows, options);
    return rates;
}

}  // namespace

Expected<ChipRates, std::string> measure_chip(const TuneOptions& options, const OpenLibrary& open) {
    choose_device();
    const auto functions = open();
    if (!functions) return unexpected(functions.error());
    return rates_of(CublasLt(*functions), Stream(), options);
}

Expected<ChipRates, std::string> measure_chip() {
    return measure_chip({}, [] { return open_cublaslt(cublaslt_places()); });
}

Tuning tune_matmuls(std::span<const MatmulShape> shapes, const TuneOptions& options, const OpenLibrary& open) {
    Tuning tuning{.device = choose_device(), .chip = chip_of_device()};
    const auto functions = open();
    if (!functions) throw std::runtime_error(functions.error());
    const Stream stream;
    const CublasLt library(*functions);
    tuning.library = library.version();
    const auto is_fp8 = [](const MatmulShape& shape) { return shape.inputs == Format::fp8_rows; };
    const auto obstacle = fp8_obstacle(tuning.chip, tuning.library);
    if (obstacle && std::ranges::any_of(shapes, is_fp8)) throw std::runtime_error(*obstacle);
    tuning.rates = rates_of(library, stream, options);
    for (const MatmulShape& shape : shapes) tuning.matmuls.push_back(ShapeTuner(library, stream, shape, options).tune());
    return tuning;
}

Tuning tune_matmuls(std::span<const MatmulShape> shapes) {
    return tune_matmuls(shapes, {}, [] { return open_cublaslt(cublaslt_places()); });
}

}  // namespace lorry::kernels::cuda
