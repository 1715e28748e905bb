// Reads queries and bodies, asks the backend, and describes what it has.
#include "ops/gateway/stored_answers.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "ops/gateway/body_readers.h"
#include "ops/gateway/errors.h"
#include "schema/codec.h"
#include "schema/codec_error.h"
#include "schema/whole_number.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr schema::Seconds completion_window = 24 * 3600;
constexpr std::chrono::seconds batch_queue_retry{60};

HttpAnswer json_answer(const Json& body) { return {.type = json_type, .body = body.dump()}; }

HttpAnswer batch_not_found(const std::string& id) {
    return gateway_error("batch_not_found", fmt::format("there is no batch '{}'", schema::shortened(id)));
}

// How a list is asked for.
struct ListRules {
    std::size_t limit_default;
    std::size_t limit_max;
    bool has_purpose;
    bool (*is_id)(std::string_view);
};
constexpr ListRules file_rules{1'000, 1'000, true, schema::is_file_id};
constexpr ListRules batch_rules{20, 100, false, schema::is_batch_id};

Expected<schema::ListQuery, HttpAnswer> list_query_of(const Caller& caller, const Query& parameters, const ListRules& rules) {
    schema::ListQuery query{.tenant = caller.tenant, .after = std::nullopt, .limit = rules.limit_default};
    const auto refuse = [](const std::string& name, const std::string& value, const std::string& allowed) {
        return unexpected(
            answer_of(schema::invalid(name, fmt::format("'{}' is '{}'; allowed is {}", name, schema::shortened(value), allowed))));
    };
    for (const auto& [name, value] : parameters) {
        if (name == "after") {
            if (!rules.is_id(value)) return refuse(name, value, "the id of an object of this list");
            query.after = value;
        } else if (name == "limit") {
            query.limit = schema::parse_whole<std::size_t>(value).value_or(0);
            if (query.limit < 1 || query.limit > rules.limit_max) return refuse(name, value, fmt::format("1 to {}", rules.limit_max));
        } else if (name == "order" && rules.has_purpose) {
            if (value != "asc" && value != "desc") return refuse(name, value, "asc or desc");
            query.newest_first = value == "desc";
        } else if (name == "purpose" && rules.has_purpose) {
            for (const auto purpose : {schema::FilePurpose::batch, schema::FilePurpose::batch_output}) {
                if (value == schema::name_of(purpose)) query.purpose = purpose;
            }
            if (!query.purpose) return refuse(name, value, "batch or batch_output");
        } else {
            return unexpected(
                answer_of(schema::unsupported(name, fmt::format("the parameter '{}' is not supported", schema::shortened(name)))));
        }
    }
    return query;
}

template <typename Record, typename Describe>
HttpAnswer list_answer(const std::optional<schema::Page<Record>>& page, const Describe& describe) {
    if (!page) return answer_of(schema::invalid("after", "there is no object of the id that 'after' names"));
    Json data = Json::array({});
    for (const Record& record : page->records) data.push(describe(record));
    const auto id_of = [&](std::size_t i) { return page->records.empty() ? Json() : Json(page->records[i].id); };
    return json_answer(Json::object({{"object", "list"},
                                     {"data", std::move(data)},
                                     {"first_id", id_of(0)},
                                     {"last_id", id_of(page->records.size() - 1)},
                                     {"has_more", page->has_more}}));
}

std::optional<schema::JobError> read_metadata(const Json& value, schema::BatchRecord& batch) {
    if (value.is_null()) return std::nullopt;
    if (!value.is_object()) return schema::wrong_type("metadata", "an object", value);
    if (value.as_object()->size() > schema::metadata_members_max)
        return schema::invalid("metadata", fmt::format("'metadata' may have {} members", schema::metadata_members_max));
    for (const auto& [key, text] : *value.as_object()) {
        if (!text.is_string()) return schema::wrong_type(fmt::format("metadata.{}", schema::shortened(key)), "a string", text);
        if (schema::count_characters(key) > schema::metadata_key_chars_max ||
            schema::count_characters(*text.as_string()) > schema::metadata_value_chars_max) {
            return schema::invalid("metadata", fmt::format("a key in 'metadata' may have {} characters, and a value {}",
                                                           schema::metadata_key_chars_max, schema::metadata_value_chars_max));
        }
        batch.metadata.emplace_back(key, *text.as_string());
    }
    return std::nullopt;
}

Expected<std::string, schema::JobError> text_in(const Json& body, const char* name) {
    const Json* value = body.find(name);
    if (value == nullptr) return unexpected(schema::missing(name, nullptr, "it is required"));
    if (!value->is_string()) return unexpected(schema::wrong_type(name, "a string", *value));
    return *value->as_string();
}

