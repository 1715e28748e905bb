// Jobs whose grammar is compiled on a thread of its own while others pass them. Nothing is timed: a test holds the thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using tests::ending;
using tests::job;

std::string held_to(const std::string& id, const std::string& regex) {
    return job(id, R"(,"max_tokens":20,"structured_outputs":{"regex":")" + regex + R"("})");
}

// The grammar thread stops after each compilation until it is let go.
struct CompilingRig : tests::PipelineRig {
    CompilingRig() {
        config.eos_ids = {93};
        observer.at_compiled = [this] {
            const bool is_first = compiled++ == 0;
            if (is_first && at_first) at_first();
            EXPECT_EQ(go.wait_for(std::chrono::seconds(60)), std::future_status::ready);
        };
        observer.at_finish = [this](const JobObservation& one) {
            ends.push_back(one.run.job_id);
            if (at_end) at_end(one.run.job_id);
        };
    }
    ~CompilingRig() {
        let_go();
        pipeline.reset();  // its threads call the functions above
    }
    void let_go() {
        if (!is_let_go.exchange(true)) gate.set_value();
    }
    std::uint64_t compilations() const { return preparer->grammar_stats().compilations; }

    std::function<void()> at_first;                  // grammar thread
    std::function<void(const std::string&)> at_end;  // publishing thread
    std::atomic<int> compiled = 0;
    std::vector<std::string> ends;
    std::promise<void> gate;
    const std::shared_future<void> go = gate.get_future().share();
    std::atomic<bool> is_let_go = false;
};

// Pins: a schema that took a second to compile held up every job that was read after it.
TEST(CompiledJobs, OthersPassAJobWhoseGrammarIsCompiled) {
    CompilingRig rig;
    rig.source.add(held_to("slow", "[0-9]{4}"));
    for (int i = 0; i < 20; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":3)"));
    rig.source.sees_wait = [](std::int64_t offset) { ADD_FAILURE() << offset << " gave its start back"; };
    rig.at_end = [&](const std::string&) {
        if (rig.ends.size() == 20) rig.let_go();
    };
    rig.run();
    ASSERT_EQ(rig.ends.size(), 21U);
    EXPECT_EQ(rig.ends.back(), "slow");
    ASSERT_EQ(ending(rig.sink.completion(0)), "200");
    const auto& text = *rig.sink.completion(0).body.find("choices")->as_array()->front().find("text")->as_string();
    EXPECT_EQ(text.size(), 4U);
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) << text;
}

// How each of so many jobs ended, in their order. Nothing holds the thread.
std::vector<std::string> endings_of(CompilingRig& rig, int jobs, const std::function<std::string(int)>& regex_of) {
    rig.let_go();
    for (int i = 0; i < jobs; ++i) rig.source.add(held_to("job-" + std::to_string(i), regex_of(i)));
    rig.run();
    std::vector<std::string> endings;
    for (const auto& [offset, outcome] : rig.sink.committed) endings.push_back(ending(std::get<schema::Completion>(outcome.record)));
    return endings;
}

// A structure that was compiled takes no detour, even while another is compiled.
TEST(CompiledJobs, EqualStructuresAreCompiledOnce) {
    CompilingRig rig;
    EXPECT_EQ(endings_of(rig, 30, [](int) { return "[a-c]{3}"; }), std::vector<std::string>(30, "200"));
    EXPECT_EQ(rig.compilations(), 1U);
}

// Jobs that lack room once their grammar is compiled wait for it, and need their grammar again then.
TEST(CompiledJobs, TheirRoomIsLookedForOnceTheyAreCompiled) {
    CompilingRig rig;
    rig.options.in_flight.tokens = 60;
    const auto endings = endings_of(rig, 30, [](int i) { return "[a-c]{" + std::to_string(3 + i % 3) + "}"; });
    EXPECT_EQ(endings, std::vector<std::string>(30, "200"));
    EXPECT_EQ(rig.compilations(), 3U);
}

