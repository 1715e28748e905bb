// The exceptions of file runs. Thrown by reader.cpp, table_rows.cpp, journal.cpp, lock.cpp and sink.cpp.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace lorry::consumer {

// An error of the input file or a table's template that affects every line. The message says what to change.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The output cannot be continued with this input, model or options, or another process writes it. The message says why and what to do.
struct ResumeRefused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws std::runtime_error with the reason from errno: "NAME cannot be WHAT: reason".
[[noreturn]] inline void fail_file(const std::string& name, const char* what) {
    const int error = errno;  // saved before anything below changes it
    throw std::runtime_error(fmt::format("{} cannot be {}: {}", name, what, std::generic_category().message(error)));
}

}  // namespace lorry::consumer
