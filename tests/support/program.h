// Runs programs (the built `lorry`) as a user does: arguments in, exit code and both outputs back; or started, killed and waited for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace lorry::tests {

struct ProgramResult {
    int exit_code = -1;  // 128 + signal when one ended it
    std::string out;
    std::string err;
    std::size_t peak_bytes = 0;  // the most memory it was seen to hold
};

class Program {
public:
    // Starts it; standard input is `input`. Output goes to files, so that no pipe ever fills.
    explicit Program(std::vector<std::string> command, const std::string& input = {});
    ~Program();  // kills it if it still runs
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void signal(int number);
    // Waits for the end; after the deadline it is killed.
    ProgramResult wait(std::chrono::seconds deadline = std::chrono::seconds(300));
    // True when it has ended by itself within that time.
    bool ends_within(std::chrono::milliseconds time);
    std::string err_so_far() const;

private:
    std::filesystem::path folder_;
    pid_t process_ = -1;
    std::size_t peak_bytes_ = 0;
    int status_ = 0;
};

// Starts and waits.
ProgramResult run_program_of(std::vector<std::string> command, const std::string& input = {});

}  // namespace lorry::tests
