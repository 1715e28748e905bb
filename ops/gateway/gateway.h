// The OpenAI API over HTTP: checks requests and who sends them, hands calls to a CallBackend, and answers with what comes back, whole or as
// an event stream. Knows neither Kafka nor the engine. Made by `lorry up` and `lorry serve`.
//
// All state belongs to the network's thread, which HttpServer runs; the backend's events, and large bodies once they are parsed, are passed
// to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "consumer/call_backend.h"
#include "ops/gateway/authenticator.h"
#include "ops/gateway/body_readers.h"
#include "ops/gateway/call_limits.h"
#include "ops/gateway/request_report.h"
#include "ops/gateway/route.h"
#include "ops/gateway/stored_requests.h"
#include "ops/gateway/usage_pages.h"
#include "ops/http/server.h"
#include "schema/json.h"

namespace lorry::ops {

class Gateway final : HttpHandler, consumer::CallListener {
public:
    struct Options {
        std::string host;          // to listen on; without an authenticator also a name that requests may give
        std::uint16_t port = 0;    // 0: any free one
        std::string base_name;     // of the base model
        std::int64_t created = 0;  // of the models, in seconds since the epoch
        // Who may call, and what; it outlives the gateway. nullptr: anyone, and everything.
        const Authenticator* authenticator = nullptr;
        bool shares_adapters = false;      // callers whose scopes name no models may call all, not the base model alone
        bool remembers = false;            // whether the backend knows repeatable calls; if not, Idempotency-Key counts for nothing
        HttpLimits limits = {};            // answer_timeout is call_timeout
        const TlsIdentity* tls = nullptr;  // it outlives the gateway; nullptr: without TLS
        // The names of adapters; called on the network's thread, as the next two are. They must be quick.
        std::function<std::vector<std::string>()> adapters;
        std::function<HttpAnswer()> health;
        std::function<HttpAnswer()> metrics;
        UsagePages::Options usage = {};                       // for /v1/usage
        const consumer::DailyTokens* daily_tokens = nullptr;  // for limits of a day; it outlives the gateway
        // Files and batches; nullopt: their urls answer that they are not kept here.
        std::optional<StoredRequests::Backends> stored = {};
        std::function<void(const RequestReport&)> on_request = {};                        // on the network's thread; may be empty
        std::function<BodyReaders::Body(const std::string&)> read_body = ops::read_body;  // several threads
    };

    // Listens, and answers from now on. Throws std::system_error if it cannot listen there. The backend outlives it and, when it is
    // destroyed, sends no more events.
    Gateway(Options options, consumer::CallBackend& backend);
    ~Gateway() override;

    std::uint16_t port() const { return server_.port(); }
    // This gateway's part of the limits of each caller (CallLimits), from now on. Any thread.
    void set_share(double share);

private:
    using Clock = std::chrono::steady_clock;
    // A request that has no answer yet, and its call.
    struct OpenCall {
        HttpRequestId request = 0;
        RequestReport report;
        Caller caller;
        std::vector<HttpField> trace;
        bool repeatable = false;
        bool has_begun = false;        // an event stream
        std::int64_t tokens_seen = 0;  // about as many as it took so far, of prompt and answer
    };
    using OpenCalls = std::unordered_map<std::string, OpenCall>;
    struct Sender {
        Caller caller;
        bool repeatable = false;
    };

    // HttpHandler.
    std::optional<HttpAnswer> refuse(const HttpRequest& request) override;
    void handle(HttpRequestId id, HttpRequest request) override;
    std::optional<std::size_t> streamed_bytes_max(const HttpRequest& request) override;
    void begin(HttpRequestId id, HttpRequest request) override;
    void take_part(HttpRequestId id, std::string bytes) override;
    void on_written(HttpRequestId id) override;
    void on_client_gone(HttpRequestId id) override;
    void on_overdue(HttpRequestId id) override;
    HttpAnswer refusal(unsigned status, const std::string& text) override;
    // CallListener: any thread.
    void on_chunk(const std::string& id, std::string chunk) override;
    void on_end(const std::string& id, consumer::CallEnd end) override;

    std::optional<HttpAnswer> find_fault(const HttpRequest& request) const;
    std::optional<HttpAnswer> find_fault_of_body(const HttpRequest& request, const Route& route) const;
    Expected<Caller, HttpAnswer> identify(const HttpRequest& request, const Route& route) const;
    void start_call(HttpRequestId request, RequestReport report, Sender sender, const CallRoute& route, HttpRequest sent);
    void start_usage(HttpRequestId id, RequestReport report, const Caller& caller, const HttpRequest& request);
    std::optional<CallLimits::Today> today_of(const Caller& caller) const;
    std::optional<HttpAnswer> find_used_up(const Caller& caller, const std::optional<CallLimits::Today>& today) const;
    HttpAnswer limit_reached(const Caller& caller, const CallLimits::Refusal& refusal, const std::optional<CallLimits::Today>& today) const;
    void send_report(RequestReport& report) const;
    void submit(HttpRequestId request, const std::string& url, const BodyReaders::Body& body);
    void take_chunk(const std::string& id, const std::string& chunk);
    void take_end(const std::string& id, const consumer::CallEnd& end);
    // failed_tokens: those computed for an answer that is an error.
    void finish(OpenCalls::iterator call, HttpAnswer answer, std::int64_t failed_tokens = 0);
    void answer(HttpRequestId request, RequestReport report, HttpAnswer answer);
    HttpAnswer reported(RequestReport report, HttpAnswer answer) const;
    void forget(OpenCalls::iterator call);
    HttpAnswer page(const Route& route, const Caller& caller) const;
    schema::Json model_object(const std::string& name) const;
    std::string next_id();

    const Options options_;
    consumer::CallBackend& backend_;
    std::random_device random_;
    CallLimits limits_;
    OpenCalls calls_;                                         // by id
    std::unordered_map<HttpRequestId, std::string> call_of_;  // by request
    HttpServer server_;
    BodyReaders readers_;  // these end first, as they post to the server
    UsagePages usage_;
    std::optional<StoredRequests> stored_;
};

}  // namespace lorry::ops
