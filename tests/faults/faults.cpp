// lorry_faults breaks workers, brokers and the network between them. Then the checker decides whether every job still ended exactly once.
// ctest runs a short mix; longer ones are run by hand.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <locale>
#include <map>
#include <random>

#include <fmt/format.h>

#include "schema/check.h"
#include "tests/faults/arguments.h"
#include "tests/faults/scenarios.h"
#include "tests/faults/step_time.h"

namespace lorry::faults {
namespace {

constexpr std::string_view help = R"(usage: lorry_faults [--scenario NAME]... [--mix] [OPTION]...
Starts its own Kafka (ops/kafka) and workers with a fake engine, produces jobs of all kinds, compressed with every codec in turn, breaks
things, heals them, and checks from committed records alone that every job ended exactly once. The exit code is 1 if one did not; logs and
ledgers are then kept.

  --scenario NAME   play one fault; may be repeated (default without --mix: all faults, each with its own topics)
  --mix             play faults in one long run: each once in random order, then random faults
  --list            list the faults
  --jobs N          jobs of a scenario (1500) or of the mix (3000)
  --faults N        minimum number of faults in the mix (default: as many as fit the jobs)
  --minutes N       start no fault of the mix after this time (default: no limit)
  --seed S          seed of jobs, faults and choices (default: from the clock; printed)
  --workers W       number of workers (3)
  --partitions P    partitions of the jobs topic (6)
  --brokers B       number of brokers (1; coordinator_move and coordinator_return need several)
  --slack-ms N      how much longer a pause in progress may last than the sum of the time-outs of session, transaction and clean-up
                    (5000; use more on busy machines)
  --step-time T     step time of the workers' engines in microseconds: N, uniform:A..B or exponential:MEAN
                    (10000; with --mix exponential:10000)
  --session-timeout-ms N      session time-out of the group (6000)
  --transaction-timeout-ms N  time-out of transactions (10000)
  --at-least-once   run workers without transactions: expect doubled results
  --careful-starts N  careful starts of the workers; 0: jobs that kill their worker are not detected, all others are repeated at once
  --folder DIR      folder for logs, ledgers and brokers (default: a new one in the system's temporary folder)
  --keep            keep the folder in any case
)";

struct Row {
    std::string name;
    std::string about;
    RigCounts counts;
    std::uint64_t rebalances = 0;
    std::uint64_t drawn = 0;
    std::int64_t wanted = 0;
    std::size_t commits = 0;
    std::vector<Violation> violations;
    std::chrono::seconds took{0};
};

std::string in_seconds(milliseconds time) { return fmt::format("{:.1f}", static_cast<double>(time.count()) / 1'000); }

std::string percentile(std::vector<milliseconds> values, double share) {
    if (values.empty()) return "–";
    std::ranges::sort(values);
    return in_seconds(values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))]);
}

double replayed(const Row& row) {
    return row.wanted == 0 ? 0 : 100.0 * (static_cast<double>(row.drawn) / static_cast<double>(row.wanted) - 1.0);
}

std::size_t count_of(const Row& row, Violation::Kind kind) {
    return static_cast<std::size_t>(std::ranges::count(row.violations, kind, &Violation::kind));
}

// Lines of the output that begin with '|': the table of docs/operate.md.
constexpr std::string_view table_head =
    "| broken | jobs | kills | stops | broker faults | proxy faults | rebalances | lost | doubled | computed again | recovery p50 / p99 "
    "| longest pause |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";

struct Thousands final : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
};

void show(const Row& row) {
    const RigCounts& counts = row.counts;
    const std::size_t lost = count_of(row, Violation::Kind::lost);
    const std::size_t doubled = count_of(row, Violation::Kind::doubled);
    std::string jobs = fmt::format(std::locale(std::locale::classic(), new Thousands), "{:L}", counts.jobs);
    if (counts.crashed_by_chance > 0) jobs += fmt::format(" ({} crashed)", counts.crashed_by_chance);
    std::cout << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} % | {} / {} s | {} s |\n", row.about, jobs,
                             counts.kills, counts.stops, counts.broker_faults, counts.proxy_faults, row.rebalances, lost, doubled,
                             replayed(row), percentile(counts.recoveries, 0.5), percentile(counts.recoveries, 0.99),
                             in_seconds(counts.stall_worst.longest));
    std::cout << fmt::format(
        "    {}: {} s; longest pause after {}; {} exits; {} of {} points missed; {} commits seen; {} other violations\n", row.name,
        row.took.count(), counts.stall_worst.after, counts.exits, counts.points_missed, counts.points, row.commits,
        row.violations.size() - lost - doubled);
    std::map<Violation::Kind, int> shown;
    constexpr int shown_most = 5;
    for (const Violation& violation : row.violations) {
        if (shown[violation.kind]++ < shown_most) std::cout << fmt::format("    {}: {}\n", name_of(violation.kind), violation.text);
    }
    std::cout << std::flush;
}

