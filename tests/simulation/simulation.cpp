// lorry_simulation plays seeds in simulated time and prints those that break a promise. Seeds are played in child processes: what a killed
// worker leaves in memory ends with the child, and a failed CHECK ends only one. See --help.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schema/check.h"
#include "tests/faults/arguments.h"
#include "tests/simulation/world.h"

namespace lorry::simulation {
namespace {

constexpr std::string_view help =
    R"(usage: lorry_simulation --seeds A-B [OPTION]...     plays these seeds; exit code 1 if one of them breaks a promise
       lorry_simulation --seed N [--trace]            plays one seed, in this process
       lorry_simulation --find-plants A-B             plays seeds with each planted mistake until it is found; exit code 1 if one is not
  --jobs N       jobs of a seed (100)
  --plant NAME   with this mistake (tests/simulation/plants.h)
)";

constexpr std::uint64_t seeds_of_child = 20;
constexpr unsigned seconds_of_child = 120;

struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
};

Range range_of(const std::string& text) {
    Range range;
    const auto dash = text.find('-');
    const auto read = [&](std::string_view part, std::uint64_t& value) {
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        const bool is_number = !part.empty() && error == std::errc() && end == part.data() + part.size();
        if (!is_number) throw faults::UsageError(text + " is not a range: give A-B");
    };
    read(std::string_view(text).substr(0, dash), range.first);
    read(dash == std::string::npos ? text : text.substr(dash + 1), range.last);
    if (range.last < range.first) throw faults::UsageError(text + " has no seeds: give the smaller number first");
    return range;
}

Plant plant_named(const std::string& name) {
    const auto found = std::ranges::find(plants, name, [](const auto& one) { return one.second; });
    if (found == plants.end()) throw faults::UsageError("--plant " + name + " is not known");
    return found->first;
}

// Sums over all seeds.
struct Sums {
    std::size_t seeds = 0;
    std::size_t jobs = 0;
    std::size_t deaths = 0;
    std::size_t failures = 0;
    std::int64_t simulated_seconds = 0;
    std::uint64_t last_fingerprint = 0;  // of the last seed
    std::array<std::size_t, fault_names.size()> faults{};
    std::vector<std::uint64_t> failed;  // seeds
    std::vector<std::string> violations;

    void add(const RunResult& result) {
        ++seeds;
        jobs += result.jobs;
        deaths += result.deaths;
        failures += result.failures;
        simulated_seconds += result.time / second;
        last_fingerprint = result.fingerprint;
        for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += result.fault_counts[i];
    }
    void add_violation(std::uint64_t seed, std::string_view text) {
        if (failed.empty() || failed.back() != seed) failed.push_back(seed);
        violations.push_back(fmt::format("seed {}: {}", seed, text));
    }
};

// What a child says about a seed: lines of words.
std::string line_of(std::uint64_t seed, const RunResult& result) {
    std::string line =
        fmt::format("end {} {} {} {} {} {}", seed, result.jobs, result.deaths, result.failures, result.time / second, result.fingerprint);
    for (const std::size_t count : result.fault_counts) line += fmt::format(" {}", count);
    return line + '\n';
}

void write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(file, text.data(), text.size());
        CHECK(written > 0, "the parent reads");
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void play_in_child(RunOptions options, Range range, int file) {
    for (options.seed = range.first; options.seed <= range.last; ++options.seed) {
        const RunResult result = run(options);
        for (const std::string& violation : result.violations) {
            std::string text = violation.substr(0, 1000);
            std::ranges::replace(text, '\n', ' ');
            write_all(file, fmt::format("violation {} {}\n", options.seed, text));
        }
        write_all(file, line_of(options.seed, result));
    }
}

// Reads a child's lines into the sums. Returns the seed at which it ended, if it did not play all of them to the end.
std::optional<std::uint64_t> take_lines(int file, Range range, Sums& sums) {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t count = 0; (count = read(file, buffer.data(), buffer.size())) > 0;) {
        text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    std::istringstream lines(text);
    std::uint64_t playing = range.first;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string word;
        std::uint64_t seed = 0;
        words >> word >> seed;
        if (word == "violation") sums.add_violation(seed, line.substr(static_cast<std::size_t>(words.tellg()) + 1));
        if (word != "end") continue;
        RunResult result;
        words >> result.jobs >> result.deaths >> result.failures >> result.time >> result.fingerprint;
        result.time *= second;
        for (std::size_t& count : result.fault_counts) words >> count;
        sums.add(result);
        playing = seed + 1;
    }
    return playing <= range.last ? std::optional(playing) : std::nullopt;
}

