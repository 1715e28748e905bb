// Decodes committed offsets and renders them as a table, sentences and JSON.
#include "ops/client/offset_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr std::size_t ranges_shown = 12;

// Splits the offsets above the committed one into holes and the finished ranges between them.
void divide(const consumer::CommitState& state, PartitionReport& report) {
    if (state.highest_finished == state.offset) return;
    const auto add = [](std::vector<OffsetRange>& ranges, std::int64_t first, std::int64_t last) {
        if (first > last) return;
        if (!ranges.empty() && ranges.back().last == first - 1) {
            ranges.back().last = last;
        } else {
            ranges.push_back({first, last});
        }
    };
    std::int64_t next = state.offset + 1;
    add(report.missing, state.offset, state.offset);
    for (const std::int64_t hole : state.holes) {
        add(report.finished, next, hole - 1);
        add(report.missing, hole, hole);
        next = hole + 1;
    }
    add(report.finished, next, state.highest_finished);
}

std::int64_t count_of(std::span<const OffsetRange> ranges) {
    std::int64_t count = 0;
    for (const OffsetRange& range : ranges) count += range.last - range.first + 1;
    return count;
}

// Most jobs were started once and are running; one that was started again may have crashed the previous worker.
std::string show_starts(std::span<const consumer::StartCount> starts) {
    std::string again;
    std::size_t shown = 0;
    std::int64_t count = 0;
    for (const consumer::StartCount& start : starts) {
        if (start.count < 2) continue;
        ++count;
        if (shown++ < ranges_shown) again += fmt::format("{}{} ({}×)", again.empty() ? "" : ", ", start.offset, start.count);
    }
    std::string text = fmt::format("{} started", show_count(starts.size()));
    if (count > 0) text += fmt::format(", {} of them again: {}{}", show_count(count), again, shown > ranges_shown ? ", …" : "");
    return text;
}

schema::Json json_of_ranges(std::span<const OffsetRange> ranges) {
    schema::Json::Array array;
    for (const OffsetRange& range : ranges) array.push_back(schema::Json::array({range.first, range.last}));
    return array;
}

}  // namespace

PartitionReport report_of(const consumer::PartitionOffsets& offsets) {
    PartitionReport report{.partition = offsets.partition, .committed = offsets.committed, .end = offsets.end};
    const std::int64_t from = std::max(offsets.committed.value_or(offsets.first), offsets.first);
    report.lag = std::max<std::int64_t>(0, offsets.end - from);
    if (report.lag == 0) report.unfinished = 0;
    if (!offsets.committed) {
        report.remark = offsets.is_outdated ? "the commit is for an earlier topic of that name" : "nothing committed yet";
        return report;
    }
    const auto state = consumer::decode_commit_metadata(*offsets.committed, offsets.metadata);
    if (!state) {
        report.remark = state.error().text;
        return report;
    }
    divide(*state, report);
    report.starts = state->starts;
    std::int64_t unfinished = report.lag;
    for (const OffsetRange& range : report.finished) {
        unfinished -= std::max<std::int64_t>(0, range.last - std::max(range.first, offsets.first) + 1);
    }
    if (*offsets.committed > offsets.end) {
        report.remark = "committed beyond the log's end: the topic was truncated or recreated";
    } else if (*offsets.committed < offsets.first) {
        report.remark = fmt::format("the log begins at {}: retention deleted everything below", show_count(offsets.first));
    }
    report.unfinished = std::max<std::int64_t>(0, unfinished);
    return report;
}

std::string show_ranges(std::span<const OffsetRange> ranges, std::size_t most) {
    if (ranges.empty()) return "-";
    std::string text;
    for (const OffsetRange& range : ranges.first(std::min(ranges.size(), most))) {
        text += text.empty() ? "" : ", ";
        text += range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
    }
    if (ranges.size() > most) text += fmt::format(", … ({} ranges)", show_count(ranges.size()));
    return text;
}

std::string show_reports(std::span<const PartitionReport> reports) {
    std::vector<std::vector<std::string>> rows = {{"PARTITION", "COMMITTED", "END", "LAG", "UNFINISHED", "REMARK"}};
    for (const PartitionReport& report : reports) {
        rows.push_back({std::to_string(report.partition), report.committed ? std::to_string(*report.committed) : "-",
                        std::to_string(report.end), std::to_string(report.lag),
                        report.unfinished ? std::to_string(*report.unfinished) : "?", report.remark});
    }
    std::string text = show_table(rows, 0b11111);
    for (const PartitionReport& report : reports) {
        if (report.finished.empty() && report.starts.empty()) continue;
        text += fmt::format("partition {}:", report.partition);
        const char* separator = " ";
        if (!report.finished.empty()) {
            text += fmt::format(" {} finished above the offset: {}; {} missing: {}", show_count(count_of(report.finished)),
                                show_ranges(report.finished, ranges_shown), show_count(count_of(report.missing)),
                                show_ranges(report.missing, ranges_shown));
            separator = "; ";
        }
        if (!report.starts.empty()) text += separator + show_starts(report.starts);
        text += '\n';
    }
    return text;
}

schema::Json json_of(const PartitionReport& report) {
    schema::Json::Array starts;
    for (const consumer::StartCount& start : report.starts) {
        starts.push_back(schema::Json::object({{"offset", start.offset}, {"count", start.count}}));
    }
    schema::Json json = schema::Json::object({{"partition", report.partition},
                                              {"committed", report.committed},
                                              {"end", report.end},
                                              {"lag", report.lag},
                                              {"unfinished", report.unfinished},
                                              {"finished", json_of_ranges(report.finished)},
                                              {"missing", json_of_ranges(report.missing)},
                                              {"starts", std::move(starts)}});
    if (!report.remark.empty()) json.set("remark", report.remark);
    return json;
}

}  // namespace lorry::ops
