// Finds cuBLASLt on this machine and opens it at run time, so that one program serves machines with and without it. Called by devices.cpp
// and tuner_of_machine.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt/abi.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

// Files to try, best first: what the system's loader finds by name (LD_LIBRARY_PATH, ldconfig), the program's folder and its lib/, CUDA's
// own folder, and where pip puts NVIDIA's packages for the system's Python.
std::vector<std::string> cublaslt_places();

// The functions of the first of these files that exists; it stays open. Otherwise an error that says what was missing and what to do.
Expected<lt::Functions, std::string> open_cublaslt(std::span<const std::string> places);

}  // namespace lorry::kernels::cuda
