// Starts, signals and restarts the processes of a rig and waits for them; see rig.h.
#include "tests/faults/rig.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/admin.h"
#include "consumer/kafka/client.h"
#include "tests/faults/kafka_probe.h"
#include "tests/support/program.h"

namespace lorry::faults {
namespace {

constexpr milliseconds turn{50};
constexpr std::size_t cancels_per_turn = 8;
constexpr std::array codecs = {"none", "gzip", "snappy", "lz4", "zstd"};

std::atomic<int> was_interrupted = 0;

std::string number(milliseconds time) { return std::to_string(time.count()); }

}  // namespace

void end_on_signals() {
    const auto note = [](int) { was_interrupted = 1; };
    std::signal(SIGINT, note);
    std::signal(SIGTERM, note);
}

Cluster::Cluster(int brokers, std::filesystem::path folder, std::uint64_t seed) : brokers_(brokers), folder_(std::move(folder)) {
    const std::uint16_t port = free_ports(seed, brokers);
    const std::uint16_t proxy_port = free_ports(seed + 5'000, brokers);
    std::vector<FaultProxy::Route> routes;
    for (int i = 0; i < brokers; ++i) {
        routes.push_back({.port = static_cast<std::uint16_t>(proxy_port + i), .target = static_cast<std::uint16_t>(port + i)});
        address_ += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", routes.back().port);
    }
    proxy_ = std::make_unique<FaultProxy>(routes);
    for (const auto& [name, value] : {std::pair("--brokers", brokers), {"--port", port}, {"--advertise", proxy_port}}) {
        start_.insert(start_.end(), {name, std::to_string(value)});
    }
    auto fresh = start_;
    fresh.emplace_back("--fresh");
    command(std::move(fresh));
}

Cluster::~Cluster() {
    proxy_.reset();
    try {
        command({"stop"});
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
    }
}

void Cluster::command(std::vector<std::string> arguments) {
    std::vector<std::string> words = {LORRY_SOURCE_DIR "/ops/kafka"};
    std::ranges::move(arguments, std::back_inserter(words));
    words.insert(words.end(), {"--data", folder_.string()});
    const auto result = tests::run_program_of(words);
    if (result.exit_code != 0) throw std::runtime_error(fmt::format("{}: {}{}", fmt::join(words, " "), result.out, result.err));
}

consumer::KafkaConfig Cluster::config() const {
    return {.brokers = address_, .passthrough = {}, .deadline_start = std::chrono::minutes(2), .deadline_later = std::chrono::minutes(5)};
}

void Cluster::kill(int broker) { command({"kill", std::to_string(broker)}); }
void Cluster::stop(int broker) { command({"stop", std::to_string(broker)}); }
void Cluster::start(int broker) { command({"start", std::to_string(broker)}); }
void Cluster::start_all() { command(start_); }

WorkerProcess::WorkerProcess(std::vector<std::string> command, const std::filesystem::path& log) {
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // Until it runs its program, the child has this process's handlers, which would swallow a signal to end.
    sigset_t ends;
    sigset_t before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    process_ = fork();
    if (process_ != 0) pthread_sigmask(SIG_SETMASK, &before, nullptr);
    CHECK(process_ >= 0, "a process can be made");
    if (process_ > 0) return;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
}

WorkerProcess::~WorkerProcess() {
    if (!running()) return;
    signal(SIGKILL);
    waitpid(process_, nullptr, 0);
}

void WorkerProcess::signal(int number) const {
    if (!ended_) ::kill(process_, number);
}

bool WorkerProcess::running() {
    int status = 0;
    if (!ended_ && waitpid(process_, &status, WNOHANG) == process_) {
        ended_ = true;
        exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return !ended_;
}

bool WorkerProcess::stopped() const {
    std::string line;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process_)), line);
    const auto after_name = line.rfind(") ");
    return after_name != std::string::npos && line[after_name + 2] == 'T';
}

Rig::Rig(Cluster& cluster, RigOptions options)
    : cluster_(cluster),
      options_(std::move(options)),
      topics_{options_.prefix},
      random_(options_.seed),
      mix_(options_.seed, JobMix::everyday()) {
    std::filesystem::create_directories(options_.folder);
    create_topics(options_.results_topic);
}

Rig::~Rig() = default;

std::string Rig::transactional_id(int worker) const { return fmt::format("{}/{}/{}", options_.prefix, group(), member_of(worker)); }
std::string Rig::member_of(int worker) const { return fmt::format("w{}", worker); }
std::filesystem::path Rig::ledger_of(int worker) const { return options_.folder / (member_of(worker) + ".db"); }

