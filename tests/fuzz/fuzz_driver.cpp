// The main of a fuzz target where the compiler has no libFuzzer: runs each input of a corpus, then edits of them and of each other. ctest
// runs it for seconds. The same seed gives the same inputs in the same order. An input that fails is kept in failed-input.
//   PROGRAM CORPUS [seconds (2)] [seed (from the clock; printed)] [edits at most]
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);
// A target may have a mutator of its own.
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed);

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t growth_max = 256;
constexpr std::size_t size_max = 64 << 10;

std::span<const std::uint8_t> running;  // for keep_input

// Calls only what a signal handler may call. The signal ends the program afterwards.
void keep_input(int) {
    const int file = open("failed-input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    static_cast<void>(write(file, running.data(), running.size()) + close(file));
}

void run(const Bytes& bytes) {
    running = bytes;
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::mt19937_64& random_numbers() {
    static std::mt19937_64 numbers;
    return numbers;
}

std::size_t below(std::size_t bound) { return random_numbers()() % bound; }

std::uint64_t number(std::span<char* const> arguments, std::size_t index, std::uint64_t otherwise) {
    if (index >= arguments.size()) return otherwise;
    const std::string_view text = arguments[index];
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
}

// Mostly small numbers, as the lengths, counts and gaps of a format are.
std::uint8_t random_byte() {
    const auto byte = static_cast<std::uint8_t>(random_numbers()());
    return below(2) == 0 ? byte : byte % 4;
}

void edit(Bytes& bytes, std::size_t limit) {
    const std::size_t at = bytes.empty() ? 0 : below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    if (bytes.empty() || (below(3) == 0 && bytes.size() < limit)) {
        bytes.insert(place, random_byte());
    } else if (below(2) == 0) {
        *place = random_byte();
    } else {
        bytes.erase(place);
    }
}

std::vector<Bytes> inputs_in(const std::filesystem::path& corpus) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<Bytes> inputs;
    for (const std::filesystem::path& file : files) {
        std::ifstream in(file, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return inputs;
}

Bytes edited(Bytes bytes) {
    const std::size_t size = bytes.size();
    const std::size_t limit = std::min(size + growth_max, std::max(size, size_max));
    bytes.resize(limit);
    bytes.resize(LLVMFuzzerCustomMutator == nullptr
                     ? LLVMFuzzerMutate(bytes.data(), size, limit)
                     : LLVMFuzzerCustomMutator(bytes.data(), size, limit, static_cast<unsigned>(random_numbers()())));
    return bytes;
}

}  // namespace

// libFuzzer has a function of this name.
std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t limit) {
    Bytes bytes(data, data + size);
    for (auto edits = 1 + below(8); edits > 0; --edits) edit(bytes, limit);
    std::ranges::copy(bytes, data);
    return bytes.size();
}

int main(int count, char** given) {
    const std::span<char* const> arguments(given, static_cast<std::size_t>(count));
    if (count < 2) {
        std::cerr << "usage: " << arguments[0] << " CORPUS [seconds] [seed] [edits]\n";
        return 2;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto seed = number(arguments, 3, static_cast<std::uint64_t>(start.time_since_epoch().count()));
    random_numbers().seed(seed);
    std::cout << "seed " << seed << '\n' << std::flush;
    const std::vector<Bytes> corpus = inputs_in(arguments[1]);
    for (const int signal : {SIGABRT, SIGSEGV}) {
        struct sigaction keep {};
        keep.sa_handler = keep_input;
        keep.sa_flags = static_cast<int>(SA_RESETHAND);
        sigaction(signal, &keep, nullptr);
    }
    for (const Bytes& bytes : corpus) run(bytes);
    std::cout << corpus.size() << " inputs of the corpus\n" << std::flush;
    if (corpus.empty()) {
        std::cerr << arguments[1] << " has no inputs\n";
        return 1;
    }
    std::vector<Bytes> earlier = corpus;
    std::uint64_t inputs = 0;
    const auto end = start + std::chrono::seconds(number(arguments, 2, 2));
    const std::uint64_t inputs_max = number(arguments, 4, UINT64_MAX);
    for (; inputs < inputs_max && std::chrono::steady_clock::now() < end; ++inputs) {
        Bytes bytes = edited(below(2) == 0 ? corpus[below(corpus.size())] : earlier[below(earlier.size())]);
        run(bytes);
        earlier[below(earlier.size())] = std::move(bytes);
    }
    std::cout << inputs << " edits of them\n";
    return 0;
}
