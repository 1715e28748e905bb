// The table of faults and one function for each; see scenarios.h.
#include "tests/faults/scenarios.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/faults/kafka_probe.h"

namespace lorry::faults {
namespace {

using std::chrono::seconds;

// Waits until that many more jobs have ended. Gives up when that takes too long, because then other workers have the rest of the backlog.
void work_on(Rig& rig, std::size_t more) { rig.wait_ended(rig.ended() + more, seconds(20)); }

void kill_busy(Rig& rig) {
    const int worker = rig.any_worker();
    rig.signal(worker, SIGKILL);
    rig.wait_end(worker, seconds(10));
    rig.pause(milliseconds(rig.between(0, 2'000)));
}

void kill_all(Rig& rig) {
    for (int worker = 0; worker < rig.options().workers; ++worker) rig.signal(worker, SIGKILL);
    for (int worker = 0; worker < rig.options().workers; ++worker) rig.wait_end(worker, seconds(10));
}

void kill_idle(Rig& rig) {
    rig.settle();
    rig.pause(seconds(1));
    kill_busy(rig);
    rig.produce(50);
}

void terminate(Rig& rig) {
    const int worker = rig.any_worker();
    ++rig.counts().kills;
    rig.end(worker);
    rig.start(worker);
}

void kill_at(Rig& rig, const char* point) {
    const int worker = rig.any_worker();
    rig.signal(worker, SIGKILL);
    rig.wait_end(worker, seconds(10));
    rig.start(worker, {"--die-at", fmt::format("{}:{}", point, rig.between(1, 4))});
    rig.produce(40);
    const bool ended = rig.wait_end(worker, rig.options().session_timeout + seconds(20));
    if (rig.note_point(ended && rig.process(worker).exit_code() == 128 + SIGKILL)) {
        ++rig.counts().kills;
        ++rig.counts().unclean;
    } else if (!ended) {
        rig.signal(worker, SIGKILL);
        rig.wait_end(worker, seconds(10));
    }
}
void kill_at_begin(Rig& rig) { kill_at(rig, "outbox.begin"); }
void kill_at_produced(Rig& rig) { kill_at(rig, "outbox.produced"); }
void kill_at_offsets(Rig& rig) { kill_at(rig, "outbox.offsets_sent"); }
void kill_at_committing(Rig& rig) { kill_at(rig, "outbox.committing"); }
void kill_at_committed(Rig& rig) { kill_at(rig, "outbox.committed"); }
void kill_at_ledger(Rig& rig) { kill_at(rig, "ledger.write"); }

void stop_for(Rig& rig, int worker, milliseconds time) {
    const Rig::Lasting lasting(rig);
    rig.signal(worker, SIGSTOP);
    rig.pause(time);
    rig.note_point(rig.process(worker).stopped());
    rig.signal(worker, SIGCONT);
}
// Stops it long enough for others to take over its partitions, or for the group to make it join again.
void stop_past(Rig& rig, int worker, milliseconds time) {
    const std::uint64_t before = rig.rebalances();
    stop_for(rig, worker, time);
    rig.note_point(rig.wait_until([&] { return rig.rebalances() > before; }));
}
void stop_short(Rig& rig) { stop_for(rig, rig.any_worker(), milliseconds(rig.between(300, 3'000))); }
void stop_past_session(Rig& rig) { stop_past(rig, rig.any_worker(), rig.options().session_timeout + seconds(2)); }
void stop_past_transaction(Rig& rig) { stop_past(rig, rig.any_worker(), rig.options().transaction_timeout + seconds(3)); }

// Gives one worker the shortest poll interval that the client accepts, which is the session's time-out.
void stop_past_poll(Rig& rig) {
    const int worker = rig.any_worker();
    const milliseconds interval = rig.options().session_timeout;
    ++rig.counts().kills;
    rig.end(worker);
    rig.start(worker, {"--poll-interval-ms", std::to_string(interval.count())});
    rig.produce(200);
    work_on(rig, 200);
    stop_past(rig, worker, 2 * interval);
}

// A zombie: a worker stops between two steps of its commit, others take over its work, and then it continues.
void zombie_at(Rig& rig, const char* point) {
    const int worker = rig.any_worker();
    rig.signal(worker, SIGKILL);
    rig.wait_end(worker, seconds(10));
    rig.start(worker, {"--stop-at", fmt::format("{}:{}", point, rig.between(1, 4))});
    rig.produce(40);
    if (!rig.note_point(rig.wait_stopped(worker, rig.options().session_timeout + seconds(20)))) return;
    ++rig.counts().stops;
    const Rig::Lasting lasting(rig);
    rig.pause(rig.options().transaction_timeout + seconds(3));
    rig.signal(worker, SIGCONT);
}
void zombie_at_produced(Rig& rig) { zombie_at(rig, "outbox.produced"); }
void zombie_at_offsets(Rig& rig) { zombie_at(rig, "outbox.offsets_sent"); }
void zombie_at_committing(Rig& rig) { zombie_at(rig, "outbox.committing"); }

// A rolling update: one worker after the other.
void rolling_restart(Rig& rig) {
    for (int worker = 0; worker < rig.options().workers; ++worker) {
        ++rig.counts().kills;
        rig.end(worker);
        rig.start(worker);
        work_on(rig, 100);
    }
}

// A worker joins, and one that is about to give up partitions dies.
void kill_in_a_rebalance(Rig& rig) {
    const int guest = rig.options().workers;
    rig.start(guest);
    rig.pause(milliseconds(rig.between(0, 3'000)));
    kill_busy(rig);
    work_on(rig, 100);
    rig.end(guest);
}

// All workers get SIGTERM while the group still rebalances for one that comes back.
void end_in_a_rebalance(Rig& rig) {
    kill_busy(rig);
    rig.pause(milliseconds(rig.between(0, static_cast<int>(rig.options().session_timeout.count()))));
    rig.end_all();
    rig.start_crew();
}

void join_and_leave(Rig& rig) {
    const int guest = rig.options().workers;
    rig.start(guest);
    work_on(rig, 100);
    rig.end(guest);
}

void flap(Rig& rig) {
    const int guest = rig.options().workers;
    for (int i = 0; i < 4; ++i) {
        rig.start(guest);
        rig.pause(milliseconds(rig.between(500, 2'500)));
        rig.end(guest);
    }
}

void three_join_in_a_drain(Rig& rig) {
    const int first = rig.options().workers;
    const int leaving = rig.any_worker();
    ++rig.counts().kills;
    rig.ask_to_end(leaving);
    for (int i = 0; i < 3; ++i) rig.start(first + i);
    rig.expect_end(leaving);
    work_on(rig, 100);
    rig.start(leaving);
    for (int i = 0; i < 3; ++i) rig.end(first + i);
}

void note_end(Rig& rig, int worker, std::optional<int> wanted, std::vector<std::string> words) {
    rig.note_end({.member = fmt::format("worker {}", worker),
                  .exit_code = rig.exit_code_of(worker),
                  .wanted = wanted,
                  .words = std::move(words),
                  .log = rig.log_of(worker)});
}

// Usually the second takes over. The first may win the name back, but only one of them survives.
void same_id_twice(Rig& rig) {
    const int worker = rig.any_worker();
    const int twin = rig.options().workers;
    rig.pause(milliseconds(1));  // restarts workers that ended before
    rig.start_twin(twin, worker);
    const auto either_ended = [&] { return !rig.running(worker) || !rig.running(twin); };
    // No restarts meanwhile: a restarted loser would be a third process.
    const auto sleep_until = [&](SteadyClock::time_point deadline, const auto& done) {
        while (!done() && SteadyClock::now() < deadline) std::this_thread::sleep_for(milliseconds(50));
        return done();
    };
    if (rig.note_point(sleep_until(SteadyClock::now() + rig.stall_limit(), either_ended))) {
        const int loser = rig.running(worker) ? twin : worker;
        note_end(rig, loser, 1, {"give each worker a `member` of its own"});
        if (loser == twin) ++rig.counts().exits;  // exits of the crew are counted where it is restarted
        sleep_until(SteadyClock::now() + seconds(3), [&] { return !rig.running(worker) && !rig.running(twin); });
        note_end(rig, loser == twin ? worker : twin, std::nullopt, {});
    }
    rig.end(twin);
}

void hijack_id(Rig& rig) {
    rig.note_point(hijack(rig.cluster().config(), rig.transactional_id(rig.any_worker())));
    rig.begin_watch();
    work_on(rig, 50);
}

void killer_job(Rig& rig) {
    rig.produce(JobKind::killer, 1);
    rig.produce(100);
}

void delete_committed_offsets(Rig& rig) {
    rig.end_all();
    const auto deadline = SteadyClock::now() + rig.options().session_timeout + seconds(15);
    const auto try_to = [&] { return delete_offsets(rig.cluster().config(), rig.group(), rig.topics().jobs()); };
    bool deleted = try_to();
    for (; !deleted && SteadyClock::now() < deadline; deleted = try_to()) std::this_thread::sleep_for(milliseconds(500));
    rig.note_point(deleted);
    rig.start_crew();
}

void jobs_before_workers(Rig& rig) {
    rig.produce(rig.options().jobs);
    rig.pause(seconds(2));
    rig.start_crew();
}

// Waits until the crew is up: a worker that starts later learns of the registration too late.
void late_adapter(Rig& rig) {
    rig.settle();
    rig.produce(JobKind::late, 20);
    rig.pause(seconds(1));
    rig.register_late_adapter();
}

// The first cancels reach jobs that are waiting or running, the last ones jobs that already have answers. Workers must survive both.
void cancels(Rig& rig) {
    const auto cancelled = [&] { return rig.results_with({"\"cancel-", "batch_cancelled"}); };
    const auto answered = [&] { return rig.results_with({"\"cancel-", "\"choices\""}); };
    const std::size_t cancelled_before = cancelled();
    rig.produce(JobKind::cancel, 60);
    rig.send_cancels();
    rig.note_point(rig.wait_until([&] { return cancelled() > cancelled_before; }));
    const std::size_t answered_before = answered();
    rig.produce(JobKind::cancel, 10);
    rig.note_point(rig.wait_until([&] { return answered() > answered_before; }));
    rig.send_cancels();
    rig.produce(JobKind::slow, 10);
}

void large_output(Rig& rig) {
    const auto refused = [&] { return rig.results_with({"\"large-", "result_too_large"}); };
    const std::size_t before = refused();
    rig.produce(JobKind::large, 20);
    rig.note_point(rig.wait_until([&] { return refused() > before; }));
}

// A fault of the network or of brokers, for as long as this object lives. Whether a client met it is noted as a point.
class NetworkFault {
public:
    NetworkFault(Rig& rig, std::size_t& count) : rig_(rig), lasting_(rig), before_(rig.cluster().proxy().hits()) { ++count; }
    ~NetworkFault() { rig_.note_point(rig_.cluster().proxy().hits() > before_); }
    NetworkFault(const NetworkFault&) = delete;
    NetworkFault& operator=(const NetworkFault&) = delete;

private:
    Rig& rig_;
    const Rig::Lasting lasting_;
    const std::uint64_t before_;
};

void broker_kill(Rig& rig) {
    const int broker = rig.between(1, rig.cluster().brokers());
    const NetworkFault fault(rig, rig.counts().broker_faults);
    rig.cluster().kill(broker);
    rig.pause(milliseconds(rig.between(0, 3'000)));
    rig.cluster().start(broker);
}

void broker_restart(Rig& rig) {
    const int broker = rig.between(1, rig.cluster().brokers());
    const NetworkFault fault(rig, rig.counts().broker_faults);
    rig.cluster().stop(broker);
    rig.cluster().start(broker);
}

// Kills the coordinating broker while workers commit, and starts it again only after work has continued under another one.
void move_coordinator(Rig& rig, const std::function<std::optional<int>()>& coordinator) {
    const auto first = coordinator();
    if (!rig.note_point(first.has_value())) return;
    ++rig.counts().broker_faults;
    auto now = first;
    {
        const Rig::Lasting lasting(rig);
        rig.cluster().kill(*first);
        const auto deadline = SteadyClock::now() + rig.stall_limit();
        while ((!now || now == first) && SteadyClock::now() < deadline) {
            rig.pause(milliseconds(200));
            now = coordinator();
        }
    }
    rig.note_point(now && now != first);
    rig.produce(40);
    rig.note_point(rig.wait_ended(rig.ended() + 40, rig.stall_limit()));
    rig.cluster().start(*first);
}
void coordinator_move(Rig& rig) {
    const auto config = rig.cluster().config();
    const std::string id = rig.transactional_id(rig.any_worker());
    move_coordinator(rig, [&] { return group_coordinator(config, rig.group()); });
    move_coordinator(rig, [&] { return transaction_coordinator(config, id); });
}

// Moves the group's coordinator while all brokers are up.
void coordinator_return(Rig& rig) {
    const auto config = rig.cluster().config();
    const auto coordinator = [&] { return group_coordinator(config, rig.group()); };
    move_coordinator(rig, coordinator);
    join_and_leave(rig);  // makes all workers ask the substitute
    const auto stand_in = coordinator();
    auto now = stand_in;
    const auto deadline = SteadyClock::now() + rig.stall_limit();
    while ((!now || now == stand_in) && SteadyClock::now() < deadline) {
        elect_preferred_leaders(config);
        rig.pause(milliseconds(500));
        now = coordinator();
    }
    if (!rig.note_point(stand_in && now && now != stand_in)) return;
    join_and_leave(rig);
    rig.produce(40);
    rig.note_point(rig.wait_ended(rig.ended() + 40, rig.stall_limit()));
}

void brokers_down(Rig& rig, seconds time) {
    const NetworkFault fault(rig, rig.counts().broker_faults);
    for (int broker = 1; broker <= rig.cluster().brokers(); ++broker) rig.cluster().kill(broker);
    rig.pause(time);
    rig.cluster().start_all();
}
void brokers_down_short(Rig& rig) { brokers_down(rig, seconds(8)); }
void brokers_down_minute(Rig& rig) { brokers_down(rig, seconds(60)); }

void end_txn(Rig& rig, EndTxnFault fault, milliseconds delay) {
    FaultProxy& proxy = rig.cluster().proxy();
    const Rig::Lasting lasting(rig);
    const auto before = proxy.hits();
    proxy.arm(fault, rig.between(1, 3), delay);
    rig.produce(30);
    const auto deadline = SteadyClock::now() + seconds(10);
    while (proxy.hits() == before && SteadyClock::now() < deadline) rig.pause(milliseconds(50));
    rig.pause(delay + seconds(1));
    proxy.arm(EndTxnFault::none, 0);
    rig.counts().proxy_faults += proxy.hits() - before;
    rig.note_point(proxy.hits() != before);
}
void end_txn_delayed(Rig& rig) { end_txn(rig, EndTxnFault::delay_request, seconds(3)); }
void end_txn_stray(Rig& rig) { end_txn(rig, EndTxnFault::stray_request, seconds(2)); }
void end_txn_dropped(Rig& rig) { end_txn(rig, EndTxnFault::drop_request, milliseconds(0)); }
void end_txn_unanswered(Rig& rig) { end_txn(rig, EndTxnFault::drop_response, milliseconds(0)); }
void end_txn_answered_late(Rig& rig) { end_txn(rig, EndTxnFault::delay_response, seconds(4)); }
void end_txn_past_its_time(Rig& rig) { end_txn(rig, EndTxnFault::delay_request, rig.options().transaction_timeout + seconds(3)); }

void cut_connections(Rig& rig) {
    FaultProxy& proxy = rig.cluster().proxy();
    const NetworkFault fault(rig, rig.counts().proxy_faults);
    proxy.set_refusing(true);
    proxy.cut_all();
    rig.pause(milliseconds(rig.between(0, 3'000)));
    proxy.set_refusing(false);
}

void slow_network(Rig& rig) {
    FaultProxy& proxy = rig.cluster().proxy();
    const NetworkFault fault(rig, rig.counts().proxy_faults);
    proxy.set_latency(milliseconds(rig.between(5, 100)));
    rig.pause(seconds(4));
    proxy.set_latency(milliseconds(0));
}

void results_topic_missing(Rig& rig) {
    rig.start(0);
    if (rig.note_point(rig.wait_end(0, seconds(60)))) note_end(rig, 0, 1, {rig.topics().results(), "lorry topics create"});
    rig.create_topics();
    rig.produce(rig.options().jobs);
    rig.start_crew();
}

// Looks to SQLite like a writer that never finishes: locks the byte of the index file that writers lock (WAL_WRITE_LOCK of its format).
void ledger_locked(Rig& rig) {
    constexpr off_t write_lock = 120;
    const std::string index = rig.ledger_of(0).string() + "-shm";
    const int file = open(index.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = write_lock;
    lock.l_len = 1;
    rig.note_point(file >= 0 && fcntl(file, F_SETLKW, &lock) == 0);
    work_on(rig, 200);
    rig.pause(seconds(6));
    if (file >= 0) close(file);
}

// Keeps the files of the first worker from growing, as a full disk would.
void disk_full(Rig& rig) {
    rlimit limit{};
    const rlimit none{.rlim_cur = 4'096, .rlim_max = RLIM_INFINITY};
    const std::uint64_t before = rig.ledger_failures(0);
    if (!rig.note_point(prlimit(rig.process(0).id(), RLIMIT_FSIZE, &none, &limit) == 0)) return;
    work_on(rig, 200);
    rig.pause(seconds(4));
    rig.note_point(rig.ledger_failures(0) > before);
    prlimit(rig.process(0).id(), RLIMIT_FSIZE, &limit, nullptr);
}

// The job's 20,000 tokens take longer than a pause may otherwise last, and need more memory.
void prepare_stuck(RigOptions& options) {
    options.slack += seconds(300);
    options.result_bytes_max = 1 << 20;
}
void stuck_job(Rig& rig) {
    rig.start_crew();
    rig.produce(JobKind::stuck, 1);
    rig.produce(rig.options().jobs);
}

void prepare_without_results(RigOptions& options) { options.results_topic = false; }

using Brokers = Scenario::Brokers;
// Not in the mix: two scenarios need topics or a group that were never used, and a stuck job would raise the limit for pauses, which the
// mix exists to check.
constexpr int own_rig = 0;
constexpr int rarely = 1;

constexpr std::array table = {
    Scenario{"kill_busy", "SIGKILL of a worker that decodes", kill_busy},
    Scenario{"kill_all", "SIGKILL of all workers at once", kill_all},
    Scenario{"kill_idle", "SIGKILL of an idle worker", kill_idle},
    Scenario{"terminate", "SIGTERM", terminate},
    Scenario{"kill_at_begin", "SIGKILL before a transaction begins", kill_at_begin},
    Scenario{"kill_at_produced", "SIGKILL after results are produced", kill_at_produced},
    Scenario{"kill_at_offsets", "SIGKILL after offsets are sent", kill_at_offsets},
    Scenario{"kill_at_committing", "SIGKILL when the end of the transaction has just been sent", kill_at_committing},
    Scenario{"kill_at_committed", "SIGKILL when the commit was answered, before it is noted", kill_at_committed},
    Scenario{"kill_at_ledger", "SIGKILL at a write of the ledger", kill_at_ledger},
    Scenario{"stop_short", "SIGSTOP for less than any time-out", stop_short},
    Scenario{"stop_past_session", "SIGSTOP for longer than the session", stop_past_session},
    Scenario{"stop_past_poll", "SIGSTOP for longer than the poll interval", stop_past_poll},
    Scenario{"stop_past_transaction", "SIGSTOP for longer than a transaction may take", stop_past_transaction},
    Scenario{"zombie_at_produced", "SIGSTOP with results produced, others take over, SIGCONT", zombie_at_produced},
    Scenario{"zombie_at_offsets", "SIGSTOP with offsets sent, others take over, SIGCONT", zombie_at_offsets},
    Scenario{"zombie_at_committing", "SIGSTOP when the end of the transaction has just been sent, others take over, SIGCONT",
             zombie_at_committing},
    Scenario{"rolling_restart", "one worker after the other ends and comes back", rolling_restart},
    Scenario{"kill_in_a_rebalance", "SIGKILL of a worker while another one joins", kill_in_a_rebalance},
    Scenario{"end_in_a_rebalance", "SIGTERM of all workers while a killed one comes back", end_in_a_rebalance},
    Scenario{"join_and_leave", "a worker joins and leaves", join_and_leave},
    Scenario{"flap", "a worker joins and leaves again and again", flap},
    Scenario{"three_join_in_a_drain", "three workers join while one drains", three_join_in_a_drain},
    Scenario{"same_id_twice", "two workers under one id", same_id_twice},
    Scenario{"hijack_id", "a stranger takes a worker's transactional id", hijack_id},
    Scenario{"killer_job", "a job that kills the worker that computes it", killer_job},
    Scenario{"delete_offsets", "the group's offsets are deleted while results exist", delete_committed_offsets},
    Scenario{"jobs_before_workers", "jobs are produced before any worker has run", jobs_before_workers, own_rig, Brokers::any, nullptr,
             false},
    Scenario{"late_adapter", "an adapter is registered after its jobs", late_adapter},
    Scenario{"cancels", "jobs are cancelled before, while and after they run", cancels},
    Scenario{"large_output", "results larger than their topic accepts", large_output},
    Scenario{"broker_kill", "SIGKILL of a broker", broker_kill},
    Scenario{"broker_restart", "a broker is restarted cleanly", broker_restart},
    Scenario{"coordinator_move", "SIGKILL of the brokers that coordinate the group and a worker's transactions", coordinator_move, 10,
             Brokers::several},
    Scenario{"coordinator_return", "the group's coordinator changes while all brokers are up", coordinator_return, 10, Brokers::several},
    Scenario{"brokers_down", "SIGKILL of all brokers, 8 s without any", brokers_down_short},
    Scenario{"brokers_down_minute", "SIGKILL of all brokers for a minute", brokers_down_minute, rarely},
    Scenario{"end_txn_delayed", "EndTxn reaches the broker 3 s late", end_txn_delayed},
    Scenario{"end_txn_stray", "EndTxn reaches the broker 2 s after its connection was cut", end_txn_stray},
    Scenario{"end_txn_dropped", "EndTxn is lost with its connection", end_txn_dropped},
    Scenario{"end_txn_unanswered", "the answer to EndTxn is lost with its connection", end_txn_unanswered},
    Scenario{"end_txn_answered_late", "the answer to EndTxn comes 4 s late", end_txn_answered_late},
    Scenario{"end_txn_past_its_time", "EndTxn reaches the broker after the transaction's time-out", end_txn_past_its_time},
    Scenario{"cut_connections", "all connections are cut, new ones refused for a while", cut_connections},
    Scenario{"slow_network", "each request and answer takes up to 100 ms", slow_network},
    Scenario{"results_topic_missing", "the results topic does not exist at first", results_topic_missing, own_rig, Brokers::any,
             prepare_without_results, false},
    Scenario{"ledger_locked", "another process holds the ledger's lock", ledger_locked},
    Scenario{"disk_full", "the ledger's disk is full for a while", disk_full},
    Scenario{"stuck_job", "one job outlasts all later ones (many with --jobs 100000)", stuck_job, own_rig, Brokers::any, prepare_stuck,
             false},
};

}  // namespace

std::span<const Scenario> scenarios() { return table; }

}  // namespace lorry::faults
