// Replaces characters by their escapes.
#include "ops/printable.h"

#include <algorithm>
#include <ostream>
#include <streambuf>

#include <fmt/format.h>

#include "schema/json.h"

namespace lorry::ops {
namespace {

struct Range {
    unsigned first;
    unsigned last;
};
// Those beyond ASCII: C1, the marks, embeddings and isolates of bidirectional text, and two separators of lines.
constexpr Range obeyed[] = {{0x80, 0x9F}, {0x061C, 0x061C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7F; }

// The code point of the well-formed character at the start of the text, and its length. Only those of two and three bytes matter.
std::pair<unsigned, std::size_t> character_at(std::string_view text) {
    const auto bits = [&](std::size_t at) { return static_cast<unsigned char>(text[at]) & 0x3FU; };
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xE0) return {(lead & 0x1FU) << 6 | bits(1), 2};
    if (lead < 0xF0) return {(lead & 0x0FU) << 12 | bits(1) << 6 | bits(2), 3};
    return {0x10000, 4};
}

class Filter final : public std::streambuf {
public:
    explicit Filter(std::streambuf& to) : to_(to) {}

private:
    int_type overflow(int_type byte) override {
        if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
        const char one = traits_type::to_char_type(byte);
        return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
    }
    std::streamsize xsputn(const char* text, std::streamsize size) override {
        const std::string safe = printable({text, static_cast<std::size_t>(size)});
        const auto length = static_cast<std::streamsize>(safe.size());
        return to_.sputn(safe.data(), length) == length ? size : 0;
    }
    int sync() override { return to_.pubsync(); }

    std::streambuf& to_;
};

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
    const std::string valid = schema::repair_utf8(text);
    std::string safe;
    safe.reserve(valid.size());
    for (std::string_view rest = valid; !rest.empty();) {
        const auto [code, length] = character_at(rest);
        const bool is_obeyed =
            code < 0x80 ? is_control(static_cast<unsigned char>(code)) && kept.find(rest[0]) == kept.npos
                        : std::ranges::any_of(obeyed, [code = code](Range range) { return code >= range.first && code <= range.last; });
        if (is_obeyed) {
            safe += fmt::format("\\u{:04x}", code);
        } else {
            safe += rest.substr(0, length);
        }
        rest.remove_prefix(length);
    }
    return safe;
}

PrintableStream::PrintableStream(std::ostream& stream)
    : stream_(stream), original_(stream.rdbuf()), filter_(std::make_unique<Filter>(*original_)) {
    stream_.rdbuf(filter_.get());
}

PrintableStream::~PrintableStream() { stream_.rdbuf(original_); }

}  // namespace lorry::ops
