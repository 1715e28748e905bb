// Zeroed, aligned memory for weights, KV and buffers; large pieces ask for huge pages.
#pragma once

#include <cstddef>
#include <memory>

namespace lorry::kernels::cpu {

class Memory {
public:
    Memory() = default;
    // Throws std::runtime_error saying how much was asked for when the machine has no more. Zero bytes are fine.
    explicit Memory(std::size_t bytes);

    std::byte* data() const { return data_.get(); }
    std::size_t bytes() const { return bytes_; }

private:
    struct Free {
        Free() : bytes(0) {}
        explicit Free(std::size_t count) : bytes(count) {}
        std::size_t bytes;
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_ = 0;
};

// Bytes of memory in this machine, and how much of it is free for this process.
std::size_t machine_memory_total();
std::size_t machine_memory_free();

}  // namespace lorry::kernels::cpu
