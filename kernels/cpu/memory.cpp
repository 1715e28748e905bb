// Where zeroed, aligned memory comes from; see memory.h.
#include "kernels/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>

namespace lorry::kernels::cpu {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::align_val_t alignment{64};

}  // namespace

// Large pieces are anonymous maps: zeroed, page by page as they are touched, so a large KV cache costs nothing before it is used.
// Small ones come from the heap, where sanitizers watch their ends.
Memory::Memory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    if (bytes < huge_page) {
        auto* const data = static_cast<std::byte*>(::operator new(bytes, alignment));
        std::memset(data, 0, bytes);
        data_ = std::unique_ptr<std::byte, Free>(data, Free(bytes));
        return;
    }
    // Huge pages start at multiples of their size: map more than is needed and give the rest back.
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    const std::size_t size = (bytes + page - 1) / page * page;
    void* const map = mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        throw std::runtime_error("cannot allocate " + std::to_string(bytes) +
                                 " bytes of memory for the model: use a smaller model or KV cache, or a machine with more memory");
    }
    const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(map) % huge_page) % huge_page;
    std::byte* const data = static_cast<std::byte*>(map) + before;
    if (before > 0) munmap(map, before);
    if (before < huge_page) munmap(data + size, huge_page - before);
    // Only a hint: without huge pages everything works, somewhat slower.
    madvise(data, size, MADV_HUGEPAGE);
    data_ = std::unique_ptr<std::byte, Free>(data, Free(bytes));
}

void Memory::Free::operator()(std::byte* data) const {
    if (bytes < huge_page) {
        ::operator delete(data, alignment);
    } else {
        munmap(data, bytes);
    }
}

std::size_t machine_memory_total() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

std::size_t machine_memory_free() {
    std::ifstream file("/proc/meminfo");
    std::string key;
    std::size_t kibibytes = 0;
    std::string unit;
    while (file >> key >> kibibytes) {
        std::getline(file, unit);
        if (key == "MemAvailable:") return kibibytes * 1024;
    }
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace lorry::kernels::cpu
