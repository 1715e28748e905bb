// From requests to calls, and from events of calls to answers.
#include "ops/gateway/gateway.h"

#include <algorithm>
#include <charconv>
#include <random>

#include <fmt/format.h>

#include "ops/gateway/errors.h"
#include "ops/gateway/host.h"
#include "ops/gateway/trace_context.h"
#include "schema/ascii.h"
#include "schema/codec.h"
#include "schema/codec_error.h"
#include "schema/key_scopes.h"

namespace lorry::ops {
namespace {

using schema::Json;

// Names the base model in each job, whatever its own name is.
constexpr const char* base_alias = "base";
// What is parsed in less time than it takes to hand it to another thread.
constexpr std::size_t quick_body_bytes = 16 * 1024;
constexpr const char* stream_type = "text/event-stream; charset=utf-8";

std::string event_of(std::string_view data) { return fmt::format("data: {}\n\n", data); }

HttpAnswer answer_of(const consumer::CallRefusal& refusal) {
    switch (refusal.kind) {
        case consumer::CallRefusal::Kind::full:
            return with_retry(gateway_error(429, "too many calls wait or run: send this one again later"), refusal.retry_after);
        case consumer::CallRefusal::Kind::unavailable:
            return with_retry(gateway_error(503, "nothing can run this call at the moment: send it again later"), refusal.retry_after);
        case consumer::CallRefusal::Kind::running:
            return with_retry(gateway_error("call_running", "a call with this Idempotency-Key is running: send it again later"),
                              refusal.retry_after);
        case consumer::CallRefusal::Kind::other_content:
            return gateway_error("idempotency_key_reused", "this Idempotency-Key came with another url or body before: use a new one");
        case consumer::CallRefusal::Kind::too_large: return gateway_error(413, "the call is larger than the brokers take: send less");
    }
    CHECK(false, "each kind of refusal has an answer");
}

HttpAnswer answer_of(schema::BatchFailure failure, const std::string& id) {
    switch (failure) {
        case schema::BatchFailure::cancelled: return gateway_error(409, fmt::format("call {} was cancelled", id));
        case schema::BatchFailure::expired:
            return gateway_error(504, fmt::format("the deadline of call {} passed before it had ended", id));
        case schema::BatchFailure::request_timeout: return gateway_error(504, fmt::format("call {} ran longer than job_timeout", id));
    }
    CHECK(false, "each failure has an answer");
}

HttpAnswer answer_of(const consumer::CallEnd& end, const std::string& id) {
    if (const auto* refusal = std::get_if<consumer::CallRefusal>(&end)) return answer_of(*refusal);
    if (const auto* failure = std::get_if<schema::BatchFailure>(&end)) return answer_of(*failure, id);
    const auto& result = std::get<consumer::CallResult>(end);
    return {.status = static_cast<unsigned>(result.status), .type = json_type, .body = result.body};
}

// "application/json", perhaps with parameters.
bool is_json(const std::string* type) {
    if (type == nullptr) return false;
    return schema::lower_case(std::string_view(*type).substr(0, type->find_first_of("; \t"))) == json_type;
}

// The tokens that a result says it took. It is not parsed, as the network's thread serves others meanwhile: the member stands last, and
// within texts its quotes would be escaped.
std::int64_t tokens_in(std::string_view body) {
    constexpr std::string_view member = R"("total_tokens":)";
    const std::size_t place = body.rfind(member);
    std::int64_t tokens = 0;
    if (place != std::string_view::npos) std::from_chars(body.data() + place + member.size(), body.data() + body.size(), tokens);
    return std::max<std::int64_t>(0, tokens);
}

// A page in a browser may send forms, and requests without a body, to any site unasked; browsers then say where they come from.
bool is_of_another_site(const HttpRequest& request) {
    if (const std::string* site = request.field("sec-fetch-site")) return *site != "same-origin" && *site != "none";
    const std::string* origin = request.field("origin");
    if (origin == nullptr) return false;
    const std::size_t scheme_end = origin->find("://");
    return scheme_end == std::string::npos || origin->substr(scheme_end + 3) != *request.field("host");
}

constexpr const char* repeat_field = "idempotency-key";
constexpr std::size_t repeat_key_bytes_max = 255;

// The same for each call of the tenant with this key, and for no others: neither can be chosen so that they run into each other.
std::string repeatable_id(const std::string& tenant, const std::string& key) {
    return "call-" + schema::to_hex(schema::sha256_of(schema::Json::array({tenant, key}).dump())).substr(0, 32);
}

// draft-ietf-httpapi-idempotency-key-header.
std::optional<HttpAnswer> find_repeat_fault(const HttpRequest& request) {
    const std::string* key = request.field(repeat_field);
    if (key == nullptr) return std::nullopt;
    const bool is_plain = std::ranges::all_of(*key, [](char letter) { return letter >= ' ' && letter <= '~'; });
    if (request.count(repeat_field) == 1 && !key->empty() && key->size() <= repeat_key_bytes_max && is_plain) return std::nullopt;
    return gateway_error(400, fmt::format("send one Idempotency-Key of 1 to {} letters of ASCII", repeat_key_bytes_max));
}

// What a call that did not end with its result has taken: about four bytes of a prompt are a token, and a chunk is one.
constexpr std::int64_t bytes_per_token = 4;
// Of an upload, besides its file.
constexpr std::size_t form_bytes_max = 64 * 1024;

constexpr std::size_t shown_scopes_bytes_max = 300;

// A right that a caller lacks, as keys and tokens have it.
struct MissingRight {
    std::string what;  // "read the metrics"
    std::string flag;  // of `lorry keys create`
    std::string word;  // of a token
};

HttpAnswer denied(const MissingRight& right, schema::KeyScopes scopes, const char* param = "") {
    if (!scopes.models) scopes.models = {base_alias};
    return gateway_error(
        "permission_denied",
        fmt::format("the caller may not {}: that takes an API key made with {}, or a token with {}; this one has: {}", right.what,
                    right.flag, right.word, schema::shortened(schema::show_scopes(scopes), shown_scopes_bytes_max)),
        param);
}

// What the scopes lack for the request, apart from the model, which is in the body.
std::optional<HttpAnswer> find_missing_scope(const Route& route, const schema::KeyScopes& scopes) {
    const auto* call = std::get_if<CallRoute>(&route);
    if (call != nullptr && !schema::allows_endpoint(scopes, call->endpoint)) {
        const std::string_view url = schema::row_of(call->endpoint).url;
        return denied(
            {.what = fmt::format("call {}", url), .flag = fmt::format("--urls {}", url), .word = fmt::format("lorry:url:{}", url)}, scopes);
    }
    if (std::holds_alternative<MetricsRoute>(route) && !scopes.admin)
        return denied({.what = "read the metrics", .flag = "--admin", .word = "lorry:admin"}, scopes);
    if ((std::holds_alternative<FileRoute>(route) || std::holds_alternative<BatchRoute>(route)) && !scopes.batches)
        return denied({.what = "use files and batches", .flag = "--batches", .word = "lorry:batches"}, scopes);
    return std::nullopt;
}

bool is_upload(const Route& route) {
    const auto* file = std::get_if<FileRoute>(&route);
    return file != nullptr && file->action == FileRoute::Action::upload;
}

std::string url_of(const HttpRequest& request) {
    const auto route = route_of(request.method, request.target);
    if (!route) return "other";
    if (const auto* call = std::get_if<CallRoute>(&*route)) return std::string(schema::row_of(call->endpoint).url);
    if (std::holds_alternative<HealthRoute>(*route)) return "/healthz";
    if (std::holds_alternative<MetricsRoute>(*route)) return "/metrics";
    if (std::holds_alternative<UsageRoute>(*route)) return "/v1/usage";
    if (std::holds_alternative<FileRoute>(*route)) return "/v1/files";
    if (std::holds_alternative<BatchRoute>(*route)) return "/v1/batches";
    return "/v1/models";
}

}  // namespace

Gateway::Gateway(Options options, consumer::CallBackend& backend)
    : options_(std::move(options)),
      backend_(backend),
      server_({.host = options_.host, .port = options_.port, .handler = *this, .limits = options_.limits, .tls = options_.tls}),
      readers_({.bytes_max = options_.limits.bodies_bytes, .read = options_.read_body}),
      usage_(options_.usage) {
    if (options_.stored) {
        stored_.emplace(
            *options_.stored, server_,
            [this](HttpRequestId id, RequestReport report, HttpAnswer last) { answer(id, std::move(report), std::move(last)); },
            [this](RequestReport report) { send_report(report); });
    }
    server_.start();
}

Gateway::~Gateway() { server_.stop(); }

// Nobody can guess it: who may write jobs could otherwise name one like another client's call, and so send that client chunks.
std::string Gateway::next_id() { return fmt::format("call-{:08x}{:08x}{:08x}{:08x}", random_(), random_(), random_(), random_()); }

std::optional<HttpAnswer> Gateway::refuse(const HttpRequest& request) {
    auto fault = find_fault(request);
    if (!fault) return std::nullopt;
    return reported({.id = next_id(), .method = schema::shortened(request.method, 16), .url = url_of(request)}, *std::move(fault));
}

std::optional<HttpAnswer> Gateway::find_fault(const HttpRequest& request) const {
    if (request.count("host") != 1) return gateway_error(400, "send exactly one field Host");
    // DNS rebinding: a page in a browser can make its own name mean this machine, and its requests count as same-origin. It has no key.
    if (options_.authenticator == nullptr && !is_known_host(*request.field("host"), options_.host))
        return gateway_error(403, "the field Host has to be an address or localhost: use one of them in the url");
    const auto route = route_of(request.method, request.target);
    if (!route) return route.error();
    if (request.method != "GET" && request.method != "HEAD" && is_of_another_site(request))
        return gateway_error("cross_site",
                             "a page of another site in a browser has sent this request: calls come from programs, or from here");
    if (auto caller = identify(request, *route); !caller) return std::move(caller).error();
    return find_fault_of_body(request, *route);
}

// A page takes none; the others take JSON, and uploads a form.
std::optional<HttpAnswer> Gateway::find_fault_of_body(const HttpRequest& request, const Route& route) const {
    const auto* batch = std::get_if<BatchRoute>(&route);
    if ((batch != nullptr || std::holds_alternative<FileRoute>(route)) && !stored_)
        return gateway_error("not_kept", "neither files nor batches are kept here: `lorry serve --files DIR` keeps them");
    const bool takes_json = std::holds_alternative<CallRoute>(route) || (batch != nullptr && batch->action == BatchRoute::Action::create);
    if (request.count("content-encoding") > 0 && request.has_body)
        return gateway_error(415, "send the body as it is, without Content-Encoding");
    if (is_upload(route)) {
        if (request.count(repeat_field) > 0)
            return gateway_error(400, "an upload cannot be repeated: leave out Idempotency-Key, and look whether the file is there");
        if (!request.has_body)
            return gateway_error("invalid_upload", "the upload has no body: send a form with the parts file and purpose");
        const std::string* type = request.field("content-type");
        if (type != nullptr && boundary_of(*type)) return std::nullopt;
        return gateway_error(415, "send the file as a form, with Content-Type: multipart/form-data and its boundary");
    }
    if (!takes_json) {
        if (request.has_body) return gateway_error(400, fmt::format("{} takes no body", request.method));
        return std::nullopt;
    }
    if (!is_json(request.field("content-type"))) return gateway_error(415, "send the body as JSON, with Content-Type: application/json");
    if (batch != nullptr && request.count(repeat_field) > 0)
        return gateway_error(400, "a batch cannot be repeated: leave out Idempotency-Key, and look whether the batch is there");
    return options_.remembers ? find_repeat_fault(request) : std::nullopt;
}

// The sender of the request, who may send such requests.
Expected<Caller, HttpAnswer> Gateway::identify(const HttpRequest& request, const Route& route) const {
    // Whether the gateway is healthy is asked by load balancers, which have no keys.
    if (options_.authenticator == nullptr || std::holds_alternative<HealthRoute>(route))
        return Caller{.scopes = {.models = {{schema::all_models}}}};
    auto caller = options_.authenticator->identify(request);
    if (!caller) return caller;
    if (!caller->scopes.models && options_.shares_adapters) caller->scopes.models = {schema::all_models};
    if (auto missing = find_missing_scope(route, caller->scopes)) return unexpected(*std::move(missing));
    return caller;
}

HttpAnswer Gateway::refusal(unsigned status, const std::string& text) {
    HttpAnswer answer =
        gateway_error(status, status == 413 ? text + " Send less, or raise job_bytes_max, or file_bytes_max for uploads." : text);
    if (status == 503) answer = with_retry(std::move(answer), std::chrono::seconds(1));
    return reported({.id = next_id(), .method = "", .url = "other"}, std::move(answer));
}

// The answer, with its request's id, after it was reported.
HttpAnswer Gateway::reported(RequestReport report, HttpAnswer answer) const {
    report.status = answer.status;
    answer.fields.emplace_back("x-request-id", report.id);
    send_report(report);
    return answer;
}

void Gateway::send_report(RequestReport& report) const {
    report.took = std::chrono::ceil<std::chrono::microseconds>(Clock::now() - report.begin);
    if (options_.on_request) options_.on_request(report);
}

void Gateway::handle(HttpRequestId id, HttpRequest request) {
    const auto route = route_of(request.method, request.target);
    CHECK(route, "refuse() lets only such requests pass");
    RequestReport report{.id = next_id(), .method = request.method, .url = url_of(request)};
    // Again, as the key may have been revoked while the body came.
    auto caller = identify(request, *route);
    if (!caller && is_upload(*route)) return stored_->refuse_upload(id, std::move(caller).error());
    if (!caller) return answer(id, std::move(report), std::move(caller).error());
    report.key = caller->id;
    report.tenant = caller->tenant;
    if (const auto* call = std::get_if<CallRoute>(&*route)) {
        const std::string* key = options_.remembers ? request.field(repeat_field) : nullptr;
        if (key != nullptr) report.id = repeatable_id(caller->tenant, *key);
        if (calls_.contains(report.id)) {
            return answer(id, std::move(report), answer_of(consumer::CallRefusal{.kind = consumer::CallRefusal::Kind::running}));
        }
        return start_call(id, std::move(report), {.caller = *std::move(caller), .repeatable = key != nullptr}, *call, std::move(request));
    }
    if (std::holds_alternative<UsageRoute>(*route)) return start_usage(id, std::move(report), *caller, request);
    if (const auto* file = std::get_if<FileRoute>(&*route)) {
        return is_upload(*route) ? stored_->finish_upload(id) : stored_->start(id, std::move(report), *std::move(caller), *file);
    }
    if (const auto* batch = std::get_if<BatchRoute>(&*route)) {
        if (batch->action == BatchRoute::Action::create) {
            if (auto used_up = find_used_up(*caller, today_of(*caller))) return answer(id, std::move(report), *std::move(used_up));
        }
        return stored_->start(id, std::move(report), *std::move(caller), *batch, std::move(request.body));
    }
    answer(id, std::move(report), page(*route, *caller));
}

std::optional<std::size_t> Gateway::streamed_bytes_max(const HttpRequest& request) {
    const auto route = route_of(request.method, request.target);
    return route && is_upload(*route) ? std::optional(stored_->backends().file_bytes_max + form_bytes_max) : std::nullopt;
}

void Gateway::begin(HttpRequestId id, HttpRequest request) {
    const auto route = route_of(request.method, request.target);
    RequestReport report{.id = next_id(), .method = request.method, .url = url_of(request)};
    auto caller = identify(request, *route);
    if (!caller) return answer(id, std::move(report), std::move(caller).error());
    report.key = caller->id;
    report.tenant = caller->tenant;
    stored_->begin_upload(id, std::move(report), *caller, *boundary_of(*request.field("content-type")));
}

void Gateway::take_part(HttpRequestId id, std::string bytes) { stored_->take_part(id, std::move(bytes)); }

void Gateway::on_written(HttpRequestId id) {
    if (stored_) stored_->on_written(id);
}

HttpAnswer Gateway::page(const Route& route, const Caller& caller) const {
    if (std::holds_alternative<HealthRoute>(route)) return options_.health();
    if (std::holds_alternative<MetricsRoute>(route)) return options_.metrics();
    std::vector<std::string> adapters = options_.adapters();
    const auto is_hidden = [&](const std::string& name) { return !schema::allows_model(caller.scopes, name, options_.base_name); };
    std::erase_if(adapters, is_hidden);
    if (const auto* model = std::get_if<ModelRoute>(&route)) {
        if (model->id == base_alias && !is_hidden(options_.base_name)) {
            return {.type = json_type, .body = model_object(options_.base_name).dump()};
        }
        const bool is_base = model->id == options_.base_name && !is_hidden(model->id);
        const bool is_known = is_base || std::ranges::count(adapters, model->id) > 0;
        if (is_known) return {.type = json_type, .body = model_object(model->id).dump()};
        return answer_of({.code = schema::ErrorCode::model_not_found,
                          .param = "model",
                          .message = fmt::format("there is no model '{}': /v1/models lists them", schema::shortened(model->id))});
    }
    Json::Array models;
    if (!is_hidden(options_.base_name)) models.push_back(model_object(options_.base_name));
    for (const std::string& name : adapters) models.push_back(model_object(name));
    return {.type = json_type, .body = Json::object({{"object", "list"}, {"data", std::move(models)}}).dump()};
}

Json Gateway::model_object(const std::string& name) const {
    Json object = Json::object({{"id", name}, {"object", "model"}, {"created", options_.created}, {"owned_by", "lorry"}});
    if (name != options_.base_name) object.set("parent", options_.base_name);
    return object;
}

void Gateway::start_usage(HttpRequestId id, RequestReport report, const Caller& caller, const HttpRequest& request) {
    if (!usage_.is_served()) {
        return answer(id, std::move(report), gateway_error("not_kept", "this gateway keeps no usage: that takes the setting usage_ledger"));
    }
    const bool sees_all = options_.authenticator == nullptr || caller.scopes.admin;
    auto query = usage_query(request.target, sees_all ? std::nullopt : std::optional(caller.tenant));
    if (!query) return answer(id, std::move(report), std::move(query).error());
    const bool is_taken = usage_.answer(*std::move(query), [this, id, report](HttpAnswer page) {
        server_.post([this, id, report, page = std::move(page)] { answer(id, report, page); });
    });
    if (!is_taken) answer(id, std::move(report), answer_of(consumer::CallRefusal{}));
}

// nullopt: the caller has no limit of a day, or what it used is not known at the moment.
std::optional<CallLimits::Today> Gateway::today_of(const Caller& caller) const {
    if (!caller.limits.tokens_per_day) return std::nullopt;
    CHECK(options_.daily_tokens != nullptr, "who knows keys knows what they used");
    const auto now = std::chrono::system_clock::now();
    const auto today = std::chrono::floor<std::chrono::days>(now);
    const auto used = options_.daily_tokens->used(caller.id, today);
    if (!used) return std::nullopt;
    return CallLimits::Today{.used = *used, .left = std::chrono::ceil<std::chrono::seconds>(today + std::chrono::days(1) - now)};
}

// Why the caller may begin nothing that takes tokens: it has used up those of today, or it is not known how many it has used.
std::optional<HttpAnswer> Gateway::find_used_up(const Caller& caller, const std::optional<CallLimits::Today>& today) const {
    if (!caller.limits.tokens_per_day) return std::nullopt;
    if (!today) {
        return with_retry(gateway_error(503, "what this API key has used today cannot be read at the moment: send the request again later"),
                          std::chrono::seconds(5));
    }
    const auto refused = CallLimits::find_used_up(caller, *today);
    return refused ? std::optional(limit_reached(caller, *refused, today)) : std::nullopt;
}

HttpAnswer Gateway::limit_reached(const Caller& caller, const CallLimits::Refusal& refusal,
                                  const std::optional<CallLimits::Today>& today) const {
    HttpAnswer last =
        with_retry(gateway_error("rate_limit_exceeded",
                                 fmt::format("this API key has reached its limit of {}: send the request again later", refusal.limit)),
                   refusal.retry_after);
    for (HttpField& field : limits_.fields(caller, Clock::now(), today)) last.fields.push_back(std::move(field));
    return last;
}

void Gateway::start_call(HttpRequestId request, RequestReport report, Sender sender, const CallRoute& route, HttpRequest sent) {
    Caller& caller = sender.caller;
    const auto today = today_of(caller);
    if (auto used_up = find_used_up(caller, today)) return answer(request, std::move(report), *std::move(used_up));
    std::string& body = sent.body;
    if (const auto refused = limits_.begin(caller, Clock::now()))
        return answer(request, std::move(report), limit_reached(caller, *refused, today));
    std::vector<HttpField> trace = trace_of(sent);
    if (!trace.empty()) report.traceparent = trace.front().second;
    const std::string id = report.id;
    const std::string url(schema::row_of(route.endpoint).url);
    const auto [call, is_new] = calls_.emplace(id, OpenCall{.request = request,
                                                            .report = std::move(report),
                                                            .caller = std::move(caller),
                                                            .trace = std::move(trace),
                                                            .repeatable = sender.repeatable,
                                                            .tokens_seen = std::ssize(body) / bytes_per_token});
    CHECK(is_new, "ids of 128 random bits differ, and those of repeatable calls were looked up");
    call_of_.emplace(request, id);
    if (body.size() <= quick_body_bytes) return submit(request, url, options_.read_body(body));
    const bool is_taken = readers_.read(std::move(body), [this, request, url](const BodyReaders::Body& read) {
        server_.post([this, request, url, read] { submit(request, url, read); });
    });
    if (!is_taken) finish(call, answer_of(consumer::CallRefusal{}));
}

// The call may have ended while its body was read.
void Gateway::submit(HttpRequestId request, const std::string& url, const BodyReaders::Body& body) {
    const auto open = call_of_.find(request);
    if (open == call_of_.end()) return;
    const auto call = calls_.find(open->second);
    if (!body) return finish(call, answer_of(body.error()));
    const Caller& caller = call->second.caller;
    if (body->model && !schema::allows_model(caller.scopes, *body->model, options_.base_name)) {
        const std::string name = schema::shortened(*body->model);
        return finish(call, denied({.what = fmt::format("use the model '{}'", name),
                                    .flag = fmt::format("--models {}", name),
                                    .word = fmt::format("lorry:model:{}", name)},
                                   caller.scopes, "model"));
    }
    if (body->goes_first && options_.authenticator != nullptr)
        return finish(call, gateway_error("permission_denied", std::string(schema::goes_first_refusal), "priority"));
    const bool repeatable = call->second.repeatable;
    if (repeatable && body->is_stream)
        return finish(call, gateway_error(400, "a stream cannot be repeated: leave out Idempotency-Key, or stream"));
    const auto refused = backend_.submit({.id = call->first,
                                          .url = url,
                                          .body = body->text,
                                          .tenant = caller.tenant,
                                          .key = caller.id,
                                          .trace = call->second.trace,
                                          .repeatable = repeatable},
                                         *this);
    if (refused) finish(call, answer_of(*refused));
}

void Gateway::on_chunk(const std::string& id, std::string chunk) {
    server_.post([this, id, chunk = std::move(chunk)] { take_chunk(id, chunk); });
}

void Gateway::on_end(const std::string& id, consumer::CallEnd end) {
    server_.post([this, id, end = std::move(end)] { take_end(id, end); });
}

void Gateway::take_chunk(const std::string& id, const std::string& chunk) {
    const auto place = calls_.find(id);
    if (place == calls_.end()) return;
    OpenCall& call = place->second;
    ++call.tokens_seen;
    // The status line waits for the first chunk, so that a refused call has its status.
    if (!std::exchange(call.has_begun, true)) {
        call.report.is_stream = true;
        HttpAnswer begin{.type = stream_type, .body = {}, .fields = limits_.fields(call.caller, Clock::now(), today_of(call.caller))};
        begin.fields.insert(begin.fields.end(), {{"Cache-Control", "no-cache"}, {"x-request-id", call.report.id}});
        server_.begin(call.request, std::move(begin));
    }
    server_.write(call.request, event_of(chunk));
}

void Gateway::take_end(const std::string& id, const consumer::CallEnd& end) {
    const auto place = calls_.find(id);
    if (place == calls_.end()) return;
    const auto* result = std::get_if<consumer::CallResult>(&end);
    finish(place, answer_of(end, id), result != nullptr ? result->failed_tokens : 0);
}

// The end of a call: its answer, or the last event of its stream.
void Gateway::finish(OpenCalls::iterator place, HttpAnswer last, std::int64_t failed_tokens) {
    OpenCall& call = place->second;
    const auto now = Clock::now();
    // A call that failed before it began took nothing that is worth counting, unless its worker says so; one that took too long did.
    const bool has_run = call.has_begun || last.status == 504;
    const std::int64_t tokens = last.status == 200 ? tokens_in(last.body) : std::max(has_run ? call.tokens_seen : 0, failed_tokens);
    limits_.end(call.caller, tokens, now);
    if (call.has_begun) {
        server_.write(call.request, event_of(last.status == 200 ? std::string("[DONE]") : std::move(last.body)));
        server_.end(call.request);
        call.report.status = last.status;
        send_report(call.report);
    } else {
        for (HttpField& field : limits_.fields(call.caller, now, today_of(call.caller))) last.fields.push_back(std::move(field));
        answer(call.request, call.report, std::move(last));
    }
    forget(place);
}

void Gateway::set_share(double share) {
    server_.post([this, share] { limits_.set_share(share); });
}

void Gateway::answer(HttpRequestId request, RequestReport report, HttpAnswer answer) {
    server_.answer(request, reported(std::move(report), std::move(answer)));
}

void Gateway::forget(OpenCalls::iterator place) {
    call_of_.erase(place->second.request);
    calls_.erase(place);
}

void Gateway::on_client_gone(HttpRequestId request) {
    if (stored_) stored_->on_client_gone(request);
    const auto id = call_of_.find(request);
    if (id == call_of_.end()) return;
    const auto call = calls_.find(id->second);
    backend_.cancel(call->first);
    limits_.end(call->second.caller, call->second.tokens_seen, Clock::now());
    RequestReport& ended = call->second.report;
    ended.status = client_gone_status;
    ended.client_gone = true;
    send_report(ended);
    forget(call);
    server_.drop(request);
}

void Gateway::on_overdue(HttpRequestId request) {
    const auto id = call_of_.find(request);
    if (id == call_of_.end()) return;
    const auto call = calls_.find(id->second);
    backend_.cancel(call->first);
    finish(call, gateway_error(504, fmt::format("call {} took longer than call_timeout and was cancelled", call->first)));
}

}  // namespace lorry::ops
