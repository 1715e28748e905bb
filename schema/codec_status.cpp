// Encodes and parses records of the status, adapters and control topics. Parsers accept unknown fields: a newer worker may have written
// them.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "schema/codec.h"
#include "schema/codec_error.h"
#include "schema/record_members.h"

namespace lorry::schema {
namespace {

constexpr std::array states = {JobState::running, JobState::completed, JobState::failed, JobState::expired, JobState::cancelled};
constexpr std::size_t name_bytes_max = 200;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(repair_utf8(text)); }

// Whether the path stays below the root, whatever the root is.
bool stays_below_root(const std::string& path) {
    const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
    return !path.empty() && path.find('\0') == std::string::npos && normal.is_relative() && *normal.begin() != "..";
}

}  // namespace

const char* name_of(JobState state) {
    switch (state) {
        case JobState::running: return "running";
        case JobState::completed: return "completed";
        case JobState::failed: return "failed";
        case JobState::expired: return "expired";
        case JobState::cancelled: return "cancelled";
    }
    CHECK(false, "each job state has a name");
}

std::optional<JobState> state_named(std::string_view name) {
    for (const JobState state : states) {
        if (name == name_of(state)) return state;
    }
    return std::nullopt;
}

bool was_cut(const Completion& completion) {
    const Json* const choices = completion.body.find("choices");
    if (choices == nullptr || choices->as_array() == nullptr) return false;
    return std::ranges::any_of(*choices->as_array(), [](const Json& choice) {
        const Json* const reason = choice.find("finish_reason");
        return reason != nullptr && reason->as_string() != nullptr && *reason->as_string() == "length";
    });
}

bool is_terminal(JobState state) { return state != JobState::running; }

std::string encode_status(const Status& status) {
    const Run& run = status.run;
    return Json::object({{"id", repair_utf8(run.job_id)},
                         {"batch_id", text_or_null(run.batch_id)},
                         {"tenant", text_or_null(run.tenant)},
                         {"key", text_or_null(run.key)},
                         {"state", name_of(status.state)},
                         {"model", text_or_null(run.model)},
                         {"adapter", text_or_null(run.adapter)},
                         {"worker", text_or_null(run.worker)},
                         {"attempt", run.attempt},
                         {"source", Json::object({{"topic", repair_utf8(run.source.topic)},
                                                  {"partition", run.source.partition},
                                                  {"offset", run.source.offset}})},
                         {"submitted_at", milliseconds(run.submitted)},
                         {"started_at", milliseconds(run.started)},
                         {"finished_at", milliseconds(run.finished)},
                         {"usage", encode_usage(status.usage)},
                         {"error", text_or_null(status.error)}})
        .dump();
}

Expected<Status, std::string> parse_status(std::string_view value) {
    const auto object = parse_object(value, "status");
    if (!object) return unexpected(object.error());
    const Json empty = Json::object({});
    const Json& usage_object = object_at(*object, "usage", empty);

    MemberReader top(*object);
    MemberReader source(object_at(*object, "source", empty));
    MemberReader usage(usage_object);
    MemberReader details(object_at(usage_object, "prompt_tokens_details", empty));
    Status status;
    status.run = {
        .job_id = top.required_text("id"),
        .batch_id = top.text("batch_id"),
        .tenant = top.text("tenant"),
        .key = top.text("key"),
        .model = top.text("model"),
        .adapter = top.text("adapter"),
        .worker = top.text("worker"),
        .source = {.topic = source.required_text("topic"), .partition = source.partition("partition"), .offset = source.integer("offset")},
        .attempt = top.integer("attempt"),
        .submitted = top.time("submitted_at"),
        .started = top.time("started_at"),
        .finished = top.time("finished_at")};
    const std::string state_name = top.required_text("state");
    if (const auto state = state_named(state_name)) {
        status.state = *state;
    } else {
        top.fail(fmt::format("field 'state' is '{}', which this version does not know", shortened(state_name)));
    }
    status.usage = {.prompt_tokens = usage.count("prompt_tokens"),
                    .completion_tokens = usage.count("completion_tokens"),
                    .cached_tokens = details.count("cached_tokens")};
    status.error = top.text("error");
    for (const MemberReader* reader : {&top, &source, &usage, &details}) {
        if (!reader->error().empty()) return unexpected("the status is refused: " + reader->error());
    }
    return status;
}

std::optional<std::string> adapter_name_error(std::string_view name) {
    const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '@' || c == '#' || c == '/';
    });
    const bool is_reserved = name == "base" || name == "*";  // the latter: all models, in scopes of keys
    if (!name.empty() && name.size() <= name_bytes_max && plain && !is_reserved && is_valid_utf8(name)) return std::nullopt;
    return fmt::format(
        "'{}' cannot be an adapter's name: allowed are 1 to {} bytes of UTF-8 without '@', '#', '/' and control characters, and neither "
        "'base' nor '*'",
        repair_utf8(name.substr(0, name_bytes_max)), name_bytes_max);
}

