// A loop: serve the group, take up batches, read results, and let each batch do its next thing.
#include "consumer/kafka/batches/batch_owner.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "consumer/kafka/batches/batch_group.h"
#include "consumer/kafka/batches/batch_topics.h"
#include "consumer/kafka/client.h"
#include "consumer/kafka/reader.h"
#include "consumer/kafka/records.h"
#include "consumer/kafka/times.h"
#include "consumer/kafka/transactions.h"
#include "consumer/log.h"

namespace lorry::consumer {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds idle_turn{100};
constexpr std::chrono::seconds open_patience{10};
constexpr std::chrono::seconds failure_pause{2};  // before a partition is tried again
constexpr std::chrono::seconds batch_pause{10};   // before a batch is tried again that failed alone
constexpr std::chrono::seconds housekeeping_interval{600};
constexpr std::size_t forgotten_at_once = 1'000;
constexpr std::int64_t lines_together = 64;  // go to one partition of the jobs topic
constexpr std::string_view line_header = "batch_line";

// The partition's transactions failed, or are another's: begin it anew.
class PartitionLost : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

BatchRun::Time now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

void require(const StepResult& result) {
    if (result.end != StepEnd::done) throw PartitionLost(result.reason);
}

// A partition that is this gateway's, and the log of its batches.
class OwnedPartition final : public BatchLog {
public:
    struct Common {
        const KafkaConfig& config;
        const schema::Topics& topics;
        std::int32_t jobs_partitions;
    };
    OwnedPartition(Common common, std::int32_t number)
        : common_(common),
          number_(number),
          producer_(common.config,
                    {.id = fmt::format("{}/{}", common.topics.gateways(), number), .limits = {.record_bytes_max = std::size_t{16} << 20}}) {
        require(producer_.open(open_patience));
    }

    // Throws PartitionLost or KafkaError; another std::runtime_error if the brokers refuse this batch's records.
    void write(const BatchWrite& write) override;
    void stop_lines(const schema::BatchRecord& batch) override {
        KafkaConfig config = common_.config;
        config.deadline_start = open_patience;
        config.deadline_later = open_patience;
        send_cancels(config, common_.topics, {{.id = batch.id, .is_batch = true}});
    }
    // Records of batches that nobody needs any more.
    void forget(const std::vector<std::string>& batches);

    using Runs = std::map<std::string, std::unique_ptr<BatchRun>>;  // by batch
    Runs runs;
    Runs joining;                                            // they learn which of their lines have results, before they run
    std::set<std::string> ended;                             // batches whose end may not have been read yet
    std::map<std::string, SteadyClock::time_point> waiting;  // batches that failed alone: when they are tried again

private:
    void send(const Produce& record) { producer_.send(record); }
    void commit();

