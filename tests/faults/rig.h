// What a scenario plays with: the brokers, the workers, the jobs, and what became of them. One thread, the driver's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/kafka/config.h"
#include "tests/faults/counters.h"
#include "tests/faults/evidence.h"
#include "tests/faults/job_mix.h"
#include "tests/faults/proxy.h"

namespace lorry::faults {

using std::chrono::milliseconds;

// From now on SIGINT and SIGTERM end the run in order: whatever waits in a rig throws Interrupted, brokers are stopped.
void end_on_signals();
struct Interrupted : std::runtime_error {
    Interrupted() : std::runtime_error("interrupted") {}
};

// Brokers of our own, started by ops/kafka, behind a proxy: also what they say to each other goes through it.
class Cluster {
public:
    Cluster(int brokers, std::filesystem::path folder, std::uint64_t seed);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    int brokers() const { return brokers_; }
    consumer::KafkaConfig config() const;
    // Numbers count from 1. Each returns when it is done; starting throws std::runtime_error when the broker does not come up.
    void kill(int broker);
    void stop(int broker);
    void start(int broker);
    void start_all();  // together: one alone of several is no quorum, and does not come up
    FaultProxy& proxy() { return *proxy_; }

private:
    void command(std::vector<std::string> arguments);

    const int brokers_;
    const std::filesystem::path folder_;
    std::vector<std::string> start_ = {"start"};  // with what all of them are made of
    std::string address_;
    std::unique_ptr<FaultProxy> proxy_;
};

// A worker's process with its log. Killed with its parent.
class WorkerProcess {
public:
    WorkerProcess(std::vector<std::string> command, const std::filesystem::path& log);
    ~WorkerProcess();
    WorkerProcess(const WorkerProcess&) = delete;
    WorkerProcess& operator=(const WorkerProcess&) = delete;