void Rig::create_topics(bool with_results) {
    auto specs = schema::topic_specs(topics_, {.partitions = options_.partitions, .brokers = cluster_.brokers()});
    if (!with_results) std::erase_if(specs, [&](const schema::TopicSpec& spec) { return spec.name == topics_.results(); });
    for (schema::TopicSpec& spec : specs) {
        if (spec.name == topics_.results()) spec.config["max.message.bytes"] = std::to_string(options_.result_bytes_max);
    }
    consumer::create_topics(cluster_.config(), specs);
    if (with_results) tail_ = std::make_unique<Tail>(cluster_.config(), topics_, group());
}

void Rig::send(std::vector<schema::JobRecord> records) {
    for (const schema::JobRecord& record : records) {
        const std::string value = record.value.value_or("");
        const auto begin = value.find("cancel-");
        if (begin != std::string::npos) cancels_.push_back(value.substr(begin, value.find('"', begin) - begin));
    }
    tail_->expect(records.size());
    consumer::KafkaConfig compressing = cluster_.config();
    compressing.passthrough["compression.codec"] = codecs[sendings_++ % codecs.size()];
    produce_all(compressing, topics_.jobs(), records);
    counts_.jobs += records.size();
}

void Rig::produce(std::size_t count) {
    std::vector<schema::JobRecord> records;
    for (std::size_t i = 0; i < count; ++i) records.push_back(mix_.next());
    send(std::move(records));
    send_some_cancels(cancels_.size() / 3);
}

void Rig::produce(JobKind kind, std::size_t count) {
    std::vector<schema::JobRecord> records;
    for (std::size_t i = 0; i < count; ++i) records.push_back(mix_.next(kind));
    send(std::move(records));
}

void Rig::send_cancels() { send_some_cancels(cancels_.size()); }

void Rig::send_some_cancels(std::size_t count) {
    for (; count > 0 && !cancels_.empty(); --count) {
        consumer::send_cancels(cluster_.config(), topics_, {{.id = cancels_.back()}});
        cancels_.pop_back();
    }
}

void Rig::register_late_adapter() {
    consumer::register_adapters(cluster_.config(), topics_.adapters(),
                                {{.name = mix_.late_adapter(),
                                  .hash = "1a7e",
                                  .path = "late",
                                  .base = "hash",
                                  .rank_max = 8,
                                  .targets = {},
                                  .bytes = 0,
                                  .registered = {}}});
    mix_.name_next_late_adapter();
}

Rig::Slot& Rig::slot(int worker) {
    if (slots_.size() <= static_cast<std::size_t>(worker)) slots_.resize(static_cast<std::size_t>(worker) + 1);
    return slots_[static_cast<std::size_t>(worker)];
}

void Rig::start_crew() {
    for (int worker = 0; worker < options_.workers; ++worker) start(worker);
}

void Rig::start(int worker, const std::vector<std::string>& more) {
    launch(worker, more);
    begin_watch();
}

void Rig::launch(int worker, const std::vector<std::string>& more) {
    Slot& one = slot(worker);
    const std::string member = member_of(worker);
    const std::filesystem::path counts = options_.folder / (member + ".counts");
    if (!one.counts) one.counts = std::make_unique<CountsFile>(counts);
    std::vector<std::string> command = {options_.worker_program.string(),
                                        "--brokers",
                                        cluster_.config().brokers,
                                        "--prefix",
                                        options_.prefix,
                                        "--group",
                                        group(),
                                        "--member",
                                        member,
                                        "--ledger",
                                        ledger_of(worker).string(),
                                        "--counts",
                                        counts.string(),
                                        "--session-timeout-ms",
                                        number(options_.session_timeout),
                                        "--transaction-timeout-ms",
                                        number(options_.transaction_timeout),
                                        "--step-time",
                                        options_.step_time,
                                        "--seed",
                                        std::to_string(options_.seed + static_cast<std::uint64_t>(worker)),
                                        "--codec",
                                        codecs[(options_.seed + static_cast<std::uint64_t>(worker)) % codecs.size()]};
    if (options_.at_least_once) command.emplace_back("--at-least-once");
    if (options_.careful_starts) command.insert(command.end(), {"--careful-starts", std::to_string(*options_.careful_starts)});
    command.insert(command.end(), more.begin(), more.end());
    one.process.reset();
    one.process = std::make_unique<WorkerProcess>(std::move(command), options_.folder / (member + ".log"));
    one.wanted = true;
    one.expects_end = std::ranges::find(more, "--die-at") != more.end();
    one.recovers_since = SteadyClock::now();
}

void Rig::start_twin(int twin, int worker) {
    start(twin, {"--member", member_of(worker)});
    slot(twin).wanted = false;
}

