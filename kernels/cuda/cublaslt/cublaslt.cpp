// Describes row-major matrices to a library that is column-major: it multiplies out' = weight in'. See cublaslt.h.
#include "kernels/cuda/cublaslt/cublaslt.h"

#include <stdexcept>

#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// NVIDIA's recommendation for Hopper ("cublasSetWorkspace"); holds the parts of split sums.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
constexpr std::uint32_t row_alignment = 16;  // bytes

lt::Type type_of(Format format) {
    CHECK(format == Format::bfloat16 || format == Format::fp8_rows, "cuBLASLt multiplies bfloat16 and fp8 here");
    return format == Format::bfloat16 ? lt::Type::bfloat16 : lt::Type::e4m3;
}

lt::Algorithm algorithm_of(const MatmulAlgorithm& words) { return {.data = words}; }

}  // namespace

struct CublasLt::Descriptors {
    Owned<lt::Matmul> matmul;
    Owned<lt::Layout> weight;
    Owned<lt::Layout> in;
    Owned<lt::Layout> out;
};

template <class Descriptor, class Create, class... Arguments>
CublasLt::Owned<Descriptor> CublasLt::create(lt::Status (*destroy)(Descriptor), Create make, Arguments... arguments) const {
    Descriptor made = nullptr;
    check(make(&made, arguments...), "making a descriptor");
    return {made, destroy};
}

CublasLt::Descriptors CublasLt::descriptors_of(const CublasLtTask& task) const {
    const auto rows = static_cast<std::uint64_t>(task.rows);
    const auto out_features = static_cast<std::uint64_t>(task.shape.out_features);
    const auto in_features = static_cast<std::uint64_t>(task.shape.in_features);
    const auto layout = [&](lt::Type type, std::uint64_t down, std::uint64_t across, std::int64_t stride) {
        return create<lt::Layout>(functions_.matrix_layout_destroy, functions_.matrix_layout_create, type, down, across, stride);
    };
    const lt::Type inputs = type_of(task.shape.inputs);
    Descriptors made{.matmul = create<lt::Matmul>(functions_.matmul_desc_destroy, functions_.matmul_desc_create, lt::Compute::float32,
                                                  lt::Type::float32),
                     .weight = layout(inputs, in_features, out_features, task.weight_stride),
                     .in = layout(inputs, in_features, rows, task.in_stride),
                     .out = layout(lt::Type::float32, out_features, rows, task.out_stride)};
    const auto set = [&](lt::MatmulAttribute attribute, auto value) {
        check(functions_.matmul_desc_set_attribute(made.matmul.get(), attribute, &value, sizeof(value)), "describing a matmul");
    };
    set(lt::MatmulAttribute::transpose_a, lt::Operation::transposed);
    if (task.shape.inputs == Format::fp8_rows) {
        set(lt::MatmulAttribute::scale_mode_a, lt::ScaleMode::outer_vector);
        set(lt::MatmulAttribute::scale_mode_b, lt::ScaleMode::outer_vector);
        set(lt::MatmulAttribute::scale_a, static_cast<const void*>(task.weight_scales));
        set(lt::MatmulAttribute::scale_b, static_cast<const void*>(task.in_scales));
    }
    return made;
}

CublasLt::CublasLt(const lt::Functions& functions) : functions_(functions), workspace_(workspace_bytes) {
    check(functions_.create(&handle_), "starting it");
}

CublasLt::~CublasLt() { static_cast<void>(functions_.destroy(handle_)); }

void CublasLt::check(lt::Status status, const char* what) const {
    if (status != lt::Status::success)
        throw std::runtime_error(fmt::format("cuBLASLt failed: {}: {}", what, functions_.get_status_name(status)));
}

bool CublasLt::takes(const CublasLtTask& task, const MatmulAlgorithm& words) const {
    const Descriptors with = descriptors_of(task);
    const lt::Algorithm algorithm = algorithm_of(words);
    lt::Heuristic result;
    const lt::Status status = functions_.matmul_algo_check(handle_, with.matmul.get(), with.weight.get(), with.in.get(), with.out.get(),
                                                           with.out.get(), &algorithm, &result);
    return status == lt::Status::success && result.state == lt::Status::success && result.workspace_bytes <= workspace_.bytes();
}

void CublasLt::multiply(const CublasLtTask& task, const MatmulAlgorithm& words, cudaStream_t stream) const {
    const Descriptors with = descriptors_of(task);
    const lt::Algorithm algorithm = algorithm_of(words);
    const float alpha = 1.0F;
    const float beta = task.accumulate ? 1.0F : 0.0F;
    const lt::Status status =
        functions_.matmul(handle_, with.matmul.get(), &alpha, task.weight, with.weight.get(), task.in, with.in.get(), &beta, task.out,
                          with.out.get(), task.out, with.out.get(), &algorithm, workspace_.data(), workspace_.bytes(), stream);
    if (status != lt::Status::success)
        throw MatmulRefused(fmt::format("cuBLASLt failed: multiplying: {}", functions_.get_status_name(status)));
}

std::vector<MatmulAlgorithm> CublasLt::candidates(const CublasLtTask& task, int most) const {
    const Descriptors with = descriptors_of(task);
    const Owned<lt::Preference> preference =
        create<lt::Preference>(functions_.matmul_preference_destroy, functions_.matmul_preference_create);
    const auto set = [&](lt::PreferenceAttribute attribute, auto value) {
        check(functions_.matmul_preference_set_attribute(preference.get(), attribute, &value, sizeof(value)), "setting a preference");
    };
    set(lt::PreferenceAttribute::workspace_bytes_max, std::uint64_t{workspace_.bytes()});
    set(lt::PreferenceAttribute::reduction_schemes, lt::ReductionScheme::compute_type);
    for (const auto alignment : {lt::PreferenceAttribute::alignment_a, lt::PreferenceAttribute::alignment_b,
                                 lt::PreferenceAttribute::alignment_c, lt::PreferenceAttribute::alignment_d}) {
        set(alignment, row_alignment);
    }
    std::vector<lt::Heuristic> results(static_cast<std::size_t>(most));
    int found = 0;
    const lt::Status status =
        functions_.matmul_algo_get_heuristic(handle_, with.matmul.get(), with.weight.get(), with.in.get(), with.out.get(), with.out.get(),
                                             preference.get(), most, results.data(), &found);
    if (status == lt::Status::not_supported) return {};
    check(status, "asking for algorithms");
    std::vector<MatmulAlgorithm> algorithms;
    for (const lt::Heuristic& result : std::span(results).first(static_cast<std::size_t>(found))) {
        if (result.state == lt::Status::success) algorithms.push_back(result.algorithm.data);
    }
    return algorithms;
}

std::string CublasLt::describe(const MatmulAlgorithm& words) const {
    const lt::Algorithm algorithm = algorithm_of(words);
    const auto get = [&](lt::AlgorithmAttribute attribute) {
        std::int32_t value = 0;
        std::size_t written = 0;
        check(functions_.matmul_algo_config_get_attribute(&algorithm, attribute, &value, sizeof(value), &written),
              "describing an algorithm");
        return value;
    };
    return fmt::format("algorithm {}, tile {}, stages {}, split {}", get(lt::AlgorithmAttribute::id), get(lt::AlgorithmAttribute::tile),
                       get(lt::AlgorithmAttribute::stages), get(lt::AlgorithmAttribute::split_k));
}

}  // namespace lorry::kernels::cuda
