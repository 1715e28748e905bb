// The file that `lorry submit` reads twice, compressed or not.
#include "ops/client/job_file.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "consumer/file/reader.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lorry::ops {
namespace {

using tests::TempFolder;
using tests::write_text;

std::string ids_of(JobFile& file) {
    std::string ids;
    while (const auto job = file.next()) ids += *job ? (*job)->custom_id + " " : "bad ";
    return ids;
}

TEST(JobFile, UnpacksTheSameJobsEachTimeItIsRead) {
    const TempFolder folder;
    std::string jobs;
    for (const char* id : {"a", "b", "a"}) {
        jobs += fmt::format(R"({{"custom_id":"{}","url":"/v1/completions","body":{{"model":"base","prompt":"x"}}}})", id) + "\n";
    }
    write_text(folder / "jobs.jsonl", jobs);
    ASSERT_EQ(tests::run_program_of({"/bin/gzip", "-k", (folder / "jobs.jsonl").string()}).exit_code, 0);
    for (const char* name : {"jobs.jsonl", "jobs.jsonl.gz"}) {
        JobFile file(folder / name, 1 << 20);
        EXPECT_EQ(ids_of(file), "a b bad ") << name;
        file.rewind();
        EXPECT_EQ(ids_of(file), "a b bad ") << name;
    }
}

}  // namespace
}  // namespace lorry::ops
