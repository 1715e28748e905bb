// Plays one run: submits jobs, starts workers again, breaks things, waits until all jobs have ended, and checks. See world.h.
#include "tests/simulation/world.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/fault_point.h"
#include "consumer/log.h"
#include "schema/codec.h"
#include "tests/faults/checker.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/rdkafka.h"
#include "tests/simulation/worker.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::simulation {

namespace {

constexpr double preemption = 0.02;  // in every second seed
constexpr Time faults_end = 40 * second;
constexpr Time patience = 240 * second;  // after the last fault: all jobs must have ended
constexpr std::array fault_points = {"outbox.begin", "outbox.produced", "outbox.offsets_sent", "outbox.committing", "outbox.committed"};

// Mistakes that few faults show, seldom beside others: runs with them draw only these. Empty: as in any run.
std::vector<Fault> faults_that_show(Plant plant) {
    switch (plant) {
        case Plant::loss_unnoticed: return {Fault::outage, Fault::stop};
        case Plant::old_assignment_kept: return {Fault::kill};
        case Plant::unknown_end_is_abort:
        case Plant::refused_end_is_commit: return {Fault::storm, Fault::hijack};
        default: return {};
    }
}

class World;
World* current_world = nullptr;  // NOLINT: fault points and logs call plain functions

class World {
public:
    World(const RunOptions& options, RunResult& result)
        : options_(options),
          result_(result),
          machine_(options.seed, options.seed % 2 == 0 ? preemption : 0),
          cluster_(machine_, topics_.jobs()),
          mix_(options.seed, weights(options.seed)) {
        current_world = this;
    }
    ~World() {
        current_world = nullptr;
        clients().clear();
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    void play() {
        machine_.run([this] { body(); });
        result_.time = machine_.now();
        result_.switches = machine_.switches();
    }
    void say(std::string_view text) const {
        if (!options_.trace) return;
        const double seconds = static_cast<double>(machine_.now()) / static_cast<double>(second);
        fmt::print(stderr, "{:>10.4f} [{}] {}\n", seconds, machine_.process(), text);
    }
    void pass_fault_point(std::string_view name);

private:
    struct Worker {
        std::string member;
        Process process = 0;
        RunningWorker running;
        bool ended = true;
        bool wanted = true;
        Time start_at = 0;
        std::optional<std::string> dies_at;  // the fault point
    };

    static bool has_killers(std::uint64_t seed) { return seed % 8 == 0; }
    static faults::JobMix::Weights weights(std::uint64_t seed) {
        using faults::JobKind;
        auto all = faults::JobMix::everyday();
        all[JobKind::slow] = 1;
        all[JobKind::oversized] = 0.1;
        if (has_killers(seed)) all[JobKind::killer] = 1;
        return all;
    }

    void body();
    void make_topics();
    void submit(std::size_t count);
    void cancel_some();
    void step();
    void start(Worker& worker);
    void bury(Worker& worker);
    void kill(Worker& worker);
    bool break_something(Fault fault);
    Worker* some_worker();
    bool all_ended() const;
    void complain(std::string text) {
        if (result_.violations.size() < 20) result_.violations.push_back(std::move(text));
    }
    std::vector<schema::JobRecord> records_of(const std::string& topic, bool promised = false) const;
    std::vector<faults::CommittedOffset> commits() const;
    void check_now();
    void check_work();
    std::size_t apparent_deaths() const;
    void check_at_end();

    const RunOptions options_;
    RunResult& result_;
    const schema::Topics topics_{std::string(topic_prefix)};
    Machine machine_;
    Cluster cluster_;
    faults::JobMix mix_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::size_t submitted_ = 0;
    std::vector<std::string> to_cancel_;
};

std::vector<schema::JobRecord> World::records_of(const std::string& topic, bool promised) const {
    std::vector<schema::JobRecord> records;
    const auto* logs = cluster_.find(topic);
    for (std::size_t partition = 0; partition < logs->size(); ++partition) {
        const Log& log = (*logs)[partition];
        for (std::int64_t offset = 0; offset < log.end(); ++offset) {
            const Entry& entry = log.entries[static_cast<std::size_t>(offset)];
            const bool counts = promised ? Cluster::counts_as_committed(entry) : entry.fate == Entry::Fate::committed;
            if (!counts || entry.record.key == schema::filler_key) continue;
            records.push_back({.source = {topic, static_cast<std::int32_t>(partition), offset},
                               .key = entry.record.key,
                               .value = entry.record.value,
                               .headers = entry.record.headers,
                               .timestamp = schema::Timestamp(std::chrono::milliseconds((wall_offset + entry.time) / millisecond))});
        }
    }
    return records;
}

std::vector<faults::CommittedOffset> World::commits() const {
    std::vector<faults::CommittedOffset> list;
    for (const auto& [partition, committed] : cluster_.offsets()) list.push_back({partition, committed.offset, committed.metadata});
    return list;
}

// The rule that holds at any time: what is committed as finished has its end.
void World::check_now() {
    if (!result_.violations.empty()) return;
    faults::FinishedOffsets finished;
    for (const std::string& topic : {topics_.results(), topics_.dlq()}) {
        for (const schema::JobRecord& record : records_of(topic, true)) {
            if (const auto source = faults::source_of(record)) faults::mark_finished(finished, *source);
        }
    }
    // An offset without metadata is one that ended an open transaction (leftovers.cpp): it marks nothing, and takeovers read the results.
    auto commits = this->commits();
    std::erase_if(commits, [](const faults::CommittedOffset& commit) { return commit.metadata.empty(); });
    for (const auto& violation : faults::check_commits(commits, finished)) {
        complain(fmt::format("{:.3f} s: {}: {}", static_cast<double>(machine_.now()) / static_cast<double>(second),
                             faults::name_of(violation.kind), violation.text));
    }
}

// A worker that was stopped or cut off, or that ended with an error, lost its partitions as a dead one does.
std::size_t World::apparent_deaths() const {
    std::size_t cut_off = 0;
    for (const Fault fault : {Fault::stop, Fault::outage, Fault::storm, Fault::lost_markers}) {
        cut_off += result_.fault_counts[static_cast<std::size_t>(fault)];
    }
    return result_.deaths + result_.failures + cut_off * workers_.size();
}

// No stage turns without waiting. Preempted turns are the seed's own.
void World::check_work() {
    constexpr std::uint64_t turns_per_second_max = 5'000;
    const auto seconds = static_cast<std::uint64_t>(machine_.now() / second);
    if (machine_.switches() <= turns_per_second_max * seconds) return;
    complain(fmt::format("busy: {} turns in {} simulated seconds: something loops without waiting", machine_.switches(), seconds));
}

void World::check_at_end() {
    faults::Evidence evidence;
    evidence.topics = topics_;
    evidence.deaths = apparent_deaths();
    evidence.rules.crashes_by_chance = evidence.deaths >= 3;
    evidence.jobs = records_of(topics_.jobs());
    evidence.jobs_sent = submitted_;
    evidence.results = records_of(topics_.results());
    evidence.dead_letters = records_of(topics_.dlq());
    evidence.statuses = records_of(topics_.status());
    evidence.chunks = records_of(topics_.chunks());
    evidence.commits = commits();
    evidence.offsets_settled = !cluster_.has_undecided();
    for (const std::string& topic : {topics_.results(), topics_.dlq(), topics_.status(), topics_.chunks()}) {
        const auto& logs = *cluster_.find(topic);
        for (std::size_t i = 0; i < logs.size(); ++i) {
            evidence.ends.push_back({topic, static_cast<std::int32_t>(i), logs[i].stable_end(), logs[i].end()});
        }
    }
    for (const auto& violation : faults::check(evidence)) complain(fmt::format("{}: {}", faults::name_of(violation.kind), violation.text));
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    const auto mix = [&](std::string_view text) {
        for (const char one : text) hash = (hash ^ static_cast<unsigned char>(one)) * 1099511628211u;
    };
    for (const auto* records : {&evidence.results, &evidence.dead_letters, &evidence.statuses}) {
        for (const schema::JobRecord& record : *records) mix(record.value.value_or("") + std::to_string(record.source.offset));
    }
    result_.fingerprint = hash;
}

void World::make_topics() {
    const auto partitions = static_cast<std::int32_t>(machine_.draw(1, 4));
    for (const std::string& topic : {topics_.jobs(), topics_.results(), topics_.chunks(), topics_.status()}) {
        cluster_.add_topic(topic, partitions);
    }
    cluster_.add_topic(topics_.calls(), 1);  // stays empty: members are assigned partitions of jobs only
    cluster_.add_topic(topics_.dlq(), 1);
    cluster_.add_topic(topics_.adapters(), 1);
    cluster_.add_topic(topics_.control(), 1);
    cluster_.plant = options_.plant;
    cluster_.on_news = [](const std::string& topic) {
        for (rd_kafka_s* client : clients()) {
            if (std::ranges::any_of(client->consumer.readings, [&](const auto& one) { return one.first.first == topic; })) client->wake();
        }
    };
    cluster_.on_offsets = [this] { check_now(); };
}

void World::submit(std::size_t count) {
    const auto partitions = static_cast<std::int64_t>(cluster_.find(topics_.jobs())->size());
    for (; count > 0 && submitted_ < options_.jobs; --count, ++submitted_) {
        schema::JobRecord job = mix_.next();
        if (job.value && job.value->starts_with(R"({"custom_id":"cancel-)")) {
            to_cancel_.push_back(job.value->substr(14, job.value->find('"', 14) - 14));
        }
        cluster_.append({topics_.jobs(), static_cast<std::int32_t>(machine_.draw(0, partitions - 1))},
                        {.key = job.key, .value = job.value, .headers = job.headers});
    }
}

void World::cancel_some() {
    if (to_cancel_.empty() || !machine_.chance(0.3)) return;
    schema::Cancel cancel{.id = to_cancel_.back()};
    for (const Log& log : *cluster_.find(topics_.jobs())) cancel.jobs_end.push_back(log.end());
    cluster_.append({topics_.control(), 0}, {.key = cancel.id, .value = schema::encode_cancel(cancel), .headers = {}});
    to_cancel_.pop_back();
}

void World::start(Worker& worker) {
    worker.process = machine_.new_process();
    worker.ended = false;
    worker.dies_at.reset();
    say(fmt::format("{} starts as process {}", worker.member, worker.process));
    machine_.start(worker.process, [this, &worker] {
        try {
            run_worker({.member = worker.member,
                        .plant = options_.plant,
                        .on_killer =
                            [this, &worker] {
                                machine_.at(machine_.now(), world, [this, &worker] { kill(worker); });
                                machine_.wait(&worker, never);
                            }},
                       worker.running);
            say(fmt::format("{} ends", worker.member));
        } catch (const std::exception& error) {
            ++result_.failures;
            say(fmt::format("{} fails: {}", worker.member, error.what()));
        }
        worker.ended = true;
    });
}

// Removes what a process leaves when it ends.
void World::bury(Worker& worker) {
    machine_.kill(worker.process);
    std::erase_if(clients(), [&](const rd_kafka_s* client) { return client->process == worker.process; });
    worker.running.pipeline = nullptr;
    worker.process = 0;
    worker.start_at = machine_.now() + machine_.draw(100 * millisecond, 4 * second);
}

void World::kill(Worker& worker) {
    if (worker.process == 0 || worker.ended) return;
    say(fmt::format("{} is killed", worker.member));
    ++result_.deaths;
    worker.ended = true;
    bury(worker);
}

void World::pass_fault_point(std::string_view name) {
    for (const auto& worker : workers_) {
        if (worker->process != machine_.process() || worker->dies_at != name) continue;
        worker->dies_at.reset();
        ++result_.fault_counts[static_cast<std::size_t>(Fault::kill_at_point)];
        say(fmt::format("at {}", name));
        machine_.at(machine_.now(), world, [this, dying = worker.get()] { kill(*dying); });
        machine_.wait(worker.get(), never);
    }
}

World::Worker* World::some_worker() {
    std::vector<Worker*> running;
    for (const auto& worker : workers_) {
        if (worker->process != 0 && !worker->ended) running.push_back(worker.get());
    }
    if (running.empty()) return nullptr;
    return running[static_cast<std::size_t>(machine_.draw(0, static_cast<std::int64_t>(running.size()) - 1))];
}

bool World::break_something(Fault fault) {
    Worker* worker = some_worker();
    const auto some_time = [&](Time low, Time high) { return machine_.now() + machine_.draw(low, high); };
    const auto outage = [this] {
        cluster_.down_until = machine_.now() + machine_.draw(300 * millisecond, 8 * second);
        for (rd_kafka_s* client : clients()) lose_connection(*client);
    };
    switch (fault) {
        case Fault::kill:
            if (worker == nullptr) return false;
            kill(*worker);
            return true;
        case Fault::kill_at_point:
            if (worker == nullptr) return false;
            worker->dies_at = fault_points[static_cast<std::size_t>(machine_.draw(0, fault_points.size() - 1))];
            return false;  // counted when it comes about
        case Fault::stop:
            if (worker == nullptr) return false;
            machine_.stop_until(worker->process, some_time(200 * millisecond, 15 * second));
            return true;
        case Fault::hijack:
            if (worker == nullptr) return false;
            cluster_.init_producer(transactional_id(worker->member), 5 * second, std::nullopt);
            return true;
        case Fault::outage: outage(); return true;
        case Fault::storm: {
            const Time slowest = machine_.draw(second, 8 * second);
            cluster_.weather = {.lost_request = 0.1, .lost_reply = 0.1, .refused = 0.1, .slow = 0.1, .slowest = slowest};
            machine_.at(some_time(second, 5 * second), world, [this] { cluster_.weather = {}; });
            return true;
        }
        case Fault::forget_offsets: cluster_.forget_offsets(static_cast<std::int32_t>(machine_.draw(0, 3))); return true;
        case Fault::old_offsets: cluster_.restore_offsets(static_cast<std::size_t>(machine_.draw(1, 20))); return true;
        case Fault::leave:
            if (worker == nullptr || worker->running.pipeline == nullptr) return false;
            worker->running.pipeline->request_stop();
            return true;
        case Fault::lost_markers:
            if (result_.fault_counts[static_cast<std::size_t>(Fault::lost_markers)] > 0) return false;
            cluster_.on_next_end = [this, outage] {
                if (cluster_.lose_markers() == 0) return;
                ++result_.fault_counts[static_cast<std::size_t>(Fault::lost_markers)];
                outage();
            };
            return false;  // counted when it comes about
    }
    return false;
}

// Starts what has ended and is wanted; the brokers' clocks go on.
void World::step() {
    for (const auto& worker : workers_) {
        if (worker->ended && worker->process != 0) bury(*worker);
        if (worker->ended && worker->wanted && machine_.now() >= worker->start_at) start(*worker);
    }
    cluster_.expire_sessions();
}

bool World::all_ended() const {
    if (submitted_ < options_.jobs || cluster_.has_undecided() || cluster_.has_markers_to_write()) return false;
    std::set<schema::Source> ended;
    for (const std::string& topic : {topics_.results(), topics_.dlq()}) {
        for (const schema::JobRecord& record : records_of(topic)) {
            if (const auto source = faults::source_of(record)) ended.insert(*source);
        }
    }
    if (ended.size() < submitted_) return false;
    for (const std::string& topic : {topics_.results(), topics_.dlq(), topics_.status()}) {
        if (std::ranges::any_of(*cluster_.find(topic), [](const Log& log) { return log.stable_end() < log.end(); })) return false;
    }
    return true;
}

void World::body() {
    make_topics();
    const auto count = machine_.draw(1, 3);
    for (std::int64_t i = 0; i < count; ++i) {
        workers_.push_back(std::make_unique<Worker>());
        workers_.back()->member = fmt::format("worker-{}", i);
        workers_.back()->start_at = machine_.now() + machine_.draw(0, 3 * second);
    }
    constexpr Time turn = 250 * millisecond;
    std::vector<Fault> kinds;  // two to five kinds in a run, so that each is seen with few others
    for (std::int64_t i = machine_.draw(2, 5); i > 0; --i) {
        kinds.push_back(fault_names[static_cast<std::size_t>(machine_.draw(0, fault_names.size() - 1))].first);
    }
    // Lost markers are a fault of the brokers themselves. What a worker does about them holds for one fault at a time
    // (docs/design/exactly-once.md, "Transactions that brokers leave open"), so they come alone, and once.
    if (kinds.front() == Fault::lost_markers && !has_killers(options_.seed)) {
        kinds = {Fault::lost_markers};
    } else {
        std::ranges::replace(kinds, Fault::lost_markers, Fault::kill);
    }
    if (const std::vector<Fault> shown_by = faults_that_show(options_.plant); !shown_by.empty()) kinds = shown_by;
    const double often = static_cast<double>(machine_.draw(2, 12)) / 100;
    while (machine_.now() < faults_end) {
        step();
        if (machine_.chance(0.2)) submit(static_cast<std::size_t>(machine_.draw(1, 20)));
        cancel_some();
        if (machine_.chance(often)) {
            const Fault fault = kinds[static_cast<std::size_t>(machine_.draw(0, static_cast<std::int64_t>(kinds.size()) - 1))];
            say(fmt::format("fault: {}", fault_names[static_cast<std::size_t>(fault)].second));
            if (break_something(fault)) ++result_.fault_counts[static_cast<std::size_t>(fault)];
        }
        machine_.sleep_for(turn + machine_.draw(0, turn));
    }
    say("no more faults");
    submit(options_.jobs);
    for (const auto& worker : workers_) worker->dies_at.reset();
    cluster_.on_next_end = nullptr;
    const Time end = machine_.now() + patience;
    while (!all_ended() && machine_.now() < end) {
        step();
        machine_.sleep_for(turn);
    }
    say("workers are asked to end");
    const Time drained = machine_.now() + 60 * second;
    const auto runs = [](const auto& worker) { return !worker->ended; };
    while ((std::ranges::any_of(workers_, runs) || cluster_.has_markers_to_write()) && machine_.now() < drained) {
        for (const auto& worker : workers_) {
            worker->wanted = false;
            if (worker->running.pipeline != nullptr) worker->running.pipeline->request_stop();
        }
        step();
        machine_.sleep_for(turn);
    }
    if (std::ranges::any_of(workers_, runs)) complain("stalled: a worker does not end");
    result_.jobs = submitted_;
    check_work();
    check_at_end();
}

void on_fault_point(const char* name) {
    if (current_world != nullptr) current_world->pass_fault_point(name);
}

}  // namespace

void prepare() {
    tests::gpt2_tokenizer();
    consumer::on_fault_point = on_fault_point;
}

RunResult run(const RunOptions& options) {
    RunResult result;
    World played(options, result);
    try {
        played.play();
    } catch (const std::exception& error) {
        result.violations.push_back(error.what());
    }
    return result;
}

}  // namespace lorry::simulation

namespace lorry::consumer {

// Instead of consumer/log.cpp: into the trace.
void log_text(LogLevel, std::string_view text) {
    if (simulation::current_world != nullptr) simulation::current_world->say(text);
}

}  // namespace lorry::consumer
