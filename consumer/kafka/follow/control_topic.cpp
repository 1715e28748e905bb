// Applies cancels from the control topic and answers which jobs they name.
#include "consumer/kafka/follow/control_topic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "consumer/kafka/follow/follower.h"
#include "consumer/log.h"
#include "schema/codec.h"

namespace lorry::consumer {

ControlTopic::ControlTopic(const KafkaConfig& config, Options options) : options_(std::move(options)) {
    follower_ = std::make_unique<TopicFollower>(config, options_.topic, [this](const schema::JobRecord& record) { apply(record); });
}

ControlTopic::~ControlTopic() = default;

void ControlTopic::wait_until_read(Clock::time_point deadline) { follower_->wait_until_read(deadline); }

void ControlTopic::apply(const schema::JobRecord& record) {
    const std::scoped_lock lock(mutex_);
    const auto parsed = schema::parse_cancel(record.value.value_or(""), record.timestamp.value_or(schema::Timestamp{}));
    if (!parsed || !record.timestamp) {
        ++counters_.refused;
        log_warning("{} [{}] offset {}: {}", record.source.topic, record.source.partition, record.source.offset,
                    parsed ? "the record has no timestamp" : parsed.error());
        return;
    }
    auto& latest = parsed->is_batch ? batches_ : jobs_;
    const auto [place, inserted] = latest.try_emplace(parsed->id, parsed->at);
    if (!inserted) place->second = std::max(place->second, parsed->at);
    ++counters_.cancels;
    if (jobs_.size() + batches_.size() > options_.cancels_max) forget_older_half();
    counters_.known = jobs_.size() + batches_.size();
}

void ControlTopic::forget_older_half() {
    std::vector<schema::Timestamp> times;
    for (const auto* latest : {&jobs_, &batches_}) {
        for (const auto& [id, time] : *latest) times.push_back(time);
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    for (auto* latest : {&jobs_, &batches_}) {
        std::erase_if(*latest, [&](const auto& entry) { return entry.second <= *middle; });
    }
    log_warning("{}: more than {} cancels; those older than {} (ms since 1970) are forgotten", options_.topic, options_.cancels_max,
                middle->time_since_epoch().count());
}

bool ControlTopic::is_cancelled(std::string_view job_id, std::string_view batch_id, std::optional<schema::Timestamp> submitted) const {
    const std::scoped_lock lock(mutex_);
    const auto younger = [&](const LatestById& latest, std::string_view id) {
        if (id.empty()) return false;
        const auto found = latest.find(std::string(id));
        return found != latest.end() && (!submitted || found->second >= *submitted);
    };
    return younger(jobs_, job_id) || younger(batches_, batch_id);
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
