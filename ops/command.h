// A subcommand of `lorry`: one file that defines a Command, and one row in ops/program/command_table.cpp. main() calls run_program(), which
// runs the command that the arguments name.
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

// The command line or the configuration is wrong. The program prints the message and ends with exit code 2.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Command {
public:
    virtual ~Command() = default;
    // Adds the command's options and nested subcommands to `app`. Parsing fills them in before run() is called.
    virtual void declare(CLI::App& app) = 0;
    // Throws UsageError (exit code 2), and other exceptions for failures outside the program (exit code 1).
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

// The program's version, such as "0.1.0", and the commit it was built from: "b8114b8", "b8114b8-dirty" if files had been changed, or "" if
// the build did not know it. ops/build_source.cmake writes both.
const char* program_version();
const char* program_commit();
// Both: "lorry 0.1.0, commit b8114b8".
std::string program_name();

// Parses the arguments, runs the command and prints errors. Returns the exit code.
int run_program(int argc, const char* const* argv);

}  // namespace lorry::ops
