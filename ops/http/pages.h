// Serves pages: texts that a function makes anew for each request, with GET or HEAD. Each page has a thread of its own, so that a slow page
// or client delays no other page. Used by ops/worker/health_server.h.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "ops/http/server.h"

namespace lorry::ops {

struct HttpPage {
    std::string path;
    // Called on the page's thread, for one request at a time. An exception is answered with 500.
    std::function<HttpAnswer()> answer;
};

class PageServer final : HttpHandler {
public:
    struct Options {
        std::string host;        // as HttpServer's
        std::uint16_t port = 0;  // as HttpServer's
        std::vector<HttpPage> pages;
        HttpLimits limits = {};
        std::size_t waiting = 16;  // requests for one page that is slow; further ones are answered with 503
        // Called on the page's thread with the page that threw and the exception's message. May be empty.
        std::function<void(const std::string& path, const std::string& reason)> on_failure = {};
    };

    // Listens, and answers from now on. Throws std::system_error if it cannot listen there.
    explicit PageServer(Options options);
    // Closes all connections; waits for pages that are being made.
    ~PageServer() override;

    std::uint16_t port() const { return server_.port(); }

private:
    class PageThread;

    std::optional<HttpAnswer> refuse(const HttpRequest& request) override;
    void handle(HttpRequestId id, HttpRequest request) override;
    HttpAnswer refusal(unsigned status, const std::string& text) override;
    HttpAnswer make(const HttpPage& page) const;

    const Options options_;
    HttpServer server_;
    std::list<PageThread> pages_;
};

}  // namespace lorry::ops
