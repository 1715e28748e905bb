// Reads a file of job lines and checks each as the workers will. Used by `lorry submit`. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "consumer/file/record_set.h"
#include "schema/codec.h"

namespace lorry::consumer {
class FileReader;
}

namespace lorry::ops {

struct JobLine {
    std::int64_t line = 0;  // from 1
    std::string text;
    std::string custom_id;
    std::string model;
};
struct BadLine {
    std::int64_t line = 0;
    std::string reason;
};

// The file is read once to check it and again to send it, so standard input is copied to a private temporary file.
class JobFile {
public:
    // "-" is standard input, which is read to its end here. Throws std::runtime_error when the file cannot be read or copied.
    JobFile(const std::filesystem::path& file, std::size_t job_bytes_max);
    ~JobFile();
    JobFile(const JobFile&) = delete;
    JobFile& operator=(const JobFile&) = delete;

    // The next line that is not blank; nullopt at the end. A line that repeats a custom_id is bad.
    std::optional<Expected<JobLine, BadLine>> next();
    void rewind();

private:
    const std::size_t job_bytes_max_;
    int copy_ = -1;  // copy of standard input
    std::filesystem::path path_;
    std::unique_ptr<consumer::FileReader> reader_;
    consumer::TextSet ids_;
};

}  // namespace lorry::ops
