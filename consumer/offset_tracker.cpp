// Tracks polled and finished offsets per partition.
#include "consumer/offset_tracker.h"

#include <algorithm>
#include <bit>

#include "schema/check.h"

namespace lorry::consumer {

Epoch OffsetTracker::assign(const std::string& topic, std::int32_t partition, const CommitState& state, bool recorded) {
    const std::scoped_lock lock(mutex_);
    Partition fresh;
    fresh.epoch = ++last_epoch_;
    fresh.position = state.offset;
    if (state.highest_finished > state.offset) {
        fresh.highest_finished = fresh.taken_over_until = state.highest_finished;
        fresh.expected = {state.holes.begin(), state.holes.end()};
        fresh.expected.insert(state.offset);  // which is the lowest incomplete one
    }
    for (const StartCount& start : state.starts) fresh.starts[start.offset] = start.count;
    fresh.seen = state.seen;
    fresh.topic_mark = state.topic;
    if (recorded) fresh.last_commit = commit_of({topic, partition}, fresh, fresh.seen);
    const auto [place, inserted] = partitions_.try_emplace({topic, partition}, std::move(fresh));
    CHECK(inserted, "a partition is assigned that was not dropped");
    return last_epoch_;
}

void OffsetTracker::drain(const std::string& topic, std::int32_t partition) {
    const std::scoped_lock lock(mutex_);
    const auto found = partitions_.find({topic, partition});
    if (found != partitions_.end()) found->second.draining = true;
}

void OffsetTracker::drop(const std::string& topic, std::int32_t partition) {
    const std::scoped_lock lock(mutex_);
    partitions_.erase({topic, partition});
}

OffsetTracker::Partition& OffsetTracker::held(const schema::Source& source) {
    const auto found = partitions_.find({source.topic, source.partition});
    CHECK(found != partitions_.end(), "an offset of a partition that is not assigned");
    return found->second;
}

const OffsetTracker::Partition* OffsetTracker::find(const schema::Source& source) const {
    const auto found = partitions_.find({source.topic, source.partition});
    return found == partitions_.end() ? nullptr : &found->second;
}

std::int64_t OffsetTracker::watermark_of(const Partition& partition) {
    // Polled offsets are below expected ones. If none is incomplete: the first that was neither polled nor finished by an earlier owner.
    if (!partition.incomplete.empty()) return *partition.incomplete.begin();
    if (!partition.expected.empty()) return *partition.expected.begin();
    return std::max(partition.position, partition.taken_over_until + 1);
}

CommitState OffsetTracker::state_of(const Partition& partition) {
    CommitState state;
    state.offset = watermark_of(partition);
    state.topic = partition.topic_mark;
    state.highest_finished = std::max(partition.highest_finished, state.offset);
    for (const auto* offsets : {&partition.incomplete, &partition.expected}) {
        for (auto hole = offsets->upper_bound(state.offset); hole != offsets->end() && *hole < state.highest_finished; ++hole) {
            state.holes.push_back(*hole);
        }
    }
    if (partition.draining) return state;
    for (const auto& [offset, count] : partition.starts) {
        if (offset >= state.offset) state.starts.push_back({offset, count});
    }
    return state;
}

PartitionCommit OffsetTracker::commit_of(const Key& key, const Partition& partition, const EndsSeen& seen) const {
    CommitState state = state_of(partition);
    state.seen = seen;
    std::string metadata = encode_commit_metadata(state, metadata_chars_max_);
    return {key.first, key.second, partition.epoch, state.offset, std::move(metadata), std::move(state.starts), seen};
}

std::optional<PartitionCommit> OffsetTracker::news_of(const Key& key, const Partition& partition) const {
    const auto& last = partition.last_commit;
    if (last && commit_of(key, partition, last->seen) == last) return std::nullopt;
    return commit_of(key, partition, partition.seen);
}

CommitState OffsetTracker::longest_state(const Partition& partition, std::int64_t top) {
    CommitState state = state_of(partition);
    state.holes.clear();
    for (const auto* offsets : {&partition.incomplete, &partition.expected}) {
        for (const std::int64_t offset : *offsets) {
            if (offset > state.offset && offset < top) state.holes.push_back(offset);
        }
    }
    state.highest_finished = std::max(top, state.offset);
    return state;
}

bool OffsetTracker::has_room_for(const schema::Source& source) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    CHECK(partition != nullptr, "an offset of a partition that is not assigned");
    // Within an earlier owner's range, the offset is one of its holes or will be skipped; neither makes the string longer.
    if (source.offset <= partition->taken_over_until) return true;
    const std::size_t offsets = partition->incomplete.size() + partition->expected.size();
    if (offsets == 0) return true;
    // No number in the string is larger than the distance from the lowest to the highest offset; a count has at most five bytes. With few
    // unfinished jobs, the usual case, this bound suffices.
    const auto range = static_cast<std::uint64_t>(source.offset - watermark_of(*partition));
    const std::size_t number_bytes = static_cast<std::size_t>(std::bit_width(range | 1) + 6) / 7;
    const std::size_t bytes_max = 54 + offsets * number_bytes + partition->starts.size() * (number_bytes + 5);
    if (bytes_max <= metadata_chars_max_ / 4 * 3) return true;
    return commit_metadata_chars(longest_state(*partition, source.offset)) <= metadata_chars_max_;
}