// Plays a range; with stop_at_failure, only up to the first seed that fails, or a few more.
void play(const RunOptions& options, Range range, bool stop_at_failure, Sums& sums) {
    while (range.first <= range.last && !(stop_at_failure && !sums.failed.empty())) {
        const Range part{range.first, std::min(range.last, range.first + seeds_of_child - 1)};
        std::array<int, 2> ends{};
        CHECK(pipe(ends.data()) == 0, "a pipe can be made");
        std::cout.flush();
        std::fflush(nullptr);
        const pid_t child = fork();
        CHECK(child >= 0, "a process can be made");
        if (child == 0) {
            close(ends[0]);
            alarm(seconds_of_child);
            play_in_child(options, part, ends[1]);
            _exit(0);
        }
        close(ends[1]);
        const auto died_at = take_lines(ends[0], part, sums);
        close(ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        range.first = part.last + 1;
        if (!died_at) continue;
        sums.add_violation(*died_at, fmt::format("the program ended with signal {}", WTERMSIG(status)));
        range.first = *died_at + 1;
    }
}

// What the seeds must show together: faults of each kind, and that the last seed, played alone, gives the same records again.
void check_range(const RunOptions& options, Range range, Sums& sums) {
    constexpr std::size_t seeds_with_all_faults = 200;
    for (std::size_t i = 0; sums.seeds >= seeds_with_all_faults && i < fault_names.size(); ++i) {
        if (sums.faults[i] == 0) sums.add_violation(range.last, fmt::format("no seed had the fault {}", fault_names[i].second));
    }
    if (!sums.failed.empty()) return;
    Sums again;
    play(options, {range.last, range.last}, false, again);
    if (again.last_fingerprint == sums.last_fingerprint) return;
    sums.add_violation(range.last, fmt::format("fingerprint {:016x} after other seeds, {:016x} alone: runs do not repeat",
                                               sums.last_fingerprint, again.last_fingerprint));
}

int play_seeds(const RunOptions& options, const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    const Range range = range_of(text);
    Sums sums;
    play(options, range, false, sums);
    check_range(options, range, sums);
    for (const std::string& violation : sums.violations) fmt::print("{}\n", violation);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    fmt::print("seeds {}: {} jobs, {} deaths, {} workers that ended with an error, {} simulated hours in {:.1f} s\nfaults:", text,
               sums.jobs, sums.deaths, sums.failures, sums.simulated_seconds / 3600, static_cast<double>(took.count()) / 1000);
    for (std::size_t i = 0; i < fault_names.size(); ++i) fmt::print(" {} {}", fault_names[i].second, sums.faults[i]);
    fmt::print("\n{} seeds failed", sums.failed.size());
    if (!sums.failed.empty()) fmt::print("; replay the first with --seed {} --trace", sums.failed.front());
    fmt::print("\n");
    return sums.failed.empty() ? 0 : 1;
}

int find_plants(RunOptions options, const std::string& text) {
    int missed = 0;
    for (const auto& [plant, name] : plants) {
        options.plant = plant;
        Sums sums;
        play(options, range_of(text), true, sums);
        const bool found = !sums.failed.empty();
        fmt::print("{}: {}\n", name, found ? "found by " + sums.violations.front() : "NOT FOUND");
        missed += found ? 0 : 1;
    }
    return missed == 0 ? 0 : 1;
}

int play_one(const RunOptions& options) {
    const RunResult result = run(options);
    for (const std::string& violation : result.violations) fmt::print("seed {}: {}\n", options.seed, violation);
    fmt::print("{} jobs, {} deaths, {} workers that ended with an error, {} s simulated, fingerprint {:016x}\n", result.jobs, result.deaths,
               result.failures, result.time / second, result.fingerprint);
    return result.violations.empty() ? 0 : 1;
}

int main_with(std::span<char* const> given) {
    try {
        faults::Arguments arguments(given);
        if (arguments.has("help")) {
            std::cout << help;
            return 0;
        }
        RunOptions options;
        options.trace = arguments.has("trace");
        options.jobs = static_cast<std::size_t>(arguments.number("jobs", 100));
        if (arguments.has("plant")) options.plant = plant_named(arguments.text("plant"));
        const std::string seeds = arguments.text("seeds", "");
        const std::string seeds_of_plants = arguments.text("find-plants", "");
        options.seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
        arguments.refuse_others();
        prepare();
        if (!seeds.empty()) return play_seeds(options, seeds);
        if (!seeds_of_plants.empty()) return find_plants(options, seeds_of_plants);
        return play_one(options);
    } catch (const faults::UsageError& error) {
        std::cerr << error.what() << '\n' << help;
        return 2;
    }
}

}  // namespace
}  // namespace lorry::simulation

int main(int count, char** arguments) { return lorry::simulation::main_with({arguments, static_cast<std::size_t>(count)}); }
