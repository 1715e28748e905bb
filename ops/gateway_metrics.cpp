// The rows of gateways' metrics.
#include "ops/gateway_metrics.h"

namespace lorry::ops {
namespace {

using enum Metric::Type;

constexpr std::array http_request_rows = {
    Metric{.name = "lorry_requests_total",
           .type = counter,
           .unit = "requests",
           .labels = {"url", "status"},
           .value =
               [](const Figures& f) {
                   std::vector<Metric::Sample> samples;
                   for (const auto& [of, count] : f.requests) samples.push_back({{of.first, std::to_string(of.second)}, as_number(count)});
                   return samples;
               },
           .help = "Requests over HTTP that ended, by url (`other`: one that is not served) and status; 499: the client went away",
           .watch = "Many of 429: raise `calls_max`, or send less. Many of 499: clients give up before their answers come."},
    Metric{.name = "lorry_request_seconds",
           .type = histogram,
           .unit = "seconds",
           .value = &Figures::request_time,
           .help = "Time from a request's last byte to the end of its answer",
           .watch = "The time that calls wait and run is in it; `lorry_job_seconds` has only the latter."},
};

constexpr std::array gateway_call_rows = {
    Metric{.name = "lorry_calls_open",
           .type = gauge,
           .unit = "calls",
           .value = [](const Figures& f) { return as_number(f.calls.open); },
           .help = "Calls that wait for a worker or run",
           .watch = "At `calls_max`, further calls are answered with 429: start more workers, or send less."},
    Metric{.name = "lorry_calls_sent_total",
           .type = counter,
           .unit = "calls",
           .value = [](const Figures& f) { return as_number(f.calls.sent); },
           .help = "Calls that were given to the brokers"},
    Metric{.name = "lorry_calls_refused_total",
           .type = counter,
           .unit = "calls",
           .value = [](const Figures& f) { return as_number(f.calls.refused); },
           .help = "Calls that were refused because too many were open or no broker could be reached"},
    Metric{.name = "lorry_calls_unsent_total",
           .type = counter,
           .unit = "calls",
           .value = [](const Figures& f) { return as_number(f.calls.unsent); },
           .help = "Calls that the brokers did not take in time",
           .watch = "Should stay 0. The log has the brokers' reason."},
    Metric{.name = "lorry_calls_cancelled_total",
           .type = counter,
           .unit = "calls",
           .value = [](const Figures& f) { return as_number(f.calls.cancelled); },
           .help = "Calls whose client went away, or that took longer than `call_timeout`"},
    Metric{.name = "lorry_streams_restarted_total",
           .type = counter,
           .unit = "streams",
           .value = [](const Figures& f) { return as_number(f.calls.restarted); },
           .help = "Streams of calls that were run again, as their worker had ended",
           .watch = "Rises with restarts of workers. If it rises otherwise, find out why workers end."},
    Metric{.name = "lorry_streams_broken_total",
           .type = counter,
           .unit = "streams",
           .value = [](const Figures& f) { return as_number(f.calls.broken); },
           .help = "Of these, streams that ended with an error, as the new answer was a different one",
           .watch = "Should stay 0: give all workers the same model, settings and kind of chip."},
    Metric{.name = "lorry_brokers_away",
           .type = gauge,
           .unit = "0 or 1",
           .value = [](const Figures& f) { return f.calls.is_away ? 1.0 : 0.0; },
           .help = "1 while the gateway reaches no broker: it answers calls with 503"},
};

// Each gateway knows those of all, so the greatest value counts, not the sum.
constexpr std::array gateway_file_rows = {
    Metric{.name = "lorry_batches",
           .type = gauge,
           .unit = "batches",
           .labels = {"state"},
           .value =
               [](const Figures& f) {
                   std::vector<Metric::Sample> samples;
                   for (const auto& [state, count] : f.batches.batches)
                       samples.push_back({{std::string(name_of(state))}, as_number(count)});
                   return samples;
               },
           .help = "Batches that are known, by their state, of all gateways",
           .watch = "Absent without `--files`. A growing number of `expired` means that workers do not keep up; of `failed`, that input "
                    "files are wrong."},
    Metric{.name = "lorry_batch_lines_waiting",
           .type = gauge,
           .unit = "lines",
           .value = [](const Figures& f) { return as_number(f.batches.lines_waiting); },
           .help = "Lines without a result, of batches that have not ended, of all gateways",
           .watch = "Falls while workers run them. If it stays the same, no worker reads jobs, or no gateway carries batches out."},
    Metric{.name = "lorry_files",
           .type = gauge,
           .unit = "files",
           .value = [](const Figures& f) { return as_number(f.batches.files); },
           .help = "Files that are kept, of all gateways",
           .watch = "At most 200,000, and 10,000 of a tenant; uploads beyond are answered with 429."},
    Metric{.name = "lorry_file_bytes",
           .type = gauge,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.batches.file_bytes); },
           .help = "Their contents, which are in the folder `files`",
           .watch = "Compare it with the room of that folder's disk."},
    Metric{.name = "lorry_uploads_total",
           .type = counter,
           .unit = "files",
           .value = [](const Figures& f) { return as_number(f.uploads); },
           .help = "Files that clients of this gateway uploaded"},
    Metric{.name = "lorry_uploaded_bytes_total",
           .type = counter,
           .unit = "bytes",
           .value = [](const Figures& f) { return as_number(f.uploaded_bytes); },
           .help = "The bytes of these files"},
    Metric{.name = "lorry_files_failed_total",
           .type = counter,
           .unit = "requests",
           .value = [](const Figures& f) { return as_number(f.files_failed); },
           .help = "Requests for files and batches that failed because the folder `files` or the brokers did",
           .watch = "Should stay 0. The log's event `files_failed` says why."},
};

}  // namespace

std::span<const Metric> request_metrics() { return http_request_rows; }
std::span<const Metric> call_metrics() { return gateway_call_rows; }
std::span<const Metric> file_metrics() { return gateway_file_rows; }

}  // namespace lorry::ops
