// Makes noise for weights and inputs, tries candidates, and chooses; see tuner.h.
#include "kernels/cuda/cublaslt/tuner.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kernels/cuda/cublaslt/cublaslt.h"
#include "kernels/cuda/devices.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

namespace {

constexpr std::int64_t probes = 16;  // rows present in each bucket: as many as the smallest has
// Tolerance for sums around 1 that are kept in float32 but added in another order and rounded as by tensor cores; a sum kept in bfloat16 is
// off by twice that. Sums of fp8 are rounded more coarsely: compute capability 9.0 adds 13 bits for a while.
float tolerance_of(Format inputs) { return inputs == Format::fp8_rows ? 4e-3F : 1e-3F; }
constexpr int runs_max = 200;
constexpr std::array<std::uint64_t, 2> trial_seeds = {1, 2};  // seeds of the two orders in which each bucket's rows are tried
// Deviation of fp8 codes before scaling: hardly one in a million exceeds the largest code.
constexpr float fp8_deviation = 90.0F;
constexpr std::size_t noise_elements = std::size_t{1} << 20;
constexpr std::size_t weight_alignment = 256;  // bytes; alignment of each of the weights used in turn

// Measures the device's time for work queued on the stream.
class Timer {
public:
    explicit Timer(const Stream& stream) : stream_(stream) {}

    // Seconds per run, over as many runs as fit into the time; the first is not counted.
    template <class Run>
    double seconds_per_run(double seconds, const Run& run) {
        run(0);
        const double first = seconds_of([&] { run(1); });
        const int runs = static_cast<int>(std::clamp(seconds / std::max(first, 1e-7), 3.0, static_cast<double>(runs_max)));
        return seconds_of([&] {
                   for (int i = 0; i < runs; ++i) run(i);
               }) /
               runs;
    }

private:
    template <class Queue>
    double seconds_of(const Queue& queue) {
        begin_.record(stream_);
        queue();
        end_.record(stream_);
        end_.wait();
        return end_.seconds_since(begin_);
    }

    const Stream& stream_;
    Event begin_;
    Event end_;
};

std::uint16_t bfloat16_bits(float x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof(bits));
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// A block of normally distributed numbers, converted by narrow_of and repeated.
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

// Weights, inputs and outputs of one shape, and the trials with them. Everything that trials need is allocated before them: a call that
// waits for the device would take longer than most of what is timed.
class ShapeTuner {
public:
    ShapeTuner(const CublasLt& library, const Stream& stream, const MatmulShape& shape, const TuneOptions& options)
        : library_(library),
          stream_(stream),
          timer_(stream),
          shape_(shape),
          options_(options),
          stride_(round_up(shape.in_features, in_features_multiple)) {
        const bool is_fp8 = shape.inputs == Format::fp8_rows;
        // As ops write them: fp8 rows in place of float32 rows.
        in_stride_ = is_fp8 ? shape.in_features * static_cast<std::int64_t>(bytes_of(shape.inputs)) : stride_;
        const std::size_t weight_bytes = static_cast<std::size_t>(shape.out_features) * weight_view(nullptr).row_bytes();
        weight_stride_ = (weight_bytes + weight_alignment - 1) / weight_alignment * weight_alignment;
        weight_count_ = std::max<std::size_t>(1, options.walked_bytes / weight_stride_);
        const float deviation = 1.0F / std::sqrt(static_cast<float>(shape.in_features));
        weights_ = noise(shape.inputs, weight_count_ * weight_stride_, deviation, 1, stream);
        const std::size_t row_bytes = rows_view(pool_, pool_scales_).row_bytes();
        pool_ = noise(shape.inputs, static_cast<std::size_t>(options.rows_max) * row_bytes, 1.0F, 2, stream);
        if (is_fp8) {
            weight_scales_ = uploaded(scales(shape.out_features, deviation), stream);
            pool_scales_ = uploaded(scales(options.rows_max, 1.0F), stream);
            in_scales_ = DeviceMemory(pool_scales_.bytes());
        }
        in_ = DeviceMemory(pool_.bytes());
        out_ = DeviceMemory(static_cast<std::size_t>(options.rows_max * shape.out_features) * sizeof(float));
        for (const std::int64_t rows : matmul_buckets()) {
            if (rows <= options.rows_max) buckets_.push_back(rows);
        }
    }

