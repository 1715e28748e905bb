// Applies cancels from the control topic and answers which jobs they name.
#include "consumer/kafka/follow/control_topic.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"
#include "consumer/log.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

schema::TopicIds ids_of(const KafkaConfig& config, const std::vector<std::string>& topics) {
    const KafkaConnection connection(config, KafkaConnection::Kind::consumer, {});
    schema::TopicIds ids;
    for (const std::string& topic : topics) {
        connection.required_partition_count(topic);
        ids[topic] = connection.topic_id(topic);
    }
    return ids;
}

// About what an entry of a table takes, and a list of offsets.
std::size_t bytes_of(const std::string& id) {
    constexpr std::size_t entry = 160;
    return entry + id.size();
}
std::size_t bytes_of(const std::vector<std::int64_t>& offsets) {
    constexpr std::size_t list = 64;
    return list + offsets.size() * sizeof(std::int64_t);
}

}  // namespace

ControlTopic::ControlTopic(const KafkaConfig& config, Options options)
    : options_(std::move(options)), input_ids_(ids_of(config, options_.topics.inputs())) {
    follower_ = std::make_unique<TopicFollower>(config, options_.topics.control(),
                                                TopicFollower::each([this](const schema::JobRecord& record) { apply(record); }));
}

ControlTopic::~ControlTopic() = default;

void ControlTopic::wait_until_read(Clock::time_point deadline) { follower_->wait_until_read(deadline); }

void ControlTopic::apply(const schema::JobRecord& record) {
    // Before the lock, which the engine's thread needs at each step.
    auto parsed = schema::parse_cancel(record.value.value_or(""), record.timestamp.value_or(schema::Timestamp{}));
    const std::scoped_lock lock(mutex_);
    if (!parsed || !record.timestamp) {
        ++counters_.refused;
        return warn_of(record, parsed ? "the record has no timestamp" : parsed.error());
    }
    // Offsets of a deleted topic say nothing about the jobs of the one that has its name now.
    const auto topic = input_ids_.find(parsed->call ? parsed->call->topic : options_.topics.jobs());
    if (topic == input_ids_.end() || schema::ids_differ(parsed->jobs_topic_id, topic->second)) return;
    keep(std::move(*parsed));
}

void ControlTopic::keep(schema::Cancel cancel) {
    if (cancel.call) {
        const auto [place, is_new] = calls_.try_emplace(*std::move(cancel.call));
        if (is_new) bytes_ += bytes_of(place->first.topic);
        place->second = ++counters_.cancels;
    } else {
        keep_by_id(std::move(cancel));
    }
    if (known() > options_.cancels_max || bytes_ > options_.bytes_max) forget_older_half();
    counters_.known = known();
}

void ControlTopic::keep_by_id(schema::Cancel cancel) {
    ReachById& cancelled = cancel.is_batch ? batches_ : jobs_;
    const auto [place, is_new] = cancelled.try_emplace(cancel.id);
    if (is_new) bytes_ += bytes_of(place->first);
    extend(place->second, std::move(cancel));
    place->second.last = ++counters_.cancels;
}

void ControlTopic::extend(Reach& reach, schema::Cancel cancel) {
    if (cancel.jobs_end.empty()) {
        reach.sent_until = std::max(reach.sent_until.value_or(cancel.at), cancel.at);
        return;
    }
    if (reach.jobs_end) {
        // Of two commands at the same time, the one that read the ends later may have sent them first.
        const std::vector<std::int64_t>& before = *reach.jobs_end;
        if (cancel.jobs_end.size() < before.size()) cancel.jobs_end.resize(before.size());
        for (std::size_t i = 0; i < before.size(); ++i) cancel.jobs_end[i] = std::max(cancel.jobs_end[i], before[i]);
    }
    if (!last_jobs_end_ || *last_jobs_end_ != cancel.jobs_end) {
        last_jobs_end_ = std::make_shared<const std::vector<std::int64_t>>(std::move(cancel.jobs_end));
        bytes_ += bytes_of(*last_jobs_end_);
    }
    reach.jobs_end = last_jobs_end_;
}

bool ControlTopic::Reach::covers(const schema::Job& job) const {
    const auto partition = static_cast<std::size_t>(job.source.partition);
    // A partition that jobs_end lacks was created later.
    if (jobs_end && partition < jobs_end->size() && job.source.offset < (*jobs_end)[partition]) return true;
    return sent_until && (!job.submitted || *job.submitted <= *sent_until);
}

void ControlTopic::forget_older_half() {
    std::vector<std::uint64_t> numbers;
    for (const auto* cancelled : {&jobs_, &batches_}) {
        for (const auto& [id, reach] : *cancelled) numbers.push_back(reach.last);
    }
    for (const auto& [call, number] : calls_) numbers.push_back(number);
    const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    std::nth_element(numbers.begin(), middle, numbers.end());
    bytes_ = 0;
    std::unordered_set<const std::vector<std::int64_t>*> counted;
    for (auto* cancelled : {&jobs_, &batches_}) {
        std::erase_if(*cancelled, [&](const auto& entry) { return entry.second.last < *middle; });
        for (const auto& [id, reach] : *cancelled) {
            bytes_ += bytes_of(id);
            if (reach.jobs_end && counted.insert(reach.jobs_end.get()).second) bytes_ += bytes_of(*reach.jobs_end);
        }
    }
    std::erase_if(calls_, [&](const auto& entry) { return entry.second < *middle; });
    for (const auto& [call, number] : calls_) bytes_ += bytes_of(call.topic);
    log_warning("{}: more cancels than this worker keeps ({}, or {} bytes): the half that was read first is forgotten",
                options_.topics.control(), options_.cancels_max, options_.bytes_max);
}

bool ControlTopic::is_cancelled(const schema::Job& job) const {
    const std::scoped_lock lock(mutex_);
    if (job.source.topic == options_.topics.calls()) return calls_.contains(job.source);
    const auto reaches = [&](const ReachById& cancelled, const std::string& id) {
        const auto found = cancelled.find(id);
        return found != cancelled.end() && found->second.covers(job);
    };
    return reaches(jobs_, job.id) || reaches(batches_, job.batch_id);
}

std::uint64_t ControlTopic::version() const {
    follower_->check();  // a worker that no longer receives cancels must not continue as if there were none
    const std::scoped_lock lock(mutex_);
    return counters_.cancels;
}

ControlTopic::Counters ControlTopic::counters() const {
    const std::scoped_lock lock(mutex_);
    return counters_;
}

}  // namespace lorry::consumer
