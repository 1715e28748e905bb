// A subcommand of `lorry`: one file NAME.cpp that defines a Command, and one row in ops/program/command_table.cpp. Called by
// ops/program/main.cpp.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

namespace lorry::ops {

enum class ExitCode : int { done = 0, failed = 1, usage = 2 };

// The call was wrong: the program says so and ends with 2.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Command {
public:
    virtual ~Command() = default;
    // Adds its options (and nested subcommands) to its part of the command line; they are filled in when run() is called.
    virtual void declare(CLI::App& app) = 0;
    // Throws UsageError, and whatever went wrong in the world (exit code 1).
    virtual ExitCode run() = 0;
};

struct CommandRow {
    const char* name;
    const char* summary;  // one line, for `lorry --help`
    const char* example;  // shown under `lorry NAME --help`
    std::unique_ptr<Command> (*make)();
};

// All subcommands, in the order in which help shows them.
std::span<const CommandRow> command_table();

// Of the program, such as "0.1.0"; and the commit it was built from, "b8114b8" or, where files had been changed, "b8114b8-dirty"; "" where
// the build knew none. ops/build_source.cmake writes both.
const char* program_version();
const char* program_commit();
// Both: "lorry 0.1.0, commit b8114b8".
std::string program_name();

// What runs a whole call: parses the arguments, runs the command, prints errors. The return value is the exit code.
int run_program(int argc, const char* const* argv);

}  // namespace lorry::ops
