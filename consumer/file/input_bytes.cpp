// Reads in large pieces and unpacks with zlib and libzstd; the only file that sees them.
#include "consumer/file/input_bytes.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "schema/check.h"

namespace lorry::consumer {

// Unpacks a stream.
class Unpacker {
public:
    virtual ~Unpacker() = default;
    virtual const char* name() const = 0;
    // Takes bytes from the front of `in` and writes to `out`; returns how many it wrote. The error says what is wrong with the data.
    virtual Expected<std::size_t, std::string> unpack(std::span<const char>& in, std::span<char> out) = 0;
    // Whether the data may end here.
    virtual bool is_complete() const = 0;
};

namespace {

constexpr std::size_t raw_bytes = 256 << 10;

// Members one after the other, as gzip and bgzip write them.
class GzipUnpacker final : public Unpacker {
public:
    GzipUnpacker() {
        constexpr int gzip_format = 16 + MAX_WBITS;
        CHECK(inflateInit2(&stream_, gzip_format) == Z_OK, "zlib has memory for its state");
    }
    ~GzipUnpacker() override { inflateEnd(&stream_); }
    GzipUnpacker(const GzipUnpacker&) = delete;
    GzipUnpacker& operator=(const GzipUnpacker&) = delete;

    const char* name() const override { return "gzip"; }
    bool is_complete() const override { return between_members_; }

    Expected<std::size_t, std::string> unpack(std::span<const char>& in, std::span<char> out) override {
        if (between_members_) {
            while (!in.empty() && in.front() == '\0') in = in.subspan(1);  // padding, as of tapes
            if (in.empty()) return std::size_t{0};
            inflateReset(&stream_);
            between_members_ = false;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib does not write to it
        stream_.avail_in = static_cast<uInt>(in.size());
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(out.size());
        const int status = inflate(&stream_, Z_NO_FLUSH);
        in = in.last(stream_.avail_in);
        if (status == Z_STREAM_END) between_members_ = true;
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
            return unexpected(std::string(stream_.msg != nullptr ? stream_.msg : zError(status)));
        }
        return out.size() - stream_.avail_out;
    }

private:
    z_stream stream_{};
    bool between_members_ = false;
};

class ZstdUnpacker final : public Unpacker {
public:
    const char* name() const override { return "zstd"; }
    bool is_complete() const override { return complete_; }

    Expected<std::size_t, std::string> unpack(std::span<const char>& in, std::span<char> out) override {
        ZSTD_inBuffer from{.src = in.data(), .size = in.size(), .pos = 0};
        ZSTD_outBuffer to{.dst = out.data(), .size = out.size(), .pos = 0};
        const std::size_t status = ZSTD_decompressStream(stream_.get(), &to, &from);
        if (ZSTD_isError(status) != 0) return unexpected(std::string(ZSTD_getErrorName(status)));
        if (from.pos > 0 || to.pos > 0) complete_ = status == 0;
        in = in.subspan(from.pos);
        return to.pos;
    }

private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
    };
    std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
    bool complete_ = false;
};

struct Packing {
    std::string_view start;  // of the file
    std::unique_ptr<Unpacker> (*make)();
};
constexpr Packing packings[] = {
    {"\x1F\x8B", [] { return std::unique_ptr<Unpacker>(std::make_unique<GzipUnpacker>()); }},
    {"\x28\xB5\x2F\xFD", [] { return std::unique_ptr<Unpacker>(std::make_unique<ZstdUnpacker>()); }},
};

}  // namespace

bool is_standard_input(const std::filesystem::path& file) { return file == "-"; }

InputBytes::InputBytes(const std::filesystem::path& file)
    : ByteSource(is_standard_input(file) ? "standard input" : file.string()), raw_(std::make_unique<char[]>(raw_bytes)) {
    descriptor_ = is_standard_input(file) ? ::dup(STDIN_FILENO) : ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_file(name(), "opened");
}

InputBytes::~InputBytes() { ::close(descriptor_); }

std::optional<std::size_t> InputBytes::read(std::span<char> out, std::chrono::milliseconds timeout) {
    if (!started_ && !start(timeout)) return std::nullopt;
    while (true) {
        if (const std::size_t taken = take(out); taken > 0) return taken;
        if (raw_begin_ < raw_end_) continue;  // the unpacker has more to take
        if (end_seen_) {
            if (unpacker_ == nullptr || unpacker_->is_complete()) return 0;
            throw InputError(fmt::format("{}: its {} data ends in the middle: the file was cut off, so copy or make it again", name(),
                                         unpacker_->name()));
        }
        if (!fill(timeout)) return std::nullopt;
    }
}

// Reads until the first bytes say whether the file is compressed. Returns false when nothing arrived within the timeout.
bool InputBytes::start(std::chrono::milliseconds timeout) {
    while (!started_) {
        const std::string_view start(raw_.get(), raw_end_);
        started_ = true;
        for (const Packing& packing : packings) {
            if (start.starts_with(packing.start)) unpacker_ = packing.make();
            if (!end_seen_ && start.size() < packing.start.size() && packing.start.starts_with(start)) started_ = false;
        }
        if (!started_ && !fill(timeout)) return false;
    }
    return true;
}

// Returns false when nothing arrived within the timeout.
bool InputBytes::fill(std::chrono::milliseconds timeout) {
    pollfd waited{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(timeout.count()));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
    if (raw_begin_ == raw_end_) raw_begin_ = raw_end_ = 0;
    ssize_t got = 0;
    do got = ::read(descriptor_, raw_.get() + raw_end_, raw_bytes - raw_end_);
    while (got < 0 && errno == EINTR);
    if (got < 0) fail_file(name(), "read");
    if (got == 0) end_seen_ = true;
    raw_end_ += static_cast<std::size_t>(got);
    return true;
}

// The bytes that are there, without waiting.
std::size_t InputBytes::take(std::span<char> out) {
    std::span<const char> in(raw_.get() + raw_begin_, raw_end_ - raw_begin_);
    if (unpacker_ == nullptr) {
        const std::size_t count = std::min(in.size(), out.size());
        std::copy_n(in.data(), count, out.data());
        raw_begin_ += count;
        return count;
    }
    if (in.empty() && !may_hold_more_) return 0;
    const auto written = unpacker_->unpack(in, out);
    if (!written) {
        throw InputError(fmt::format("{}: its {} data cannot be unpacked ({}): copy or make the file again", name(), unpacker_->name(),
                                     written.error()));
    }
    raw_begin_ = raw_end_ - in.size();
    may_hold_more_ = *written == out.size();
    return *written;
}

}  // namespace lorry::consumer
