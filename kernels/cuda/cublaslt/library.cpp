// Opens the library with dlopen and looks up its functions with dlsym; see library.h.
#include "kernels/cuda/cublaslt/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

namespace lorry::kernels::cuda {

namespace {

namespace fs = std::filesystem;

constexpr const char* sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

// Appends the nvidia/*/lib folders of parent/python3*/site-packages and dist-packages.
void append_pip_folders(const fs::path& parent, std::vector<fs::path>& folders) {
    const auto entries = [](const fs::path& folder) {
        std::vector<fs::path> found;
        std::error_code ignored;  // a missing folder has no entries
        for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) found.push_back(entry.path());
        std::ranges::sort(found);
        return found;
    };
    for (const fs::path& python : entries(parent)) {
        if (!python.filename().string().starts_with("python3")) continue;
        for (const char* const packages : {"site-packages", "dist-packages"}) {
            for (const fs::path& package : entries(python / packages / "nvidia")) folders.push_back(package / "lib");
        }
    }
}

struct Close {
    void operator()(void* library) const { dlclose(library); }
};

template <class Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
    void* const found = dlsym(library, name);
    if (found == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<Function>(found);
}

// Returns the name of a function that the file lacks; empty if it has all.
std::string find_all(void* library, lt::Functions& functions) {
    std::string missing;
    find(library, "cublasLtGetVersion", functions.get_version, missing);
    find(library, "cublasLtGetStatusName", functions.get_status_name, missing);
    find(library, "cublasLtCreate", functions.create, missing);
    find(library, "cublasLtDestroy", functions.destroy, missing);
    find(library, "cublasLtMatrixLayoutCreate", functions.matrix_layout_create, missing);
    find(library, "cublasLtMatrixLayoutDestroy", functions.matrix_layout_destroy, missing);
    find(library, "cublasLtMatmulDescCreate", functions.matmul_desc_create, missing);
    find(library, "cublasLtMatmulDescDestroy", functions.matmul_desc_destroy, missing);
    find(library, "cublasLtMatmulDescSetAttribute", functions.matmul_desc_set_attribute, missing);
    find(library, "cublasLtMatmulPreferenceCreate", functions.matmul_preference_create, missing);
    find(library, "cublasLtMatmulPreferenceDestroy", functions.matmul_preference_destroy, missing);
    find(library, "cublasLtMatmulPreferenceSetAttribute", functions.matmul_preference_set_attribute, missing);
    find(library, "cublasLtMatmulAlgoGetHeuristic", functions.matmul_algo_get_heuristic, missing);
    find(library, "cublasLtMatmulAlgoCheck", functions.matmul_algo_check, missing);
    find(library, "cublasLtMatmulAlgoConfigGetAttribute", functions.matmul_algo_config_get_attribute, missing);
    find(library, "cublasLtMatmul", functions.matmul, missing);
    return missing;
}

}  // namespace

std::vector<std::string> cublaslt_places() {
    std::vector<fs::path> folders;
    std::error_code no_link;
    const fs::path program = fs::read_symlink("/proc/self/exe", no_link).parent_path();
    if (!no_link) folders.insert(folders.end(), {program, program / "lib"});
    folders.emplace_back("/usr/local/cuda/lib64");
    append_pip_folders("/usr/local/lib", folders);
    append_pip_folders("/usr/lib", folders);
    std::vector<std::string> places;
    for (const char* const soname : sonames) {
        places.emplace_back(soname);
        for (const fs::path& folder : folders) places.push_back((folder / soname).string());
    }
    return places;
}

Expected<lt::Functions, std::string> open_cublaslt(std::span<const std::string> places) {
    for (const std::string& place : places) {
        std::unique_ptr<void, Close> library(dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL));
        if (library == nullptr) continue;
        lt::Functions functions;
        const std::string missing = find_all(library.get(), functions);
        if (!missing.empty()) return unexpected(place + " is not cuBLASLt 12 or 13: it lacks " + missing);
        // Its functions are used until the program ends.
        static_cast<void>(library.release());
        return functions;
    }
    return unexpected(std::string("cuBLASLt (") + sonames[0] + " or .12) was not found: install CUDA's cuBLAS (libcublas, or pip's " +
                      "nvidia-cublas), or name its folder in LD_LIBRARY_PATH");
}

}  // namespace lorry::kernels::cuda