// What a client asks for.
Expected<schema::BatchRecord, schema::JobError> batch_of(const std::string& text) {
    const auto body = Json::parse(text);
    if (!body || !body->is_object()) return unexpected(body_error(text, body));
    for (const auto& [name, value] : *body->as_object()) {
        constexpr std::array known = {"input_file_id", "endpoint", "completion_window", "metadata"};
        if (std::ranges::find(known, name) == known.end())
            return unexpected(schema::unsupported(name, fmt::format("field '{}' is not supported", schema::shortened(name))));
    }
    const auto file = text_in(*body, "input_file_id");
    const auto url = text_in(*body, "endpoint");
    const auto window = text_in(*body, "completion_window");
    for (const auto* each : {&file, &url, &window}) {
        if (!*each) return unexpected(each->error());
    }
    const auto endpoint = schema::endpoint_at(*url);
    if (!endpoint) return unexpected(schema::invalid("endpoint", fmt::format("there is no endpoint '{}'", schema::shortened(*url))));
    if (*window != "24h") return unexpected(schema::invalid("completion_window", "'completion_window' has to be '24h'"));
    schema::BatchRecord batch{.id = {}, .input_file = *file, .endpoint = *endpoint};
    const Json* metadata = body->find("metadata");
    if (metadata == nullptr) return batch;
    if (auto error = read_metadata(*metadata, batch)) return unexpected(*std::move(error));
    return batch;
}

HttpAnswer create_batch(consumer::BatchBackend& backend, const Caller& caller, const std::string& body, schema::Seconds now) {
    auto batch = batch_of(body);
    if (!batch) return answer_of(batch.error());
    if (!schema::allows_endpoint(caller.scopes, batch->endpoint)) {
        return gateway_error("permission_denied", fmt::format("this API key may not call {}", schema::row_of(batch->endpoint).url),
                             "endpoint");
    }
    const auto file = schema::is_file_id(batch->input_file) ? backend.find_file(caller.tenant, batch->input_file) : std::nullopt;
    if (!file)
        return answer_of(schema::invalid("input_file_id", fmt::format("there is no file '{}'", schema::shortened(batch->input_file))));
    if (file->purpose != schema::FilePurpose::batch)
        return answer_of(schema::invalid("input_file_id", "the file's purpose is not batch: upload the lines as a file of their own"));
    // The batch's owner counts again when it knows how many lines there are.
    if (const auto& most = caller.limits.batch_jobs; most && backend.key_jobs(caller.tenant, caller.id) >= *most) {
        return with_retry(
            gateway_error("rate_limit_exceeded",
                          fmt::format("the batches of this API key may have {} jobs without a result, and so many wait or run", *most)),
            batch_queue_retry);
    }
    batch->id = schema::draw_batch_id();
    batch->tenant = caller.tenant;
    batch->key = caller.id;
    batch->models = caller.scopes.models;
    batch->key_jobs_max = caller.limits.batch_jobs;
    batch->created = now;
    batch->expires = now + completion_window;
    if (!backend.add_batch(*batch))
        return gateway_error("too_many_objects", "there are too many batches: try again when others have ended");
    return json_answer(schema::describe_batch(*batch));
}

HttpAnswer remove_file(consumer::BatchBackend& backend, consumer::FileStore& store, const schema::FileRecord& file) {
    if (backend.is_in_use(file))
        return gateway_error("file_in_use",
                             fmt::format("a batch that has not ended reads {}: cancel the batch, or wait for its end", file.id));
    backend.remove_file(file);
    store.remove(file.id);
    return json_answer(Json::object({{"id", file.id}, {"object", "file"}, {"deleted", true}}));
}

}  // namespace

HttpAnswer file_not_found(const std::string& id) {
    return gateway_error("file_not_found", fmt::format("there is no file '{}'", schema::shortened(id)));
}

HttpAnswer answer_about_files(consumer::BatchBackend& backend, consumer::FileStore& store, const Caller& caller, const FileRoute& route) {
    if (route.action == FileRoute::Action::list) {
        const auto query = list_query_of(caller, route.parameters, file_rules);
        return query ? list_answer(backend.list_files(*query), schema::describe_file) : query.error();
    }
    const auto file = schema::is_file_id(route.id) ? backend.find_file(caller.tenant, route.id) : std::nullopt;
    if (!file) return file_not_found(route.id);
    return route.action == FileRoute::Action::remove ? remove_file(backend, store, *file) : json_answer(schema::describe_file(*file));
}

HttpAnswer answer_about_batches(consumer::BatchBackend& backend, const Caller& caller, const BatchRoute& route, const std::string& body,
                                schema::Seconds now) {
    if (route.action == BatchRoute::Action::create) return create_batch(backend, caller, body, now);
    if (route.action == BatchRoute::Action::list) {
        const auto query = list_query_of(caller, route.parameters, batch_rules);
        return query ? list_answer(backend.list_batches(*query), schema::describe_batch) : query.error();
    }
    auto batch = schema::is_batch_id(route.id) ? backend.find_batch(caller.tenant, route.id) : std::nullopt;
    if (!batch) return batch_not_found(route.id);
    if (route.action == BatchRoute::Action::cancel) {
        if (schema::is_final(batch->state) || batch->state == schema::BatchState::finalizing) {
            return gateway_error("batch_has_ended",
                                 fmt::format("batch {} is {}: it cannot be cancelled", batch->id, name_of(batch->state)));
        }
        backend.cancel_batch(*batch);
        batch->state = schema::BatchState::cancelling;
        batch->since.emplace(schema::BatchState::cancelling, now);
    }
    return json_answer(schema::describe_batch(*batch));
}

}  // namespace lorry::ops