bool Rig::note_point(bool reached) {
    ++counts_.points;
    if (!reached) ++counts_.points_missed;
    return reached;
}

WorkerProcess& Rig::process(int worker) {
    Slot& one = slot(worker);
    CHECK(one.process != nullptr, "this worker was started");
    return *one.process;
}

std::optional<int> Rig::exit_code_of(int worker) { return running(worker) ? std::nullopt : std::optional(process(worker).exit_code()); }

bool Rig::running(int worker) { return slot(worker).process && slot(worker).process->running(); }

void Rig::signal(int worker, int number) {
    if (number == SIGKILL || number == SIGTERM) {
        ++counts_.kills;
        slot(worker).expects_end = true;
    }
    if (number == SIGKILL) ++counts_.unclean;
    if (number == SIGSTOP) ++counts_.stops;
    process(worker).signal(number);
    begin_watch();
}

void Rig::end(int worker) {
    ask_to_end(worker);
    expect_end(worker);
}

void Rig::end_all() {
    const auto count = static_cast<int>(slots_.size());
    for (int worker = 0; worker < count; ++worker) ask_to_end(worker);
    stop_watch();  // until a worker is started again
    for (int worker = 0; worker < count; ++worker) expect_end(worker);
}

void Rig::ask_to_end(int worker) {
    Slot& one = slot(worker);
    one.wanted = false;
    one.asked_to_end = running(worker);
    if (!one.asked_to_end) return;
    one.process->signal(SIGTERM);
    begin_watch();
}

void Rig::expect_end(int worker) {
    constexpr std::chrono::seconds patience{60};
    if (!std::exchange(slot(worker).asked_to_end, false)) return;
    if (!wait_end(worker, patience)) {
        note_end({.member = member_of(worker),
                  .wanted = 0,
                  .log = "60 s after a SIGTERM; where its threads are: " + note_stacks(worker).string()});
        process(worker).signal(SIGKILL);
        wait_end(worker, patience);
        return;
    }
    note_exit(worker);
}

// Writes the stacks of the worker's threads to a file with gdb; if gdb is not installed, the file says so.
std::filesystem::path Rig::note_stacks(int worker) {
    const std::filesystem::path file = options_.folder / (member_of(worker) + ".stacks");
    const auto stacks =
        tests::run_program_of({"/usr/bin/env", "gdb", "--batch", "-p", std::to_string(process(worker).id()), "-ex", "thread apply all bt"});
    std::ofstream(file) << stacks.out << stacks.err;
    return file;
}

// 128 + SIGTERM: the worker got SIGTERM before it handled signals.
void Rig::note_exit(int worker) {
    const int code = process(worker).exit_code();
    if (code == 0 || code == 128 + SIGKILL || code == 128 + SIGTERM) return;
    ++counts_.exits;
    std::cerr << fmt::format("  {} ended with {}: {}\n", member_of(worker), code, log_of(worker));
}

bool Rig::wait_end(int worker, milliseconds patience) {
    const auto deadline = SteadyClock::now() + patience;
    while (running(worker)) {
        if (SteadyClock::now() > deadline) return false;
        std::this_thread::sleep_for(turn / 5);
    }
    return true;
}

bool Rig::wait_stopped(int worker, milliseconds patience) {
    const auto deadline = SteadyClock::now() + patience;
    while (!process(worker).stopped()) {
        if (SteadyClock::now() > deadline || !running(worker)) return false;
        std::this_thread::sleep_for(turn / 5);
    }
    return true;
}

// The last lines of the worker's log.
std::string Rig::log_of(int worker) const {
    constexpr std::size_t most = 600;
    std::ifstream in(options_.folder / (member_of(worker) + ".log"), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    return text.size() <= most ? text : "… " + text.substr(text.size() - most);
}

// Restarts workers that have ended, as a supervisor would.
void Rig::tend() {
    if (was_interrupted != 0) throw Interrupted();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Slot& one = slots_[i];
        const int worker = static_cast<int>(i);
        if (one.recovers_since && tail_) {
            if (const auto first = tail_->first_end_of(member_of(worker), *one.recovers_since)) {
                counts_.recoveries.push_back(std::chrono::duration_cast<milliseconds>(*first - *one.recovers_since));
                one.recovers_since.reset();
            }
        }
        if (!one.wanted || running(worker)) continue;
        const int code = one.process->exit_code();
        const bool expected = one.expects_end;
        if (code == 128 + SIGKILL && !expected) {
            ++counts_.kills;
            ++counts_.killed_by_jobs;
        }
        note_exit(worker);
        launch(worker, {});
        if (expected) begin_watch();  // but not for a worker that fails again and again
    }
}

