// The string that is committed beside a partition's offset: which jobs above it are unfinished, and how often unfinished ones were
// started. Pure functions, any thread; used by OffsetTracker and by whoever prints a group's offsets.
//
// Bytes, then base64 (ASCII, at most 4,096 characters, the broker's default for offset.metadata.max.bytes):
//   version byte (2) · checksum of all that follows (4 bytes, xxh32 seeded with the version, little endian)
//   the jobs topic that the offsets are of (8 bytes, little endian: mark_of_topic)
//   ends seen: results, dead letters (8 bytes each, little endian: the string must not become longer while they grow)
//   varint count of holes · for each the distance to the one before minus 1 (the first counts from the offset)
//   varint distance from the last hole (or the offset) to the highest finished offset
//   varint count of starts · for each the distance to the one before (the first counts from the offset) · varint count
// Later versions keep the first five bytes, so that a newer one is told from damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {

inline constexpr std::size_t commit_metadata_chars_max = 4096;

struct StartCount {
    std::int64_t offset = 0;
    std::uint32_t count = 0;
    auto operator<=>(const StartCount&) const = default;
};

// Up to which offsets of their topics the results and dead letters of a partition were looked at: what ended below is in the state.
struct EndsSeen {
    std::int64_t results = 0;
    std::int64_t dead_letters = 0;
    auto operator<=>(const EndsSeen&) const = default;
};

// What a commit says about one partition. `offset` is the lowest incomplete one and travels beside the string.
struct CommitState {
    std::int64_t offset = 0;
    std::vector<std::int64_t> holes;    // ascending, > offset: incomplete below highest_finished
    std::int64_t highest_finished = 0;  // > the last hole; == offset: nothing above the offset is finished
    std::vector<StartCount> starts;     // ascending, ≥ offset: incomplete ones that were started
    EndsSeen seen = {};
    std::int64_t topic = 0;  // mark_of_topic of the jobs topic; 0: not known
    auto operator<=>(const CommitState&) const = default;
};

// Nothing but what lies below the offset is finished.
CommitState nothing_finished_above(std::int64_t offset);
bool is_finished(const CommitState& state, std::int64_t offset);

// What of a topic's id fits into a commit; 0: brokers have told none. Offsets outlive their topic: one made anew under its name must not
// take them for its own.
std::int64_t mark_of_topic(std::string_view id);
// The state is known to be of another topic than that of this id.
bool is_of_other_topic(const CommitState& state, std::string_view id);

struct CommitMetadataError {
    enum class Kind : std::uint8_t {
        absent,   // nothing is said about what lies above the offset: it was set by an administrator, or there was too much to say
        foreign,  // not ours: no base64, or too short; or by a version that this program does not read any more
        damaged,  // the checksum or the structure is wrong
        newer,    // ours, by a later version of this program
    };
    Kind kind = Kind::foreign;
    std::string text;
};

// Never empty, so that an offset which somebody else set is told from one of ours. Where the state does not fit into chars_max characters,
// a short string that reads back as `absent` and differs from state to state. CHECKs order and ranges.
std::string encode_commit_metadata(const CommitState& state, std::size_t chars_max = commit_metadata_chars_max);
// How many characters the state takes, without making them.
std::size_t commit_metadata_chars(const CommitState& state);
Expected<CommitState, CommitMetadataError> decode_commit_metadata(std::int64_t offset, std::string_view text);
// The string around a payload, of our version and with its checksum; for tests, the payload may be anything.
std::string wrap_commit_metadata(std::string_view payload);

}  // namespace lorry::consumer
