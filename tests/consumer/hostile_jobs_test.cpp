// A stranger's jobs in front of honest ones, through the whole pipeline. Nothing is timed: the engine's first step waits until all jobs
// were delivered, and the order of the ends shows who waited for whom. engine/large_jobs_test.cpp counts the steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <string_view>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

constexpr int honest_jobs = 40;

struct Attack {
    std::string name;
    std::vector<std::string> jobs;
    std::string ending;  // of each
    InFlightLimits limits{.tokens = 4'000, .bytes = 8 << 20};
};

std::string ids(int count) {
    std::string list = "1";
    for (int i = 1; i < count; ++i) list += ',' + std::to_string(i % 400);
    return list;
}

// Made when a test asks for them: ctest starts the program for each of its tests, and they take a tenth of a second.
std::vector<Attack> attacks() {
    const auto completion = [](const std::string& id, const std::string& members) { return tests::job(id, members); };
    std::string stops = R"(,"n":128,"stop":[)";
    for (int i = 0; i < 16; ++i) stops += (i > 0 ? R"(,")" : R"(")") + std::to_string(i) + std::string(60'000, 'x') + '"';
    std::vector<Attack> all{
        {.name = "Samples",
         .jobs = std::vector<std::string>(20, completion("bad", R"(,"n":16,"max_tokens":100,"ignore_eos":true)")),
         .ending = "200"},
        {.name = "MoreThanTheWindow", .jobs = {completion("bad", R"(,"n":64,"max_tokens":100)")}, .ending = "413 job_too_large"},
        {.name = "StopTexts", .jobs = {completion("bad", stops + "]")}, .ending = "400 invalid_value"},
        {.name = "PromptScores",
         .jobs = {R"({"custom_id":"bad","url":"/v1/completions","body":{"model":"base","prompt":[)" + ids(150) +
                  R"(],"max_tokens":1,"prompt_logprobs":20,"n":128}})"},
         .ending = "413 job_too_large",
         .limits = {.tokens = 1'000'000, .bytes = 32 << 20}},
        {.name = "EchoedScores",
         .jobs = {R"({"custom_id":"bad","url":"/v1/completions","body":{"model":"base","prompt":[)" + ids(150) +
                  R"(],"max_tokens":1,"echo":true,"logprobs":20,"n":128}})"},
         .ending = "413 job_too_large",
         .limits = {.tokens = 1'000'000, .bytes = 32 << 20}},
    };
    Attack prompts{.name = "LongPrompts", .ending = "200", .limits = {.tokens = 40'000, .bytes = 8 << 20}};
    for (int i = 0; i < 20; ++i) {
        std::string many;
        for (int prompt = 0; prompt < 40; ++prompt)
            many += (prompt > 0 ? ",[" : "[") + std::to_string((i * 40 + prompt) % 400) + ',' + ids(150) + ']';
        prompts.jobs.push_back(R"({"custom_id":"bad","url":"/v1/completions","body":{"model":"base","max_tokens":20,"prompt":[)" + many +
                               "]}}");
    }
    all.push_back(std::move(prompts));
    Attack choices{.name = "Choices", .ending = "200", .limits = {.tokens = 40'000, .bytes = 8 << 20}};
    for (int i = 0; i < 20; ++i) {
        std::string many;
        for (int choice = 0; choice < 300; ++choice) many += fmt::format("{}\"w{} w{}\"", choice > 0 ? "," : "", choice % 17, choice % 19);
        choices.jobs.push_back(R"({"custom_id":"bad","url":"/classify","body":{"model":"base","input":"w1 w2","choices":[)" + many + "]}}");
    }
    all.push_back(std::move(choices));
    const auto held_to = [&](const std::string& structure) {
        return completion("bad", R"(,"max_tokens":60,"structured_outputs":)" + structure);
    };
    const auto repeated = [](std::string_view text, int times) {
        std::string together;
        for (int i = 0; i < times; ++i) together += text;
        return together;
    };
    const std::string nested = repeated(R"({"type":"array","items":)", 40) + "{}" + repeated("}", 40);
    const std::string listed = repeated("[[[[[1]]]]],", 12'000) + "1";
    std::string chain = R"("d3000":{"const":1})";
    for (int i = 0; i < 3'000; ++i)
        chain += fmt::format(R"(,"d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d0"}}]}})", i, i + 1);
    Attack large{.name = "LargeStructures", .jobs = {}, .ending = "400 invalid_structure", .limits = {.tokens = 4'000, .bytes = 64 << 20}};
    // Each is another, so that each is compiled.
    Attack dear{.name = "DearStructures", .jobs = {}, .ending = "200", .limits = {.tokens = 4'000, .bytes = 64 << 20}};
    for (int i = 0; i < 3; ++i) {
        large.jobs.push_back(held_to(fmt::format(R"({{"json":{{"enum":[{}{}]}}}})", listed, i)));
        large.jobs.push_back(held_to(fmt::format(R"({{"json":{{"title":"{}","$ref":"#/$defs/d0","$defs":{{{}}}}}}})", i, chain)));
        dear.jobs.push_back(held_to(fmt::format(R"({{"json":{{"title":"{}","items":{}}}}})", i, nested)));
        dear.jobs.push_back(held_to(fmt::format(R"({{"grammar":"start: a a a a a a a a\na: b? b? b?\nb: a? /[a-z ]/? // {}"}})", i)));
        dear.jobs.push_back(held_to(fmt::format(R"({{"regex":"(a|b)*a(a|b){{6{}}}"}})", i)));
        dear.jobs.push_back(held_to(fmt::format(R"({{"regex":"(?:[a-z]{{1,1000}}){{1,100{}}}"}})", i)));
    }
    all.push_back(std::move(large));
    all.push_back(std::move(dear));
    Attack names{.name = "UnknownNames", .ending = "404 model_not_found"};
    for (int i = 0; i < 640; ++i) names.jobs.push_back(tests::job("bad", "", "ghost-" + std::to_string(i)));
    all.push_back(std::move(names));
    return all;
}

// Does not know whether ghosts exist before their time is over.
struct Ghosts final : AdapterDirectory {
    std::atomic<bool> waited = false;
    ModelName resolve(std::string_view model, Clock::time_point) const override {
        if (model == "base") return {.kind = ModelName::Kind::base};
        return {.kind = waited ? ModelName::Kind::unknown : ModelName::Kind::not_yet};
    }
    std::vector<std::string> names() const override { return {}; }
};

constexpr auto attack_names =
    std::to_array<std::string_view>({"Samples", "MoreThanTheWindow", "StopTexts", "PromptScores", "EchoedScores", "LongPrompts", "Choices",
                                     "LargeStructures", "DearStructures", "UnknownNames"});
class HostileJobs : public testing::TestWithParam<std::string_view> {};

TEST_P(HostileJobs, DoNotHoldUpOthers) {
    const auto all = attacks();
    const Attack& attack = *std::ranges::find(all, GetParam(), &Attack::name);
    tests::PipelineRig rig;
    Ghosts ghosts;
    rig.adapters = &ghosts;
    rig.engine_options.sequences_max = 8;
    rig.engine_options.step_rows_max = 64;
    rig.config.eos_ids = {93};
    rig.model = tests::make_hash_model(200, rig.engine_options.step_rows_max, rig.engine_options.sample_rows_max());
    rig.options.in_flight = attack.limits;
    rig.options.in_flight_max = 128;
    for (const std::string& bad : attack.jobs) rig.source.add(bad);
    for (int i = 0; i < honest_jobs; ++i) rig.source.add(tests::job("honest-" + std::to_string(i), R"(,"max_tokens":10)"));
    std::promise<void> delivered;
    const std::shared_future<void> all_delivered = delivered.get_future().share();
    rig.source.after(std::ssize(attack.jobs) + honest_jobs, [&](RevocationHandler&) { delivered.set_value(); });
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats&) {
        if (!std::exchange(first, false)) return;
        EXPECT_EQ(all_delivered.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "reading stopped";
    };
    std::vector<std::string> ends;
    rig.observer.at_finish = [&](const JobObservation& job) {
        ends.push_back(job.run.job_id);
        ghosts.waited = std::ranges::count_if(ends, [](const std::string& id) { return id != "bad"; }) == honest_jobs;
    };
    PipelineGauges most;
    rig.observer.at_gauges = [&](const PipelineGauges& gauges) {
        most.tokens = std::max(most.tokens, gauges.tokens);
        most.bytes = std::max(most.bytes, gauges.bytes);
    };
    rig.run();

    const std::int64_t bad_jobs = std::ssize(attack.jobs);
    ASSERT_EQ(std::ssize(rig.sink.committed), bad_jobs + honest_jobs);
    for (const auto& [offset, times] : rig.sink.times_committed) EXPECT_EQ(times, 1) << "offset " << offset;
    for (const auto& [offset, outcome] : rig.sink.committed) {
        EXPECT_EQ(tests::ending(std::get<schema::Completion>(outcome.record)), offset < bad_jobs ? attack.ending : "200") << offset;
    }
    EXPECT_LE(most.tokens, attack.limits.tokens);
    EXPECT_LE(most.bytes, attack.limits.bytes);
    if (attack.ending.starts_with("4") && attack.ending != "404 model_not_found") return;  // refused at once
    const auto last_honest = std::ranges::find_if(ends.rbegin(), ends.rend(), [](const std::string& id) { return id != "bad"; });
    const std::int64_t bad_before = std::count(last_honest, ends.rend(), "bad");
    EXPECT_LE(bad_before, bad_jobs / 10) << "the honest jobs ended before nearly all others";
}

INSTANTIATE_TEST_SUITE_P(Attacks, HostileJobs, testing::ValuesIn(attack_names), [](const auto& one) { return std::string(one.param); });

TEST(HostileJobsList, HasATestForEach) {
    const auto all = attacks();
    ASSERT_EQ(all.size(), attack_names.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].name, attack_names[i]);
}

}  // namespace
}  // namespace lorry::consumer
