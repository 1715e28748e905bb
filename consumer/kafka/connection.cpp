// Configuration, complaints and waits of a librdkafka client.
#include "consumer/kafka/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <thread>
#include <utility>

#include "consumer/kafka/times.h"
#include "consumer/log.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds try_timeout{1'000};
constexpr milliseconds told_after{2'000};
constexpr const char* receive_limit = "receive.message.max.bytes";

std::int64_t whole_seconds(milliseconds time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

// socket.nagle.disable and reconnect.backoff.max.ms: a restarted broker is found again in less than a second instead of twenty.
// allow.auto.create.topics: a typo in the prefix must not create topics.
// fetch.wait.max.ms: a broker answers the requests of a connection in order, so all others wait for a fetch that finds nothing.
// retry.backoff.ms: what a coordinator refuses temporarily is usually possible a few milliseconds later.
// socket.timeout.ms: a connection that was cut silently is given up after ten seconds, within a session and a transaction, not after sixty.
// fetch.queue.backoff.ms: how often the client checks whether a partition's full queue has room again. The default, a second, is longer
// than it takes to process the small jobs in such a queue.
// queued.*, fetch.message.max.bytes: how much is fetched ahead for each partition; the defaults allow 64 MB. ops/librdkafka.patch says what
// one answer of a broker may add.
// receive.message.max.bytes: the most that a response, or a batch once it is unpacked, may have. An unpacked batch stays in memory until
// all of its records were taken.
// check.crcs: a damaged batch is reported instead of being read as other jobs.
constexpr std::array<std::pair<const char*, const char*>, 16> common_settings = {{
    {"client.id", "lorry"},
    {"socket.nagle.disable", "true"},
    {"socket.timeout.ms", "10000"},
    {"reconnect.backoff.max.ms", "500"},
    {"retry.backoff.ms", "5"},
    {"log.connection.close", "false"},
    {"topic.metadata.refresh.interval.ms", "60000"},
    {"compression.codec", "lz4"},
    {"allow.auto.create.topics", "false"},
    {"fetch.wait.max.ms", "100"},
    {"fetch.queue.backoff.ms", "10"},
    {"queued.min.messages", "500"},
    {"queued.max.messages.kbytes", "512"},
    {"fetch.message.max.bytes", "524288"},
    {receive_limit, "33554432"},
    {"check.crcs", "true"},
}};

// The error never has the value: it may be a password, also under a misspelt key. librdkafka itself quotes values only of settings that
// choose among words or numbers.
void set(rd_kafka_conf_t* conf, const std::string& key, const std::string& value) {
    std::array<char, 512> problem{};
    switch (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), problem.data(), problem.size())) {
        case RD_KAFKA_CONF_OK: return;
        case RD_KAFKA_CONF_UNKNOWN:
            throw KafkaConfigError(fmt::format("[kafka] {}: librdkafka has no such setting; check how it is spelt", key));
        case RD_KAFKA_CONF_INVALID: throw KafkaConfigError(fmt::format("[kafka] {}: {}", key, problem.data()));
    }
}

void on_log(const rd_kafka_t* client, int level, const char* facility, const char* text) {
    constexpr int syslog_error = 3;
    constexpr int syslog_warning = 4;
    auto* context = static_cast<KafkaContext*>(rd_kafka_opaque(client));
    if (std::string_view(facility) == "CONFWARN") return;  // the table is shared, so consumers see keys that only producers use
    if (context != nullptr && level <= syslog_error) {
        if (context->complaints.note(text)) log_warning("kafka: {}", text);
    } else if (level <= syslog_warning) {
        log_info("kafka: {}", text);
    } else {
        log_debug("kafka: {}", text);
    }
}

void on_error(rd_kafka_t*, int error, const char* reason, void* opaque) {
    auto* context = static_cast<KafkaContext*>(opaque);
    // All other errors are also logged or fail one of our calls.
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) context->all_down = true;
    log_debug("kafka: {}", reason);
}

// Empty if the id is zero, which means none.
std::string text_of(const rd_kafka_Uuid_t& id) {
    if (rd_kafka_Uuid_most_significant_bits(&id) == 0 && rd_kafka_Uuid_least_significant_bits(&id) == 0) return {};
    return rd_kafka_Uuid_base64str(&id);
}

}  // namespace

bool KafkaComplaints::note(std::string text) {
    constexpr std::chrono::seconds quiet{10};
    const std::scoped_lock lock(mutex_);
    last_ = std::move(text);
    const auto now = std::chrono::steady_clock::now();
    if (spoken_ && now < *spoken_ + quiet) return false;
    spoken_ = now;
    return true;
}

std::string KafkaComplaints::last() const {
    const std::scoped_lock lock(mutex_);
    return last_;
}

