// parse_job: turns a record's bytes into a checked Job, or into the reason why it is not one. The order of the checks decides what is known
// of a bad record: first the headers (its batch), then the custom_id (result or dead letter), then method, url and body.
#include <algorithm>

#include <fmt/format.h>

#include "schema/codec.h"
#include "schema/codec_body.h"
#include "schema/epoch_unit.h"
#include "schema/whole_number.h"

namespace lorry::schema {
namespace {

std::string supported_urls() {
    std::string urls;
    for (const Endpoint endpoint : endpoints) {
        if (!urls.empty()) urls += ", ";
        urls += row_of(endpoint).url;
    }
    return urls;
}

JobError bad_header(std::string_view name, std::string message) {
    return {.code = ErrorCode::invalid_header, .param = std::string(name), .message = std::move(message)};
}

// Leaves `target` empty without the header. excluded: a character that must not be in it, or empty.
FieldError read_name(const JobRecord& record, std::string_view header, std::string_view excluded, std::string& target) {
    const std::string* value = find_header(record.headers, header);
    if (value == nullptr || value->empty()) return {};
    if (value->size() > id_bytes_max || !is_valid_utf8(*value) || value->find_first_of(excluded) != std::string::npos) {
        return bad_header(header,
                          fmt::format("header '{}' is '{}'; allowed is UTF-8 of up to {} bytes{}", header, shortened(repair_utf8(*value)),
                                      id_bytes_max, excluded.empty() ? "" : fmt::format(" without '{}'", excluded)));
    }
    target = *value;
    return {};
}

FieldError read_deadline(const JobRecord& record, std::optional<Timestamp>& deadline) {
    const std::string* value = find_header(record.headers, deadline_header);
    if (value == nullptr) return {};
    const std::int64_t since_epoch = parse_whole<std::int64_t>(*value).value_or(-1);
    const bool is_number = since_epoch >= 0;
    const std::string_view unit = unit_since_epoch(since_epoch);
    if (!is_number || unit != "milliseconds") {
        const std::string mistake = is_number ? fmt::format(", which looks like {}", unit) : "";
        return bad_header(deadline_header,
                          fmt::format("header 'deadline' is '{}'{}; allowed is a decimal number of milliseconds since 1970-01-01 UTC",
                                      shortened(repair_utf8(*value)), mistake));
    }
    deadline = Timestamp(std::chrono::milliseconds(since_epoch));
    return {};
}

// Why this is not a valid custom_id, or nullopt.
std::optional<std::string> custom_id_error(const Json* value) {
    if (value == nullptr) return "field 'custom_id' is missing; without it a result could not be named";
    if (!value->is_string()) return wrong_type("custom_id", "a string", *value).message;
    if (value->as_string()->empty()) return "field 'custom_id' is empty; allowed is a string of 1 to 512 bytes";
    if (value->as_string()->size() > id_bytes_max) {
        return fmt::format("field 'custom_id' has {} bytes; allowed are up to {}", value->as_string()->size(), id_bytes_max);
    }
    return std::nullopt;
}

FieldError read_line(const Json& line, Job& job) {
    for (const auto& [name, value] : *line.as_object()) {
        if (name == "custom_id" || name == "method" || name == "url" || name == "body") continue;
        return unsupported(name, fmt::format("field '{}' is unknown; a job has custom_id, method, url and body", shortened(name)));
    }
    if (const Json* method = line.find("method"); method != nullptr) {
        const auto* verb = method->as_string();
        if (verb == nullptr) return wrong_type("method", "a string", *method);
        if (*verb != "POST") return wrong_value("method", *method, "\"POST\"");
    }
    const Json* url = line.find("url");
    if (url == nullptr || !url->is_string()) return missing("url", url, "it is one of " + supported_urls());
    const auto endpoint = endpoint_at(*url->as_string());
    if (!endpoint) {
        return JobError{.code = ErrorCode::unsupported_url,
                        .param = "url",
                        .message = fmt::format("url {} is not supported; supported are {}", shown(*url), supported_urls())};
    }
    job.endpoint = *endpoint;
    const Json* body = line.find("body");
    if (body == nullptr) return missing("body", body, "it is the request that would be sent to the url");
    return read_body(*body, job);
}

bool is_ours(std::string_view header) { return header == batch_id_header || header == deadline_header; }

}  // namespace

void Sampling::fill_in(const Sampling& defaults) {
    const auto fill = [](auto& field, const auto& value) {
        if (!field) field = value;
    };
    fill(temperature, defaults.temperature);
    fill(top_p, defaults.top_p);
    fill(top_k, defaults.top_k);
    fill(min_p, defaults.min_p);
    fill(repetition_penalty, defaults.repetition_penalty);
}

std::string job_id(std::string_view batch_id, std::string_view custom_id) {
    return batch_id.empty() ? std::string(custom_id) : fmt::format("{}/{}", batch_id, custom_id);
}

const std::string* find_header(std::span<const Header> headers, std::string_view name) {
    const auto last = std::find_if(headers.rbegin(), headers.rend(), [&](const Header& header) { return header.first == name; });
    return last == headers.rend() ? nullptr : &last->second;
}

std::int64_t text_bytes(const std::optional<std::string>& key, const std::optional<std::string>& value, std::span<const Header> headers) {
    std::size_t bytes = (key ? key->size() : 0) + (value ? value->size() : 0);
    for (const auto& [name, text] : headers) bytes += name.size() + text.size();
    return static_cast<std::int64_t>(bytes);
}

std::int64_t memory_bytes(const JobRecord& record) {
    return text_bytes(record.key, record.value, record.headers) + static_cast<std::int64_t>(record.headers.size() * sizeof(Header));
}

Expected<Job, BadRecord> parse_job(const JobRecord& record, const ParseLimits& limits) {
    Job job;
    job.source = record.source;
    job.submitted = record.timestamp;
    FieldError header_error = read_name(record, batch_id_header, "/", job.batch_id);
    if (!header_error) header_error = read_name(record, tenant_header, "", job.tenant);
    if (!header_error) header_error = read_deadline(record, job.deadline);

    const auto refuse = [&](JobError error) {
        return unexpected(BadRecord{.custom_id = job.custom_id.empty() ? std::nullopt : std::optional(job.custom_id),
                                    .job_id = job.custom_id.empty() ? "" : job_id(job.batch_id, job.custom_id),
                                    .batch_id = job.batch_id,
                                    .model = job.model,
                                    .error = std::move(error)});
    };

    if (!record.value) {
        return refuse({.code = ErrorCode::null_value, .param = "", .message = "the record has a null value; a job is a JSON object"});
    }
    const std::string& text = *record.value;
    const std::int64_t beside = memory_bytes(record) - static_cast<std::int64_t>(text.size());
    const bool has_many_headers = record.headers.size() > job_headers_max;
    if (has_many_headers || std::max(text.size(), static_cast<std::size_t>(beside)) > limits.bytes_max) {
        if (text.size() <= limits.scanned_bytes_max) {
            const auto custom_id = scan_string_member(text, "custom_id");
            if (custom_id && custom_id->size() <= id_bytes_max) job.custom_id = *custom_id;
        }
        if (has_many_headers) {
            return refuse({.code = ErrorCode::payload_too_large,
                           .param = "",
                           .message = fmt::format("the job has more than {} headers: send fewer", job_headers_max)});
        }
        const std::string what = text.size() > limits.bytes_max ? fmt::format("the job has {} bytes", text.size())
                                                                : fmt::format("key and headers of the job have {} bytes", beside);
        return refuse({.code = ErrorCode::payload_too_large,
                       .param = "",
                       .message = fmt::format("{}; allowed are up to {}: shorten or split it", what, limits.bytes_max)});
    }
    auto line = Json::parse(text);
    if (!line) return refuse({.code = ErrorCode::invalid_json, .param = "", .message = "the job is not JSON: " + line.error()});
    if (!line->is_object()) {
        return refuse(
            {.code = ErrorCode::invalid_json,
             .param = "",
             .message = fmt::format("the job is a JSON {}; a job is an object with custom_id, method, url and body", line->kind())});
    }
    const Json* custom_id = line->find("custom_id");
    if (auto reason = custom_id_error(custom_id)) {
        return refuse({.code = ErrorCode::invalid_custom_id, .param = "custom_id", .message = std::move(*reason)});
    }
    job.custom_id = *custom_id->as_string();
    job.id = job_id(job.batch_id, job.custom_id);
    if (header_error) return refuse(std::move(*header_error));
    if (auto error = read_line(*line, job)) return refuse(std::move(*error));
    std::copy_if(record.headers.begin(), record.headers.end(), std::back_inserter(job.headers),
                 [](const Header& header) { return !is_ours(header.first); });
    return job;
}

}  // namespace lorry::schema
