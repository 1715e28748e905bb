// Makes inputs for a fuzz target when the compiler has no libFuzzer: random bytes, and edits of earlier inputs. ctest runs it for seconds.
//   PROGRAM [seconds (5)] [seed (from the clock; printed)]
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <random>
#include <span>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

std::uint64_t number(std::span<char* const> arguments, std::size_t index, std::uint64_t otherwise) {
    if (index >= arguments.size()) return otherwise;
    const std::string_view text = arguments[index];
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
}

// Mostly small numbers, as the lengths, counts and gaps of a format are.
std::uint8_t random_byte(std::mt19937_64& random) {
    const auto byte = static_cast<std::uint8_t>(random());
    return random() % 2 == 0 ? byte : byte % 4;
}

void edit(Bytes& bytes, std::mt19937_64& random) {
    constexpr std::size_t size_max = 256;
    const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    if (bytes.empty() || (random() % 3 == 0 && bytes.size() < size_max)) {
        bytes.insert(place, random_byte(random));
    } else if (random() % 2 == 0) {
        *place = random_byte(random);
    } else {
        bytes.erase(place);
    }
}

}  // namespace

int main(int count, char** given) {
    const std::span<char* const> arguments(given, static_cast<std::size_t>(count));
    const auto start = std::chrono::steady_clock::now();
    const auto end = start + std::chrono::seconds(number(arguments, 1, 5));
    const auto seed = number(arguments, 2, static_cast<std::uint64_t>(start.time_since_epoch().count()));
    std::mt19937_64 random(seed);
    std::cout << "seed " << seed << '\n' << std::flush;
    std::vector<Bytes> earlier(64);
    std::uint64_t inputs = 0;
    for (; std::chrono::steady_clock::now() < end; ++inputs) {
        Bytes bytes = earlier[random() % earlier.size()];
        for (auto edits = 1 + random() % 8; edits > 0; --edits) edit(bytes, random);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        earlier[random() % earlier.size()] = std::move(bytes);
    }
    std::cout << inputs << " inputs\n";
    return 0;
}
