// Partitions that are revoked or lost while their jobs run, through the whole pipeline: what still ends here, and what a drain waits for.
#include <gtest/gtest.h>

#include <future>
#include <semaphore>
#include <thread>
#include <utility>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using tests::job;
using tests::partition;
using Rig = tests::PipelineRig;

TEST(Drain, AbandonsWhatADrainLeavesNoTimeFor) {
    Rig rig;
    rig.options.commit_interval = std::chrono::milliseconds(200);
    for (int i = 0; i < 50; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":150)"));
    rig.source.after(50, [](RevocationHandler& handler) { handler.drain({{.topic = "jobs", .partition = 0, .epoch = 1}}, Clock::now()); });
    rig.run();
    EXPECT_LT(rig.sink.committed.size(), 50U) << "150 tokens each are not drawn at once";
    EXPECT_TRUE(rig.sink.pending.empty()) << "what had ended was committed before the drain returned";
}

// Pins: stopping a worker waits for the running batch, not for all the jobs that it has read ahead.
TEST(Drain, FinishesInADrainWhatRunsAndLeavesWhatWaits) {
    Rig rig;
    rig.engine_options.sequences_max = 2;
    for (int i = 0; i < 50; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":150)"));
    std::binary_semaphore running(0);
    std::binary_semaphore draining(0);
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.steps != 3) return;
        running.release();
        draining.acquire();
    };
    rig.source.after(50, [&](RevocationHandler& handler) {
        running.acquire();
        draining.release();
        handler.drain({partition}, Clock::now() + std::chrono::seconds(60));
    });
    rig.run();
    EXPECT_GE(rig.sink.committed.size(), 2U);
    EXPECT_LT(rig.sink.committed.size(), 20U);
    EXPECT_TRUE(rig.sink.pending.empty());
}

// The publisher holds an ended job, others queue after it, and the engine hangs in a step: the drain waits for neither.
TEST(Drain, PublishesNothingOfPartitionsItHasLostNotEvenWhatHadEnded) {
    Rig rig;
    std::promise<void> ended;
    std::promise<void> lost;
    const std::shared_future<void> after_loss = lost.get_future().share();
    bool first = true;
    rig.observer.at_finish = [&](const JobObservation&) {
        if (std::exchange(first, false)) ended.set_value();
        after_loss.wait();
    };
    bool hung = false;
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.drawn_tokens > 100 && !std::exchange(hung, true)) after_loss.wait();
    };
    rig.source.add(job("short", R"(,"max_tokens":1)"));
    for (int i = 1; i < 10; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":150,"stream":true)"));
    std::size_t chunks = 0;
    rig.source.after(10, [&](RevocationHandler& handler) {
        ended.get_future().wait();
        handler.lost({partition});
        chunks = rig.sink.chunks.size();
        lost.set_value();
    });
    rig.run();
    EXPECT_TRUE(rig.sink.committed.empty());
    EXPECT_TRUE(rig.sink.pending.empty());
    EXPECT_EQ(rig.sink.chunks.size(), chunks);
}

// A revocation that waited for the engine would delay the whole group.
TEST(Drain, GivesUpPartitionsAlsoWhileAStepOfTheEngineHangs) {
    Rig rig;
    std::promise<void> given_up;
    const std::shared_future<void> go_on = given_up.get_future().share();
    std::promise<void> hanging;
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats&) {
        if (std::exchange(first, false)) hanging.set_value();
        go_on.wait();
    };
    for (int i = 0; i < 5; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":50)"));
    rig.source.after(5, [&](RevocationHandler& handler) {
        hanging.get_future().wait();
        handler.drain({partition}, Clock::now());
        given_up.set_value();
    });
    rig.run();
    EXPECT_TRUE(rig.sink.committed.empty());
}

// Pins: a worker that its group removed while it drained tried to commit for 30 s and then ended.
TEST(Drain, DoesNotWaitInADrainForTheCommitOfPartitionsThatItHasLost) {
    Rig rig;
    rig.options.release_timeout = std::chrono::hours(1);
    std::promise<void> given_up;
    const std::shared_future<void> go_on = given_up.get_future().share();
    std::promise<void> committing;
    rig.observer.at_finish = [&](const JobObservation&) {
        committing.set_value();
        go_on.wait();
    };
    rig.source.add(job("one", R"(,"max_tokens":1)"));
    rig.source.after(1, [&](RevocationHandler& handler) {
        committing.get_future().wait();
        rig.source.has_lost = true;
        handler.drain({partition}, Clock::now() + std::chrono::hours(1));
        given_up.set_value();
    });
    rig.run();
    EXPECT_TRUE(rig.sink.committed.empty()) << "its next owner has published it";
}

TEST(Drain, SaysAtItsEndThatResultsWereNotCommittedBecauseItsPartitionsAreLost) {
    Rig rig;
    rig.options.release_timeout = std::chrono::hours(1);
    rig.source.stay_open();
    rig.source.add(job("one", R"(,"max_tokens":1)"));
    rig.observer.at_finish = [&](const JobObservation&) {
        rig.source.has_lost = true;
        rig.pipeline->request_stop();
        while (!rig.source.has_given_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    try {
        rig.run();
        ADD_FAILURE() << "the worker ended as if all were committed";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("these jobs run again"), std::string::npos) << error.what();
    }
}

TEST(Drain, EndsWithTheReasonWhenACommitHoldsUpARevocation) {
    Rig rig;
    rig.options.release_timeout = std::chrono::milliseconds(20);
    std::promise<void> refused;
    const std::shared_future<void> go_on = refused.get_future().share();
    std::promise<void> hanging;
    rig.observer.at_finish = [&](const JobObservation&) {
        hanging.set_value();
        go_on.wait();
    };
    rig.source.add(job("one", R"(,"max_tokens":1)"));
    rig.source.after(1, [&](RevocationHandler& handler) {
        hanging.get_future().wait();
        try {
            handler.drain({partition}, Clock::now());
        } catch (const std::runtime_error&) {
            refused.set_value();
            throw;
        }
        ADD_FAILURE() << "the drain returned";
        refused.set_value();
    });
    try {
        rig.run();
        ADD_FAILURE() << "the failure was ignored";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("a commit hangs"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace lorry::consumer
