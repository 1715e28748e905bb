// Makes the noise on the host and copies it to the device.
#include "ops/bench/noise.h"

#include <algorithm>
#include <random>

namespace lorry::ops {

kernels::Matrix NoisyBackend::make(std::int64_t rows, std::int64_t columns) {
    std::vector<float> noise(static_cast<std::size_t>(rows * columns));
    std::mt19937 random(1);
    std::ranges::generate(noise, [&] { return static_cast<float>(random()) * 0x1p-32F - 0.5F; });
    kernels::Buffer& buffer = *buffers_.emplace_back(backend_->allocate(noise.size() * sizeof(float)));
    backend_->upload(buffer.data(), std::as_bytes(std::span(noise)));
    return {.data = buffer.data(), .rows = rows, .columns = columns, .stride = columns};
}

}  // namespace lorry::ops
