// Hands work to threads, and its answers back to the network's thread.
#include "ops/gateway/stored_requests.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "ops/gateway/errors.h"
#include "ops/gateway/stored_answers.h"

namespace lorry::ops {
namespace {

constexpr std::size_t thread_count = 4;
constexpr std::size_t download_part_bytes = 256 * 1024;
constexpr std::size_t tasks_max = 1024;  // that wait or run; a request more is answered with 503

schema::Seconds seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

HttpAnswer unavailable(const std::string& message) { return with_retry(gateway_error(503, message), std::chrono::seconds(5)); }

}  // namespace

StoredRequests::StoredRequests(Backends backends, HttpServer& server, Answer answer, End end)
    : backends_(backends), server_(server), answer_(std::move(answer)), end_(std::move(end)), threads_(thread_count) {}

HttpAnswer StoredRequests::answered(const std::function<HttpAnswer()>& work) const {
    try {
        return work();
    } catch (const consumer::Unavailable& error) {
        if (backends_.on_failure) backends_.on_failure(error.what());
        return unavailable("files and batches cannot be reached at the moment: try again");
    } catch (const std::exception& error) {
        if (backends_.on_failure) backends_.on_failure(error.what());
        return gateway_error(500, "files cannot be read or written: the gateway's log says why");
    }
}

void StoredRequests::run(HttpRequestId request, RequestReport report, std::function<HttpAnswer()> work) {
    if (running_ == tasks_max)
        return answer_(request, std::move(report), unavailable("too many requests for files and batches wait: try again"));
    ++running_;
    threads_.post([this, request, report = std::move(report), work = std::move(work)] {
        server_.post([this, request, report, answer = answered(work)] {
            --running_;
            answer_(request, report, answer);
        });
    });
}

std::optional<HttpAnswer> StoredRequests::refuse_transfer(const std::string& tenant) const {
    if (uploads_.size() + downloads_.size() >= transfers_max)
        return unavailable(fmt::format("{} uploads and downloads are open: try again when some have ended", transfers_max));
    const auto is_tenants = [&](const auto& open) { return open.second.report.tenant == tenant; };
    const auto open = std::ranges::count_if(uploads_, is_tenants) + std::ranges::count_if(downloads_, is_tenants);
    if (static_cast<std::size_t>(open) < tenant_transfers_max) return std::nullopt;
    return with_retry(
        gateway_error("too_many_transfers", fmt::format("a tenant may have {} uploads and downloads open at the same time: try "
                                                        "again when one has ended",
                                                        tenant_transfers_max)),
        std::chrono::seconds(1));
}

void StoredRequests::begin_upload(HttpRequestId request, RequestReport report, const Caller& caller, const std::string& boundary) {
    if (auto refused = refuse_transfer(caller.tenant)) return answer_(request, std::move(report), *std::move(refused));
    uploads_.emplace(request,
                     OpenUpload{.report = std::move(report), .upload = std::make_unique<Upload>(backends_.files, caller.tenant, boundary)});
}

void StoredRequests::take_part(HttpRequestId request, std::string bytes) {
    const auto place = uploads_.find(request);
    if (place == uploads_.end()) return;
    place->second.is_busy = true;
    threads_.post([this, request, upload = place->second.upload.get(), bytes = std::move(bytes)] {
        std::optional<HttpAnswer> refused;
        const HttpAnswer fault = answered([&] {
            refused = upload->take(bytes);
            return refused.value_or(HttpAnswer{});
        });
        if (fault.status != 200) refused = fault;
        server_.post([this, request, refused] {
            OpenUpload& open = uploads_.at(request);
            open.is_busy = false;
            if (refused) return end_upload(request, *refused);
            if (open.is_gone) return forget(uploads_.find(request));
            server_.go_on(request);
        });
    });
}

void StoredRequests::finish_upload(HttpRequestId request) {
    const auto place = uploads_.find(request);
    if (place == uploads_.end()) return;
    place->second.is_busy = true;
    threads_.post([this, request, upload = place->second.upload.get()] {
        HttpAnswer answer = answered([&]() -> HttpAnswer {
            const auto file = upload->finish(seconds_now());
            if (!file) return file.error();
            // Without a record, the content is removed later: nobody knows it.
            if (!backends_.batches.add_file(*file)) return gateway_error("too_many_objects", "there are too many files: delete some first");
            if (backends_.on_upload) backends_.on_upload(file->bytes);
            return {.type = json_type, .body = schema::describe_file(*file).dump()};
        });
        server_.post([this, request, answer = std::move(answer)] { end_upload(request, answer); });
    });
}

void StoredRequests::refuse_upload(HttpRequestId request, HttpAnswer answer) {
    if (uploads_.contains(request)) end_upload(request, std::move(answer));
}

void StoredRequests::end_upload(HttpRequestId request, HttpAnswer answer) {
    const auto place = uploads_.find(request);
    RequestReport report = std::move(place->second.report);
    report.client_gone = place->second.is_gone;
    uploads_.erase(place);
    answer_(request, std::move(report), std::move(answer));
}

// One whose client has gone.
void StoredRequests::forget(Uploads::iterator upload) {
    RequestReport report = std::move(upload->second.report);
    report.status = client_gone_status;
    report.client_gone = true;
    uploads_.erase(upload);
    end_(report);
}

void StoredRequests::start(HttpRequestId request, RequestReport report, Caller caller, const FileRoute& route) {
    if (route.action == FileRoute::Action::content) return start_download(request, std::move(report), std::move(caller), route.id);
    run(request, std::move(report),
        [this, caller = std::move(caller), route] { return answer_about_files(backends_.batches, backends_.files, caller, route); });
}

void StoredRequests::start(HttpRequestId request, RequestReport report, Caller caller, const BatchRoute& route, std::string body) {
    run(request, std::move(report), [this, caller = std::move(caller), route, body = std::move(body)] {
        return answer_about_batches(backends_.batches, caller, route, body, seconds_now());
    });
}

// Finds the file and opens it, then begins the answer.
void StoredRequests::start_download(HttpRequestId request, RequestReport report, Caller caller, const std::string& id) {
    if (auto refused = refuse_transfer(caller.tenant)) return answer_(request, std::move(report), *std::move(refused));
    Download& download = downloads_.emplace(request, Download{.report = std::move(report), .reader = nullptr}).first->second;
    download.is_busy = true;
    threads_.post([this, request, &download, caller = std::move(caller), id] {
        HttpAnswer begin = answered([&]() -> HttpAnswer {
            const auto file = schema::is_file_id(id) ? backends_.batches.find_file(caller.tenant, id) : std::nullopt;
            if (!file) return file_not_found(id);
            download.reader = backends_.files.open(id, 0);
            download.bytes_left = file->bytes;
            if (!download.reader) return file_not_found(id);
            return {.type = "application/octet-stream", .body = {}};
        });
        server_.post([this, request, begin = std::move(begin)] {
            Download& open = downloads_.at(request);
            open.is_busy = false;
            if (begin.status != 200 || open.is_gone) {
                const RequestReport ended = open.report;
                downloads_.erase(request);
                return answer_(request, ended, begin);
            }
            HttpAnswer header = begin;
            header.fields.emplace_back("x-request-id", open.report.id);
            server_.begin(request, std::move(header), static_cast<std::uint64_t>(open.bytes_left));
        });
    });
}

// Of a download: the header or a part was written.
void StoredRequests::on_written(HttpRequestId request) {
    const auto place = downloads_.find(request);
    if (place == downloads_.end() || place->second.is_busy) return;
    Download& download = place->second;
    download.is_busy = true;
    threads_.post([this, request, reader = download.reader.get()] {
        std::optional<std::string> part;  // nullopt: it cannot be read
        try {
            std::string bytes(download_part_bytes, '\0');
            bytes.resize(reader->read(bytes));
            part = std::move(bytes);
        } catch (const std::exception&) {
        }
        server_.post([this, request, part = std::move(part)] { take_read(request, part); });
    });
}

void StoredRequests::take_read(HttpRequestId request, const std::optional<std::string>& part) {
    const auto place = downloads_.find(request);
    Download& download = place->second;
    download.is_busy = false;
    const std::int64_t bytes = part ? std::ssize(*part) : 0;
    if (bytes > 0 && bytes <= download.bytes_left && !download.is_gone) {
        download.bytes_left -= bytes;
        return server_.write(request, *part);
    }
    const bool is_whole = part && bytes == 0 && download.bytes_left == 0;
    RequestReport report = std::move(download.report);
    report.status = download.is_gone ? client_gone_status : is_whole ? 200 : 500;
    report.client_gone = download.is_gone;
    downloads_.erase(place);
    // An answer that breaks off is not taken for a whole one.
    is_whole ? server_.end(request) : server_.drop(request);
    end_(report);
}

void StoredRequests::on_client_gone(HttpRequestId request) {
    if (const auto upload = uploads_.find(request); upload != uploads_.end()) {
        upload->second.is_gone = true;
        if (!upload->second.is_busy) forget(upload);
    }
    if (const auto download = downloads_.find(request); download != downloads_.end()) {
        download->second.is_gone = true;
        if (!download->second.is_busy) take_read(request, "");
    }
}

}  // namespace lorry::ops
