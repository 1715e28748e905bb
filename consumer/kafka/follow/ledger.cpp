// The ledger's loop: reads a batch, writes it together with its offsets, and repeats.
#include "consumer/kafka/follow/ledger.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "consumer/backoff.h"
#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/reader.h"
#include "consumer/kafka/times.h"
#include "consumer/log.h"
#include "schema/codec.h"
#include "schema/file_lease.h"
#include "schema/store/store.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds batch_turn{200};
// A batch waits this long for more records, so that a busy topic needs few transactions.
constexpr milliseconds linger{50};
constexpr std::size_t records_per_batch = 2'000;
constexpr std::chrono::seconds tidy_interval{60};
// How long a day stays open after its end: statuses come late if a worker or the brokers hang.
constexpr std::chrono::hours day_open{24};
constexpr std::size_t jobs_forgotten_at_once = 1'000;  // keeps the transaction short: readers and the next batch wait for it
constexpr std::size_t adapter_states_max = 10'000;

struct AdapterState {
    std::string name;
    std::string hash;
    std::string state;
    std::string error;
};

}  // namespace

struct Ledger::State {
    const KafkaConfig config;
    Options options;
    schema::Store store;                   // the thread's, once it runs
    std::unique_ptr<RecordReader> reader;  // the thread's, with the next two
    Backoff backoff{milliseconds(100), milliseconds(10'000)};
    SteadyClock::time_point tidy_next{};
    std::map<std::string, std::string> topic_ids;
    mutable std::mutex mutex;
    std::condition_variable_any wake;
    std::vector<AdapterState> adapter_states;  // guarded by mutex
    Stats stats;                               // guarded by mutex
    std::jthread thread;                       // last: it uses all of the above

    State(KafkaConfig brokers, Options given, schema::Store opened)
        : config(std::move(brokers)), options(std::move(given)), store(std::move(opened)) {}

    std::vector<std::string> topics() const { return {options.topics.status(), options.topics.adapters()}; }

    // Resumes at the file's offsets if it describes these very topics; otherwise empties the tables and reads the topics from their start.
    void connect() {
        std::vector<TopicOffset> positions;
        for (const schema::AppliedOffset& applied : store.offsets()) positions.push_back({applied.topic, applied.partition, applied.next});
        std::erase_if(positions, [&](const TopicOffset& at) { return at.topic != topics()[0] && at.topic != topics()[1]; });
        reader = std::make_unique<RecordReader>(config, RecordReader::Options{.topics = topics(), .positions = std::move(positions)});
        for (auto& [topic, id] : reader->topic_ids()) topic_ids[topic] = id;
        const std::string reason = mismatch();
        store.set_cluster_id(reader->cluster_id());
        if (reason.empty()) return;
        log_warning("ledger {}: {}; rebuilding it from what the topics hold", options.file.string(), reason);
        store.reset();
        reader = std::make_unique<RecordReader>(config, RecordReader::Options{.topics = topics()});
    }

    std::string mismatch() {
        if (schema::ids_differ(store.cluster_id(), reader->cluster_id())) return "it describes another Kafka cluster";
        const auto ends = reader->ends_at_start();
        for (const schema::AppliedOffset& applied : store.offsets()) {
            const auto id = topic_ids.find(applied.topic);
            if (id == topic_ids.end()) return "it describes other topics";
            if (schema::ids_differ(id->second, applied.topic_id)) return "topic " + applied.topic + " was recreated";
            const auto end = std::ranges::find_if(
                ends, [&](const TopicOffset& one) { return one.topic == applied.topic && one.partition == applied.partition; });
            if (end == ends.end() || applied.next > end->next) return "topic " + applied.topic + " is shorter than it was";
        }
        return {};
    }

    void follow(const std::stop_token& stop) {
        auto refresh_next = SteadyClock::now() + refresh_interval;
        CatchUp catch_up(*reader);
        while (!stop.stop_requested()) {
            auto records = reader->poll(batch_turn, records_per_batch);
            const auto batch_end = SteadyClock::now() + linger;
            while (!records.empty() && records.size() < records_per_batch && SteadyClock::now() < batch_end) {
                auto more = reader->poll(linger / 2, records_per_batch - records.size());
                std::move(more.begin(), more.end(), std::back_inserter(records));
            }
            if (!records.empty()) write(records, stop);
            write_adapter_states();
            tidy(catch_up);
            const auto behind = reader->remaining();
            {
                const std::scoped_lock lock(mutex);
                stats.behind = behind;
                stats.failing = false;
            }
            backoff.reset();
            if (SteadyClock::now() >= refresh_next) {
                reader->refresh();
                refresh_next = SteadyClock::now() + refresh_interval;
            }
        }
    }

    void write(const std::vector<schema::JobRecord>& records, const std::stop_token& stop) {
        schema::StoreUpdate update;
        std::uint64_t refused = 0;
        std::map<std::pair<std::string, std::int32_t>, std::int64_t> next;
        for (const schema::JobRecord& record : records) {
            if (!add(update, record)) ++refused;
            next[{record.source.topic, record.source.partition}] = record.source.offset + 1;
        }
        for (const auto& [key, offset] : next) update.offsets.push_back({key.first, topic_ids[key.first], key.second, offset});
        while (!stop.stop_requested()) {
            try {
                fault_point("ledger.write");
                store.apply(update);
                const std::scoped_lock lock(mutex);
                stats.applied += records.size() - refused;
                stats.refused += refused;
                return;
            } catch (const std::runtime_error& error) {
                wait_after(error, stop);
            }
        }
    }

    // Logs each failure, then pauses; the pause grows until an attempt succeeds.
    void wait_after(const std::runtime_error& error, const std::stop_token& stop) {
        const milliseconds pause = backoff.next();
        log_error("ledger {}: {}; trying again in {} ms", options.file.string(), error.what(), pause.count());
        std::unique_lock lock(mutex);
        stats.failing = true;
        wake.wait_for(lock, stop, pause, [] { return false; });
    }

    // Sums up the days that are over, once everything that was written by now has been read. Then deletes a little in each turn, so that a
    // ledger that holds years of jobs does not stall.
    void tidy(CatchUp& catch_up) {
        if (SteadyClock::now() < tidy_next || !catch_up.is_done()) return;
        const auto now = std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now());
        store.close_days(now - day_open);
        const bool is_done =
            options.days == 0 || store.forget_jobs(now - std::chrono::days(options.days), jobs_forgotten_at_once) < jobs_forgotten_at_once;
        if (!is_done) return;
        catch_up.begin_again();
        tidy_next = SteadyClock::now() + tidy_interval;
    }

    bool add(schema::StoreUpdate& update, const schema::JobRecord& record) {
        const auto refuse = [&](std::string_view why) {
            log_warning("ledger: {} [{}] offset {}: {}", record.source.topic, record.source.partition, record.source.offset, why);
            return false;
        };
        if (record.source.topic == options.topics.status()) {
            auto status = schema::parse_status(record.value.value_or(""));
            if (!status) return refuse(status.error());
            update.statuses.push_back(*std::move(status));
            return true;
        }
        if (!record.key) return refuse("it has no key; the key is the adapter's name");
        if (!record.value) {
            update.adapters.push_back({*record.key, std::nullopt});
            return true;
        }
        auto adapter = schema::parse_adapter(*record.value);
        if (!adapter) return refuse(adapter.error());
        if (adapter->name != *record.key) return refuse("its name differs from its key");
        update.adapters.push_back({*record.key, *std::move(adapter)});
        return true;
    }

    void write_adapter_states() {
        std::vector<AdapterState> states;
        {
            const std::scoped_lock lock(mutex);
            states.swap(adapter_states);
        }
        for (const AdapterState& one : states) {
            try {
                store.set_adapter_state(one.name, one.hash, one.state, one.error);
            } catch (const std::runtime_error& error) {
                log_error("ledger {}: the state of adapter {} was not recorded: {}", options.file.string(), one.name, error.what());
            }
        }
    }

    // The caller has connected. After any failure it reconnects and resumes at the file's offsets.
    void run(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            try {
                if (!reader) connect();
                follow(stop);
            } catch (const std::runtime_error& error) {
                reader.reset();
                wait_after(error, stop);
            }
        }
    }
};

Ledger::Ledger(std::unique_ptr<State> state) : state_(std::move(state)) {
    state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->run(stop); });
}

Ledger::~Ledger() = default;

std::unique_ptr<Ledger> Ledger::start(const KafkaConfig& config, const Options& options) {
    try {
        auto state = std::make_unique<State>(config, options, schema::Store::open(options.file, schema::Store::Mode::writer));
        state->connect();
        return std::unique_ptr<Ledger>(new Ledger(std::move(state)));
    } catch (const schema::LeaseHeld& held) {
        log_info("ledger: {}; that process keeps it, this one does not", held.what());
        return nullptr;
    }
}

void Ledger::set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error) {
    const std::scoped_lock lock(state_->mutex);
    if (state_->adapter_states.size() < adapter_states_max) state_->adapter_states.push_back({name, hash, state, error});
}

Ledger::Stats Ledger::stats() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->stats;
}

}  // namespace lorry::consumer
