// Jobs that wait: their order, their bytes, and those of partitions that went.
#include "consumer/parked_jobs.h"

#include <gtest/gtest.h>

namespace lorry::consumer {
namespace {

AdmittedJob job_at(std::int64_t offset, Epoch epoch = 3) {
    return {.job = {.source = {.topic = "jobs", .partition = 0, .offset = offset}, .custom_id = "a", .id = "a"},
            .epoch = epoch,
            .delivered = {},
            .bytes = 10 * offset};
}

TEST(ParkedJobs, ComeBackInOrderAndTheFirstKeepsItsTurn) {
    ParkedJobs parked;
    parked.push(Awaited::room, job_at(1));
    parked.push(Awaited::room, job_at(2));
    parked.push(Awaited::name, job_at(3));
    parked.push_first(Awaited::room, parked.pop(Awaited::room));
    EXPECT_EQ(parked.pop(Awaited::room).job.source.offset, 1);
    EXPECT_EQ(parked.pop(Awaited::room).job.source.offset, 2);
    EXPECT_EQ(parked.count(Awaited::room), 0U);
    EXPECT_EQ(parked.count(), 1U);
    EXPECT_EQ(parked.bytes(), 30);
    EXPECT_EQ(parked.bytes(Awaited::name), 30);
    EXPECT_EQ(parked.bytes(Awaited::room), 0);
}

TEST(ParkedJobs, CountsCallsByThemselvesWhateverTheyWaitFor) {
    ParkedJobs parked;
    parked.push(Awaited::for_a_call, job_at(1));
    parked.push(Awaited::grammar_of_call, job_at(2));
    parked.push(Awaited::grammar, job_at(3));
    EXPECT_EQ(parked.calls(), 2U);
    EXPECT_EQ(parked.bytes_of_calls(), 30);
    EXPECT_EQ(parked.count(), 3U);
    EXPECT_EQ(parked.bytes(), 60);
}

TEST(ParkedJobs, GoWithTheirPartition) {
    ParkedJobs parked;
    for (const Awaited awaited : {Awaited::name, Awaited::room}) {
        parked.push(awaited, job_at(1));
        parked.push(awaited, job_at(2, 4));
    }
    parked.drop({{.topic = "jobs", .partition = 0, .epoch = 3}});
    EXPECT_EQ(parked.count(), 2U);
    EXPECT_EQ(parked.bytes(), 40);
    EXPECT_EQ(parked.pop(Awaited::name).epoch, 4U);
}

}  // namespace
}  // namespace lorry::consumer
