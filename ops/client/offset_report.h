// What a partition's committed offset and metadata say, for people and for scripts. Called by `lorry offsets`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/group_offsets.h"
#include "schema/json.h"

namespace lorry::ops {

struct OffsetRange {
    std::int64_t first = 0;
    std::int64_t last = 0;  // included
    bool operator==(const OffsetRange&) const = default;
};

struct PartitionReport {
    std::int32_t partition = 0;
    std::optional<std::int64_t> committed;
    std::int64_t end = 0;
    std::int64_t lag = 0;                      // offsets from the committed one (without one, the log's start) to the log's end
    std::optional<std::int64_t> unfinished;    // of them; nullopt: not known
    std::vector<OffsetRange> finished;         // above the committed offset, ascending
    std::vector<OffsetRange> missing;          // unfinished ones below the highest finished one
    std::vector<consumer::StartCount> starts;  // of unfinished ones, ascending
    std::string remark;                        // empty: all is well
};
PartitionReport report_of(const consumer::PartitionOffsets& offsets);

// A table, then a line for each partition of which more is known than its offset; long lists are cut.
std::string show_reports(std::span<const PartitionReport> reports);
// All of it, nothing cut.
schema::Json json_of(const PartitionReport& report);

// "1-3, 7", "1-3, … (12 ranges)" beyond `most`; "-" for none.
std::string show_ranges(std::span<const OffsetRange> ranges, std::size_t most);

}  // namespace lorry::ops
