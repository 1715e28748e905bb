// Searches the jobs topic once for all ids.
#include "ops/client/job_search.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "ops/client/batch_id.h"
#include "ops/progress_bar.h"
#include "schema/codec.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

// How far the clocks of producers and of this machine may differ.
constexpr std::chrono::minutes clock_slack{10};

std::string name_of(const std::vector<SoughtJob>& sought) {
    if (sought.size() > 1) return fmt::format("{} jobs", sought.size());
    return fmt::format("{} {}", sought.front().is_batch ? "batch" : "job", sought.front().id);
}

// Removes what this record matches from `sought`.
void leave_out(const schema::JobRecord& record, std::vector<SoughtJob>& sought) {
    const std::string* batch = schema::find_header(record.headers, schema::batch_id_header);
    const auto may_be = [&](const SoughtJob& one) {
        if (one.is_batch) return batch != nullptr && *batch == one.id;
        return batch == nullptr || one.id.starts_with(*batch + "/");
    };
    if (std::ranges::none_of(sought, may_be)) return;
    const auto custom_id = record.value ? schema::scan_string_member(*record.value, "custom_id") : std::nullopt;
    const std::string job = custom_id ? schema::job_id(batch == nullptr ? std::string_view() : *batch, *custom_id) : std::string();
    std::erase_if(sought, [&](const SoughtJob& one) { return may_be(one) && (one.is_batch || (custom_id && one.id == job)); });
}

// The earliest start of all.
consumer::RecordReader::Start start_of(const std::vector<SoughtJob>& sought) {
    std::optional<schema::Timestamp> start;
    for (const SoughtJob& one : sought) {
        const auto time = time_of_batch_id(one.id.substr(0, one.id.find('/')));
        if (!time) return consumer::RecordReader::Beginning{};
        start = std::min(start.value_or(*time), schema::Timestamp(*time));
    }
    return *start - clock_slack;
}

// Leaves in `sought` what was not found.
void search(consumer::RecordReader& reader, std::vector<SoughtJob>& sought) {
    ProgressBar progress("looking for " + name_of(sought));
    std::int64_t read = 0;
    consumer::CatchUp catch_up(reader);
    while (!sought.empty() && !catch_up.is_done()) {
        for (const schema::JobRecord& record : reader.poll()) {
            leave_out(record, sought);
            ++read;
        }
        progress.show({.done = read, .failed = 0, .total = {}});
    }
}

}  // namespace

consumer::RecordReader::Start start_of_batch(std::string_view batch_id) {
    if (const auto time = time_of_batch_id(batch_id)) return *time - clock_slack;
    return consumer::RecordReader::Beginning{};
}

std::vector<SoughtJob> missing_in_jobs_topic(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                             std::vector<SoughtJob> sought, std::string_view advice) {
    try {
        consumer::RecordReader reader(config, {.topics = {topics.jobs()}, .start = start_of(sought), .passes_unreadable = true});
        search(reader, sought);
        return sought;
    } catch (const consumer::KafkaError& error) {
        throw consumer::KafkaError(fmt::format("cannot check whether {} contains {}, so nothing was sent: {}; {}", topics.jobs(),
                                               name_of(sought), error.what(), advice));
    }
}

}  // namespace lorry::ops
