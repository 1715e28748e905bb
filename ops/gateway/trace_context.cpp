// Checks the fields, as their values become headers of records.
#include "ops/gateway/trace_context.h"

#include <algorithm>
#include <string_view>

namespace lorry::ops {
namespace {

constexpr std::size_t tracestate_bytes_max = 512;  // 3.3.1.5: at least so many are passed on

// "00-…-…-01": version, trace, parent and flags, in lower-case hexadecimal digits; neither trace nor parent is zero. Versions above 00 may
// have more after a '-'.
bool is_traceparent(std::string_view text) {
    constexpr std::string_view form = "vv-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff";
    if (text.size() < form.size()) return false;
    for (std::size_t i = 0; i < form.size(); ++i) {
        const bool is_hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        if (form[i] == '-' ? text[i] != '-' : !is_hex) return false;
    }
    const bool is_zero = text.substr(form.find('t'), 32).find_first_not_of('0') == std::string_view::npos ||
                         text.substr(form.find('p'), 16).find_first_not_of('0') == std::string_view::npos;
    if (is_zero || text.starts_with("ff")) return false;
    return text.size() == form.size() || (!text.starts_with("00") && text[form.size()] == '-' && text.size() <= tracestate_bytes_max);
}

bool is_printable(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

std::vector<HttpField> trace_of(const HttpRequest& request) {
    const std::string* parent = request.field("traceparent");
    if (parent == nullptr || request.count("traceparent") != 1 || !is_traceparent(*parent) || !is_printable(*parent)) return {};
    std::vector<HttpField> trace = {{"traceparent", *parent}};
    const std::string* state = request.field("tracestate");
    const bool is_passed_on = state != nullptr && request.count("tracestate") == 1 && !state->empty() &&
                              state->size() <= tracestate_bytes_max && is_printable(*state);
    if (is_passed_on) trace.emplace_back("tracestate", *state);
    return trace;
}

}  // namespace lorry::ops