void Rig::begin_watch() {
    stop_watch();
    if (!tail_ || faults_lasting_ > 0) return;
    watched_fault_ = fault_;
    tail_->begin_watch();
}

void Rig::stop_watch() {
    const auto longest = tail_ ? tail_->stop_watch() : std::nullopt;
    if (!longest) return;
    pauses_.push_back({.after = watched_fault_, .longest = *longest});
    if (*longest > counts_.stall_worst.longest) counts_.stall_worst = pauses_.back();
}

void Rig::pause(milliseconds time) {
    const auto end = SteadyClock::now() + time;
    while (SteadyClock::now() < end) {
        tend();
        std::this_thread::sleep_for(turn);
    }
}

std::size_t Rig::ended() const { return tail_ ? tail_->ended() : 0; }

bool Rig::wait_ended(std::size_t count, milliseconds patience) {
    const auto deadline = SteadyClock::now() + patience;
    while (ended() < std::min(count, counts_.jobs)) {
        if (SteadyClock::now() > deadline) return false;
        pause(turn);
    }
    return true;
}

bool Rig::wait_until(const std::function<bool()>& is_so) {
    const auto deadline = SteadyClock::now() + stall_limit();
    while (!is_so()) {
        if (SteadyClock::now() > deadline) return false;
        pause(turn);
    }
    return true;
}

milliseconds Rig::stall_limit() const {
    constexpr milliseconds clean_up{1'000};         // interval in which brokers abort expired transactions, set by ops/kafka
    constexpr milliseconds unknown_adapter{3'000};  // how long a job waits for its registration
    return options_.transaction_timeout + clean_up + options_.session_timeout + unknown_adapter + options_.slack;
}

void Rig::watch_until(std::size_t count) {
    while (ended() < std::min(count, counts_.jobs) && tail_->pause() <= stall_limit()) {
        send_some_cancels(cancels_per_turn);
        pause(turn);
    }
}

void Rig::settle() {
    watch_until(counts_.jobs);
    send_cancels();
}

std::uint64_t Rig::tokens_drawn() const {
    std::uint64_t sum = 0;
    for (const Slot& one : slots_) sum += one.counts ? (*one.counts)->tokens.load() : 0;
    return sum;
}

std::uint64_t Rig::rebalances() const {
    std::uint64_t sum = 0;
    for (const Slot& one : slots_) sum += one.counts ? (*one.counts)->rebalances.load() : 0;
    return sum;
}

std::vector<Violation> Rig::conclude() {
    constexpr std::chrono::seconds patience{60};
    end_all();
    FaultRules rules = options_.rules;
    // In an outage the group may lose any worker: the jobs that it had started then count one more death.
    const std::size_t lost = counts_.broker_faults * static_cast<std::size_t>(options_.workers);
    const std::size_t deaths = counts_.unclean + counts_.stops + counts_.exits + lost;
    rules.crashes_by_chance = deaths + counts_.killed_by_jobs >= 3;
    Evidence evidence = read_evidence(cluster_.config(), topics_, group(), rules, options_.transaction_timeout + patience);
    evidence.jobs_sent = counts_.jobs;
    evidence.tailed = tail_->finish(patience);
    commits_seen_ = tail_->commits_seen();
    const auto read = [&](const std::filesystem::path& file) { return read_ledger(cluster_.config(), topics_, file); };
    for (int worker = 0; worker < static_cast<int>(slots_.size()); ++worker) {
        const auto& counts = slot(worker).counts;
        if (!counts) continue;
        evidence.peaks.push_back({member_of(worker), (*counts)->working_most, (*counts)->parked_most, (*counts)->memory_most});
        const std::filesystem::path file = ledger_of(worker);
        const bool is_there = std::filesystem::exists(file);
        // A worker outside the crew may have been stopped before it opened its ledger.
        if (!is_there && worker >= options_.workers) continue;
        evidence.ledgers.push_back({"the ledger of " + member_of(worker), is_there ? std::optional(read(file)) : std::nullopt});
    }
    evidence.ledgers.push_back({"a ledger made anew", read(options_.folder / "rebuilt.db")});
    evidence.points = {.chosen = counts_.points, .missed = counts_.points_missed, .reached_least = options_.reached_least};
    tokens_wanted_ = answer_tokens(evidence);
    counts_.crashed_by_chance = crashed_by_chance(evidence);
    evidence.deaths = deaths;  // without deaths that killer jobs cause: those jobs run alone the third time
    evidence.pauses = pauses_;
    evidence.pause_limit = stall_limit();
    evidence.worker_ends = worker_ends_;
    auto violations = check(evidence);
    std::ranges::move(tail_->violations(), std::back_inserter(violations));
    return violations;
}

}  // namespace lorry::faults
