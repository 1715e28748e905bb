// What `lorry up` refuses. That it serves, OpenAI's libraries test (tests/sdk).
#include <gmock/gmock.h>

#include "tests/support/program.h"

namespace lorry::ops {
namespace {

TEST(UpProgram, TakesNoJobsThatItsBrokerCouldNotHold) {
    const tests::ProgramResult refused = tests::run_program_of(
        {LORRY_PROGRAM, "up", "--model", LORRY_SOURCE_DIR "/ops/example/model", "--port", "0", "--job-bytes-max", "3000000"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, testing::HasSubstr("`lorry up` takes 2.0 MiB at most"));
}

}  // namespace
}  // namespace lorry::ops
