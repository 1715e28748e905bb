// Runs programs, such as the built `lorry`, as a user does: passes arguments and returns the exit code and both outputs, or starts, kills
// and waits for them. Used by tests of ops and by the fault harness.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace lorry::tests {

struct ProgramResult {
    int exit_code = -1;  // 128 + signal if a signal ended it
    std::string out;
    std::string err;
    std::size_t peak_bytes = 0;  // the most memory it was observed to use
};

class Program {
public:
    // Starts the program with `input` as its standard input. Its outputs go to files, so that no pipe can fill up.
    explicit Program(std::vector<std::string> command, const std::string& input = {});
    ~Program();  // kills it if it is still running
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void signal(int number);
    // Waits for its end, and kills it after the deadline.
    ProgramResult wait(std::chrono::seconds deadline = std::chrono::seconds(300));
    // True if it ends by itself within that time.
    bool ends_within(std::chrono::milliseconds time);
    std::string err_so_far() const;

private:
    std::filesystem::path folder_;
    pid_t process_ = -1;
    std::size_t peak_bytes_ = 0;
    int status_ = 0;
};

// Starts the program and waits for its end.
ProgramResult run_program_of(std::vector<std::string> command, const std::string& input = {});

}  // namespace lorry::tests
