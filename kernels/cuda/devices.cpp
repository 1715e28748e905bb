// Asks the driver; see devices.h. cudart loads the driver at the first call, so this also runs on a machine without one.
#include "kernels/cuda/devices.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/cublaslt/library.h"
#include "kernels/cuda/cublaslt/tuning.h"
#include "kernels/cuda/runtime.h"

namespace lorry::kernels {

namespace cuda {

namespace {

constexpr int major_min = 8;

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

// The oldest Linux driver for a major version of CUDA, by the table in CUDA's release notes.
const char* first_driver(int major) {
    if (major == 12) return "525.60.13";
    return major == 13 ? "580.65.06" : nullptr;
}

std::optional<std::string> installed_module() {
    std::ifstream stream("/proc/driver/nvidia/version");
    return module_version(std::string((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>()));
}

}  // namespace

std::optional<std::string> module_version(std::string_view text) {
    std::istringstream words{std::string(text.substr(0, text.find('\n')))};
    for (std::string word; words >> word;) {
        if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
    }
    return std::nullopt;
}

std::string driver_too_old(const DriverVersions& versions) {
    const int major = versions.runtime / 1000;
    const char* const needed = first_driver(major);
    return fmt::format("the NVIDIA driver {}is for CUDA {}, and this program needs one for CUDA {}.0 or later{}: update the driver",
                       versions.module ? *versions.module + " " : "", version_text(versions.driver), major,
                       needed != nullptr ? fmt::format(", which is driver {} or later", needed) : "");
}

std::optional<std::string> obstacle() {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return "no NVIDIA driver was found (libcuda.so.1): install the driver, or start the container with its GPUs (--gpus all)";
    }
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        if (error == cudaErrorInsufficientDriver) {
            int runtime = 0;
            check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
            return driver_too_old({.driver = driver, .runtime = runtime, .module = installed_module()});
        }
        return "the NVIDIA driver (for CUDA " + version_text(driver) + ") reports no device: " + cudaGetErrorString(error);
    }
    if (count == 0) return "the NVIDIA driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return "the NVIDIA driver does not describe its first GPU";
    if (properties.major < major_min) {
        return std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." +
               std::to_string(properties.minor) + ", but at least 8.0 is required";
    }
    return std::nullopt;
}

std::string choose_device() {
    if (const auto reason = obstacle()) throw std::runtime_error("no GPU can be used: " + *reason);
    check(cudaSetDevice(0), "choosing it");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "asking for its name");
    return properties.name;
}

MatmulChip chip_of_device() {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "asking for its processors");
    return {.capability = 10 * properties.major + properties.minor, .processors = properties.multiProcessorCount};
}

ChipDescription describe_chip() {
    ChipDescription description{.device = choose_device(), .chip = chip_of_device()};
    int version = 0;
    check(cudaDriverGetVersion(&version), "asking for the driver's version");
    description.driver = version_text(version);
    check(cudaRuntimeGetVersion(&version), "asking for the runtime's version");
    description.cudart = version_text(version);
    if (const auto library = open_cublaslt(cublaslt_places())) description.cublaslt = version_text(library->get_version());
    return description;
}

}  // namespace cuda

std::optional<std::string> cuda_obstacle() { return cuda::obstacle(); }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
    if (const auto reason = obstacle(options.storage, DeviceKind::gpu)) throw std::runtime_error(*reason);
    // float32 weights promise strict parity, so only our own kernel multiplies them.
    if (options.storage.weights == Format::float32) return std::make_unique<cuda::CudaBackend>(options);
    static_cast<void>(cuda::choose_device());
    const cuda::MatmulRows rows = options.matmul_table.empty() ? cuda::committed_rows() : cuda::read_matmul_rows(options.matmul_table);
    auto matmuls = cuda::choose_matmuls(rows, cuda::chip_of_device(), options.storage.quantize,
                                        [] { return cuda::open_cublaslt(cuda::cublaslt_places()); });
    return std::make_unique<cuda::CudaBackend>(options, std::move(matmuls));
}

}  // namespace lorry::kernels