bool OffsetTracker::polled(const schema::Source& source) {
    const std::scoped_lock lock(mutex_);
    Partition& partition = held(source);
    CHECK(!partition.draining, "a draining partition is not read");
    CHECK(source.offset >= partition.position, "offsets of a partition are polled in ascending order");
    partition.position = source.offset + 1;
    const bool was_expected = partition.expected.contains(source.offset);
    // Expected offsets below this one are no longer in the log.
    while (!partition.expected.empty() && *partition.expected.begin() <= source.offset) {
        if (*partition.expected.begin() != source.offset) partition.starts.erase(*partition.expected.begin());
        partition.expected.erase(partition.expected.begin());
    }
    if (source.offset <= partition.taken_over_until && !was_expected) return false;
    partition.incomplete.insert(source.offset);
    return true;
}

std::optional<std::uint32_t> OffsetTracker::start(const schema::Source& source, Epoch epoch) {
    const std::scoped_lock lock(mutex_);
    const Partition* current = find(source);
    if (current == nullptr || current->epoch != epoch) return std::nullopt;
    Partition& partition = held(source);
    CHECK(partition.incomplete.contains(source.offset), "only a polled, unfinished job is started");
    std::uint32_t& count = partition.starts[source.offset];
    ++count;
    const std::int64_t top = std::max(*partition.incomplete.rbegin(), partition.highest_finished);
    if (commit_metadata_chars(longest_state(partition, top)) <= metadata_chars_max_) {
        partition.started.insert(source.offset);
        return count;
    }
    if (--count == 0) partition.starts.erase(source.offset);
    return std::nullopt;
}

bool OffsetTracker::is_current(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    return partition != nullptr && partition->epoch == epoch;
}

std::uint32_t OffsetTracker::starts(const schema::Source& source) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    if (partition == nullptr) return 0;
    const auto started = partition->starts.find(source.offset);
    return started == partition->starts.end() ? 0 : started->second;
}

OffsetTracker::Partition* OffsetTracker::incomplete_at(const schema::Source& source, Epoch epoch) {
    const auto found = partitions_.find({source.topic, source.partition});
    const bool is_incomplete =
        found != partitions_.end() && found->second.epoch == epoch && found->second.incomplete.contains(source.offset);
    return is_incomplete ? &found->second : nullptr;
}

void OffsetTracker::wait(const schema::Source& source, Epoch epoch) {
    const std::scoped_lock lock(mutex_);
    Partition* const partition = incomplete_at(source, epoch);
    if (partition == nullptr) return;
    bool& must_start = partition->waiting[source.offset];
    if (partition->started.erase(source.offset) == 0) return;
    must_start = true;
    const auto start = partition->starts.find(source.offset);
    if (--start->second == 0) partition->starts.erase(start);
}

void OffsetTracker::go_on(const schema::Source& source, Epoch epoch) {
    const std::scoped_lock lock(mutex_);
    if (Partition* const partition = incomplete_at(source, epoch)) partition->waiting.erase(source.offset);
}

bool OffsetTracker::is_waiting(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    return partition != nullptr && partition->epoch == epoch && partition->waiting.contains(source.offset);
}

bool OffsetTracker::must_start(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    if (partition == nullptr || partition->epoch != epoch) return false;
    const auto waiting = partition->waiting.find(source.offset);
    return waiting != partition->waiting.end() && waiting->second;
}

bool OffsetTracker::is_started(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    return partition != nullptr && partition->epoch == epoch && partition->started.contains(source.offset);
}

std::size_t OffsetTracker::started(const std::string& topic) const {
    const std::scoped_lock lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, partition] : partitions_) {
        if (key.first == topic) count += partition.started.size();
    }
    return count;
}

std::size_t OffsetTracker::waiting() const {
    const std::scoped_lock lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, partition] : partitions_) count += partition.waiting.size();
    return count;
}

bool OffsetTracker::is_incomplete(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    return partition != nullptr && partition->epoch == epoch && partition->incomplete.contains(source.offset);
}

