// What the system says when a file does not do what it should. Used by file_reader, file_journal and file_sink.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace lorry::consumer {

// Throws std::runtime_error with the reason in errno: "NAME cannot be WHAT: reason".
[[noreturn]] inline void fail_file(const std::string& name, const char* what) {
    const int error = errno;  // before anything below can change it
    throw std::runtime_error(fmt::format("{} cannot be {}: {}", name, what, std::generic_category().message(error)));
}

}  // namespace lorry::consumer