// Plays the scenario and checks the outcome. A failure of the environment is printed and counts as a violation.
Row play(Rig& rig, std::string_view name, std::string about, const auto& act) {
    Row row{.name = std::string(name), .about = std::move(about)};
    const auto start = SteadyClock::now();
    try {
        act();
        rig.settle();
        row.violations = rig.conclude();
    } catch (const Interrupted&) {
        throw;
    } catch (const std::exception& error) {
        row.violations.push_back({Violation::Kind::stalled, error.what()});
    }
    row.counts = rig.counts();
    row.rebalances = rig.rebalances();
    row.drawn = rig.tokens_drawn();
    row.wanted = rig.tokens_wanted();
    row.commits = rig.commits_seen();
    row.took = std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - start);
    show(row);
    return row;
}

bool can_play(const Scenario& scenario, const Cluster& cluster) {
    switch (scenario.brokers) {
        case Scenario::Brokers::any: return true;
        case Scenario::Brokers::several: return cluster.brokers() > 1;
    }
    CHECK(false, "a scenario for brokers of no known number");
}

Row play_scenario(Cluster& cluster, RigOptions options, const Scenario& scenario) {
    if (scenario.prepare != nullptr) scenario.prepare(options);
    Rig rig(cluster, options);
    return play(rig, scenario.name, std::string(scenario.about), [&] {
        rig.name_fault(scenario.name);
        if (scenario.begins_busy) {
            rig.produce(options.jobs);
            rig.start_crew();
            rig.wait_ended(options.jobs / 5, std::chrono::seconds(60));
        }
        scenario.act(rig);
    });
}

struct MixOptions {
    std::size_t faults = 0;
    std::chrono::minutes time{0};  // 0: no limit
};

// Produces jobs in lots, so that there is always a backlog, and plays one fault per lot: first each fault once in random order, then
// random faults.
Row play_mix(Cluster& cluster, const RigOptions& options, const MixOptions& mix) {
    constexpr std::size_t lot_least = 250;
    const std::size_t lot = std::max(lot_least, mix.faults == 0 ? 0 : options.jobs / mix.faults);
    std::vector<const Scenario*> drawn_from;
    std::vector<double> weights;
    for (const Scenario& scenario : scenarios()) {
        if (scenario.weight == 0 || !can_play(scenario, cluster)) continue;
        if (scenario.name == "killer_job" && options.careful_starts == 0) continue;  // it would kill one worker after another
        drawn_from.push_back(&scenario);
        weights.push_back(scenario.weight);
    }
    std::discrete_distribution<std::size_t> draw(weights.begin(), weights.end());
    std::map<std::string_view, int> drawn;
    Rig rig(cluster, options);
    std::vector<const Scenario*> each_once = drawn_from;
    std::ranges::shuffle(each_once, rig.random());
    Row row = play(rig, "mix", fmt::format("these drawn at random, brokers: {}", cluster.brokers()), [&] {
        const auto start = SteadyClock::now();
        rig.produce(lot);
        rig.start_crew();
        for (std::size_t faults = 0; faults < mix.faults || rig.counts().jobs < options.jobs; ++faults) {
            const bool in_time = mix.time.count() == 0 || SteadyClock::now() < start + mix.time;
            if (!in_time) break;
            rig.produce(lot);
            const Scenario& scenario = faults < each_once.size() ? *each_once[faults] : *drawn_from[draw(rig.random())];
            ++drawn[scenario.name];
            std::cerr << fmt::format("  {:>4} s {:>7} of {} jobs: {}\n",
                                     std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - start).count(), rig.ended(),
                                     rig.counts().jobs, scenario.name);
            rig.name_fault(scenario.name);
            scenario.act(rig);
            // Leaves a backlog for the next fault, but keeps it from growing.
            rig.watch_until(rig.counts().jobs - lot);
        }
    });
    std::string list;
    for (const auto& [name, times] : drawn) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, times);
    std::cout << fmt::format("    drawn: {}; {} of {} faults of the mix; limit of a pause: {} ms\n", list, drawn.size(),
                             drawn_from.size(), rig.stall_limit().count());
    return row;
}

// The command line, checked.
struct Call {
    RigOptions options;
    MixOptions mix_options;
    bool mix = false;
    bool keep = false;
    int brokers = 1;
    std::filesystem::path folder;
    std::vector<const Scenario*> chosen;
};

