// The string committed with a partition's offset: which jobs above the offset are unfinished, and how often they were started. Pure
// functions, any thread. Used by OffsetTracker and by `lorry offsets`.
//
// Bytes, then base64 (ASCII, at most 4,096 characters, the broker's default for offset.metadata.max.bytes):
//   version byte (2) · checksum of all that follows (4 bytes, xxh32 seeded with the version, little endian)
//   the jobs topic that the offsets belong to (8 bytes, little endian: mark_of_topic)
//   ends seen: results, dead letters (8 bytes each, little endian: the string must not become longer while they grow)
//   varint count of holes · for each the distance to the one before minus 1 (the first counts from the offset)
//   varint distance from the last hole (or the offset) to the highest finished offset
//   varint count of starts · for each the distance to the one before (the first counts from the offset) · varint count
// Later versions keep the first five bytes, so that a newer version can be distinguished from damage.
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

// The offsets up to which the partition's results and dead letters were read: jobs that ended below are included in the state.
struct EndsSeen {
    std::int64_t results = 0;
    std::int64_t dead_letters = 0;
    auto operator<=>(const EndsSeen&) const = default;
};

// The state of one partition in a commit. `offset` is the lowest incomplete one; Kafka stores it beside the string.
struct CommitState {
    std::int64_t offset = 0;
    std::vector<std::int64_t> holes;    // ascending, > offset: incomplete below highest_finished
    std::int64_t highest_finished = 0;  // > the last hole; == offset: nothing above the offset is finished
    std::vector<StartCount> starts;     // ascending, ≥ offset: incomplete ones that were started
    EndsSeen seen = {};
    std::int64_t topic = 0;  // mark_of_topic of the jobs topic; 0: unknown
    auto operator<=>(const CommitState&) const = default;
};

// The state in which only offsets below `offset` are finished.
CommitState nothing_finished_above(std::int64_t offset);
bool is_finished(const CommitState& state, std::int64_t offset);

// A hash of the topic's id that fits into a commit; 0: the brokers give no id. Offsets outlive their topic, and must not be applied to a
// topic that was created again under its name.
std::int64_t mark_of_topic(std::string_view id);
// True if the state is known to belong to a topic with another id.
bool is_of_other_topic(const CommitState& state, std::string_view id);

struct CommitMetadataError {
    enum class Kind : std::uint8_t {
        absent,   // says nothing about the jobs above the offset: an administrator set the offset, or the state was too long
        foreign,  // not written by Lorry (not base64, or too short), or by a version that this program no longer reads
        damaged,  // the checksum or the structure is wrong
        newer,    // written by a later version of Lorry
    };
    Kind kind = Kind::foreign;
    std::string text;
};

// Never empty, so that Lorry's offsets can be distinguished from those that others set. If the state does not fit into chars_max
// characters: a short string that reads back as `absent` and differs from state to state. CHECKs order and ranges.
std::string encode_commit_metadata(const CommitState& state, std::size_t chars_max = commit_metadata_chars_max);
// The length of the encoded state, computed without encoding it.
std::size_t commit_metadata_chars(const CommitState& state);
Expected<CommitState, CommitMetadataError> decode_commit_metadata(std::int64_t offset, std::string_view text);
// Adds this program's version and the checksum to a payload, which tests may choose freely.
std::string wrap_commit_metadata(std::string_view payload);

}  // namespace lorry::consumer
