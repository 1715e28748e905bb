// The poll loop of a group member: rebalances, takeover, admission and back-pressure.
#include "consumer/kafka/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "consumer/kafka/times.h"
#include "consumer/log.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds short_turn{5};  // while jobs wait for the commit of their start
constexpr milliseconds call_turn{1};   // while calls do, whose commit comes at once
constexpr milliseconds commit_patience{1'000};
constexpr std::chrono::seconds hold_log_interval{30};
constexpr std::chrono::seconds unreadable_log_interval{60};
constexpr milliseconds resets_interval{200};
constexpr milliseconds undecided_interval{200};
constexpr std::chrono::seconds undecided_log_interval{30};

TopicPartitions partitions_in(const rd_kafka_topic_partition_list_t& list) {
    TopicPartitions partitions;
    for (int i = 0; i < list.cnt; ++i) partitions.emplace_back(list.elems[i].topic, list.elems[i].partition);
    return partitions;
}

// Those of `partitions` that are assigned: the client knows nothing yet of partitions whose takeover is not complete.
PartitionListHandle assigned_of(rd_kafka_t* client, const rd_kafka_topic_partition_list_t& partitions) {
    rd_kafka_topic_partition_list_t* all = nullptr;
    rd_kafka_assignment(client, &all);
    const PartitionListHandle assigned(all);
    PartitionListHandle found(rd_kafka_topic_partition_list_new(partitions.cnt));
    for (const auto& [topic, partition] : partitions_in(partitions)) {
        if (assigned && rd_kafka_topic_partition_list_find(assigned.get(), topic.c_str(), partition) != nullptr) {
            rd_kafka_topic_partition_list_add(found.get(), topic.c_str(), partition);
        }
    }
    return found;
}

void say_lost(const std::pair<std::string, std::int32_t>& partition, std::int64_t count, std::int64_t first) {
    log_error(
        "{} [{}]: up to {} jobs below offset {} are LOST: the topic's retention deleted them before they were finished; raise its "
        "retention.ms or retention.bytes",
        partition.first, partition.second, count, first);
}

KafkaSettings settings_of(const KafkaSource::Options& options) {
    KafkaSettings settings = {{"group.id", options.group},
                              {"isolation.level", "read_committed"},
                              {"auto.offset.reset", "error"},
                              {"enable.auto.commit", "false"},
                              {"enable.auto.offset.store", "false"},
                              {"allow.auto.create.topics", "false"},
                              {"max.poll.interval.ms", std::to_string(options.poll_interval_max.count())}};
    const KafkaSettings classic = {{"group.instance.id", options.member},
                                   {"partition.assignment.strategy", "cooperative-sticky"},
                                   {"session.timeout.ms", std::to_string(options.session_timeout.count())},
                                   {"heartbeat.interval.ms", std::to_string(heartbeat_interval(options.session_timeout).count())}};
    // With the newer protocol the broker owns these settings. A static member that was killed would be refused when it rejoins under its
    // own name.
    const KafkaSettings newer = {{"group.protocol", "consumer"}};
    const KafkaSettings& more = options.protocol == GroupProtocol::classic ? classic : newer;
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
}

}  // namespace

