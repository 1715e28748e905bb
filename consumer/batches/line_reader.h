// Reads the lines of a stored content. Used by batch_run.cpp. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "consumer/batches/batch_backend.h"

namespace lorry::consumer {

class LineReader {
public:
    // `from`: where the content was opened.
    LineReader(std::unique_ptr<FileStore::Reader> content, std::int64_t from, std::size_t line_bytes_max)
        : content_(std::move(content)), line_bytes_max_(line_bytes_max), position_(from) {}

    struct Line {
        std::string_view text;     // without white space at its end, and empty if it has nothing else; until the next call
        bool is_too_long = false;  // it has more than line_bytes_max bytes, and nothing is read on
    };
    // nullopt: the end.
    std::optional<Line> next() {
        while (!is_over_) {
            const std::size_t end = unread_.find('\n', searched_);
            if (end == unread_.npos && unread_.size() - begin_ <= line_bytes_max_ && fill()) continue;
            if (end == unread_.npos && begin_ == unread_.size()) return std::nullopt;
            const std::string_view whole = std::string_view(unread_).substr(begin_, std::min(end, unread_.size()) - begin_);
            is_over_ = whole.size() > line_bytes_max_;
            if (is_over_) return Line{.text = {}, .is_too_long = true};
            const bool is_first = position_ == 0;
            begin_ = std::min(whole.size() + begin_ + 1, unread_.size());
            position_ += std::ssize(whole) + (end == unread_.npos ? 0 : 1);
            searched_ = begin_;
            ++number_;
            const bool has_mark = is_first && whole.starts_with(schema::byte_order_mark);
            const std::string_view line = whole.substr(has_mark ? schema::byte_order_mark.size() : 0);
            return Line{.text = line.substr(0, line.find_last_not_of(" \t\r") + 1)};
        }
        return std::nullopt;
    }
    // Of the next line's first byte in the content.
    std::int64_t position() const { return position_; }
    // Of the last line, from 1 where reading began.
    std::int64_t number() const { return number_; }

private:
    bool fill() {
        unread_.erase(0, begin_);
        begin_ = 0;
        searched_ = unread_.size();
        std::array<char, 64 * 1024> part{};
        const std::size_t bytes = content_->read(part);
        unread_.append(part.data(), bytes);
        return bytes > 0;
    }

    std::unique_ptr<FileStore::Reader> content_;
    const std::size_t line_bytes_max_;
    std::int64_t position_;
    std::int64_t number_ = 0;
    std::string unread_;
    std::size_t begin_ = 0;     // of the next line in unread_
    std::size_t searched_ = 0;  // before it is no end of that line
    bool is_over_ = false;      // after a line that is too long
};

}  // namespace lorry::consumer