    // Stops at `end`, if given. A candidate is tried in all buckets or not at all.
    TunedMatmul tune(std::optional<TuneClock::time_point> end) {
        TunedMatmul tuned{.shape = shape_, .buckets = buckets_};
        probed_ = DeviceMemory(probed_elements() * sizeof(float));
        trials_ = PinnedMemory(2 * trial_elements() * sizeof(float));
        first_bits_.resize(trial_elements());
        for (const std::int64_t rows : buckets_) {
            for (const std::uint64_t seed : trial_seeds) arrange(rows, seed);
        }
        measure_own(tuned);
        for (const MatmulAlgorithm& algorithm : candidates()) {
            tuned.is_complete = !end || options_.now() < *end;
            if (!tuned.is_complete) break;
            tuned.candidates.push_back(try_out(algorithm));
        }
        tuned.chosen = choose_candidates(tuned.candidates, buckets_.size());
        return tuned;
    }

    // The rate of the library's own choice for rows_max rows; nullopt if it has none.
    std::optional<double> operations_per_second() {
        arrange(options_.rows_max, 0);
        const std::vector<MatmulAlgorithm> choice = library_.candidates(task(options_.rows_max, 0, false), 1);
        if (choice.empty()) return std::nullopt;
        const double operations = 2.0 * static_cast<double>(options_.rows_max) * static_cast<double>(shape_.out_features) *
                                  static_cast<double>(shape_.in_features);
        return unless_refused([&]() -> std::optional<double> {
            return operations / timer_.seconds_per_run(50e-3, [&](int run) {
                library_.multiply(task(options_.rows_max, run, false), choice.front(), stream_.get());
            });
        });
    }

private:
    // An order of rows in which each occurs once.
    struct Arrangement {
        DeviceMemory pool_rows;   // [rows] of the pool
        DeviceMemory probe_rows;  // [probes] positions of the probes, which are the pool's first rows
    };

    std::size_t probed_elements() const { return static_cast<std::size_t>(probes * shape_.out_features); }
    // The probes' outputs, followed by the results of adding the same product to them.
    std::size_t trial_elements() const { return 2 * probed_elements(); }

    void measure_own(TunedMatmul& tuned) {
        const Arrangement& few = arrange(probes, 0);
        run_own(probes, 0);
        read_probes(few, trials());
        stream_.wait();
        own_.assign(trials(), trials() + probed_elements());
        arrange(buckets_.back(), 0);
        for (const std::int64_t rows : buckets_)
            tuned.own_seconds.push_back(timer_.seconds_per_run(options_.seconds, [&](int i) { run_own(rows, i); }));
    }

    // The candidates of all buckets, each once: first the library's first choices, then its second ones and so on, because time may run
    // out.
    std::vector<MatmulAlgorithm> candidates() const {
        std::vector<std::vector<MatmulAlgorithm>> choices;
        for (const std::int64_t rows : buckets_) choices.push_back(library_.candidates(task(rows, 0, false), options_.candidates_max));
        std::vector<MatmulAlgorithm> all;
        for (std::size_t place = 0; place < static_cast<std::size_t>(options_.candidates_max); ++place) {
            for (const auto& of_bucket : choices) {
                if (place < of_bucket.size() && std::ranges::find(all, of_bucket[place]) == all.end()) all.push_back(of_bucket[place]);
            }
        }
        return all;
    }

    MatmulCandidate try_out(const MatmulAlgorithm& algorithm) {
        MatmulCandidate candidate{.algorithm = algorithm, .name = library_.describe(algorithm)};
        for (const std::int64_t rows : buckets_) {
            candidate.seconds.emplace_back();
            if (candidate.refusal || !library_.takes(task(rows, 0, false), algorithm)) continue;
            candidate.seconds.back() = unless_refused([&]() -> std::optional<double> {
                candidate.refusal = try_bits(rows, candidate);
                if (candidate.refusal) return std::nullopt;
                return timer_.seconds_per_run(options_.seconds,
                                              [&](int i) { library_.multiply(task(rows, i, false), algorithm, stream_.get()); });
            });
        }
        return candidate;
    }

    // A matmul that the library says it supports and then refuses counts as not supported.
    template <class Work>
    std::optional<double> unless_refused(const Work& work) {
        try {
            return work();
        } catch (const MatmulRefused&) {
            stream_.wait();
            return std::nullopt;
        }
    }

