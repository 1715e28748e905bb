// How a request ended, for the log and the metrics: nothing of what the client sent but method and url. Made by gateway.cpp.
#pragma once

#include <chrono>
#include <string>

namespace lorry::ops {

inline constexpr unsigned client_gone_status = 499;  // of requests whose clients went away, as nginx writes it

struct RequestReport {
    std::string id;      // also the field x-request-id of the answer
    std::string method;  // shortened
    std::string url;     // "other" for one that is not served
    std::string key;     // of the caller, by its id; empty: none
    std::string tenant;  // empty: none
    unsigned status = 0;
    bool client_gone = false;  // before the answer was complete
    bool is_stream = false;
    std::string traceparent;  // of the client's trace; empty: none
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::chrono::microseconds took{};  // from the request's last byte to the answer's last, as far as the gateway writes it
};

}  // namespace lorry::ops
