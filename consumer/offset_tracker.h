// Which jobs of this member's partitions are finished, and what may therefore be committed. Knows offsets only, no Kafka. The source
// reports what it polled, the sink what became durable. Jobs finish in any order; a stuck job does not hold back the commits of others.
// Used by consumer/kafka.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// What to commit for one partition.
struct PartitionCommit {
    std::string topic;
    std::int32_t partition = 0;
    Epoch epoch = 0;
    std::int64_t offset = 0;
    std::string metadata;
    std::vector<StartCount> starts = {};  // listed in the metadata
    EndsSeen seen = {};                   // as in the metadata
    bool operator==(const PartitionCommit&) const = default;
};

// A job whose result is about to become durable.
struct FinishedWork {
    schema::Source source;
    Epoch epoch = 0;
};

// Order of calls per partition: assign, then polled, finish and snapshot in any order, then drop. Any thread: one short lock, never held
// while waiting. Offsets may have holes (compaction, control records): only polled offsets count, and those that the metadata of an earlier
// owner lists as unfinished.
class OffsetTracker {
public:
    explicit OffsetTracker(std::size_t metadata_chars_max = commit_metadata_chars_max) : metadata_chars_max_(metadata_chars_max) {}

    // A partition was assigned, to be read from state.offset on. Returns a new epoch, larger than all before. `recorded`: the state is
    // that of the group's commit; otherwise the next snapshot commits it.
    Epoch assign(const std::string& topic, std::int32_t partition, const CommitState& state, bool recorded = true);
    // The partition is being revoked: its work counts until drop(), and polled() must no longer be called for it. Its owner is alive, so
    // commits list no starts from now on.
    void drain(const std::string& topic, std::int32_t partition);
    void drop(const std::string& topic, std::int32_t partition);

    // True if this offset (above all polled ones) can be polled too, and the state still fits into a commit whatever finishes first.
    bool has_room_for(const schema::Source& source) const;
    // The source read this offset. False: an earlier owner finished it already; skip it.
    bool polled(const schema::Source& source);
    // Counts a start of a polled job for the metadata; returns its number of starts, including this one. nullopt: the epoch is over, or
    // the string would become too long: the job must then wait until others have finished.
    std::optional<std::uint32_t> start(const schema::Source& source, Epoch epoch);

    // The job waits, and nothing of it is computed: if it was started here, that start no longer counts. No effect if the epoch is over.
    void wait(const schema::Source& source, Epoch epoch);
    // The job no longer waits. Call it unless it must start, or once its start was committed.
    void go_on(const schema::Source& source, Epoch epoch);
    bool is_waiting(const schema::Source& source, Epoch epoch) const;
    // The job waits, and was started before it waited: it must be started again.
    bool must_start(const schema::Source& source, Epoch epoch) const;
    // The job was started by this member, and that start counts.
    bool is_started(const schema::Source& source, Epoch epoch) const;

    // True while this member holds the partition under that epoch.
    bool is_current(const schema::Source& source, Epoch epoch) const;
    // True if the job was polled under that epoch, the epoch is not over, and its result is not durable.
    bool is_incomplete(const schema::Source& source, Epoch epoch) const;
    // The job's end is durable, at an offset below `seen`. False, without effect, if the epoch is over or the job was finished before.
    bool finish(const schema::Source& source, Epoch epoch, const EndsSeen& seen = {});

    // Starts of a polled job so far, including those under earlier owners.
    std::uint32_t starts(const schema::Source& source) const;
    // Polled, not finished, and started by this member, over all partitions of a topic.
    std::size_t started(const std::string& topic) const;
    // Polled, not finished, and waiting, over all partitions.
    std::size_t waiting() const;
    // True once a commit that lists all starts of this job so far has succeeded.
    bool start_is_committed(const schema::Source& source, Epoch epoch) const;

    // True if the last commit of one of these partitions lists starts, which would make their jobs suspects.
    bool lists_starts(const std::vector<PartitionEpoch>& partitions) const;

    // The partitions whose state changed since their last commit; a change of `seen` alone does not count. `all`: every partition.
    std::vector<PartitionCommit> snapshot(bool all = false) const;
    // The commits as they will be once `work` is finished too; only finish() changes anything. Work of an epoch that is over does not
    // count.
    struct Snapshot {
        std::vector<bool> is_current;  // in the order of work
        std::vector<PartitionCommit> commits;
    };
    Snapshot snapshot_with(const std::vector<FinishedWork>& work) const;
    // These were committed.
    void committed(const std::vector<PartitionCommit>& commits);

    std::vector<PartitionEpoch> partitions() const;
    // The next offset to read; nullopt: this member does not hold the partition.
    std::optional<std::int64_t> position(const std::string& topic, std::int32_t partition) const;
    // The offset below which all are finished, which a commit would have. nullopt: this member does not hold the partition.
    std::optional<std::int64_t> finished_below(const std::string& topic, std::int32_t partition) const;
    // Polled and not finished, over all partitions.
    std::size_t incomplete() const;
    // The length of the longest metadata string in a snapshot taken now, in characters.
    std::size_t metadata_chars() const;

private:
    using Key = std::pair<std::string, std::int32_t>;
    struct Partition {
        Epoch epoch = 0;
        bool draining = false;
        std::int64_t position = 0;                     // all below were polled or do not exist
        std::int64_t highest_finished = -1;            // under this owner or an earlier one
        std::set<std::int64_t> incomplete;             // polled, not durable
        std::set<std::int64_t> expected;               // incomplete in an earlier owner's metadata, ≥ position
        std::int64_t taken_over_until = -1;            // up to here, an earlier owner finished all that are not expected
        std::map<std::int64_t, std::uint32_t> starts;  // of incomplete or expected offsets
        std::set<std::int64_t> started;                // incomplete ones; a start under this owner is in `starts`
        std::map<std::int64_t, bool> waiting;          // incomplete ones; whether they must be started again
        EndsSeen seen;
        std::int64_t topic_mark = 0;  // mark_of_topic
        std::optional<PartitionCommit> last_commit;
    };

    static std::int64_t watermark_of(const Partition& partition);
    static CommitState state_of(const Partition& partition);
    static bool finish(Partition& partition, std::int64_t offset);
    // The state with the longest string that can still occur while `top` is the highest polled offset.
    static CommitState longest_state(const Partition& partition, std::int64_t top);
    PartitionCommit commit_of(const Key& key, const Partition& partition, const EndsSeen& seen) const;
    // nullopt: unchanged since the last commit.
    std::optional<PartitionCommit> news_of(const Key& key, const Partition& partition) const;
    Partition& held(const schema::Source& source);
    Partition* incomplete_at(const schema::Source& source, Epoch epoch);  // nullptr: the job is not incomplete under this epoch
    const Partition* find(const schema::Source& source) const;

    const std::size_t metadata_chars_max_;
    mutable std::mutex mutex_;
    Epoch last_epoch_ = 0;                 // guarded by mutex_
    std::map<Key, Partition> partitions_;  // guarded by mutex_
};

}  // namespace lorry::consumer
