// The command line as a whole: help, version, exit codes and error messages.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/journal.h"
#include "consumer/file/table_rows.h"
#include "consumer/kafka/config.h"
#include "ops/command.h"
#include "ops/printable.h"

namespace lorry::ops {
namespace {

constexpr const char* description =
    "Lorry hauls LoRA jobs: prompts for one base model and its many adapters, from Kafka topics or files, in one continuous batch.";
constexpr const char* footer =
    "Configuration: lorry.toml in the working folder or --config FILE; every key there is a flag too, and the flag wins.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage. `lorry COMMAND --help` shows a command's flags and an example.";

int report(const std::string& what, ExitCode code) {
    std::cerr << "lorry: " << what << '\n';
    return static_cast<int>(code);
}

// Runs the command. Wrong usage ends with exit code 2, a failure outside the program with 1.
int run_reporting(Command& command) {
    try {
        return static_cast<int>(command.run());
    } catch (const UsageError& error) {
        return report(error.what(), ExitCode::usage);
    } catch (const consumer::KafkaConfigError& error) {
        return report(error.what(), ExitCode::usage);
    } catch (const consumer::ResumeRefused& error) {
        return report(error.what(), ExitCode::usage);
    } catch (const consumer::InputError& error) {
        return report(error.what(), ExitCode::usage);
    } catch (const std::filesystem::filesystem_error& error) {
        // The exception's own text names functions of the C++ library.
        return report(fmt::format("{}: {}", error.path1().string(), error.code().message()), ExitCode::failed);
    } catch (const std::exception& error) {
        return report(error.what(), ExitCode::failed);
    }
}

}  // namespace

std::string program_name() {
    const std::string commit = program_commit();
    return fmt::format("lorry {}{}{}", program_version(), commit.empty() ? "" : ", commit ", commit);
}

int run_program(int argc, const char* const* argv) {
    // Standard error is for people, and so is standard output on a terminal. Elsewhere it is data, byte for byte.
    const PrintableStream errors(std::cerr);
    std::optional<PrintableStream> output;
    if (isatty(STDOUT_FILENO) == 1) output.emplace(std::cout);
    CLI::App app(description, "lorry");
    app.footer(footer);
    app.set_version_flag("--version", program_name());
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
    for (const CommandRow& row : command_table()) {
        CLI::App* part = app.add_subcommand(row.name, row.summary);
        part->footer(fmt::format("Example:\n{}", row.example));
        commands.emplace_back(part, row.make());
        commands.back().second->declare(*part);
    }
    // Otherwise --help after an unknown command would print the general help.
    if (argc > 1 && argv[1][0] != '-' &&
        std::ranges::none_of(command_table(), [&](const CommandRow& row) { return std::string_view(row.name) == argv[1]; })) {
        std::cerr << fmt::format("lorry: there is no command '{}'; see lorry --help\n", argv[1]);
        return static_cast<int>(ExitCode::usage);
    }
    const std::string help = argc > 1 && argv[1][0] != '-' ? fmt::format("lorry {} --help", argv[1]) : "lorry --help";
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        return app.exit(success, std::cout, std::cerr);  // --help, --version
    } catch (const CLI::ExtrasError& error) {
        // CLI11's own message mixes a misspelt flag with its value.
        const std::vector<std::string> unexpected = app.remaining(true);
        const auto flag = std::ranges::find_if(unexpected, [](const std::string& word) { return word.starts_with("--"); });
        std::cerr << "lorry: "
                  << (flag == unexpected.end() ? std::string(error.what())
                                               : fmt::format("there is no flag {} here", flag->substr(0, flag->find('='))))
                  << "; see " << help << '\n';
        return static_cast<int>(ExitCode::usage);
    } catch (const CLI::ParseError& error) {
        std::cerr << "lorry: " << error.what() << "; see " << help << '\n';
        return static_cast<int>(ExitCode::usage);
    }
    for (const auto& [part, command] : commands) {
        if (part->parsed()) return run_reporting(*command);
    }
    return static_cast<int>(ExitCode::usage);
}

}  // namespace lorry::ops