    // Compares the probes' outputs in this bucket, at two places each: those of the first bucket with our own kernel's, those of the others
    // with the first bucket's.
    std::optional<MatmulRefusal> try_bits(std::int64_t rows, MatmulCandidate& candidate) {
        float* const outputs = trials();
        float* const elsewhere = outputs + trial_elements();
        queue_trial(rows, candidate.algorithm, trial_seeds[0], outputs);
        queue_trial(rows, candidate.algorithm, trial_seeds[1], elsewhere);
        stream_.wait();
        const std::size_t bytes = trial_elements() * sizeof(float);
        if (!candidate.bits && !agrees_with_own({outputs, trial_elements()})) return MatmulRefusal::value;
        if (std::memcmp(outputs, elsewhere, bytes) != 0) return MatmulRefusal::place;
        if (candidate.bits && std::memcmp(outputs, first_bits_.data(), bytes) != 0) return MatmulRefusal::rows;
        if (candidate.bits) return std::nullopt;
        std::memcpy(first_bits_.data(), outputs, bytes);
        candidate.bits = XXH3_64bits(outputs, bytes);
        return std::nullopt;
    }

    bool agrees_with_own(std::span<const float> outputs) const {
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            const float want = i < own_.size() ? own_[i] : 2.0F * own_[i - own_.size()];
            // Written the other way round, a NaN would pass.
            const float off = std::abs(outputs[i] - want);
            if (!(off <= tolerance_of(shape_.inputs) * std::max(1.0F, std::abs(want)))) return false;
        }
        return true;
    }

    // Queues a trial with rows in the order of this seed; the probes' outputs go to pinned memory.
    void queue_trial(std::int64_t rows, const MatmulAlgorithm& algorithm, std::uint64_t seed, float* to) {
        const Arrangement& arrangement = arrange(rows, seed);
        for (const bool accumulate : {false, true}) {
            library_.multiply(task(rows, 0, accumulate), algorithm, stream_.get());
            read_probes(arrangement, to + (accumulate ? probed_elements() : 0));
        }
    }

    // Copies the first `rows` rows of the pool to the inputs, in the order of this seed. The probes are the pool's first rows. Allocates
    // only for a new combination of the two.
    const Arrangement& arrange(std::int64_t rows, std::uint64_t seed) {
        const auto [known, is_new] = arrangements_.try_emplace({rows, seed});
        if (is_new) known->second = arrangement_of(rows, seed);
        run_gather({.out = rows_view(in_, in_scales_),
                    .in = rows_view(pool_, pool_scales_),
                    .row_of = reinterpret_cast<const std::int32_t*>(known->second.pool_rows.data()),
                    .rows = static_cast<int>(rows),
                    .columns = static_cast<int>(shape_.in_features)},
                   stream_.get());
        return known->second;
    }

    Arrangement arrangement_of(std::int64_t rows, std::uint64_t seed) const {
        std::vector<std::int32_t> pool_row(static_cast<std::size_t>(rows));
        std::iota(pool_row.begin(), pool_row.end(), 0);
        std::shuffle(pool_row.begin(), pool_row.end(), std::mt19937_64(seed * 10'000 + static_cast<std::uint64_t>(rows)));
        std::vector<std::int32_t> probe_row(probes);
        for (std::size_t row = 0; row < pool_row.size(); ++row) {
            if (pool_row[row] < probes) probe_row[static_cast<std::size_t>(pool_row[row])] = static_cast<std::int32_t>(row);
        }
        return {.pool_rows = uploaded(pool_row, stream_), .probe_rows = uploaded(probe_row, stream_)};
    }

    // Queues the copy of [probes, out_features] to pinned memory.
    void read_probes(const Arrangement& arrangement, float* to) const {
        run_gather({.out = {probed_.data(), Format::float32, shape_.out_features},
                    .in = {out_.data(), Format::float32, shape_.out_features},
                    .row_of = reinterpret_cast<const std::int32_t*>(arrangement.probe_rows.data()),
                    .rows = static_cast<int>(probes),
                    .columns = static_cast<int>(shape_.out_features)},
                   stream_.get());
        check(cudaMemcpyAsync(to, probed_.data(), probed_.bytes(), cudaMemcpyDeviceToHost, stream_.get()), "reading outputs");
    }
    float* trials() const { return reinterpret_cast<float*>(trials_.data()); }

    View weight_view(void* data) const { return {data, shape_.inputs, stride_}; }
    View rows_view(const DeviceMemory& rows, const DeviceMemory& scales) const {
        return {rows.data(), shape_.inputs, in_stride_, reinterpret_cast<float*>(scales.data())};
    }
    // Scales of fp8 codes that give the values this deviation; some are twice as large as others.
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
                .in_scales = reinterpret_cast<const float*>(in_scales_.data()),
                .weight = weight(run),
                .weight_stride = stride_,
                .weight_scales = reinterpret_cast<const float*>(weight_scales_.data()),
                .accumulate = accumulate};
    }

