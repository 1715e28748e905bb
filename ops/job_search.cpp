// A scan that ends at the first job that fits.
#include "ops/job_search.h"

#include <chrono>

#include <fmt/format.h>

#include "ops/batch_id.h"
#include "ops/progress_bar.h"
#include "schema/codec.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds poll_timeout{100};
constexpr milliseconds end_check_interval{200};
// How far clocks of producers and of this machine may differ.
constexpr std::chrono::minutes clock_slack{10};
constexpr std::size_t poll_records_max = 2000;

bool fits(const schema::JobRecord& record, const SoughtJob& sought) {
    const std::string* batch = schema::find_header(record.headers, schema::batch_id_header);
    if (sought.is_batch) return batch != nullptr && *batch == sought.id;
    if (!record.value || (batch != nullptr && !sought.id.starts_with(*batch + "/"))) return false;
    const auto custom_id = schema::scan_string_member(*record.value, "custom_id");
    return custom_id && schema::job_id(batch == nullptr ? std::string_view() : *batch, *custom_id) == sought.id;
}

bool search(consumer::RecordReader& reader, const SoughtJob& sought, const std::atomic<bool>& stop) {
    using Clock = std::chrono::steady_clock;
    ProgressBar progress(fmt::format("looking for {} {}", sought.is_batch ? "batch" : "job", sought.id));
    std::int64_t read = 0;
    auto next_check = Clock::now();
    while (!stop) {
        for (const schema::JobRecord& record : reader.poll(poll_timeout, poll_records_max)) {
            if (fits(record, sought)) return true;
            ++read;
        }
        progress.show({.done = read, .failed = 0, .total = {}});
        if (!reader.at_end() || Clock::now() < next_check) continue;
        if (reader.has_read_all()) return false;
        next_check = Clock::now() + end_check_interval;
    }
    return false;
}

}  // namespace

consumer::RecordReader::Start start_of_batch(std::string_view batch_id) {
    if (const auto time = time_of_batch_id(batch_id)) return *time - clock_slack;
    return consumer::RecordReader::Beginning{};
}

std::optional<bool> is_in_jobs_topic(const consumer::KafkaConfig& config, const schema::Topics& topics, const SoughtJob& sought,
                                     std::string_view advice, const std::atomic<bool>& stop) {
    try {
        consumer::RecordReader reader(config,
                                      {.topics = {topics.jobs()}, .start = start_of_batch(sought.id.substr(0, sought.id.find('/')))});
        const bool found = search(reader, sought, stop);
        return stop ? std::nullopt : std::optional(found);
    } catch (const consumer::KafkaError& error) {
        throw consumer::KafkaError(fmt::format("whether {} knows {} {} could not be seen, so nothing was sent: {}; {}", topics.jobs(),
                                               sought.is_batch ? "batch" : "job", sought.id, error.what(), advice));
    }
}

}  // namespace lorry::ops
