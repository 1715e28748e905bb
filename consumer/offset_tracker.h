// Which jobs of this member's partitions are finished, and what may therefore be committed. Knows offsets only, no Kafka. The source
// tells it what was polled, the sink what became durable; jobs finish in any order, and one that is stuck holds back no other's commit.
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
    std::vector<StartCount> starts = {};  // that the metadata lists
    EndsSeen seen = {};                   // as it says
    bool operator==(const PartitionCommit&) const = default;
};

// A job whose result is about to become durable.
struct FinishedWork {
    schema::Source source;
    Epoch epoch = 0;
};

// Order of calls per partition: assign, then polled / finish in any mixture with snapshot, then drop. Any thread: one short lock, never
// held while waiting. Offsets may have holes (compaction, control records): only what was polled counts, or what the metadata of
// an earlier owner says is still to come.
class OffsetTracker {
public:
    explicit OffsetTracker(std::size_t metadata_chars_max = commit_metadata_chars_max) : metadata_chars_max_(metadata_chars_max) {}

    // A partition came, to be read from state.offset on. The epoch is new, larger than all before. `recorded`: the state is what the
    // group's commit says; else it is committed with the next snapshot.
    Epoch assign(const std::string& topic, std::int32_t partition, const CommitState& state, bool recorded = true);
    // It goes: until drop() its work still counts, and polled() is not called for it any more. Its member is alive, so commits list no
    // starts from here on.
    void drain(const std::string& topic, std::int32_t partition);
    void drop(const std::string& topic, std::int32_t partition);

    // True if, with this offset (above all polled ones) in flight as well, whatever finishes first can still be committed.
    bool has_room_for(const schema::Source& source) const;
    // The source read this offset. False: an earlier owner finished it already, so it is to be skipped.
    bool polled(const schema::Source& source);
    // Counts a start of a polled job, for the metadata; the number of starts, this one included. nullopt: the epoch is over, or the
    // string would become too long: then the job waits with starting until others have finished.
    std::optional<std::uint32_t> start(const schema::Source& source, Epoch epoch);

    // True while the partition is held under that epoch: otherwise its work is somebody else's.
    bool is_current(const schema::Source& source, Epoch epoch) const;
    // True while the job was polled under that epoch, which is not over, and its result is not durable.
    bool is_incomplete(const schema::Source& source, Epoch epoch) const;
    // The job's end is durable, and stands below `seen`. False, and nothing changes, when the epoch is over or it was finished before.
    bool finish(const schema::Source& source, Epoch epoch, const EndsSeen& seen = {});

    // Starts of a polled job so far, an earlier owner's included.
    std::uint32_t starts(const schema::Source& source) const;
    // Polled, not finished, and started at least once, over all partitions.
    std::size_t started() const;
    // True when a commit that lists all starts of this job so far has succeeded.
    bool start_is_committed(const schema::Source& source, Epoch epoch) const;

    // The last commit of one of these lists starts, which would make suspects of their jobs.
    bool lists_starts(const std::vector<PartitionEpoch>& partitions) const;

    // What changed since it was committed last; that more ends were seen alone is no change. `all`: also what did not change.
    std::vector<PartitionCommit> snapshot(bool all = false) const;
    // As it will be when `work` is finished as well; nothing is until finish(). Work of an epoch that is over does not count.
    struct Snapshot {
        std::vector<bool> is_current;  // by work
        std::vector<PartitionCommit> commits;
    };
    Snapshot snapshot_with(const std::vector<FinishedWork>& work) const;
    // These were committed.
    void committed(const std::vector<PartitionCommit>& commits);

    std::vector<PartitionEpoch> partitions() const;
    // The next offset to read; nullopt: not ours.
    std::optional<std::int64_t> position(const std::string& topic, std::int32_t partition) const;
    // The offset below which all are finished: what a commit would say. nullopt: not ours.
    std::optional<std::int64_t> finished_below(const std::string& topic, std::int32_t partition) const;
    // Polled and not finished, over all partitions.
    std::size_t incomplete() const;
    // The longest metadata string that a snapshot would hold now, in characters.
    std::size_t metadata_chars() const;

private:
    using Key = std::pair<std::string, std::int32_t>;
    struct Partition {
        Epoch epoch = 0;
        bool draining = false;
        std::int64_t position = 0;                     // all below were polled, or are not there
        std::int64_t highest_finished = -1;            // ours or an earlier owner's
        std::set<std::int64_t> incomplete;             // polled, not durable
        std::set<std::int64_t> expected;               // incomplete by an earlier owner's metadata, ≥ position
        std::int64_t taken_over_until = -1;            // up to here, what is not expected was finished by an earlier owner
        std::map<std::int64_t, std::uint32_t> starts;  // of incomplete or expected ones
        EndsSeen seen;
        std::int64_t topic_mark = 0;  // mark_of_topic
        std::optional<PartitionCommit> last_commit;
    };

    static std::int64_t watermark_of(const Partition& partition);
    static CommitState state_of(const Partition& partition);
    static bool finish(Partition& partition, std::int64_t offset);
    // The state with the longest string that can still come, when `top` is the highest offset in flight or finished.
    static CommitState longest_state(const Partition& partition, std::int64_t top);
    PartitionCommit commit_of(const Key& key, const Partition& partition, const EndsSeen& seen) const;
    // nullopt: the last commit says all.
    std::optional<PartitionCommit> news_of(const Key& key, const Partition& partition) const;
    Partition& held(const schema::Source& source);
    const Partition* find(const schema::Source& source) const;

    const std::size_t metadata_chars_max_;
    mutable std::mutex mutex_;
    Epoch last_epoch_ = 0;                 // guarded by mutex_
    std::map<Key, Partition> partitions_;  // guarded by mutex_
};

}  // namespace lorry::consumer
