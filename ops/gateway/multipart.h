// Reads forms, multipart/form-data (RFC 7578), as their bytes come. Used by upload.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::ops {

// The boundary that a Content-Type names; nullopt: it is of another type, or its boundary is none.
std::optional<std::string> boundary_of(std::string_view content_type);

// What a part is: from its Content-Disposition.
struct FormPart {
    std::string name;
    std::optional<std::string> filename;  // nullopt: it is a field
};

class FormListener {
public:
    virtual ~FormListener() = default;
    // A part begins, its bytes come, it ends. A text says what is wrong with it, and the form is refused.
    virtual std::optional<std::string> on_part(const FormPart& part) = 0;
    virtual std::optional<std::string> on_bytes(std::string_view bytes) = 0;
    virtual std::optional<std::string> on_part_end() = 0;
};

// Holds at most what it was given last and one header. One thread. After an error there are no more calls.
class FormReader {
public:
    FormReader(const std::string& boundary, FormListener& listener);

    // nullopt: so far it is right.
    std::optional<std::string> take(std::string_view bytes);
    // All bytes were taken: whether the form was complete.
    std::optional<std::string> finish() const;

    static constexpr std::size_t parts_max = 16;
    static constexpr std::size_t header_bytes_max = 8192;

private:
    enum class Place : std::uint8_t { preamble, after_delimiter, header, body, epilogue };
    std::optional<std::string> advance();
    std::optional<std::string> take_body(bool& waits);
    std::optional<std::string> take_after_delimiter(bool& waits);
    std::optional<std::string> take_header(bool& waits);

    const std::string delimiter_;
    FormListener& listener_;
    Place place_ = Place::preamble;
    std::size_t parts_ = 0;
    std::string unread_ = "\r\n";  // the first delimiter may be the form's first line
};

}  // namespace lorry::ops