TopicPartitions partitions_of(const std::string& topic, std::int32_t count) {
    TopicPartitions partitions;
    for (std::int32_t number = 0; number < count; ++number) partitions.emplace_back(topic, number);
    return partitions;
}

PartitionListHandle list_of(const TopicPartitions& partitions) {
    PartitionListHandle list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
    for (const auto& [topic, partition] : partitions) rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition);
    return list;
}

rd_kafka_resp_err_t first_error(const rd_kafka_topic_partition_list_t& answers, rd_kafka_resp_err_t tolerated) {
    for (int i = 0; i < answers.cnt; ++i) {
        const auto error = answers.elems[i].err;
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != tolerated) return error;
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

KafkaConfHandle make_conf(const KafkaConfig& config, const KafkaSettings& settings) {
    KafkaConfHandle conf(rd_kafka_conf_new());
    for (const auto& [key, value] : common_settings) set(conf.get(), key, value);
    for (const auto& [key, value] : config.passthrough) set(conf.get(), key, value);
    for (const auto& [key, value] : settings) set(conf.get(), key, value);
    set(conf.get(), "bootstrap.servers", config.brokers);
    return conf;
}

ProducerLimits producer_limits(std::initializer_list<std::size_t> topics) {
    return {.record_bytes_max = std::max(topics), .batch_bytes_max = std::min(ProducerLimits().batch_bytes_max, std::min(topics))};
}

KafkaSettings producer_settings(const ProducerLimits& limits) {
    constexpr std::size_t record_overhead_max = 4096;  // in addition to key and value: offsets, timestamps, header counts
    return {{"enable.idempotence", "true"},
            {"partitioner", "murmur2_random"},
            {"batch.size", std::to_string(limits.batch_bytes_max)},
            {"message.max.bytes", std::to_string(limits.record_bytes_max + record_overhead_max)}};
}

KafkaConnection::KafkaConnection(const KafkaConfig& config, Kind kind, const KafkaSettings& settings,
                                 const std::function<void(rd_kafka_conf_t*)>& prepare, void* owner)
    : config_(config), context_(std::make_unique<KafkaContext>()) {
    context_->owner = owner;
    KafkaConfHandle conf = make_conf(config, settings);
    rd_kafka_conf_set_opaque(conf.get(), context_.get());
    rd_kafka_conf_set_log_cb(conf.get(), on_log);
    rd_kafka_conf_set_error_cb(conf.get(), on_error);
    if (prepare) prepare(conf.get());
    std::array<char, 512> problem{};
    const auto type = kind == Kind::consumer ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER;
    handle_.reset(rd_kafka_new(type, conf.get(), problem.data(), problem.size()));
    if (!handle_) throw KafkaConfigError(fmt::format("Kafka client for {}: {}", config.brokers, problem.data()));
    static_cast<void>(conf.release());  // the client owns it now
}

KafkaAway KafkaConnection::away(std::string_view what, milliseconds waited) const {
    return KafkaAway(fmt::format(
        "Kafka at {}: {} did not succeed within {} s; the client's last complaint: {}. Check that the brokers run and can be reached from "
        "here at the addresses they advertise, and that security.protocol, sasl.* and ssl.* in [kafka] are what they require",
        config_.brokers, what, whole_seconds(waited), complaints().last()));
}

KafkaError KafkaConnection::refused(std::string_view what, rd_kafka_resp_err_t error, std::string_view topic) const {
    return KafkaError(fmt::format("Kafka at {}: {}: {}", config_.brokers, what, explain(error, topic)));
}

void KafkaConnection::check_fatal() const {
    std::array<char, 512> text{};
    const rd_kafka_resp_err_t error = rd_kafka_fatal_error(handle(), text.data(), text.size());
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
    if (error == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID) {
        throw KafkaError(fmt::format("Kafka at {}: another worker runs under this member id: give each worker a `member` of its own ({})",
                                     config_.brokers, text.data()));
    }
    throw KafkaError(fmt::format("Kafka at {}: the client cannot continue: {} ({}){}", config_.brokers, text.data(),
                                 rd_kafka_err2name(error), advice_for(error, "the topic")));
}

MetadataHandle KafkaConnection::metadata(const std::string& topic) const {
    LocalTopicHandle local;
    if (!topic.empty()) local.reset(rd_kafka_topic_new(handle(), topic.c_str(), nullptr));
    for (Retry retry(*this, "asking for metadata", config_.deadline_start);;) {
        const rd_kafka_metadata_t* raw = nullptr;
        const auto wait = static_cast<int>(retry.time_for_try(request_timeout).count());
        const auto error = rd_kafka_metadata(handle(), topic.empty() ? 1 : 0, local.get(), &raw, wait);
        MetadataHandle metadata(raw);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return metadata;
        // Serves callbacks while we wait, so that they (and fatal errors they report) are not delayed.
        rd_kafka_poll(handle(), 0);
        retry.again(rd_kafka_err2str(error));
    }
}

void KafkaConnection::wait_ready() const { metadata({}); }

std::optional<std::int32_t> KafkaConnection::partition_count(const std::string& topic) const {
    for (Retry retry(*this, fmt::format("asking for topic {}", topic), config_.deadline_start);;) {
        const MetadataHandle found = metadata(topic);
        CHECK(found->topic_cnt == 1, "metadata of one topic was asked for");
        const rd_kafka_metadata_topic& described = found->topics[0];
        if (described.err == RD_KAFKA_RESP_ERR_NO_ERROR) return described.partition_cnt;
        if (described.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) return std::nullopt;
        if (is_configuration_error(described.err)) throw refused(fmt::format("topic {}", topic), described.err, topic);
        retry.again(rd_kafka_err2str(described.err));  // a leader is being elected
    }
}

std::int32_t KafkaConnection::required_partition_count(const std::string& topic) const {
    const auto count = partition_count(topic);
    if (!count) {
        throw KafkaError(fmt::format("Kafka at {} has no topic {}{}", config_.brokers, topic,
                                     advice_for(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, topic)));
    }
    return *count;
}

std::int32_t KafkaConnection::wait_for_topic(const std::string& topic) const {
    for (Retry retry(*this, fmt::format("finding topic {}", topic), config_.deadline_start);;) {
        if (const auto count = partition_count(topic)) return *count;
        retry.again(explain(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, topic));
    }
}

std::optional<std::int32_t> KafkaConnection::try_partition_count(const std::string& topic) const {
    const LocalTopicHandle local(rd_kafka_topic_new(handle(), topic.c_str(), nullptr));
    const rd_kafka_metadata_t* raw = nullptr;
    const auto error = rd_kafka_metadata(handle(), 0, local.get(), &raw, static_cast<int>(try_timeout.count()));
    const MetadataHandle found(raw);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR || found->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    return found->topics[0].partition_cnt;
}

std::string KafkaConnection::cluster_id() const {
    {
        const std::scoped_lock lock(cluster_id_mutex_);
        if (cluster_id_) return *cluster_id_;
    }
    wait_ready();  // after this, the id is known or there is none
    char* id = rd_kafka_clusterid(handle(), static_cast<int>(request_timeout.count()));
    std::string answer = id == nullptr ? "" : id;
    if (id != nullptr) rd_kafka_mem_free(handle(), id);
    const std::scoped_lock lock(cluster_id_mutex_);
    return cluster_id_.emplace(std::move(answer));
}

std::string KafkaConnection::topic_id(const std::string& topic) const {
    return topic_id(topic, config_.deadline_start, std::stop_token()).value();
}

std::optional<std::string> KafkaConnection::topic_id(const std::string& topic, milliseconds deadline, const std::stop_token& stop) const {
    const std::string none;
    if (is_embedded_cluster(cluster_id())) return none;  // it does not answer this request
    const char* name = topic.c_str();
    const TopicCollectionHandle names(rd_kafka_TopicCollection_of_topic_names(&name, 1));
    for (Retry retry(*this, fmt::format("asking for the id of {}", topic), deadline, stop);;) {
        const QueueHandle queue(rd_kafka_queue_new(handle()));
        rd_kafka_DescribeTopics(handle(), names.get(), nullptr, queue.get());
        const EventHandle event(rd_kafka_queue_poll(queue.get(), static_cast<int>(request_timeout.count())));
        auto error = event ? rd_kafka_event_error(event.get()) : RD_KAFKA_RESP_ERR__TIMED_OUT;
        if (error == RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION || error == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE) return none;
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            std::size_t count = 0;
            const auto* const* topics = rd_kafka_DescribeTopics_result_topics(rd_kafka_event_DescribeTopics_result(event.get()), &count);
            CHECK(count == 1, "one topic was asked for");
            error = rd_kafka_error_code(rd_kafka_TopicDescription_error(topics[0]));
            if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return text_of(*rd_kafka_TopicDescription_topic_id(topics[0]));
        }
        if (is_configuration_error(error)) throw refused(fmt::format("asking for the id of {}", topic), error, topic);
        if (!retry.again(rd_kafka_err2str(error))) return std::nullopt;
    }
}