bool OffsetTracker::start_is_committed(const schema::Source& source, Epoch epoch) const {
    const std::scoped_lock lock(mutex_);
    const Partition* partition = find(source);
    if (partition == nullptr || partition->epoch != epoch || !partition->last_commit) return false;
    const auto started = partition->starts.find(source.offset);
    CHECK(started != partition->starts.end(), "asked of a job that was started");
    const auto& listed = partition->last_commit->starts;
    return std::find(listed.begin(), listed.end(), StartCount{source.offset, started->second}) != listed.end();
}

bool OffsetTracker::lists_starts(const std::vector<PartitionEpoch>& partitions) const {
    const std::scoped_lock lock(mutex_);
    return std::ranges::any_of(partitions, [&](const PartitionEpoch& one) {
        const auto found = partitions_.find({one.topic, one.partition});
        return found != partitions_.end() && found->second.last_commit && !found->second.last_commit->starts.empty();
    });
}

bool OffsetTracker::finish(Partition& partition, std::int64_t offset) {
    if (partition.incomplete.erase(offset) == 0) return false;
    partition.starts.erase(offset);
    partition.started.erase(offset);
    partition.waiting.erase(offset);
    partition.highest_finished = std::max(partition.highest_finished, offset);
    return true;
}

bool OffsetTracker::finish(const schema::Source& source, Epoch epoch, const EndsSeen& seen) {
    const std::scoped_lock lock(mutex_);
    const auto found = partitions_.find({source.topic, source.partition});
    if (found == partitions_.end() || found->second.epoch != epoch || !finish(found->second, source.offset)) return false;
    EndsSeen& all = found->second.seen;
    all = {std::max(all.results, seen.results), std::max(all.dead_letters, seen.dead_letters)};
    return true;
}

OffsetTracker::Snapshot OffsetTracker::snapshot_with(const std::vector<FinishedWork>& work) const {
    const std::scoped_lock lock(mutex_);
    Snapshot snapshot;
    std::map<Key, Partition> then;
    for (const auto& [source, epoch] : work) {
        const Partition* now = find(source);
        snapshot.is_current.push_back(now != nullptr && now->epoch == epoch);
        if (!snapshot.is_current.back()) continue;
        const bool finishes = finish(then.try_emplace({source.topic, source.partition}, *now).first->second, source.offset);
        CHECK(finishes, "a job ends once");
    }
    for (const auto& [key, partition] : partitions_) {
        const auto changed = then.find(key);
        if (auto commit = news_of(key, changed == then.end() ? partition : changed->second)) snapshot.commits.push_back(*std::move(commit));
    }
    return snapshot;
}

std::vector<PartitionCommit> OffsetTracker::snapshot(bool all) const {
    const std::scoped_lock lock(mutex_);
    std::vector<PartitionCommit> commits;
    for (const auto& [key, partition] : partitions_) {
        auto commit = all ? commit_of(key, partition, partition.seen) : news_of(key, partition);
        if (commit) commits.push_back(*std::move(commit));
    }
    return commits;
}

void OffsetTracker::committed(const std::vector<PartitionCommit>& commits) {
    const std::scoped_lock lock(mutex_);
    for (const PartitionCommit& commit : commits) {
        const auto found = partitions_.find({commit.topic, commit.partition});
        if (found != partitions_.end() && found->second.epoch == commit.epoch) found->second.last_commit = commit;
    }
}

std::vector<PartitionEpoch> OffsetTracker::partitions() const {
    const std::scoped_lock lock(mutex_);
    std::vector<PartitionEpoch> list;
    for (const auto& [key, partition] : partitions_) list.push_back({key.first, key.second, partition.epoch});
    return list;
}

std::optional<std::int64_t> OffsetTracker::position(const std::string& topic, std::int32_t partition) const {
    const std::scoped_lock lock(mutex_);
    const auto found = partitions_.find({topic, partition});
    if (found == partitions_.end()) return std::nullopt;
    return found->second.position;
}

std::optional<std::int64_t> OffsetTracker::finished_below(const std::string& topic, std::int32_t partition) const {
    const std::scoped_lock lock(mutex_);
    const auto found = partitions_.find({topic, partition});
    if (found == partitions_.end()) return std::nullopt;
    return watermark_of(found->second);
}

std::size_t OffsetTracker::incomplete() const {
    const std::scoped_lock lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, partition] : partitions_) count += partition.incomplete.size();
    return count;
}

std::size_t OffsetTracker::metadata_chars() const {
    const std::scoped_lock lock(mutex_);
    std::size_t longest = 0;
    for (const auto& [key, partition] : partitions_) longest = std::max(longest, commit_metadata_chars(state_of(partition)));
    return longest;
}

}  // namespace lorry::consumer
