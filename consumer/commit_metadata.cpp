// Encodes and decodes the commit metadata: gaps as varints, in base64.
#include "consumer/commit_metadata.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "schema/base64.h"

namespace lorry::consumer {

namespace {

constexpr std::uint8_t version_ours = 2;
constexpr std::size_t head_bytes = 5;
constexpr char absent_sign = '?';  // not a base64 character

struct ByteCounter {
    std::size_t bytes = 0;
    void fixed(std::int64_t) { bytes += 8; }
    void varint(std::uint64_t value) {
        do {
            ++bytes;
            value >>= 7;
        } while (value != 0);
    }
};

struct ByteWriter {
    std::string bytes;
    void fixed(std::int64_t value) {
        for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> shift);
    }
    void varint(std::uint64_t value) {
        while (value >= 0x80) {
            bytes += static_cast<char>(value | 0x80);
            value >>= 7;
        }
        bytes += static_cast<char>(value);
    }
};

class ByteReader {
public:
    explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
    bool at_end() const { return next_ == bytes_.size(); }
    std::size_t left() const { return bytes_.size() - next_; }
    // nullopt: not a valid offset.
    std::optional<std::int64_t> fixed() {
        if (left() < 8) return std::nullopt;
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 8) value |= std::uint64_t{static_cast<unsigned char>(bytes_[next_++])} << shift;
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
        return static_cast<std::int64_t>(value);
    }
    std::optional<std::uint64_t> varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 63 && next_ < bytes_.size(); shift += 7) {
            const auto byte = static_cast<unsigned char>(bytes_[next_++]);
            value |= std::uint64_t{byte & 0x7FU} << shift;
            if ((byte & 0x80) == 0) return byte == 0 && shift > 0 ? std::nullopt : std::optional(value);  // only the shortest encoding
        }
        return std::nullopt;
    }

private:
    std::string_view bytes_;
    std::size_t next_ = 0;
};

std::uint64_t distance(std::int64_t from, std::int64_t to) {
    CHECK(to >= from, "commit metadata: offsets must ascend");
    return static_cast<std::uint64_t>(to - from);
}

template <typename Writer>
void write(Writer& out, const CommitState& state) {
    out.fixed(state.topic);
    out.fixed(state.seen.results);
    out.fixed(state.seen.dead_letters);
    out.varint(state.holes.size());
    std::int64_t last = state.offset;
    for (const std::int64_t hole : state.holes) {
        out.varint(distance(last + 1, hole));
        last = hole;
    }
    out.varint(distance(last, state.highest_finished));
    out.varint(state.starts.size());
    last = state.offset;
    for (const StartCount& start : state.starts) {
        out.varint(distance(last, start.offset));
        out.varint(start.count);
        last = start.offset;
    }
}

// The version is the seed, so that the checksum covers it too.
std::array<char, 4> checksum(std::uint8_t version, std::string_view payload) {
    const std::uint32_t sum = XXH32(payload.data(), payload.size(), version);
    return {static_cast<char>(sum), static_cast<char>(sum >> 8), static_cast<char>(sum >> 16), static_cast<char>(sum >> 24)};
}

tl::unexpected<CommitMetadataError> refuse(CommitMetadataError::Kind kind, std::string text) {
    return tl::unexpected(CommitMetadataError{kind, std::move(text)});
}

// from + gap; nullopt if that exceeds the largest offset.
std::optional<std::int64_t> step(std::int64_t from, std::optional<std::uint64_t> gap) {
    if (!gap || *gap > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - from)) return std::nullopt;
    return from + static_cast<std::int64_t>(*gap);
}