    void signal(int number) const;
    bool running();  // also while it is stopped
    bool stopped() const;
    // After its end: 128 + signal, or the exit code.
    int exit_code() const { return exit_code_; }
    pid_t id() const { return process_; }

private:
    pid_t process_ = -1;
    bool ended_ = false;
    int exit_code_ = 0;
};

struct RigOptions {
    std::filesystem::path worker_program;
    std::filesystem::path folder;  // logs, ledgers, counts
    std::string prefix;
    std::uint64_t seed = 1;
    int workers = 3;
    int partitions = 6;
    std::size_t jobs = 500;
    std::string step_time = "10000";  // of the workers' engines (step_time.h)
    milliseconds session_timeout{6'000};
    milliseconds transaction_timeout{10'000};
    milliseconds slack{5'000};  // how much longer than the protocol's own time-outs nothing may end
    bool at_least_once = false;
    std::optional<std::size_t> careful_starts = std::nullopt;  // otherwise than by default
    bool results_topic = true;                                 // false: missing at first
    std::size_t result_bytes_max = 8 << 10;                    // what their topic takes: more than any but a large job needs
    double reached_least = 1.0;                                // share of the faults that must have come about
    FaultRules rules = {};
};

struct RigCounts {
    std::size_t jobs = 0;
    std::size_t kills = 0;    // signals that end a process, by us and by themselves
    std::size_t unclean = 0;  // of these, SIGKILLs by us
    std::size_t killed_by_jobs = 0;
    std::size_t stops = 0;  // SIGSTOP
    std::size_t broker_faults = 0;
    std::size_t proxy_faults = 0;
    std::size_t crashed_by_chance = 0;     // jobs (checker.h)
    std::size_t exits = 0;                 // of workers, with an error, that nobody asked for
    std::size_t points = 0;                // faults that wait for something to happen first
    std::size_t points_missed = 0;         // of these, where it did not
    std::vector<milliseconds> recoveries;  // from a worker's start to its first result
    Pause stall_worst;
};

class Rig {
public:
    Rig(Cluster& cluster, RigOptions options);
    ~Rig();
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    Cluster& cluster() { return cluster_; }
    const RigOptions& options() const { return options_; }
    const schema::Topics& topics() const { return topics_; }
    std::mt19937_64& random() { return random_; }
    int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
    RigCounts& counts() { return counts_; }
    // A fault that waits for something to happen first: whether it did. Hands that on.
    bool note_point(bool reached);
    // A worker's end that the fault demands: the checker decides about it.
    void note_end(WorkerEnd end) { worker_ends_.push_back(std::move(end)); }
    std::optional<int> exit_code_of(int worker);  // nullopt: it runs
    // What happens from now on is that fault's doing.
    void name_fault(std::string_view name) { fault_ = name; }

    // The watch over progress (progress_watch.h) begins anew with each start, kill or SIGTERM of a worker that is ours, and when a fault
    // that lasts has healed; the longest pause until then is kept. A worker that ends by itself and is started again changes nothing.
    void begin_watch();
    // A fault that lasts, while this lives: what does not end meanwhile is no stall.
    class Lasting {
    public:
        explicit Lasting(Rig& rig) : rig_(rig) {
            rig_.stop_watch();
            ++rig_.faults_lasting_;
        }
        ~Lasting() {
            --rig_.faults_lasting_;
            rig_.begin_watch();
        }
        Lasting(const Lasting&) = delete;
        Lasting& operator=(const Lasting&) = delete;

    private:
        Rig& rig_;
    };
    std::string group() const { return options_.prefix + "-hash"; }
    std::string transactional_id(int worker) const;

    // Creates what topics are missing.
    void create_topics(bool with_results = true);
    // Everyday jobs; cancels of some go out before, some while and some after they can have run.
    void produce(std::size_t count);
    void produce(JobKind kind, std::size_t count);
    void send_cancels();  // those that have not gone out
    void register_late_adapter();

    // Workers are numbered from 0; below options().workers they belong to the crew and are started again whenever they end.
    void start_crew();
    void start(int worker, const std::vector<std::string>& more = {});
    // A second process under that worker's name, with files of its own. Not started again.
    void start_twin(int twin, int worker);
    void signal(int worker, int number);
    // SIGTERM, once: a second one would end it in the middle of its drain. Not started again; one that does not end is a violation.
    void ask_to_end(int worker);
    void expect_end(int worker);
    void end(int worker);  // both
    void end_all();
    bool running(int worker);
    WorkerProcess& process(int worker);
    int any_worker() { return between(0, options_.workers - 1); }
    // SIGKILL itself at that fault point, or SIGSTOP. False: it did not pass there in time.
    bool wait_end(int worker, milliseconds patience);
    bool wait_stopped(int worker, milliseconds patience);
    std::string log_of(int worker) const;
    std::filesystem::path ledger_of(int worker) const;

    // Starts again who has ended, for so long.
    void pause(milliseconds time);
    // Until that many jobs have ended. False: it took longer.
    bool wait_ended(std::size_t count, milliseconds patience);
    // The same, for as long as the pauses between them stay within the limit.
    void watch_until(std::size_t count);
    // Until all jobs have ended, likewise.
    void settle();
    std::size_t ended() const;
    std::size_t results_with(std::initializer_list<std::string_view> words) const { return tail_->results_with(words); }
    // Until that is so. False: it took longer than nothing may end.
    bool wait_until(const std::function<bool()>& is_so);
    // Stops everything and lets the checker decide.
    std::vector<Violation> conclude();

    std::uint64_t tokens_drawn() const;
    std::uint64_t rebalances() const;
    std::uint64_t ledger_failures(int worker) { return (*slot(worker).counts)->ledger_failures; }
    std::int64_t tokens_wanted() const { return tokens_wanted_; }
    std::size_t commits_seen() const { return commits_seen_; }
    milliseconds stall_limit() const;

private:
    struct Slot {
        std::unique_ptr<WorkerProcess> process;
        std::unique_ptr<CountsFile> counts;
        bool wanted = false;
        bool expects_end = false;
        bool asked_to_end = false;
        std::optional<SteadyClock::time_point> recovers_since;
    };

    Slot& slot(int worker);
    void launch(int worker, const std::vector<std::string>& more);
    void tend();
    void stop_watch();
    void send(std::vector<schema::JobRecord> records);
    void send_some_cancels(std::size_t count);
    void note_exit(int worker);
    std::filesystem::path note_stacks(int worker);
    std::string member_of(int worker) const;

    Cluster& cluster_;
    const RigOptions options_;
    const schema::Topics topics_;
    std::mt19937_64 random_;
    JobMix mix_;
    RigCounts counts_;
    std::vector<Slot> slots_;
    std::vector<std::string> cancels_;  // not yet sent
    std::unique_ptr<Tail> tail_;
    std::string fault_ = "the start";
    std::string watched_fault_;  // the one that was last when the watch began
    int faults_lasting_ = 0;
    std::vector<Pause> pauses_;
    std::vector<WorkerEnd> worker_ends_;
    std::int64_t tokens_wanted_ = 0;
    std::size_t commits_seen_ = 0;
};

}  // namespace lorry::faults
