// Checks each line with schema::parse_job.
#include "ops/client/job_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "consumer/file/reader.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

constexpr std::chrono::milliseconds file_timeout{1000};  // files never wait

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = write(descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno != EINTR) fail("copying standard input to the folder for temporary files");
        if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

// Copies standard input to a file that is deleted when its descriptor is closed.
int copy_of_standard_input() {
    std::string name = (std::filesystem::temp_directory_path() / "lorry-submit-XXXXXX").string();
    const int copy = mkstemp(name.data());
    if (copy < 0) fail("creating " + name);
    unlink(name.c_str());
    std::array<char, 1 << 16> buffer;
    while (true) {
        const ssize_t count = read(STDIN_FILENO, buffer.data(), buffer.size());
        if (count == 0) return copy;
        if (count < 0 && errno != EINTR) fail("reading standard input");
        if (count > 0) write_all(copy, {buffer.data(), static_cast<std::size_t>(count)});
    }
}

}  // namespace

JobFile::JobFile(const std::filesystem::path& file, std::size_t job_bytes_max) : job_bytes_max_(job_bytes_max), path_(file) {
    if (consumer::is_standard_input(file)) {
        copy_ = copy_of_standard_input();
        path_ = fmt::format("/proc/self/fd/{}", copy_);
    }
    rewind();
}

JobFile::~JobFile() {
    if (copy_ >= 0) close(copy_);
}

void JobFile::rewind() {
    reader_ = std::make_unique<consumer::FileReader>(path_, consumer::FileFormat{}, job_bytes_max_);
    ids_ = {};
}

std::optional<Expected<JobLine, BadLine>> JobFile::next() {
    auto record = reader_->next(file_timeout);
    if (!record) return std::nullopt;
    const auto bad = [&](std::string reason) { return unexpected(BadLine{.line = record->line, .reason = std::move(reason)}); };
    if (record->cut)
        return bad(
            fmt::format("it has more than {}: shorten it, or raise job_bytes_max here and at the workers", show_bytes(job_bytes_max_)));
    schema::JobRecord job_record{.value = std::move(record->text)};
    const auto job = schema::parse_job(job_record, {.bytes_max = job_bytes_max_});
    if (!job) return bad(text_of(job.error().error));
    if (!ids_.add(job->custom_id))
        return bad(
            schema::text_of({.code = schema::ErrorCode::duplicate_custom_id,
                             .param = "custom_id",
                             .message = fmt::format("custom_id '{}' was used by an earlier line", schema::shortened(job->custom_id))}));
    return JobLine{.line = record->line, .text = *std::move(job_record.value), .custom_id = job->custom_id, .model = job->model};
}

}  // namespace lorry::ops