    const Common common_;
    const std::int32_t number_;
    TransactionalProducer producer_;
};

void OwnedPartition::write(const BatchWrite& write) {
    const schema::BatchRecord& batch = write.batch;
    require(producer_.begin(1));
    std::vector<schema::Header> headers = {
        {std::string(schema::batch_id_header), batch.id},
        {std::string(schema::deadline_header), std::to_string(batch.expires * 1'000)},
        {std::string(line_header), ""},
    };
    if (!batch.tenant.empty()) headers.emplace_back(schema::tenant_header, batch.tenant);
    if (!batch.key.empty()) headers.emplace_back(schema::api_key_id_header, batch.key);
    const auto first = static_cast<std::int64_t>(std::hash<std::string>()(batch.id) % static_cast<std::size_t>(common_.jobs_partitions));
    for (const BatchLine& line : write.lines) {
        headers[2].second = std::to_string(line.number);
        const auto partition = static_cast<std::int32_t>((first + line.number / lines_together) % common_.jobs_partitions);
        send({.topic = common_.topics.jobs(), .partition = partition, .key = line.model, .value = line.text, .headers = headers});
    }
    const std::string value = schema::encode_batch(batch);
    const std::string batches = common_.topics.batches();
    send({.topic = batches, .partition = number_, .key = batch.id, .value = value, .headers = {}});
    if (schema::is_final(batch.state)) {
        const std::string cancel = cancel_key(batch.id);
        send({.topic = batches, .partition = number_, .key = cancel, .value = std::nullopt, .headers = {}});
    }
    for (const schema::FileRecord& file : write.files) {
        const std::string record = schema::encode_file(file);
        send({.topic = common_.topics.files(), .partition = std::nullopt, .key = file.id, .value = record, .headers = {}});
    }
    commit();
}

void OwnedPartition::forget(const std::vector<std::string>& batches) {
    require(producer_.begin(1));
    const std::string topic = common_.topics.batches();
    for (const std::string& batch : batches) {
        const std::string cancel = cancel_key(batch);  // one may have come after the batch's end
        for (const std::string* key : {&batch, &cancel})
            send({.topic = topic, .partition = number_, .key = *key, .value = std::nullopt, .headers = {}});
    }
    commit();
}

void OwnedPartition::commit() {
    const StepResult sent = producer_.finish_sending();
    const bool is_refused = sent.end == StepEnd::aborting && std::ranges::any_of(producer_.errors(), is_record_error);
    if (!is_refused) require(sent);
    require(is_refused ? producer_.abort() : producer_.commit());
    if (producer_.has_stray_request()) throw PartitionLost("a request of a transaction was not answered");
    if (is_refused) throw std::runtime_error(sent.reason);
}

}  // namespace

struct BatchOwner::State {
    State(const KafkaConfig& the_config, Options the_options, BatchTopics& the_topics, FileStore& the_store)
        : config(the_config),
          options(std::move(the_options)),
          topics(the_topics),
          store(the_store),
          group(config, options.topics.gateways(), options.topics.batches()) {
        const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
        jobs_partitions = connection.required_partition_count(options.topics.jobs());
        connection.required_partition_count(options.topics.results());
        connection.required_partition_count(options.topics.control());
        thread = std::jthread([this](const std::stop_token& stop) { work(stop); });
    }

    void work(const std::stop_token& stop);
    void follow_group();
    void take_up(std::int32_t number);
    using Owned = std::map<std::int32_t, std::unique_ptr<OwnedPartition>>;
    Owned::iterator begin(std::int32_t number);
    std::vector<schema::BatchRecord> free_batches(OwnedPartition& partition, std::int32_t number) const;
    void prepare_run(OwnedPartition& partition, schema::BatchRecord batch);
    bool join_runs();
    bool count_next();
    void postpone(OwnedPartition& partition, const std::string& batch, const std::string& why);
    void read_from(const BatchRun::Positions& positions);
    bool read_results(milliseconds timeout);
    bool step_all();
    struct Round {
        const BatchRun::Positions& read;
        std::int64_t tenant_open = 0;        // open_lines() of all batches of the tenant
        std::int64_t tenant_open_bytes = 0;  // open_bytes() of these
    };
    std::int64_t key_jobs(const schema::BatchRecord& batch) const;
    bool step(std::int32_t number, const std::string& batch, const Round& round);
    void lose(std::int32_t number, const std::string& why);
    BatchRun::Positions positions() const;
    std::size_t run_count() const;
    void keep_house();

    const KafkaConfig config;
    const Options options;
    BatchTopics& topics;
    FileStore& store;
    std::int32_t jobs_partitions = 0;

    // The thread's.
    BatchGroup group;
    Owned owned;                                                 // those that have a producer
    std::map<std::int32_t, SteadyClock::time_point> not_before;  // of partitions that failed
    std::map<std::string, std::string> last_of;                  // by tenant: its batch that did something last
    std::optional<RecordReader> results;                         // while there are batches
    SteadyClock::time_point refresh_next{};
    SteadyClock::time_point housekeeping_next{};

    mutable std::mutex mutex;
    std::optional<std::string> failure;  // guarded by mutex
    std::jthread thread;                 // last: it uses all of the above
};

void BatchOwner::State::work(const std::stop_token& stop) {
    try {
        while (!stop.stop_requested()) {
            group.poll(milliseconds(0));
            follow_group();
            // A copy, as polls change it.
            for (const std::int32_t number : std::set<std::int32_t>(group.partitions())) {
                take_up(number);
                group.poll(milliseconds(0));
            }
            const bool has_joined = join_runs();
            const bool has_read = read_results(milliseconds(0));
            const bool has_done = step_all() || has_joined;
            keep_house();
            if (!has_read && !has_done) results ? void(read_results(idle_turn)) : group.poll(idle_turn);
        }
    } catch (const std::exception& error) {
        log_error("batches cannot be carried out any more: {}", error.what());
        const std::lock_guard lock(mutex);
        failure = error.what();
    }
}

// What the group took away is dropped: its next owner begins with what was written.
void BatchOwner::State::follow_group() {
    std::erase_if(owned, [&](const auto& each) { return !group.partitions().contains(each.first); });
    if (run_count() == 0) results.reset();
}

std::size_t BatchOwner::State::run_count() const {
    std::size_t count = 0;
    for (const auto& [number, partition] : owned) count += partition->runs.size() + partition->joining.size();
    return count;
}

// Batches of the partition that are not carried out yet. The first one opens its producer.
void BatchOwner::State::take_up(std::int32_t number) {
    if (const auto wait = not_before.find(number); wait != not_before.end()) {
        if (SteadyClock::now() < wait->second) return;
        not_before.erase(wait);
    }
    if (!group.partitions().contains(number)) return;
    auto place = owned.find(number);
    std::vector<schema::BatchRecord> open = place == owned.end() ? topics.open_batches(number) : free_batches(*place->second, number);
    if (open.empty()) return;
    try {
        if (place == owned.end()) {
            place = begin(number);
            open = topics.open_batches(number);
        } else if (std::ranges::any_of(open, [&](const auto& batch) { return place->second->waiting.contains(batch.id); })) {
            // A batch that failed goes on from what was written last.
            topics.wait_until_read(SteadyClock::now() + open_patience);
            open = free_batches(*place->second, number);
        }
        for (schema::BatchRecord& batch : open) prepare_run(*place->second, std::move(batch));
    } catch (const std::runtime_error& error) {
        lose(number, error.what());
    }
}

// Those of a partition that are not carried out and need not wait.
std::vector<schema::BatchRecord> BatchOwner::State::free_batches(OwnedPartition& partition, std::int32_t number) const {
    const std::vector<std::string> open = topics.open_ids(number);
    const std::set<std::string> ids(open.begin(), open.end());
    std::erase_if(partition.ended, [&](const std::string& id) { return !ids.contains(id); });
    std::erase_if(partition.waiting, [&](const auto& each) { return !ids.contains(each.first); });
    const auto time = SteadyClock::now();
    std::vector<schema::BatchRecord> free;
    for (const std::string& id : ids) {
        const auto wait = partition.waiting.find(id);
        const bool waits = wait != partition.waiting.end() && time < wait->second;
        if (waits || partition.ended.contains(id) || partition.runs.contains(id) || partition.joining.contains(id)) continue;
        if (auto batch = topics.open_batch(id)) free.push_back(*std::move(batch));
    }
    return free;
}

// A partition's producer. Nobody else writes for it from here on: what is read then is all there is.
BatchOwner::State::Owned::iterator BatchOwner::State::begin(std::int32_t number) {
    auto partition = std::make_unique<OwnedPartition>(
        OwnedPartition::Common{.config = config, .topics = options.topics, .jobs_partitions = jobs_partitions}, number);
    topics.wait_until_read(SteadyClock::now() + open_patience);
    return owned.emplace(number, std::move(partition)).first;
}

void BatchOwner::State::prepare_run(OwnedPartition& partition, schema::BatchRecord batch) {
    const std::string id = batch.id;
    if (partition.waiting.contains(id) && now().time_since_epoch().count() >= batch.expires + BatchRun::store_patience.count()) {
        log_error("batch {} is failed: it could not go on until its time was over", id);
        partition.write({.lines = {}, .batch = given_up(std::move(batch), now()), .files = {}});
        partition.ended.insert(id);
        return;
    }
    partition.waiting.erase(id);
    partition.joining.emplace(id, std::make_unique<BatchRun>(std::move(batch), store, partition, options.run));
}

// Batches that were taken up count their results, a part in each turn. They begin together, so that results are read again once for all.
bool BatchOwner::State::join_runs() {
    if (count_next()) return true;
    std::vector<std::int32_t> numbers;
    for (const auto& [number, partition] : owned) {
        if (!partition->joining.empty()) numbers.push_back(number);
    }
    for (const std::int32_t number : numbers) {
        OwnedPartition& partition = *owned.at(number);
        try {
            for (const auto& [id, run] : partition.joining) read_from(run->results_from());
            partition.runs.merge(partition.joining);
        } catch (const std::runtime_error& error) {
            lose(number, error.what());
        }
        group.poll(milliseconds(0));
    }
    return !numbers.empty();
}

// False: all have counted.
bool BatchOwner::State::count_next() {
    for (const auto& [number, partition] : owned) {
        for (const auto& [id, run] : partition->joining) {
            if (run->has_counted()) continue;
            try {
                run->count();
            } catch (const std::runtime_error& error) {
                postpone(*partition, std::string(id), error.what());
            }
            return true;
        }
    }
    return false;
}

// The store failed, or the brokers refuse its records: this batch alone begins anew later, and the others go on.
void BatchOwner::State::postpone(OwnedPartition& partition, const std::string& batch, const std::string& why) {
    log_warning("batch {}: {}; it goes on from what was written, in {} s", batch, why, batch_pause.count());
    partition.waiting[batch] = SteadyClock::now() + batch_pause;
    partition.runs.erase(batch);
    partition.joining.erase(batch);
}

// Sees to it that results are read from there on, or from earlier. Results that come again are recognized.
void BatchOwner::State::read_from(const BatchRun::Positions& wanted) {
    const auto from = earlier_positions(positions(), wanted);
    if (results && !from) return;
    std::vector<TopicOffset> begins;
    for (const auto& [partition, offset] : from.value_or(BatchRun::Positions()))
        begins.push_back({options.topics.results(), partition, offset});
    // Partitions that no position names were added after the batch began, unless it begins now.
    const RecordReader::Start start = from ? RecordReader::Start(RecordReader::Beginning{}) : RecordReader::End{};
    // If this one cannot be made, the batches that run keep theirs.
    RecordReader reader(config, {.topics = {options.topics.results()},
                                 .start = start,
                                 .positions = std::move(begins),
                                 .passes_unreadable = true,
                                 .is_waited_for = true});
    results = std::move(reader);
    refresh_next = SteadyClock::now() + refresh_interval;
}

BatchRun::Positions BatchOwner::State::positions() const {
    BatchRun::Positions positions;
    if (!results) return positions;
    for (const TopicOffset& position : results->positions()) positions[position.partition] = position.next;
    return positions;
}

bool BatchOwner::State::read_results(milliseconds timeout) {
    if (!results) return false;
    const auto records = results->poll(timeout);
    for (const schema::JobRecord& record : records) {
        const std::string* batch = schema::find_header(record.headers, schema::batch_id_header);
        const auto line = schema::find_number<std::int64_t>(record.headers, line_header);
        if (batch == nullptr || !line || !record.value) continue;
        for (const auto& [number, partition] : owned) {
            const auto run = partition->runs.find(*batch);
            if (run != partition->runs.end()) run->second->take(*line, *record.value);
        }
    }
    if (SteadyClock::now() >= refresh_next) {
        results->refresh();
        refresh_next = SteadyClock::now() + refresh_interval;
    }
    return !records.empty();
}

// Tenants in turn: one of each tenant's batches does one thing, another one in the next round, unless the first is amid something.
bool BatchOwner::State::step_all() {
    struct Tenant {
        std::map<std::string, std::int32_t> batches;  // partitions, by batch
        std::int64_t open = 0;                        // lines that were sent and have no result
        std::int64_t open_bytes = 0;                  // the same
        std::optional<std::string> amid;              // a batch
    };
    std::map<std::string, Tenant> tenants;
    for (const auto& [number, partition] : owned) {
        for (const auto& [id, run] : partition->runs) {
            Tenant& tenant = tenants[run->record().tenant];
            tenant.batches.emplace(id, number);
            tenant.open += run->open_lines();
            tenant.open_bytes += run->open_bytes();
            if (run->is_amid()) tenant.amid = id;
        }
    }
    std::erase_if(last_of, [&](const auto& each) { return !tenants.contains(each.first); });
    const BatchRun::Positions read = positions();
    bool has_done = false;
    for (const auto& [name, tenant] : tenants) {
        const auto& batches = tenant.batches;
        auto batch = tenant.amid ? batches.find(*tenant.amid) : batches.upper_bound(last_of[name]);
        for (std::size_t i = 0; i < batches.size(); ++i, ++batch) {
            if (batch == batches.end()) batch = batches.begin();
            if (!step(batch->second, batch->first, {.read = read, .tenant_open = tenant.open, .tenant_open_bytes = tenant.open_bytes}))
                continue;
            last_of[name] = batch->first;
            has_done = true;
            break;
        }
        group.poll(milliseconds(0));
    }
    return has_done;
}

// Jobs without a result of all batches of the batch's key. What this owner has just written it knows before its topic is read.
std::int64_t BatchOwner::State::key_jobs(const schema::BatchRecord& batch) const {
    std::int64_t own = 0;
    for (const auto& [number, partition] : owned) {
        for (const auto& [id, run] : partition->runs) {
            const schema::BatchRecord& other = run->record();
            if (other.tenant == batch.tenant && other.key == batch.key) own += schema::jobs_left(other);
        }
    }
    return std::max(own, topics.key_jobs(batch.tenant, batch.key));
}

// One thing of one batch. A partition that was lost on the way has none any more.
bool BatchOwner::State::step(std::int32_t number, const std::string& batch, const Round& round) {
    const auto partition = owned.find(number);
    if (partition == owned.end() || !group.partitions().contains(number)) return false;
    const auto place = partition->second->runs.find(batch);
    if (place == partition->second->runs.end()) return false;
    BatchRun& run = *place->second;
    try {
        const schema::BatchRecord& record = run.record();
        const bool counts = record.key_jobs_max && record.state == schema::BatchState::validating;
        const bool has_done = run.step({.now = now(),
                                        .is_cancelled = topics.is_cancelled(batch),
                                        .read = round.read,
                                        .key_jobs = counts ? key_jobs(record) : 0,
                                        .others_open = round.tenant_open - run.open_lines(),
                                        .others_open_bytes = round.tenant_open_bytes - run.open_bytes()});
        if (const auto news = run.news(now())) log_info("{}", *news);
        if (!run.has_ended()) return has_done;
        partition->second->ended.insert(batch);
        partition->second->runs.erase(place);
        return true;
    } catch (const PartitionLost& error) {
        lose(number, error.what());
    } catch (const KafkaError& error) {
        lose(number, error.what());
    } catch (const std::runtime_error& error) {
        // The run may be in any state.
        postpone(*partition->second, batch, error.what());
    }
    return true;
}

void BatchOwner::State::lose(std::int32_t number, const std::string& why) {
    log_warning("{} [{}]: {}; its batches go on from what was written, in {} s", options.topics.batches(), number, why,
                failure_pause.count());
    owned.erase(number);
    not_before[number] = SteadyClock::now() + failure_pause;
}

// Forgets batches that ended long ago, and removes contents that nothing names.
void BatchOwner::State::keep_house() {
    if (SteadyClock::now() < housekeeping_next || group.partitions().empty()) return;
    housekeeping_next = SteadyClock::now() + housekeeping_interval;
    const schema::Seconds before = (now() - options.kept).time_since_epoch().count();
    for (const std::int32_t number : group.partitions()) {
        const auto old = topics.ended_before(number, before, forgotten_at_once);
        if (old.empty()) continue;
        try {
            const auto place = owned.find(number);
            (place == owned.end() ? begin(number) : place)->second->forget(old);
        } catch (const std::runtime_error& error) {
            lose(number, error.what());
        }
    }
    if (!group.partitions().contains(0)) return;  // one gateway is enough
    try {
        const auto contents = store.older_than(options.orphan_age);
        topics.wait_until_read(SteadyClock::now() + open_patience);
        const auto used = topics.contents_in_use();
        // A topic that was emptied, rather than files that are all orphans.
        if (used.empty() && !contents.empty()) throw std::runtime_error("no file or batch is known, so nothing is taken for an orphan");
        for (const std::string& name : contents) {
            if (used.contains(name)) continue;
            store.remove(name);
            log_info("the files' folder: {} was removed, as no file or batch names it", name);
        }
    } catch (const std::runtime_error& error) {
        log_warning("the files' folder was not tidied: {}", error.what());
    }
}

BatchOwner::BatchOwner(const KafkaConfig& config, Options options, BatchTopics& topics, FileStore& store)
    : state_(std::make_unique<State>(config, std::move(options), topics, store)) {}

BatchOwner::~BatchOwner() = default;

std::optional<std::string> BatchOwner::failure() const {
    const std::lock_guard lock(state_->mutex);
    return state_->failure;
}

}  // namespace lorry::consumer