std::size_t KafkaConnection::receive_bytes_max() const {
    std::array<char, 32> text{};
    std::size_t size = text.size();
    const auto found = rd_kafka_conf_get(rd_kafka_conf(handle()), receive_limit, text.data(), &size);
    CHECK(found == RD_KAFKA_CONF_OK, "a setting that librdkafka knows");
    std::size_t bytes = 0;
    std::from_chars(text.data(), text.data() + size - 1, bytes);
    return bytes;
}

std::map<std::string, std::string> KafkaConnection::topic_settings(const std::string& topic) const {
    std::map<std::string, std::string> settings;
    const QueueHandle queue(rd_kafka_queue_new(handle()));
    const AdminOptionsHandle options(rd_kafka_AdminOptions_new(handle(), RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS));
    std::array<char, 256> problem{};
    const auto wait = static_cast<int>(request_timeout.count());
    rd_kafka_AdminOptions_set_request_timeout(options.get(), wait, problem.data(), problem.size());
    const ConfigResourceHandle resource(rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
    rd_kafka_ConfigResource_t* resources[] = {resource.get()};
    rd_kafka_DescribeConfigs(handle(), resources, 1, options.get(), queue.get());
    const EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * wait));
    if (!event || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) return settings;
    std::size_t count = 0;
    const auto* const* answers = rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event.get()), &count);
    if (count != 1 || rd_kafka_ConfigResource_error(answers[0]) != RD_KAFKA_RESP_ERR_NO_ERROR) return settings;
    const auto* const* entries = rd_kafka_ConfigResource_configs(answers[0], &count);
    for (std::size_t i = 0; i < count; ++i) {
        const char* value = rd_kafka_ConfigEntry_value(entries[i]);
        if (value != nullptr) settings[rd_kafka_ConfigEntry_name(entries[i])] = value;
    }
    return settings;
}