milliseconds heartbeat_interval(milliseconds session_timeout) { return std::min(milliseconds(3'000), session_timeout / 4); }

KafkaSource::KafkaSource(const KafkaConfig& config, Options options, OffsetTracker& tracker)
    : options_(std::move(options)),
      tracker_(tracker),
      careful_(tracker, options_.careful_starts),
      undecided_log_(undecided_log_interval),
      connection_(
          config, KafkaConnection::Kind::consumer, settings_of(options_),
          [](rd_kafka_conf_t* conf) { rd_kafka_conf_set_rebalance_cb(conf, on_rebalance); }, this),
      past_results_(connection_, options_.topics),
      take_over_(connection_, past_results_) {
    // From now on, errors and rebalances arrive with the messages.
    rd_kafka_poll_set_consumer(connection_.handle());
}

void KafkaSource::check(rd_kafka_error_t* error, const char* what) const {
    if (error == nullptr) return;
    const ErrorHandle owned(error);
    throw KafkaError(fmt::format("Kafka at {}: {}: {}", connection_.config().brokers, what, rd_kafka_error_string(error)));
}

void KafkaSource::subscribe() {
    const auto inputs = options_.topics.inputs();
    const PartitionListHandle topics(rd_kafka_topic_partition_list_new(static_cast<int>(inputs.size())));
    for (const std::string& topic : inputs) rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    if (const auto error = rd_kafka_subscribe(connection_.handle(), topics.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        throw KafkaError(fmt::format("Kafka at {}: subscribing to {}: {}", connection_.config().brokers, fmt::join(inputs, " and "),
                                     rd_kafka_err2str(error)));
    }
    subscribed_ = true;
}

// Runs inside rd_kafka_consumer_poll, called from C: it only records the rebalance and makes the poll return.
void KafkaSource::on_rebalance(rd_kafka_t* client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* list, void* opaque) {
    auto* self = static_cast<KafkaSource*>(static_cast<KafkaContext*>(opaque)->owner);
    const bool assign = error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    if (error != RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS && !assign) {
        rd_kafka_assign(client, nullptr);
        self->connection_.complaints().note(rd_kafka_err2str(error));
        return;
    }
    if (self->closing_) {
        const ErrorHandle ignored(assign ? rd_kafka_incremental_assign(client, list)
                                         : rd_kafka_incremental_unassign(client, assigned_of(client, *list).get()));
        return;
    }
    Rebalance rebalance;
    if (!assign) rebalance.kind = rd_kafka_assignment_lost(client) != 0 ? Rebalance::Kind::lost : Rebalance::Kind::revoke;
    rebalance.list.reset(rd_kafka_topic_partition_list_copy(list));
    self->rebalances_.push_back(std::move(rebalance));
    rd_kafka_yield(client);
}

std::vector<Delivery> KafkaSource::poll(milliseconds timeout, std::size_t max, RevocationHandler& handler) {
    CHECK(!closing_, "a closed source is not polled");
    if (!subscribed_) subscribe();
    std::vector<Delivery> deliveries;
    const auto end = Clock::now() + timeout;
    milliseconds wait{0};
    // Serves the group for the whole timeout even when there is no room for deliveries.
    for (;;) {
        // Returns errors, not records; rebalances are reported during this call.
        if (const MessageHandle message{rd_kafka_consumer_poll(connection_.handle(), static_cast<int>(wait.count()))}) take_error(*message);
        serve_rebalances(handler);
        serve_undecided();
        finish_take_over();
        go_on_after_resets();
        careful_.release(deliveries, Clock::now());
        read(options_.topics.calls(), calls_max_, deliveries);
        read(options_.topics.jobs(), max, deliveries);
        const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
        if (!deliveries.empty() || left <= milliseconds(0)) break;
        wait = std::min(left, turn());
    }
    const auto is_held = [](const auto& one) { return one.second.held.has_value(); };
    counters_.held = static_cast<std::uint64_t>(std::ranges::count_if(readings_, is_held));
    counters_.starting = careful_.waiting();
    publish_unreadable();
    connection_.check_fatal();
    connection_.check_reachable();
    return deliveries;
}

void KafkaSource::serve_rebalances(RevocationHandler& handler) {
    // A takeover that the group does not wait for must not delay a rebalance.
    if (!rebalances_.empty() && take_over_.is_running() && !is_arriving_) {
        take_over_.cancel();
        const std::vector<Key> asked = std::exchange(asked_, {});
        undecided_.insert(undecided_.end(), asked.begin(), asked.end());
    }
    // An assignment that is being taken over is answered before any later rebalance is served.
    while (!rebalances_.empty() && !take_over_.is_running()) {
        const Rebalance rebalance = std::move(rebalances_.front());
        rebalances_.pop_front();
        ++counters_.rebalances;
        if (rebalance.kind != Rebalance::Kind::assign) {
            revoke(rebalance, handler, Clock::now() + options_.drain_budget);
        } else if (rebalance.list->cnt == 0) {
            answer_assign();
        } else {
            is_arriving_ = true;
            begin_take_over(partitions_in(*rebalance.list));
        }
    }
}

void KafkaSource::serve_undecided() {
    if (undecided_.empty() || take_over_.is_running() || Clock::now() < next_take_over_) return;
    say_undecided();
    begin_take_over(std::exchange(undecided_, {}));
}

// False while the group waits for an answer, because the change would count as that answer, and while earlier partitions may be about to
// leave.
bool KafkaSource::may_change_assignment() const { return !is_arriving_ && rebalances_.empty() && !has_lost_partitions(); }

// Answers an assignment without partitions to read.
void KafkaSource::answer_assign() {
    const PartitionListHandle none(rd_kafka_topic_partition_list_new(0));
    check(rd_kafka_incremental_assign(connection_.handle(), none.get()), "answering an assignment");
}

void KafkaSource::begin_take_over(TopicPartitions partitions) {
    asked_ = partitions;
    take_over_.start(std::move(partitions));
}

void KafkaSource::revoke(const Rebalance& rebalance, RevocationHandler& handler, Clock::time_point deadline) {
    std::vector<PartitionEpoch> going;
    for (int i = 0; i < rebalance.list->cnt; ++i) {
        const Key key{rebalance.list->elems[i].topic, rebalance.list->elems[i].partition};
        careful_.gone(key.first, key.second);
        resets_.erase(key);
        std::erase(undecided_, key);
        if (const auto epoch = epoch_of(key)) going.push_back({key.first, key.second, *epoch});
    }
    for (const PartitionEpoch& partition : going) tracker_.drain(partition.topic, partition.partition);
    if (!going.empty() && rebalance.kind != Rebalance::Kind::lost) leave(going, handler, deadline);
    const bool lost = rebalance.kind == Rebalance::Kind::lost || has_lost_partitions();  // or while they were drained
    if (lost) {
        log_warning(
            "{}: {} partitions were lost: Kafka was away, or the group removed this worker; their unfinished jobs are dropped here and run "
            "again",
            options_.topics.prefix, going.size());
        ++counters_.lost;
    }
    // From here on, nothing of these epochs is published; for lost partitions, not even jobs that have already ended.
    for (const PartitionEpoch& partition : going) tracker_.drop(partition.topic, partition.partition);
    if (!going.empty() && lost) handler.lost(going);
    for (const PartitionEpoch& partition : going) readings_.erase({partition.topic, partition.partition});
    log_info("{}: gave up {} partitions, {} left", options_.topics.prefix, going.size(), readings_.size());
    check(rd_kafka_incremental_unassign(connection_.handle(), assigned_of(connection_.handle(), *rebalance.list).get()),
          "giving up partitions");
}

// A commit is needed even without jobs in flight: the last one may list starts of jobs that never ran.
void KafkaSource::leave(const std::vector<PartitionEpoch>& partitions, RevocationHandler& handler, Clock::time_point deadline) {
    handler.drain(partitions, deadline);
    const auto end = Clock::now() + commit_patience;
    while (tracker_.lists_starts(partitions) && !has_lost_partitions() && Clock::now() < end) std::this_thread::sleep_for(short_turn);
}

void KafkaSource::finish_take_over() {
    const auto partitions = take_over_.result();
    if (!partitions) return;
    std::vector<Key> left = std::exchange(asked_, {});
    const bool is_arriving = std::exchange(is_arriving_, false);
    if (is_arriving || (!partitions->empty() && may_change_assignment())) {
        for (const TakenOver& taken : *partitions) std::erase(left, Key(taken.topic, taken.partition));
        begin_reading(*partitions);
    }
    if (left.empty()) return;
    // Usually another worker's transaction that is about to end.
    if (is_arriving) undecided_log_.restart();
    undecided_.insert(undecided_.end(), left.begin(), left.end());
    next_take_over_ = Clock::now() + undecided_interval;
}

void KafkaSource::say_undecided() {
    if (!undecided_log_.is_due()) return;
    const auto& [topic, partition] = undecided_.front();
    log_warning(
        "{} [{}]: an open transaction holds its committed offset, so its jobs wait ({} such partitions): if this persists, find the "
        "transaction with `kafka-transactions.sh find-hanging` on your brokers",
        topic, partition, undecided_.size());
}

void KafkaSource::begin_reading(const std::vector<TakenOver>& partitions) {
    const PartitionListHandle list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
    std::int64_t backlog = 0;
    for (const TakenOver& taken : partitions) {
        const Key key{taken.topic, taken.partition};
        rd_kafka_topic_partition_list_add(list.get(), taken.topic.c_str(), taken.partition)->offset = taken.start;
        const Epoch epoch = tracker_.assign(taken.topic, taken.partition, taken.state, taken.recorded);
        readings_.erase(key);
        readings_.emplace(key, Reading{.epoch = epoch,
                                       .end = taken.end,
                                       .taken_below = taken.state.highest_finished,
                                       .queue = {connection_.handle(), taken.topic, taken.partition},
                                       .held = {},
                                       .hold_log = LogPace(hold_log_interval),
                                       .unreadable = {},
                                       .unreadable_log = LogPace(unreadable_log_interval)});
        careful_.assigned(taken.topic, taken.partition);
        backlog += taken.end - taken.start;
        if (taken.lost > 0) say_lost(key, taken.lost, taken.first);
    }
    check(rd_kafka_incremental_assign(connection_.handle(), list.get()), "taking partitions");
    log_info("{}: took {} partitions with {} jobs waiting, {} in all", options_.topics.prefix, partitions.size(), backlog,
             readings_.size());
}

// Retention has passed our position: continue at the log's start. Jobs in flight continue and are published; the epoch stays.
void KafkaSource::go_on_after_resets() {
    if (resets_.empty() || !may_change_assignment()) return;
    const PartitionListHandle list(rd_kafka_topic_partition_list_new(static_cast<int>(resets_.size())));
    std::erase_if(resets_, [&](const auto& reset) {
        const auto& [key, log] = reset;
        const auto& [topic, partition] = key;
        const auto position = tracker_.position(topic, partition);
        const auto reading = readings_.find(key);
        if (!position || reading == readings_.end()) return true;
        if (!log) return false;
        if (*position > log->end) {
            throw KafkaError(
                fmt::format("{} [{}]: reading was at offset {}, but the log ends at {}: the topic was truncated or recreated "
                            "while this worker ran; restart the worker to read the new contents",
                            topic, partition, *position, log->end));
        }
        reading->second.held.reset();  // not polled yet: if it is still in the log, it is read again
        reading->second.unreadable.reset();
        if (*position < log->first) {
            say_lost(key, log->first - *position, log->first);
        } else {
            log_error(
                "{} [{}]: the log did not contain offset {} and does now: it was truncated and written again. Continuing there; jobs "
                "that were written again below it are not read",
                topic, partition, *position);
        }
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = std::max(*position, log->first);
        return true;
    });
    if (list->cnt > 0) {
        check(rd_kafka_incremental_unassign(connection_.handle(), list.get()), "leaving a deleted position");
        check(rd_kafka_incremental_assign(connection_.handle(), list.get()), "going on at the log's start");
    }
    // For the next call: the request takes time, and rebalances that arrive meanwhile must be served first.
    if (Clock::now() < next_resets_) return;
    next_resets_ = Clock::now() + resets_interval;
    for (auto& [key, log] : resets_) {
        if (!log) log = connection_.try_watermarks(key.first, key.second);
    }
}

// Visits the topic's partitions in turn, from where the last call stopped, so that none waits for another's backlog. Takes a run of records
// from each: neighbouring jobs usually ask for the same adapter. Large records end it early: none has been weighed yet.
void KafkaSource::read(const std::string& topic, std::size_t max, std::vector<Delivery>& deliveries) {
    constexpr std::size_t run = 32;
    constexpr std::int64_t bytes_max = 16 << 20;
    const auto begin = readings_.lower_bound({topic, 0});
    const auto end = std::find_if(begin, readings_.end(), [&](const auto& one) { return one.first.first != topic; });
    const auto partitions = static_cast<std::size_t>(std::distance(begin, end));
    const std::size_t before = deliveries.size();
    std::int64_t bytes = 0;
    const auto is_enough = [&] { return deliveries.size() - before >= max || bytes >= bytes_max; };
    std::int32_t& last = read_last_[topic];
    auto place = readings_.upper_bound({topic, last});
    for (std::size_t dry = 0; dry < partitions && !is_enough(); ++place) {
        if (place == end) place = begin;
        last = place->first.second;
        std::size_t count = 0;
        while (count < run && !is_enough()) {
            const auto taken = read_one(place->first, place->second, deliveries);
            if (!taken) break;
            bytes += *taken;
            ++count;
        }
        dry = count > 0 ? 0 : dry + 1;
    }
}

// Returns the bytes of what it took; nullopt when there is no record, or it has to wait.
std::optional<std::int64_t> KafkaSource::read_one(const Key& key, Reading& reading, std::vector<Delivery>& deliveries) {
    if (!reading.held) {
        const MessageHandle message = reading.queue.next();
        if (!message) return std::nullopt;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            take_error(*message);
            return 0;
        }
        reading.unreadable.reset();
        // After a rebalance interrupts fetching, records that were on their way may arrive once more.
        if (message->offset < tracker_.position(key.first, key.second).value_or(0)) return 0;
        reading.held = record_of(*message);
    }
    if (may_deliver(reading.held->source)) {
        schema::JobRecord record = *std::exchange(reading.held, std::nullopt);
        const std::int64_t bytes = schema::memory_bytes(record);
        deliver(std::move(record), reading, deliveries);
        return bytes;
    }
    if (!careful_.is_full(key.first) && reading.hold_log.is_due()) {
        log_warning("{} [{}]: too many jobs are finished above the one at offset {}: reading waits at offset {} until it ends", key.first,
                    key.second, tracker_.finished_below(key.first, key.second).value_or(0), reading.held->source.offset);
    }
    return std::nullopt;
}

void KafkaSource::take_error(const rd_kafka_message_t& message) {
    const std::string text = rd_kafka_message_errstr(&message);
    if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET && message.rkt != nullptr) {
        const Key key{rd_kafka_topic_name(message.rkt), message.partition};
        if (readings_.contains(key)) resets_.try_emplace(key);
        return;
    }
    if (message.rkt != nullptr) {
        const Key key{rd_kafka_topic_name(message.rkt), message.partition};
        const auto reading = readings_.find(key);
        const auto position = tracker_.position(key.first, key.second);
        if (auto record = unreadable_record(message, position.value_or(message.offset)); record && reading != readings_.end())
            return note_unreadable(reading->second, *std::move(record));
    }
    if (message.err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED) {
        log_error("this worker did not poll for {} s and has lost its partitions: it is overloaded or was suspended",
                  std::chrono::duration_cast<std::chrono::seconds>(options_.poll_interval_max).count());
        return;
    }
    if (is_configuration_error(message.err)) {
        const std::string topic = message.rkt != nullptr ? rd_kafka_topic_name(message.rkt) : options_.topics.jobs();
        throw connection_.refused(
            fmt::format("reading {} as group {} (session {} ms)", topic, options_.group, options_.session_timeout.count()), message.err,
            topic);
    }
    if (is_missing_topic(message.err)) {
        for (const std::string& topic : options_.topics.inputs()) connection_.wait_for_topic(topic);
        past_results_.check_inputs(connection_.config().deadline_start, std::stop_token());
    }
    if (connection_.complaints().note(text)) log_warning("kafka: {}", text);  // the client retries by itself
}

// Other partitions continue. The client retries the record after a pause, so the worker recovers without a restart once the broker is
// fixed.
void KafkaSource::note_unreadable(Reading& reading, UnreadableRecord record) {
    if (reading.unreadable_log.is_due()) {
        log_error("{} [{}]: the record at offset {} cannot be read: {}. Later jobs in this partition wait; other partitions continue. {}",
                  record.topic, record.partition, record.offset, record.reason, advice_for(record));
    }
    reading.unreadable = std::move(record);
}

void KafkaSource::publish_unreadable() {
    const std::scoped_lock lock(unreadable_mutex_);
    unreadable_.clear();
    for (const auto& [key, reading] : readings_) {
        if (reading.unreadable) unreadable_.push_back(*reading.unreadable);
    }
}

std::vector<UnreadableRecord> KafkaSource::unreadable() const {
    const std::scoped_lock lock(unreadable_mutex_);
    return unreadable_;
}

milliseconds KafkaSource::turn() const {
    switch (held_back()) {
        case HeldBack::none: return poll_turn;
        case HeldBack::jobs: return short_turn;
        case HeldBack::calls: return call_turn;
    }
    CHECK(false, "jobs are held back or not");
}

JobSource::HeldBack KafkaSource::held_back() const {
    if (careful_.waiting() == 0) return HeldBack::none;
    return careful_.has_waiting([this](const schema::Source& source) { return is_call(source); }) ? HeldBack::calls : HeldBack::jobs;
}

bool KafkaSource::may_deliver(const schema::Source& source) const {
    return !careful_.is_full(source.topic) && tracker_.has_room_for(source);
}

void KafkaSource::deliver(schema::JobRecord record, const Reading& reading, std::vector<Delivery>& deliveries) {
    const bool fresh = tracker_.polled(record.source);
    if (!fresh) {
        ++counters_.skipped;
        return;
    }
    if (record.source.offset < reading.taken_below || tracker_.starts(record.source) > 0) ++counters_.replayed;
    careful_.take({.record = std::move(record), .epoch = reading.epoch, .refusal = std::nullopt}, deliveries, Clock::now());
}

std::optional<Epoch> KafkaSource::epoch_of(const Key& key) const {
    const auto found = readings_.find(key);
    return found == readings_.end() ? std::nullopt : std::optional(found->second.epoch);
}

std::optional<std::int64_t> KafkaSource::backlog() {
    if (readings_.empty()) return std::nullopt;
    std::int64_t total = 0;
    for (const auto& [key, reading] : readings_) {
        std::int64_t first = 0;
        std::int64_t end = 0;
        const auto error = rd_kafka_get_watermark_offsets(connection_.handle(), key.first.c_str(), key.second, &first, &end);
        end = error == RD_KAFKA_RESP_ERR_NO_ERROR ? std::max(end, reading.end) : reading.end;
        total += std::max<std::int64_t>(0, end - tracker_.position(key.first, key.second).value_or(end));
    }
    return total;
}

void KafkaSource::close(RevocationHandler& handler, Clock::time_point deadline) {
    CHECK(!closing_, "closed once");
    take_over_.cancel();
    // An assignment must be answered before the member can leave the group; nothing is read any more.
    if (std::exchange(is_arriving_, false)) answer_assign();
    while (!rebalances_.empty()) {
        const Rebalance rebalance = std::move(rebalances_.front());
        rebalances_.pop_front();
        if (rebalance.kind == Rebalance::Kind::assign) {
            answer_assign();
        } else {
            revoke(rebalance, handler, deadline);
        }
    }
    const auto all = tracker_.partitions();
    for (const PartitionEpoch& partition : all) tracker_.drain(partition.topic, partition.partition);
    if (!all.empty()) leave(all, handler, deadline);
    give_up();
    readings_.clear();
    publish_unreadable();
    closing_ = true;
    if (subscribed_) rd_kafka_consumer_close(connection_.handle());
}

void KafkaSource::give_up() {
    for (const PartitionEpoch& partition : tracker_.partitions()) tracker_.drop(partition.topic, partition.partition);
}

}  // namespace lorry::consumer
