// `lorry serve` as a process, for tests: started, asked over HTTP, stopped. Used by tests of ops.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/support/http_client.h"
#include "tests/support/program.h"

namespace lorry::tests {

class Served {
public:
    // more: brokers, prefix and whatever else the test sets.
    explicit Served(std::vector<std::string> more, const std::string& base_name = "tiny")
        : program_(command_with(std::move(more), base_name)) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!port_ && std::chrono::steady_clock::now() < deadline) {
            port_ = port_in(program_.err_so_far());
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        if (!port_) throw std::runtime_error("the gateway did not start: " + program_.err_so_far());
    }

    int port() const { return *port_; }
    Program& program() { return program_; }

    static std::string post(const std::string& url, const std::string& body, const std::string& fields = "") {
        return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", url,
                           fields, body.size(), body);
    }
    static std::string post_stream(const std::string& url, const std::string& body) { return post(url, body, "Connection: close\r\n"); }
    HttpReply call(const std::string& url, const std::string& body, const std::string& fields = "") const {
        HttpClient client(port());
        client.send(post(url, body, fields));
        const auto reply = client.receive();
        return reply.value_or(HttpReply{});
    }
    HttpReply get(const std::string& path) const {
        HttpClient client(port());
        return client.get(path);
    }
    ProgramResult stop() {
        program_.signal(SIGTERM);
        return program_.wait(std::chrono::seconds(60));
    }

private:
    static std::vector<std::string> command_with(std::vector<std::string> more, const std::string& base_name) {
        std::vector<std::string> command = {LORRY_PROGRAM, "serve", "--listen", "127.0.0.1:0", "--base-name", base_name};
        if (std::ranges::find(more, "--insecure-no-keys") == more.end()) more.insert(more.end(), {"--insecure-no-keys", "true"});
        command.insert(command.end(), more.begin(), more.end());
        return command;
    }
    static std::optional<int> port_in(const std::string& log) {
        const std::size_t event = log.find("\"gateway_started\"");
        const std::size_t at = event == std::string::npos ? event : log.find("\"port\":", event);
        if (at == std::string::npos) return std::nullopt;
        int port = 0;
        const char* const digits = log.data() + at + 7;
        const auto [end, error] = std::from_chars(digits, log.data() + log.size(), port);
        return error == std::errc() && end != log.data() + log.size() ? std::optional(port) : std::nullopt;
    }

    Program program_;
    std::optional<int> port_;
};

}  // namespace lorry::tests
