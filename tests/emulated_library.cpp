// Replaces kernels/cuda/cublaslt/library.cpp and tuner_of_machine.cpp in the emulated `lorry`: the emulated cuBLASLt is always found, and
// tuning is short enough for an emulation. Linked only into lorry_emulated, before the archive that has the replaced files.
#include "kernels/cuda/cublaslt/library.h"
#include "kernels/cuda/cublaslt/tuner.h"
#include "kernels/cuda/emulation/cublaslt.h"

namespace lorry::kernels::cuda {

namespace {

// The emulated library's algorithms accept any number of rows.
const TuneOptions short_tuning{.rows_max = 80, .seconds = 0.0, .walked_bytes = 1, .copied_bytes = 4096, .square = 32};

constexpr double own_slowness = 10.0;  // the emulated clock gives our own kernel a microsecond, so that nothing would gain

Tuning of_all_rows(Tuning tuning) {
    for (TunedMatmul& matmul : tuning.matmuls) {
        if (!matmul.buckets.empty()) matmul.buckets.back() = matmul_rows_max;
        for (double& seconds : matmul.own_seconds) seconds *= own_slowness;
    }
    return tuning;
}

}  // namespace

std::vector<std::string> cublaslt_places() { return {}; }
Expected<lt::Functions, std::string> open_cublaslt(std::span<const std::string>) { return emulation::cublaslt(); }

Expected<ChipRates, std::string> measure_chip() { return measure_chip(short_tuning, emulation::cublaslt); }
Tuning tune_matmuls(std::span<const MatmulShape> shapes, std::optional<std::chrono::duration<double>> time_max,
                    const OnTunedShape& on_shape) {
    TuneOptions options = short_tuning;
    options.time_max = time_max;
    return of_all_rows(tune_matmuls(shapes, options, emulation::cublaslt, [&](const Tuning& so_far) { on_shape(of_all_rows(so_far)); }));
}

}  // namespace lorry::kernels::cuda
