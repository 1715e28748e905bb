// The brokers, workers and jobs that a scenario acts on, and their outcome. Used by scenarios.cpp and faults.cpp. One thread, the driver's.
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

// From now on SIGINT and SIGTERM end the run cleanly: waits in a rig throw Interrupted, and the brokers are stopped.
void end_on_signals();
struct Interrupted : std::runtime_error {
    Interrupted() : std::runtime_error("interrupted") {}
};

// Brokers that only this test uses, started by ops/kafka, behind a proxy. Traffic between the brokers also goes through it.
class Cluster {
public:
    Cluster(int brokers, std::filesystem::path folder, std::uint64_t seed);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    int brokers() const { return brokers_; }
    consumer::KafkaConfig config() const;
    // Brokers are numbered from 1. Each call returns when it is done. start throws std::runtime_error if the broker does not come up.
    void kill(int broker);
    void stop(int broker);
    void start(int broker);
    void start_all();  // all together: one of several has no quorum and does not come up alone
    FaultProxy& proxy() { return *proxy_; }

private:
    void command(std::vector<std::string> arguments);

    const int brokers_;
    const std::filesystem::path folder_;
    std::vector<std::string> start_ = {"start"};  // with the arguments that all brokers share
    std::string address_;
    std::unique_ptr<FaultProxy> proxy_;
};

// A worker's process with its log. It is killed when its parent ends.
class WorkerProcess {
public:
    WorkerProcess(std::vector<std::string> command, const std::filesystem::path& log);
    ~WorkerProcess();
    WorkerProcess(const WorkerProcess&) = delete;
    WorkerProcess& operator=(const WorkerProcess&) = delete;

    void signal(int number) const;
    bool running();  // true also while it is stopped
    bool stopped() const;
    // The exit code, or 128 + signal. Valid after the process has ended.
    int exit_code() const { return exit_code_; }
    pid_t id() const { return process_; }

private:
    pid_t process_ = -1;
    bool ended_ = false;
    int exit_code_ = 0;
};

struct RigOptions {
    std::filesystem::path worker_program;
    std::filesystem::path folder;  // for logs, ledgers and counts
    std::string prefix;
    std::uint64_t seed = 1;
    int workers = 3;
    int partitions = 6;
    std::size_t jobs = 500;
    std::string step_time = "10000";  // of the workers' engines (step_time.h)
    milliseconds session_timeout{6'000};
    milliseconds transaction_timeout{10'000};
    milliseconds slack{5'000};  // how much longer than the protocol's time-outs a pause in progress may be
    bool at_least_once = false;
    std::optional<std::size_t> careful_starts = std::nullopt;  // nullopt: the worker's default
    bool results_topic = true;                                 // false: missing at first
    std::size_t result_bytes_max = 8 << 10;                    // limit of the topic, which only results of large jobs exceed
    double reached_least = 1.0;                                // minimum share of faults that must come about
    FaultRules rules = {};
};

struct RigCounts {
    std::size_t jobs = 0;
    std::size_t kills = 0;    // signals that ended a worker, from the driver or from itself
    std::size_t unclean = 0;  // of these, SIGKILLs from the driver
    std::size_t killed_by_jobs = 0;
    std::size_t stops = 0;  // SIGSTOP
    std::size_t broker_faults = 0;
    std::size_t proxy_faults = 0;
    std::size_t crashed_by_chance = 0;     // jobs (checker.h)
    std::size_t exits = 0;                 // unexpected exits of workers with an error
    std::size_t points = 0;                // faults that wait for an event
    std::size_t points_missed = 0;         // of these, those whose event did not happen
    std::vector<milliseconds> recoveries;  // times from a worker's start to its first result
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
    // Counts a fault that waits for an event, and whether the event happened. Returns `reached`.
    bool note_point(bool reached);
    // Adds a worker's end that the fault demands to the evidence.
    void note_end(WorkerEnd end) { worker_ends_.push_back(std::move(end)); }
    std::optional<int> exit_code_of(int worker);  // nullopt: running
    // Pauses from now on are attributed to that fault.
    void name_fault(std::string_view name) { fault_ = name; }

    // Restarts the progress watch (progress_watch.h) and keeps the longest pause so far. Called for each start, kill or SIGTERM of a worker
    // by the driver, and when a lasting fault has healed. A worker that ends by itself and is restarted does not restart the watch.
    void begin_watch();
    // A lasting fault, for as long as this object lives. The progress watch is off meanwhile.
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

    // Creates the missing topics.
    void create_topics(bool with_results = true);
    // Produces jobs of the everyday mix. Cancels are sent before, while and after their jobs can have run.
    void produce(std::size_t count);
    void produce(JobKind kind, std::size_t count);
    void send_cancels();  // sends all cancels that are not yet sent
    void register_late_adapter();

    // Workers are numbered from 0. Those below options().workers are the crew, which is restarted whenever one ends.
    void start_crew();
    void start(int worker, const std::vector<std::string>& more = {});
    // Starts a second process under that worker's name, with its own files. It is not restarted.
    void start_twin(int twin, int worker);
    void signal(int worker, int number);
    // ask_to_end sends SIGTERM once: a second one would end the worker in the middle of its drain. The worker is not restarted. expect_end
    // waits for its end; a worker that does not end is a violation.
    void ask_to_end(int worker);
    void expect_end(int worker);
    void end(int worker);  // both
    void end_all();
    bool running(int worker);
    WorkerProcess& process(int worker);
    int any_worker() { return between(0, options_.workers - 1); }
    // Waits until the worker has killed or stopped itself at its fault point. False: it did not get there in time.
    bool wait_end(int worker, milliseconds patience);
    bool wait_stopped(int worker, milliseconds patience);
    std::string log_of(int worker) const;
    std::filesystem::path ledger_of(int worker) const;

    // Waits that long and restarts workers that end.
    void pause(milliseconds time);
    // Waits until that many jobs have ended. False: it took longer than `patience`.
    bool wait_ended(std::size_t count, milliseconds patience);
    // The same, for as long as no pause in progress exceeds the limit.
    void watch_until(std::size_t count);
    // The same for all jobs.
    void settle();
    std::size_t ended() const;
    std::size_t results_with(std::initializer_list<std::string_view> words) const { return tail_->results_with(words); }
    // Waits until is_so() holds. False: it took longer than the limit of a pause.
    bool wait_until(const std::function<bool()>& is_so);
    // Stops all workers and runs the checker.
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
    std::size_t sendings_ = 0;  // of jobs; each is compressed with the next codec
    RigCounts counts_;
    std::vector<Slot> slots_;
    std::vector<std::string> cancels_;  // not yet sent
    std::unique_ptr<Tail> tail_;
    std::string fault_ = "the start";
    std::string watched_fault_;  // the last fault when the watch began
    int faults_lasting_ = 0;
    std::vector<Pause> pauses_;
    std::vector<WorkerEnd> worker_ends_;
    std::int64_t tokens_wanted_ = 0;
    std::size_t commits_seen_ = 0;
};

}  // namespace lorry::faults
