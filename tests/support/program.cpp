// Runs programs with fork, exec and waitpid; see program.h.
#include "tests/support/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/support/temp_folder.h"

namespace lorry::tests {
namespace {

// The process's high-water mark; nullopt once it has ended. (wait4 also counts this process's memory from before the exec.)
std::optional<std::size_t> peak_of(pid_t process) {
    std::istringstream status(read_whole("/proc/" + std::to_string(process) + "/status"));
    for (std::string line; std::getline(status, line);) {
        const std::size_t digits = line.find_first_of("0123456789");
        if (!line.starts_with("VmHWM:") || digits == std::string::npos) continue;
        std::size_t kibibytes = 0;
        std::from_chars(&line[digits], line.data() + line.size(), kibibytes);
        return kibibytes << 10;
    }
    return std::nullopt;
}

}  // namespace

Program::Program(std::vector<std::string> command, const std::string& input) {
    std::string name = (std::filesystem::temp_directory_path() / "lorry-program-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr, "the temporary folder can be written");
    folder_ = name;
    write_text(folder_ / "in", input);
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const std::string in = (folder_ / "in").string();
    const std::string out = (folder_ / "out").string();
    const std::string err = (folder_ / "err").string();
    process_ = fork();
    CHECK(process_ >= 0, "a process can be made");
    if (process_ == 0) {
        const int flags = O_WRONLY | O_CREAT | O_TRUNC;
        dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
        dup2(open(out.c_str(), flags, 0600), STDOUT_FILENO);
        dup2(open(err.c_str(), flags, 0600), STDERR_FILENO);
        execv(arguments[0], arguments.data());
        _exit(127);
    }
}

Program::~Program() {
    if (process_ > 0) {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void Program::signal(int number) {
    if (process_ > 0) kill(process_, number);
}

bool Program::ends_within(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (process_ > 0) {
        if (waitpid(process_, &status_, WNOHANG) == process_) {
            process_ = -1;
            break;
        }
        peak_bytes_ = peak_of(process_).value_or(peak_bytes_);
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

ProgramResult Program::wait(std::chrono::seconds deadline) {
    if (!ends_within(deadline)) {
        signal(SIGKILL);
        ends_within(std::chrono::seconds(60));
    }
    return {.exit_code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_),
            .out = read_whole(folder_ / "out"),
            .err = read_whole(folder_ / "err"),
            .peak_bytes = peak_bytes_};
}

std::string Program::err_so_far() const { return read_whole(folder_ / "err"); }

ProgramResult run_program_of(std::vector<std::string> command, const std::string& input) {
    return Program(std::move(command), input).wait();
}

}  // namespace lorry::tests
