// Requests for files and batches: uploads, downloads, and what is known of them. Part of Gateway, on the network's thread; what may block
// runs on threads of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "consumer/batches/batch_backend.h"
#include "ops/gateway/authenticator.h"
#include "ops/gateway/request_report.h"
#include "ops/gateway/route.h"
#include "ops/gateway/task_threads.h"
#include "ops/gateway/upload.h"
#include "ops/http/server.h"

namespace lorry::ops {

class StoredRequests {
public:
    // Each outlives the gateway.
    struct Backends {
        consumer::FileStore& files;
        consumer::BatchBackend& batches;
        std::size_t file_bytes_max = std::size_t{200} << 20;
        // Why files or batches could not be reached, which clients do not learn. Several threads; may be empty.
        std::function<void(const std::string&)> on_failure = {};
        // A file of so many bytes was uploaded. Several threads; may be empty.
        std::function<void(std::int64_t)> on_upload = {};
    };
    // Reports the request and writes its answer. On the network's thread.
    using Answer = std::function<void(HttpRequestId, RequestReport, HttpAnswer)>;

    // Reports a request whose answer was written as a stream.
    using End = std::function<void(const RequestReport&)>;

    StoredRequests(Backends backends, HttpServer& server, Answer answer, End end);

    const Backends& backends() const { return backends_; }

    // Uploads and downloads that are open at the same time. Each holds a connection and a descriptor for as long as its client is slow, and
    // counts for no limit of a key, so that one tenant could take all there are.
    static constexpr std::size_t transfers_max = 128;
    static constexpr std::size_t tenant_transfers_max = 32;

    // An upload: begin, parts, and its end. It may be refused at once.
    void begin_upload(HttpRequestId request, RequestReport report, const Caller& caller, const std::string& boundary);
    void take_part(HttpRequestId request, std::string bytes);
    void finish_upload(HttpRequestId request);
    // Ends an upload whose last part has come, but whose caller may no longer do it.
    void refuse_upload(HttpRequestId request, HttpAnswer answer);
    // All others.
    void start(HttpRequestId request, RequestReport report, Caller caller, const FileRoute& route);
    void start(HttpRequestId request, RequestReport report, Caller caller, const BatchRoute& route, std::string body);

    void on_written(HttpRequestId request);
    // Nothing happens if the request is none of these.
    void on_client_gone(HttpRequestId request);

private:
    struct OpenUpload {
        RequestReport report;
        std::unique_ptr<Upload> upload;  // its task's while is_busy
        bool is_busy = false;
        bool is_gone = false;
    };
    using Uploads = std::unordered_map<HttpRequestId, OpenUpload>;
    struct Download {
        RequestReport report;
        std::unique_ptr<consumer::FileStore::Reader> reader;  // its task's while is_busy
        std::int64_t bytes_left = 0;                          // to be sent
        bool is_busy = false;
        bool is_gone = false;
    };
    void run(HttpRequestId request, RequestReport report, std::function<HttpAnswer()> work);
    // Runs on a thread of its own; what it throws becomes an answer.
    HttpAnswer answered(const std::function<HttpAnswer()>& work) const;
    // Whether one more upload or download of the tenant is too many.
    std::optional<HttpAnswer> refuse_transfer(const std::string& tenant) const;
    void forget(Uploads::iterator upload);
    void end_upload(HttpRequestId request, HttpAnswer answer);
    void start_download(HttpRequestId request, RequestReport report, Caller caller, const std::string& id);
    void take_read(HttpRequestId request, const std::optional<std::string>& part);

    const Backends backends_;
    HttpServer& server_;
    const Answer answer_;
    const End end_;
    std::size_t running_ = 0;  // tasks of run()
    Uploads uploads_;
    std::unordered_map<HttpRequestId, Download> downloads_;
    TaskThreads threads_;  // ends first
};

}  // namespace lorry::ops
