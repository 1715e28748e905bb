// Reports a partition's committed offset and metadata, as a table for people and as JSON for scripts. Called by `lorry offsets`. Pure.
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
    std::int64_t last = 0;  // inclusive
    bool operator==(const OffsetRange&) const = default;
};

struct PartitionReport {
    std::int32_t partition = 0;
    std::optional<std::int64_t> committed;
    std::int64_t end = 0;
    std::int64_t lag = 0;                      // from the committed offset (or the log's start) to the log's end
    std::optional<std::int64_t> unfinished;    // unfinished offsets among these; nullopt: unknown
    std::vector<OffsetRange> finished;         // finished offsets above the committed one, ascending
    std::vector<OffsetRange> missing;          // unfinished offsets below the highest finished one
    std::vector<consumer::StartCount> starts;  // of unfinished offsets, ascending
    std::string remark;                        // empty: nothing to remark
};
PartitionReport report_of(const consumer::PartitionOffsets& offsets);

// A table, then a line for each partition with more than a committed offset; long lists are shortened.
std::string show_reports(std::span<const PartitionReport> reports);
// The complete report; lists are not shortened.
schema::Json json_of(const PartitionReport& report);

// "1-3, 7", or "1-3, … (12 ranges)" if there are more than `most`; "-" for none.
std::string show_ranges(std::span<const OffsetRange> ranges, std::size_t most);

}  // namespace lorry::ops
