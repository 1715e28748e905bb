// The main of a fuzz target where the compiler has no libFuzzer: runs each input of a corpus, then edits of them and of each other. ctest
// runs it for seconds. The same seed gives the same inputs in the same order. --help says how to call it.
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
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

struct Arguments {
    std::filesystem::path corpus;
    std::uint64_t seconds = 2;
    std::optional<std::uint64_t> seed;
    std::uint64_t edits_max = UINT64_MAX;
};

constexpr std::string_view usage =
    "usage: PROGRAM CORPUS [SECONDS (2)] [SEED (from the clock; printed)] [EDITS at most]\n"
    "Runs each input of the folder CORPUS, then edits of them. An input that fails is kept in failed-input.\n";

std::uint64_t number_of(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) throw std::runtime_error("'" + std::string(text) + "' is not a number");
    return number;
}

// Throws std::runtime_error, which says what is wrong.
Arguments arguments_of(std::span<char* const> given) {
    if (given.empty() || given.size() > 4) throw std::runtime_error("one to four arguments are needed");
    Arguments arguments{.corpus = given[0]};
    if (!std::filesystem::is_directory(arguments.corpus)) throw std::runtime_error("'" + arguments.corpus.string() + "' is not a folder");
    if (given.size() > 1) arguments.seconds = number_of(given[1]);
    if (given.size() > 2) arguments.seed = number_of(given[2]);
    if (given.size() > 3) arguments.edits_max = number_of(given[3]);
    return arguments;
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

// Returns the program's exit code.
int run_corpus(const Arguments& arguments) {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t seed = arguments.seed.value_or(static_cast<std::uint64_t>(start.time_since_epoch().count()));
    random_numbers().seed(seed);
    std::cout << "seed " << seed << '\n' << std::flush;
    const std::vector<Bytes> corpus = inputs_in(arguments.corpus);
    for (const int signal : {SIGABRT, SIGSEGV}) {
        struct sigaction keep {};
        keep.sa_handler = keep_input;
        keep.sa_flags = static_cast<int>(SA_RESETHAND);
        sigaction(signal, &keep, nullptr);
    }
    for (const Bytes& bytes : corpus) run(bytes);
    std::cout << corpus.size() << " inputs of the corpus\n" << std::flush;
    if (corpus.empty()) {
        std::cerr << arguments.corpus.string() << " has no inputs\n";
        return 1;
    }
    std::vector<Bytes> earlier = corpus;
    std::uint64_t inputs = 0;
    const auto end = start + std::chrono::seconds(arguments.seconds);
    for (; inputs < arguments.edits_max && std::chrono::steady_clock::now() < end; ++inputs) {
        Bytes bytes = edited(below(2) == 0 ? corpus[below(corpus.size())] : earlier[below(earlier.size())]);
        run(bytes);
        earlier[below(earlier.size())] = std::move(bytes);
    }
    std::cout << inputs << " edits of them\n";
    return 0;
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
    const std::span<char* const> words(given + 1, static_cast<std::size_t>(count - 1));
    if (words.size() == 1 && words[0] == std::string_view("--help")) {
        std::cout << usage;
        return 0;
    }
    Arguments arguments;
    try {
        arguments = arguments_of(words);
    } catch (const std::runtime_error& error) {
        std::cerr << given[0] << ": " << error.what() << '\n' << usage;
        return 2;
    }
    return run_corpus(arguments);
}