std::string encode_adapter(const AdapterRegistration& adapter) {
    Json targets = Json::array({});
    for (const std::string& target : adapter.targets) targets.push(repair_utf8(target));
    Json message = Json::object({{"name", repair_utf8(adapter.name)},
                                 {"hash", repair_utf8(adapter.hash)},
                                 {"path", repair_utf8(adapter.path)},
                                 {"base", repair_utf8(adapter.base)},
                                 {"rank", adapter.rank_max},
                                 {"targets", std::move(targets)},
                                 {"bytes", adapter.bytes},
                                 {"registered_at", milliseconds(adapter.registered)}});
    if (adapter.head) message.set("head", Json::object({{"task", adapter.head->task}, {"labels", adapter.head->labels}}));
    if (!adapter.text.empty()) message.set("text", repair_utf8(adapter.text));
    if (adapter.vocabulary) message.set("vocabulary", *adapter.vocabulary);
    return message.dump();
}

Expected<AdapterRegistration, std::string> parse_adapter(std::string_view value) {
    const auto object = parse_object(value, "registration");
    if (!object) return unexpected(object.error());
    MemberReader top(*object);
    AdapterRegistration adapter{.name = top.required_text("name"),
                                .hash = top.required_text("hash"),
                                .path = top.required_text("path"),
                                .base = top.text("base"),
                                .rank_max = top.integer("rank"),
                                .targets = top.texts("targets"),
                                .bytes = top.integer("bytes"),
                                .registered = top.time("registered_at"),
                                .text = top.text("text")};
    if (auto error = adapter_name_error(adapter.name)) top.fail(std::move(*error));
    if (!stays_below_root(adapter.path)) {
        top.fail(fmt::format("field 'path' is '{}'; allowed is a path relative to the workers' adapters_root that stays below it",
                             shortened(adapter.path)));
    }
    if (const Json* head = object->find("head"); head != nullptr && !head->is_null()) {
        MemberReader reader(*head);
        adapter.head = RegisteredHead{.task = reader.required_text("task"), .labels = reader.count("labels")};
        if (!reader.error().empty()) top.fail("field 'head': " + reader.error());
    }
    if (const Json* vocabulary = object->find("vocabulary"); vocabulary != nullptr && !vocabulary->is_null()) {
        adapter.vocabulary = top.count("vocabulary");
        if (*adapter.vocabulary == 0) top.fail("field 'vocabulary' is 0; an adapter has tokens");
    }
    if (!top.error().empty()) return unexpected("the registration is refused: " + top.error());
    return adapter;
}

std::string encode_cancel(const Cancel& cancel) {
    Json message = Json::object({{"type", "cancel"}, {cancel.is_batch ? "batch_id" : "job_id", repair_utf8(cancel.id)}});
    if (!cancel.jobs_end.empty()) {
        Json ends = Json::array({});
        for (const std::int64_t end : cancel.jobs_end) ends.push(end);
        message.set("jobs_end", std::move(ends));
    }
    if (cancel.call) {
        message.set("call", Json::object({{"topic", repair_utf8(cancel.call->topic)},
                                          {"partition", cancel.call->partition},
                                          {"offset", cancel.call->offset}}));
    }
    if (!cancel.jobs_topic_id.empty()) message.set("jobs_topic_id", cancel.jobs_topic_id);
    return message.dump();
}

Expected<Cancel, std::string> parse_cancel(std::string_view value, Timestamp at) {
    if (value.size() > cancel_bytes_max) {
        return unexpected(fmt::format("the control message has {} bytes; allowed are up to {}", value.size(), cancel_bytes_max));
    }
    const auto object = parse_object(value, "control message");
    if (!object) return unexpected(object.error());
    MemberReader top(*object);
    const std::string type = top.required_text("type");
    if (type != "cancel") top.fail(fmt::format("field 'type' is '{}', which this version does not know", shortened(type)));
    const std::string job = top.text("job_id");
    const std::string batch = top.text("batch_id");
    if (job.empty() == batch.empty()) top.fail("it must have either 'job_id' or 'batch_id'");
    if (std::max(job.size(), batch.size()) > 2 * id_bytes_max + 1) top.fail("its id is longer than a job's or a batch's can be");
    std::vector<std::int64_t> jobs_end = top.offsets("jobs_end");
    if (jobs_end.size() > cancel_partitions_max) {
        top.fail(fmt::format("field 'jobs_end' names {} partitions; allowed are up to {}", jobs_end.size(), cancel_partitions_max));
    }
    std::string jobs_topic_id = top.text("jobs_topic_id");
    std::optional<Source> call;
    if (const Json* place = object->find("call"); place != nullptr && !place->is_null()) {
        MemberReader reader(*place);
        call = {.topic = reader.required_text("topic"), .partition = reader.partition("partition"), .offset = reader.count("offset")};
        if (!reader.error().empty()) top.fail("field 'call': " + reader.error());
        if (job.empty()) top.fail("field 'call' needs 'job_id'");
    }
    if (!top.error().empty()) return unexpected("the control message is refused: " + top.error());
    return Cancel{.id = job.empty() ? batch : job,
                  .is_batch = job.empty(),
                  .at = at,
                  .jobs_end = std::move(jobs_end),
                  .jobs_topic_id = std::move(jobs_topic_id),
                  .call = std::move(call)};
}

}  // namespace lorry::schema
