// The `lorry` program.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "ops/command.h"

int main(int argc, char** argv) {
    // Standard output is for data. What a command has to say it says itself; a worker sets up a log of its own.
    spdlog::set_default_logger(spdlog::stderr_logger_mt("main"));
    spdlog::set_level(spdlog::level::err);
    spdlog::set_pattern("lorry: %v");
    return lorry::ops::run_program(argc, argv);
}