    void run_own(std::int64_t rows, int run) const {
        run_matmul({.out = {out_.data(), Format::float32, shape_.out_features},
                    .in = rows_view(in_, in_scales_),
                    .weight = weight_view(weight(run)),
                    .weight_scales = reinterpret_cast<const float*>(weight_scales_.data()),
                    .rows = static_cast<int>(rows),
                    .in_features = static_cast<int>(shape_.in_features),
                    .out_features = static_cast<int>(shape_.out_features)},
                   stream_.get());
        check(cudaGetLastError(), "matmul");
    }

    const CublasLt& library_;
    const Stream& stream_;
    Timer timer_;
    const MatmulShape shape_;
    const TuneOptions options_;
    const std::int64_t stride_;   // row stride of weights, in elements
    std::int64_t in_stride_ = 0;  // row stride of inputs
    std::size_t weight_stride_ = 0;
    std::size_t weight_count_ = 0;
    DeviceMemory weights_;
    DeviceMemory weight_scales_;  // of fp8
    DeviceMemory pool_;
    DeviceMemory pool_scales_;  // of fp8; so is in_scales_
    DeviceMemory in_;
    DeviceMemory in_scales_;
    DeviceMemory out_;
    DeviceMemory probed_;
    PinnedMemory trials_;                                                         // [2 places][trial_elements()]
    std::map<std::pair<std::int64_t, std::uint64_t>, Arrangement> arrangements_;  // by rows and seed
    std::vector<std::int64_t> buckets_;
    std::vector<float> own_;         // the probes' outputs by our own kernel
    std::vector<float> first_bits_;  // of the current candidate, in the first bucket that it supports
};

double copied_per_second(const Stream& stream, std::size_t bytes) {
    const DeviceMemory from(bytes);
    const DeviceMemory to(bytes);
    const double seconds = Timer(stream).seconds_per_run(
        20e-3, [&](int) { check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()), "copying"); });
    return 2.0 * static_cast<double>(bytes) / seconds;
}

// The rate of the library's own choice for a large matmul; nullopt if it has none.
std::optional<double> operations_per_second(const CublasLt& library, const Stream& stream, Format inputs, TuneOptions options) {
    const std::int64_t size = options.square;
    options.walked_bytes = 0;
    options.rows_max = size;
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

Tuning tune_matmuls(std::span<const MatmulShape> shapes, const TuneOptions& options, const OpenLibrary& open,
                    const OnTunedShape& on_shape) {
    const TuneClock::time_point begin = options.now();
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
    // The largest, a head, takes as long as all others together, so it comes last.
    std::vector<MatmulShape> ascending(shapes.begin(), shapes.end());
    std::ranges::stable_sort(ascending, {}, [](const MatmulShape& shape) { return shape.out_features * shape.in_features; });
    for (std::size_t i = 0; i < ascending.size(); ++i) {
        std::optional<TuneClock::time_point> end;
        bool has_begun = true;
        if (options.time_max) {
            // The time that one shape leaves of its share goes to the following ones.
            const TuneClock::time_point now = options.now();
            const TuneClock::time_point last = begin + std::chrono::duration_cast<TuneClock::duration>(*options.time_max);
            has_begun = now < last;
            end = now + (last - now) / static_cast<std::int64_t>(ascending.size() - i);
        }
        tuning.matmuls.push_back(has_begun ? ShapeTuner(library, stream, ascending[i], options).tune(end)
                                           : TunedMatmul{.shape = ascending[i], .is_complete = false});
        if (on_shape) on_shape(tuning);
    }
    return tuning;
}

}  // namespace lorry::kernels::cuda