RigOptions rig_options_from(Arguments& arguments, bool mix) {
    RigOptions options;
    const auto now = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    options.worker_program = std::filesystem::canonical("/proc/self/exe").parent_path() / "lorry_fault_worker";
    options.seed = static_cast<std::uint64_t>(arguments.number("seed", static_cast<std::int64_t>(now % 1'000'000)));
    options.workers = static_cast<int>(arguments.number("workers", options.workers));
    options.partitions = static_cast<int>(arguments.number("partitions", options.partitions));
    options.slack = arguments.milliseconds("slack-ms", options.slack.count());
    options.session_timeout = arguments.milliseconds("session-timeout-ms", options.session_timeout.count());
    options.transaction_timeout = arguments.milliseconds("transaction-timeout-ms", options.transaction_timeout.count());
    options.at_least_once = arguments.has("at-least-once");
    if (arguments.has("careful-starts")) options.careful_starts = static_cast<std::size_t>(arguments.number("careful-starts", 0));
    options.step_time = arguments.text("step-time", mix ? "exponential:10000" : options.step_time);
    static_cast<void>(StepTime(options.step_time, options.seed));  // so that a wrong value is refused here and not by each worker
    constexpr std::int64_t jobs_of_scenario = 1'500;
    constexpr std::int64_t jobs_of_mix = 3'000;
    options.jobs = static_cast<std::size_t>(arguments.number("jobs", mix ? jobs_of_mix : jobs_of_scenario));
    return options;
}

Call call_from(Arguments& arguments) {
    Call call;
    call.mix = arguments.has("mix");
    call.options = rig_options_from(arguments, call.mix);
    call.mix_options = {.faults = static_cast<std::size_t>(arguments.number("faults", 0)),
                        .time = std::chrono::minutes(arguments.number("minutes", 0))};
    call.folder = std::filesystem::absolute(
        arguments.text("folder", (std::filesystem::temp_directory_path() / fmt::format("lorry-faults-{}", getpid())).string()));
    call.keep = arguments.has("keep");
    call.brokers = static_cast<int>(arguments.number("brokers", 1));
    for (const std::string& name : arguments.all("scenario")) {
        const auto found = std::ranges::find(scenarios(), name, &Scenario::name);
        if (found == scenarios().end()) throw UsageError("there is no scenario " + name + ": --list names them all");
        call.chosen.push_back(&*found);
    }
    arguments.refuse_others();
    if (call.chosen.empty() && !call.mix) {
        for (const Scenario& scenario : scenarios()) call.chosen.push_back(&scenario);
    }
    return call;
}

// Plays what the call asks for. Returns the number of violations.
std::size_t play_all(const Call& call) {
    std::size_t violations = 0;
    Cluster cluster(call.brokers, call.folder / "kafka", call.options.seed);
    int number = 0;
    for (const Scenario* scenario : call.chosen) {
        if (!can_play(*scenario, cluster)) {
            std::cout << fmt::format("{:<22} left out: it needs several --brokers\n", scenario->name);
            continue;
        }
        RigOptions own = call.options;
        own.prefix = fmt::format("f{}-{}", number++, scenario->name);
        own.folder = call.folder / own.prefix;
        own.seed = call.options.seed + static_cast<std::uint64_t>(number);
        violations += play_scenario(cluster, own, *scenario).violations.size();
    }
    if (call.mix) {
        RigOptions own = call.options;
        own.prefix = "mix";
        own.folder = call.folder / "mix";
        own.reached_least = 0.5;  // a fault soon after another may find no work to wait for
        violations += play_mix(cluster, own, call.mix_options).violations.size();
    }
    return violations;
}

int run(std::span<char* const> given) {
    Arguments arguments(given);
    if (arguments.has("help")) {
        std::cout << help;
        return 0;
    }
    if (arguments.has("list")) {
        for (const Scenario& scenario : scenarios()) {
            std::cout << fmt::format("{:<22} {}{}\n", scenario.name, scenario.about, scenario.weight > 0 ? "" : " (not in the mix)");
        }
        return 0;
    }
    const Call call = call_from(arguments);
    end_on_signals();
    std::filesystem::create_directories(call.folder);
    std::cout << fmt::format("seed {}, {} workers, {} brokers, logs in {}\n", call.options.seed, call.options.workers, call.brokers,
                             call.folder.string())
              << table_head << std::flush;
    const std::size_t violations = play_all(call);
    if (violations == 0 && !call.keep) std::filesystem::remove_all(call.folder);
    std::cout << fmt::format("{} violations; --seed {} draws the same jobs and faults again{}\n", violations, call.options.seed,
                             violations == 0 ? "" : "; logs in " + call.folder.string());
    return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lorry::faults

int main(int count, char** arguments) {
    try {
        return lorry::faults::run({arguments, static_cast<std::size_t>(count)});
    } catch (const lorry::faults::UsageError& error) {
        std::cerr << error.what() << '\n' << lorry::faults::help;
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "failed: " << error.what() << '\n';
        return 1;
    }
}
