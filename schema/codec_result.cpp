// Encodes records of the results, chunks and dlq topics, and parses results.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <xxhash.h>

#include "schema/codec.h"
#include "schema/codec_error.h"
#include "schema/topics.h"

namespace lorry::schema {
namespace {

constexpr std::string_view result_id_prefix = "batch_req_";

bool names_a_run(std::string_view header) {
    constexpr std::array ours = {source_topic_header, source_topic_id_header, source_partition_header, source_offset_header, attempt_header,
                                 transaction_header,  batch_id_header,        chunks_header,           tokens_header};
    return std::find(ours.begin(), ours.end(), header) != ours.end();
}

// The result's id under another prefix; like that one, equal for every attempt.
std::string request_id(std::string_view result_id) {
    if (result_id.starts_with(result_id_prefix)) result_id.remove_prefix(result_id_prefix.size());
    return fmt::format("req_{}", result_id);
}

std::int64_t integer_at(const Json* object, std::string_view key) {
    const Json* value = object == nullptr ? nullptr : object->find(key);
    return value == nullptr ? 0 : value->as_integer().value_or(0);
}

// Sums of such numbers do not overflow.
std::int64_t count_at(const Json* object, std::string_view key) {
    return std::clamp<std::int64_t>(integer_at(object, key), 0, std::int64_t{1} << 53);
}

std::string text_at(const Json* object, std::string_view key) {
    const Json* value = object == nullptr ? nullptr : object->find(key);
    return value == nullptr || !value->is_string() ? std::string() : *value->as_string();
}

std::optional<NamedSource> named_source(std::span<const Header> headers, std::string_view topic_header, std::string_view partition_header,
                                        std::string_view offset_header) {
    NamedSource named;
    const std::string* topic = find_header(headers, topic_header);
    if (topic == nullptr) return std::nullopt;
    named.source.topic = *topic;
    const auto partition = find_number<std::int32_t>(headers, partition_header);
    const auto offset = find_number<std::int64_t>(headers, offset_header);
    if (!partition || !offset) return std::nullopt;
    named.source.partition = *partition;
    named.source.offset = *offset;
    if (const std::string* id = find_header(headers, source_topic_id_header)) named.topic_id = *id;
    return named;
}

// "code: message" of an error object.
std::string error_text(const Json* error) {
    const std::string code = text_at(error, "code");
    const std::string message = text_at(error, "message");
    if (code.empty()) return message.empty() ? "the error has no message" : message;
    return message.empty() ? code : fmt::format("{}: {}", code, message);
}

}  // namespace

ErrorCode code_of(BatchFailure failure) {
    switch (failure) {
        case BatchFailure::expired: return ErrorCode::batch_expired;
        case BatchFailure::cancelled: return ErrorCode::batch_cancelled;
        case BatchFailure::request_timeout: return ErrorCode::request_timeout;
    }
    CHECK(false, "a batch failure of no known kind");
}

Json encode_usage(const Usage& usage) {
    Json json = Json::object({{"prompt_tokens", usage.prompt_tokens},
                              {"completion_tokens", usage.completion_tokens},
                              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                              {"prompt_tokens_details", Json::object({{"cached_tokens", usage.cached_tokens}})}});
    if (usage.reasoning_tokens) {
        json.set("completion_tokens_details", Json::object({{"reasoning_tokens", *usage.reasoning_tokens}}));
    }
    return json;
}

Json error_body(const JobError& error) {
    const ErrorRow row = row_of(error.code);
    return Json::object({{"error", Json::object({{"message", repair_utf8(error.message)},
                                                 {"type", row.type()},
                                                 {"param", error.param.empty() ? Json() : Json(repair_utf8(error.param))},
                                                 {"code", row.name}})}});
}

void set_error(Completion& completion, const JobError& error) {
    completion.state = JobState::failed;
    completion.status_code = error.status_code();
    completion.body = error_body(error);
}

std::string error_text(const Completion& completion) {
    if (completion.failure) return fmt::format("{}: {}", name_of(code_of(*completion.failure)), completion.failure_message);
    const Json* error = completion.body.find("error");
    return error == nullptr ? std::string() : error_text(error);
}

std::string result_id(const Source& source, std::string_view custom_id) {
    // The topic's size comes first, so that different sources never give the same bytes.
    const std::string bytes = fmt::format("{}:{}:{}:{}:{}", source.topic.size(), source.topic, source.partition, source.offset, custom_id);
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return fmt::format("{}{:016x}{:016x}", result_id_prefix, hash.high64, hash.low64);
}

std::string encode_completion(const Completion& completion) {
    Json line = Json::object({{"id", repair_utf8(completion.id)}, {"custom_id", repair_utf8(completion.custom_id)}});
    if (completion.failure) {
        line.set("response", nullptr);
        line.set("error",
                 Json::object({{"code", name_of(code_of(*completion.failure))}, {"message", repair_utf8(completion.failure_message)}}));
    } else {
        line.set("response", Json::object({{"status_code", completion.status_code},
                                           {"request_id", repair_utf8(request_id(completion.id))},
                                           {"body", completion.body}}));
        line.set("error", nullptr);
    }
    return line.dump();
}

std::vector<Header> completion_headers(const Completion& completion) {
    const Run& run = completion.run;
    std::vector<Header> headers = {{std::string(source_topic_header), run.source.topic},
                                   {std::string(source_partition_header), std::to_string(run.source.partition)},
                                   {std::string(source_offset_header), std::to_string(run.source.offset)},
                                   {std::string(attempt_header), std::to_string(run.attempt)}};
    if (!run.batch_id.empty()) headers.emplace_back(batch_id_header, run.batch_id);
    const std::int64_t tokens = completion.usage.prompt_tokens + completion.usage.completion_tokens;
    if (tokens > 0 && completion.state != JobState::completed) headers.emplace_back(tokens_header, std::to_string(tokens));
    if (completion.chunks) headers.emplace_back(chunks_header, std::to_string(*completion.chunks));
    std::copy_if(completion.headers.begin(), completion.headers.end(), std::back_inserter(headers),
                 [](const Header& header) { return !names_a_run(header.first); });
    return headers;
}

std::string encode_chunk(const Chunk& chunk) {
    return Json::object(
               {{"custom_id", repair_utf8(chunk.custom_id)}, {"attempt", chunk.attempt}, {"seq", chunk.seq}, {"chunk", chunk.chunk}})
        .dump();
}

std::vector<Header> dead_letter_headers(const DeadLetter& letter) {
    std::vector<Header> headers = letter.headers;
    headers.emplace_back(dead_letter_topic_header, letter.source.topic);
    headers.emplace_back(dead_letter_partition_header, std::to_string(letter.source.partition));
    headers.emplace_back(dead_letter_offset_header, std::to_string(letter.source.offset));
    headers.emplace_back("__connect.errors.stage", "VALUE_CONVERTER");
    headers.emplace_back("__connect.errors.class.name", "lorry::schema::parse_job");
    headers.emplace_back("__connect.errors.exception.class.name", "lorry::schema::BadRecord");
    headers.emplace_back("__connect.errors.exception.message", repair_utf8(letter.error.message));
    return headers;
}

std::optional<NamedSource> source_of_result(std::span<const Header> headers) {
    return named_source(headers, source_topic_header, source_partition_header, source_offset_header);
}

std::optional<NamedSource> source_of_dead_letter(std::span<const Header> headers) {
    return named_source(headers, dead_letter_topic_header, dead_letter_partition_header, dead_letter_offset_header);
}

bool is_job_of(const NamedSource& named, const TopicIds& topics) {
    const auto topic = topics.find(named.source.topic);
    return topic != topics.end() && !ids_differ(named.topic_id, topic->second);
}

Expected<ResultSummary, std::string> parse_result(std::string_view value) {
    const auto line = Json::parse(value);
    if (!line) return unexpected("the result is not JSON: " + line.error());
    ResultSummary summary;
    summary.id = text_at(&*line, "id");
    summary.custom_id = text_at(&*line, "custom_id");
    if (summary.custom_id.empty()) return unexpected(std::string("the result has no custom_id"));

    const Json* error = line->find("error");
    if (error != nullptr && !error->is_null()) {
        summary.error = error_text(error);
        return summary;
    }
    const Json* response = line->find("response");
    if (response == nullptr || !response->is_object()) return unexpected(std::string("the result has neither response nor error"));
    summary.status_code = static_cast<int>(integer_at(response, "status_code"));
    const Json* body = response->find("body");
    summary.ok = summary.status_code >= 200 && summary.status_code < 300;
    if (!summary.ok) summary.error = error_text(body == nullptr ? nullptr : body->find("error"));
    if (const Json* usage = body == nullptr ? nullptr : body->find("usage")) {
        summary.usage = {.prompt_tokens = count_at(usage, "prompt_tokens"),
                         .completion_tokens = count_at(usage, "completion_tokens"),
                         .cached_tokens = count_at(usage->find("prompt_tokens_details"), "cached_tokens")};
    }
    return summary;
}

Expected<Answer, std::string> parse_answer(std::string_view value) {
    const auto line = Json::parse(value);
    if (!line) return unexpected("the result is not JSON: " + line.error());
    if (const Json* error = line->find("error"); error != nullptr && !error->is_null()) {
        const std::string code = text_at(error, "code");
        for (const BatchFailure failure : {BatchFailure::expired, BatchFailure::cancelled, BatchFailure::request_timeout}) {
            if (code == name_of(code_of(failure))) return Answer{.failure = failure};
        }
        return unexpected(fmt::format("the result has the error '{}', which this version does not know", shortened(code)));
    }
    const Json* response = line->find("response");
    const Json* body = response == nullptr ? nullptr : response->find("body");
    const std::int64_t status = integer_at(response, "status_code");
    if (body == nullptr || status < 200 || status > 599) return unexpected(std::string("the result has neither response nor error"));
    return Answer{.status_code = static_cast<int>(status), .body = *body};
}

}  // namespace lorry::schema
