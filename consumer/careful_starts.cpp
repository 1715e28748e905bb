// Starts after a take-over.
#include "consumer/careful_starts.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

namespace lorry::consumer {

namespace {

// With so many workers dead under it, a job is taken for the reason.
constexpr std::uint32_t deaths_max = 2;

}  // namespace

void CarefulStarts::gone(const std::string& topic, std::int32_t partition) {
    const auto is_of = [&](const schema::Source& source) { return source.topic == topic && source.partition == partition; };
    const auto is_gone = [&](const Waiting& waiting) { return is_of(waiting.delivery.record.source); };
    std::erase_if(starting_, is_gone);
    std::erase_if(suspects_, is_gone);
    if (alone_ && is_of(alone_->source)) alone_.reset();
    left_.erase({topic, partition});
}

void CarefulStarts::take(Delivery delivery, std::vector<Delivery>& out) {
    const schema::Source& source = delivery.record.source;
    const std::uint32_t deaths = tracker_.starts(source);
    if (deaths >= deaths_max) {
        spdlog::error("{} [{}] offset {}: it was running when {} workers died and is not tried again", source.topic, source.partition,
                      source.offset, deaths);
        delivery.refusal = schema::JobError{
            .status_code = 500,
            .code = "worker_crashed",
            .param = {},
            .message = fmt::format("{} workers died while they ran this job, so it is not tried again; their logs may say why", deaths)};
        out.push_back(std::move(delivery));
        return;
    }
    if (deaths > 0) {
        spdlog::warn("{} [{}] offset {}: it was running when a worker died, so it will run alone", source.topic, source.partition,
                     source.offset);
        suspects_.push_back({std::move(delivery)});
        return;
    }
    std::size_t& left = left_.at({source.topic, source.partition});
    if (left == 0 && !wants_quiet()) {
        out.push_back(std::move(delivery));
        return;
    }
    left -= left > 0 ? 1 : 0;
    starting_.push_back({std::move(delivery)});
}

bool CarefulStarts::may_start(Waiting& waiting, std::size_t at_once) {
    const auto& [record, epoch, refusal] = waiting.delivery;
    // No room for it, also none in the metadata: again when other jobs have finished.
    if (!waiting.counted) waiting.counted = tracker_.started() < at_once && tracker_.start(record.source, epoch).has_value();
    return waiting.counted && tracker_.start_is_committed(record.source, epoch);
}

void CarefulStarts::release(std::vector<Delivery>& out, std::size_t max) {
    release_suspect(out);
    if (wants_quiet()) return;
    for (auto waiting = starting_.begin(); waiting != starting_.end() && out.size() < max;) {
        if (may_start(*waiting, options_.at_once)) {
            out.push_back(std::move(waiting->delivery));
            waiting = starting_.erase(waiting);
        } else {
            ++waiting;
        }
    }
}

void CarefulStarts::release_suspect(std::vector<Delivery>& out) {
    if (alone_ && !tracker_.is_incomplete(alone_->source, alone_->epoch)) alone_.reset();
    if (alone_ || suspects_.empty() || !out.empty() || tracker_.incomplete() > waiting()) return;
    if (!may_start(suspects_.front(), std::numeric_limits<std::size_t>::max())) return;
    Delivery delivery = std::move(suspects_.front().delivery);
    suspects_.pop_front();
    alone_ = FinishedWork{delivery.record.source, delivery.epoch};
    out.push_back(std::move(delivery));
}

}  // namespace lorry::consumer