std::optional<KafkaConnection::Watermarks> KafkaConnection::watermarks(const std::string& topic, std::int32_t partition,
                                                                       milliseconds deadline, const std::stop_token& stop) const {
    for (Retry retry(*this, fmt::format("asking for the end of {} [{}]", topic, partition), deadline, stop);;) {
        if (stop.stop_requested()) return std::nullopt;
        Watermarks marks;
        const auto wait = static_cast<int>(retry.time_for_try(request_timeout).count());
        const auto error = rd_kafka_query_watermark_offsets(handle(), topic.c_str(), partition, &marks.first, &marks.end, wait);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return marks;
        if (is_configuration_error(error)) throw refused(fmt::format("topic {} [{}]", topic, partition), error, topic);
        if (!retry.again(explain(error, topic))) return std::nullopt;
    }
}

KafkaConnection::Watermarks KafkaConnection::watermarks(const std::string& topic, std::int32_t partition, milliseconds deadline) const {
    return watermarks(topic, partition, deadline, std::stop_token()).value();
}

std::optional<KafkaConnection::Watermarks> KafkaConnection::try_watermarks(const std::string& topic, std::int32_t partition) const {
    Watermarks marks;
    const auto error = rd_kafka_query_watermark_offsets(handle(), topic.c_str(), partition, &marks.first, &marks.end,
                                                        static_cast<int>(try_timeout.count()));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    return marks;
}

void KafkaConnection::check_reachable() {
    constexpr milliseconds probe_interval{5'000};
    if (!context_->all_down) {
        down_since_.reset();
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!down_since_) down_since_ = now;
    if (now < probe_next_) return;
    probe_next_ = now + probe_interval;
    context_->all_down = false;  // the event may come again while we ask
    const rd_kafka_metadata_t* raw = nullptr;
    const auto error = rd_kafka_metadata(handle(), 0, nullptr, &raw, static_cast<int>(try_timeout.count()));
    const MetadataHandle metadata(raw);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        log_info("kafka: {} answers again", config_.brokers);
        down_since_.reset();
        return;
    }
    context_->all_down = true;
    if (now - *down_since_ > config_.deadline_later) throw away("reaching any broker", config_.deadline_later);
}

Retry::Retry(const KafkaConnection& connection, std::string what, milliseconds deadline, std::stop_token stop)
    : connection_(connection), what_(std::move(what)), deadline_(deadline), stop_(std::move(stop)), backoff_(backoff_first, backoff_max) {}

milliseconds Retry::time_for_try(milliseconds most) const {
    const auto left = std::chrono::duration_cast<milliseconds>(start_ + deadline_ - std::chrono::steady_clock::now());
    return std::clamp(left, milliseconds(1), most);
}

bool Retry::again(std::string_view reason) {
    if (stop_.stop_requested()) return false;
    const auto waited = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
    const std::string what = reason.empty() ? what_ : fmt::format("{} ({})", what_, reason);
    if (waited > deadline_) throw connection_.away(what, deadline_);
    if (waited > told_after && !std::exchange(has_told_, true)) {
        log_error("Kafka at {}: {} has failed for {} s and is retried for up to {} s more; the client's last complaint: {}",
                  connection_.config().brokers, what, whole_seconds(waited), whole_seconds(deadline_ - waited),
                  connection_.complaints().last());
    }
    std::this_thread::sleep_for(backoff_.next());
    return !stop_.stop_requested();
}

bool is_embedded_cluster(std::string_view cluster_id) { return cluster_id.starts_with("mockCluster"); }

}  // namespace lorry::consumer
