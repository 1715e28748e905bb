// A thread per page takes the requests for it one by one, and hands the answers to the network's thread.
#include "ops/http/pages.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace lorry::ops {

class PageServer::PageThread {
public:
    explicit PageThread(const HttpPage& served) : page(served) {}
    const HttpPage& page;
    std::size_t waiting = 0;  // the network thread's
    boost::asio::thread_pool thread{1};
};

PageServer::PageServer(Options options)
    : options_(std::move(options)), server_({.host = options_.host, .port = options_.port, .handler = *this, .limits = options_.limits}) {
    for (const HttpPage& page : options_.pages) pages_.emplace_back(page);
    server_.start();
}

PageServer::~PageServer() { server_.stop(); }

std::optional<HttpAnswer> PageServer::refuse(const HttpRequest& request) {
    if (request.method != "GET" && request.method != "HEAD") {
        HttpAnswer answer = refusal(405, "Pages are read with GET or HEAD.");
        answer.fields = {{"Allow", "GET, HEAD"}};
        return answer;
    }
    if (request.has_body) return refusal(413, "A request for a page has no body.");
    return std::nullopt;
}

void PageServer::handle(HttpRequestId id, HttpRequest request) {
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    const auto place = std::ranges::find(pages_, path, [](const PageThread& each) { return std::string_view(each.page.path); });
    if (place == pages_.end()) return server_.answer(id, refusal(404, "There is no such page."));
    PageThread& page = *place;
    if (page.waiting == options_.waiting) return server_.answer(id, refusal(503, "Too many requests wait for this page; try again later."));
    ++page.waiting;
    boost::asio::post(page.thread, [this, &page, id] {
        server_.post([this, &page, id, made = make(page.page)]() mutable {
            --page.waiting;
            server_.answer(id, std::move(made));
        });
    });
}

HttpAnswer PageServer::refusal(unsigned status, const std::string& text) { return {.status = status, .body = text + "\n"}; }

// On the page's thread.
HttpAnswer PageServer::make(const HttpPage& page) const {
    try {
        return page.answer();
    } catch (const std::exception& error) {
        if (options_.on_failure) options_.on_failure(page.path, error.what());
        return {.status = 500, .body = "The page could not be made; the log says why.\n"};
    }
}

}  // namespace lorry::ops
