// Reports a failed system call on a file. Used by reader.cpp, journal.cpp and sink.cpp.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace lorry::consumer {

// Throws std::runtime_error with the reason from errno: "NAME cannot be WHAT: reason".
[[noreturn]] inline void fail_file(const std::string& name, const char* what) {
    const int error = errno;  // saved before anything below changes it
    throw std::runtime_error(fmt::format("{} cannot be {}: {}", name, what, std::generic_category().message(error)));
}

}  // namespace lorry::consumer