// Pins: a grammar that kills its worker was compiled before its job's start was counted, if the job had waited for room before.
TEST(CompiledJobs, AreNotCompiledBeforeTheirStartCounts) {
    CompilingRig rig;
    rig.let_go();
    int asked = 0;
    rig.source.lets_go_on = [&](std::int64_t) {
        if (asked++ >= 5) return true;
        EXPECT_EQ(rig.compilations(), 0U);
        return false;
    };
    rig.source.add(held_to("waited", "[a-c]{3}"));
    rig.run();
    EXPECT_GT(asked, 5);
    ASSERT_EQ(rig.ends.size(), 1U);
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
}

// More than are ordered at a time, some of which cannot be compiled.
TEST(CompiledJobs, EachOfManyStructuresIsCompiledAndABadOneEndsItsJobAlone) {
    CompilingRig rig;
    const auto is_bad = [](int i) { return i % 10 == 7; };
    const auto endings =
        endings_of(rig, 40, [&](int i) { return is_bad(i) ? "(" + std::to_string(i) : "[a-c]{" + std::to_string(i + 1) + "}"; });
    ASSERT_EQ(endings.size(), 40U);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(endings[static_cast<std::size_t>(i)], is_bad(i) ? "400 invalid_structure" : "200") << i;
    EXPECT_EQ(rig.compilations(), 40U);
}

TEST(CompiledJobs, ACancelEndsAJobWhileItsGrammarIsCompiled) {
    CompilingRig rig;
    rig.source.add(held_to("cancelled", "[0-9]{4}"));
    rig.source.add(held_to("waits", "[0-9]{5}"));
    rig.at_first = [&] { rig.cancels.cancel("cancelled"); };
    rig.at_end = [&](const std::string& id) {
        if (id == "cancelled") rig.let_go();
    };
    rig.run();
    EXPECT_EQ(rig.ends, (std::vector<std::string>{"cancelled", "waits"}));
    EXPECT_EQ(ending(rig.sink.completion(0)), "batch_cancelled");
    EXPECT_EQ(ending(rig.sink.completion(1)), "200");
}

TEST(CompiledJobs, ARevocationForgetsThemWithoutWaiting) {
    for (const bool is_lost : {true, false}) {
        CompilingRig rig;
        for (int i = 0; i < 6; ++i) rig.source.add(held_to("job-" + std::to_string(i), "[0-9]{" + std::to_string(i + 1) + "}"));
        rig.source.after(6, [&](RevocationHandler& handler) {
            if (is_lost) {
                handler.lost({tests::partition});
            } else {
                handler.drain({tests::partition}, Clock::now() + std::chrono::seconds(60));
            }
        });
        rig.run();
        EXPECT_TRUE(rig.ends.empty());
        EXPECT_TRUE(rig.sink.committed.empty());
        rig.let_go();
        rig.pipeline.reset();
        EXPECT_LE(rig.compiled, 1) << "orders of jobs that are gone are not compiled";
    }
}

TEST(CompiledJobs, AWorkerEndsWhileAGrammarIsCompiled) {
    CompilingRig rig;
    rig.source.stay_open();
    rig.source.add(held_to("slow", "[0-9]{4}"));
    rig.at_first = [&] { rig.pipeline->request_stop(); };
    rig.run();
    EXPECT_TRUE(rig.sink.committed.empty()) << "it runs again elsewhere";
}

// Pins: a call waited for the grammars of all jobs that had come before it.
TEST(CompiledJobs, CallsComeFirst) {
    CompilingRig rig;
    rig.options.calls_in_flight_max = 4;
    rig.source.stay_open();
    for (int i = 0; i < 6; ++i) rig.source.add(held_to("job-" + std::to_string(i), "[0-9]{" + std::to_string(i + 3) + "}"));
    rig.source.after(6, [&](RevocationHandler&) { rig.source.add_call(held_to("call", "[a-z]")); });
    rig.source.after(7, [&](RevocationHandler&) { rig.let_go(); });
    rig.at_end = [&](const std::string&) {
        if (rig.ends.size() == 7) rig.pipeline->request_stop();
    };
    rig.run();
    ASSERT_EQ(rig.ends.size(), 7U);
    EXPECT_LE(std::ranges::find(rig.ends, "call") - rig.ends.begin(), 1) << "only a grammar that was being compiled went before it";
}

}  // namespace
}  // namespace lorry::consumer