std::optional<CommitState> read(std::int64_t offset, ByteReader& in) {
    CommitState state = nothing_finished_above(offset);
    const auto topic = in.fixed();
    const auto results = in.fixed();
    const auto dead_letters = in.fixed();
    if (!topic || !results || !dead_letters) return std::nullopt;
    state.topic = *topic;
    state.seen = {*results, *dead_letters};
    const auto holes = in.varint();
    if (!holes || *holes > in.left()) return std::nullopt;
    state.holes.reserve(*holes);
    std::int64_t last = offset;
    for (std::uint64_t i = 0; i < *holes; ++i) {
        if (last == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
        const auto hole = step(last + 1, in.varint());
        if (!hole) return std::nullopt;
        state.holes.push_back(last = *hole);
    }
    const auto highest = step(last, in.varint());
    if (!highest || (*highest == last && !state.holes.empty())) return std::nullopt;  // a hole lies below a finished offset
    state.highest_finished = *highest;
    const auto starts = in.varint();
    if (!starts || *starts > in.left()) return std::nullopt;
    last = offset;
    for (std::uint64_t i = 0; i < *starts; ++i) {
        const auto started = step(last, in.varint());
        const auto count = in.varint();
        if (!started || (i > 0 && *started == last) || !count || *count == 0 || *count > std::numeric_limits<std::uint32_t>::max()) {
            return std::nullopt;
        }
        state.starts.push_back({last = *started, static_cast<std::uint32_t>(*count)});
    }
    if (!in.at_end()) return std::nullopt;
    return state;
}

}  // namespace

std::size_t commit_metadata_chars(const CommitState& state) {
    ByteCounter counter;
    write(counter, state);
    return (head_bytes + counter.bytes + 2) / 3 * 4;
}

CommitState nothing_finished_above(std::int64_t offset) {
    return {.offset = offset, .holes = {}, .highest_finished = offset, .starts = {}};
}

std::int64_t mark_of_topic(std::string_view id) {
    if (id.empty()) return 0;
    return static_cast<std::int64_t>(XXH3_64bits(id.data(), id.size()) >> 1);
}

bool is_of_other_topic(const CommitState& state, std::string_view id) {
    return state.topic != 0 && !id.empty() && state.topic != mark_of_topic(id);
}

bool is_finished(const CommitState& state, std::int64_t offset) {
    if (offset <= state.offset) return offset < state.offset;
    return offset <= state.highest_finished && !std::ranges::binary_search(state.holes, offset);
}

std::string wrap_commit_metadata(std::string_view payload) {
    const auto sum = checksum(version_ours, payload);
    std::string bytes(1, static_cast<char>(version_ours));
    bytes.append(sum.data(), sum.size());
    return schema::to_base64(bytes.append(payload));
}

std::string encode_commit_metadata(const CommitState& state, std::size_t chars_max) {
    CHECK(state.holes.empty() || state.highest_finished > state.holes.back(), "commit metadata: a hole lies below a finished offset");
    ByteWriter payload;
    write(payload, state);
    const std::string text = wrap_commit_metadata(payload.bytes);
    return text.size() <= chars_max ? text : fmt::format("{}{:x}", absent_sign, XXH3_64bits(text.data(), text.size()));
}

Expected<CommitState, CommitMetadataError> decode_commit_metadata(std::int64_t offset, std::string_view text) {
    using Kind = CommitMetadataError::Kind;
    if (text.empty() || text.front() == absent_sign) return refuse(Kind::absent, "the commit metadata does not say what is finished");
    const auto bytes = schema::from_base64(text);
    if (!bytes || bytes->size() <= head_bytes) return refuse(Kind::foreign, "the commit metadata was not written by Lorry");
    const std::string_view all = *bytes;
    const auto version = static_cast<std::uint8_t>(all[0]);
    const auto sum = checksum(version, all.substr(head_bytes));
    if (all.substr(1, sum.size()) != std::string_view(sum.data(), sum.size())) {
        return refuse(Kind::damaged, "the commit metadata does not match its checksum: damaged, or not written by Lorry");
    }
    if (version < version_ours) return refuse(Kind::foreign, "the commit metadata was written by an earlier Lorry");
    if (version > version_ours) {
        return refuse(Kind::newer,
                      fmt::format("the commit metadata has version {}, this program knows {}: run the newer Lorry that wrote it", version,
                                  version_ours));
    }
    ByteReader in(all.substr(head_bytes));
    auto state = read(offset, in);
    if (!state) return refuse(Kind::damaged, "the commit metadata's numbers make no sense: damaged");
    return *std::move(state);
}

}  // namespace lorry::consumer
