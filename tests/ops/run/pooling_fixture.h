// Runs tables through small encoders with the built program. Shared by the tests of this folder.
#pragma once

#include <algorithm>

#include "tests/ops/run/fixture.h"
#include "tests/support/tiny_encoder.h"

namespace lorry::ops {

using tests::TempFolder;
using tests::TinyEncoder;

class PoolingTable : public testing::Test {
protected:
    // Runs in/out beside each other in the test's folder.
    std::vector<std::string> command(const TinyEncoder& encoder, const std::string& in, const std::string& out,
                                     const std::vector<std::string>& more) const {
        std::vector<std::string> words = {
            LORRY_PROGRAM, "run", (folder / in).string(), "-o", (folder / out).string(), "--model", encoder.model.string(),
            "--threads",   "1"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    ProgramResult run(const TinyEncoder& encoder, const std::string& in, const std::string& out,
                      const std::vector<std::string>& more = {}) const {
        return run_program_of(command(encoder, in, out, more));
    }
    // The first entry of what a job for that url answers.
    Json answer_of(const TinyEncoder& encoder, const std::string& url, const std::string& body) const {
        write_text(folder / "job.jsonl", fmt::format(R"({{"custom_id":"x","method":"POST","url":"{}","body":{}}})", url, body) + "\n");
        const ProgramResult result = run(encoder, "job.jsonl", "job.out", {"--overwrite"});
        EXPECT_EQ(result.exit_code, 0) << result.err << read_whole(folder / "job.out");
        const Json line = Json::parse(read_whole(folder / "job.out")).value();
        return line.find("response")->find("body")->find("data")->as_array()->front();
    }
    // The lines of a file, sorted: rows are written as they finish.
    std::vector<std::string> lines_of(const std::string& file) const {
        std::vector<std::string> lines;
        std::istringstream in(read_whole(folder / file));
        for (std::string line; std::getline(in, line);) lines.push_back(line);
        std::ranges::sort(lines);
        return lines;
    }
    // What is refused before the model is loaded, without an output.
    std::string refused(const TinyEncoder& encoder, const std::string& in, const std::vector<std::string>& more) const {
        const ProgramResult result = run(encoder, in, "refused.out", more);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_FALSE(std::filesystem::exists(folder / "refused.out"));
        return result.err;
    }

    TempFolder folder;
};

}  // namespace lorry::ops
