// Jobs through intake, engine and publisher, with fakes of the seams and the hash model: every delivery ends exactly once.
#include "consumer/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "schema/codec.h"
#include "tests/support/golden_model.h"
#include "tests/support/pipeline_rig.h"
#include "tests/support/tiny_model.h"

namespace lorry::consumer {
namespace {

using schema::JobState;

using tests::ending;
using tests::job;
using Rig = tests::PipelineRig;

TEST(Pipeline, AnswersEveryJobOnce) {
    Rig rig;
    for (int i = 0; i < 300; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":)" + std::to_string(1 + i % 40)));
    rig.options.in_flight_max = 20;
    rig.run();
    ASSERT_EQ(rig.sink.committed.size(), 300U);
    for (const auto& [offset, times] : rig.sink.times_committed) EXPECT_EQ(times, 1) << "offset " << offset;
    const auto& completion = rig.sink.completion(7);
    EXPECT_EQ(completion.custom_id, "job-7");
    EXPECT_EQ(completion.usage.prompt_tokens, 5);
    EXPECT_EQ(completion.usage.completion_tokens, 8);
    EXPECT_EQ(completion.run.worker, "worker-1");
    EXPECT_EQ(*completion.body.find("model")->as_string(), "tiny");
}

TEST(Pipeline, TurnsEachBadInputIntoItsOwnErrorAndFinishesTheJobsBesideIt) {
    Rig rig;
    rig.source.add(job("good-0"));
    rig.source.add("not json");
    rig.source.add(R"({"method":"POST","url":"/v1/completions","body":{"model":"base","prompt":"x"}})");
    rig.source.add_null();
    rig.source.add(R"({"custom_id":"embed","method":"POST","url":"/v1/embeddings","body":{"model":"base","input":"x"}})");
    rig.source.add(job("stranger", "", "nobody"));
    rig.source.add(job("field", R"(,"best_friend":true)"));
    rig.source.add(job("long", R"(,"max_tokens":100000)"));
    rig.source.add(job("vocabulary", R"(,"stop_token_ids":[99999])"));
    rig.source.add(job("huge", R"(,"user":")" + std::string(10 << 20, 'x') + "\""));
    rig.source.add(std::string(
        "{\"custom_id\":\"utf8\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"base\",\"prompt\":\"\xFF\"}}"));
    rig.source.add(job("twice"));
    rig.source.add(job("twice"));
    rig.source.add(R"({"custom_id":"chat","method":"POST","url":"/v1/chat/completions",)"
                   R"("body":{"model":"base","messages":[{"role":"user","content":"x"}]}})");
    rig.source.add(job("broken", "", "broken"));
    rig.source.add(job("good-1"));
    rig.run();
    ASSERT_EQ(rig.sink.committed.size(), 16U);
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
    EXPECT_FALSE(rig.sink.dead_letter(1).error.message.empty());
    EXPECT_EQ(rig.sink.dead_letter(1).value, "not json");
    EXPECT_FALSE(rig.sink.dead_letter(2).error.message.empty());
    EXPECT_FALSE(rig.sink.dead_letter(3).value.has_value());
    EXPECT_EQ(ending(rig.sink.completion(4)), "400 unsupported_by_model");
    EXPECT_EQ(ending(rig.sink.completion(5)), "404 model_not_found");
    EXPECT_EQ(ending(rig.sink.completion(6)).substr(0, 3), "400");
    EXPECT_EQ(ending(rig.sink.completion(7)), "400 context_length_exceeded");
    EXPECT_EQ(*rig.sink.completion(7).body.find("error")->find("param")->as_string(), "prompt");
    EXPECT_EQ(ending(rig.sink.completion(8)), "400 unknown_token");
    EXPECT_EQ(ending(rig.sink.completion(9)).substr(0, 3), "413");
    EXPECT_TRUE(std::holds_alternative<schema::DeadLetter>(rig.sink.committed.at(10).record)) << "bytes that are not UTF-8 are not JSON";
    EXPECT_EQ(ending(rig.sink.completion(11)), "200");
    EXPECT_EQ(ending(rig.sink.completion(12)), "200");
    EXPECT_NE(rig.sink.completion(11).id, rig.sink.completion(12).id) << "equal ids in Kafka are two jobs with two results";
    EXPECT_EQ(ending(rig.sink.completion(13)), "400 no_chat_template");
    EXPECT_EQ(ending(rig.sink.completion(14)), "500 adapter_failed");
    EXPECT_EQ(ending(rig.sink.completion(15)), "200");
}

TEST(Pipeline, WaitsForAnAdapterThatIsNotRegisteredYet) {
    Rig rig;
    rig.source.add(job("early", "", "late"));
    rig.source.add(job("other"));
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
    EXPECT_EQ(ending(rig.sink.completion(1)), "200");
}

TEST(Pipeline, StreamsChunksThatAddUpToTheText) {
    Rig rig;
    rig.source.add(job("stream", R"(,"max_tokens":30,"stream":true,"n":2,"stream_options":{"include_usage":true})"));
    rig.run();
    std::vector<std::string> streamed(2);
    std::int64_t seq = 0;
    for (const schema::Chunk& chunk : rig.sink.chunks) {
        EXPECT_EQ(chunk.seq, seq++) << "no holes";
        EXPECT_EQ(chunk.custom_id, "stream");
        for (const auto& choice : *chunk.chunk.find("choices")->as_array()) {
            streamed[static_cast<std::size_t>(*choice.find("index")->as_integer())] += *choice.find("text")->as_string();
        }
    }
    const auto& choices = *rig.sink.completion(0).body.find("choices")->as_array();
    ASSERT_EQ(choices.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(streamed[i], *choices[i].find("text")->as_string());
    EXPECT_FALSE(streamed[0].empty());
    EXPECT_NE(rig.sink.chunks.back().chunk.find("usage"), nullptr);
}

TEST(Pipeline, EchoesThePromptWithItsLogProbabilities) {
    Rig rig;
    rig.source.add(job("echo", R"(,"max_tokens":2,"echo":true,"logprobs":0)"));
    rig.run();
    const auto& choice = rig.sink.completion(0).body.find("choices")->as_array()->front();
    const std::vector<engine::TokenId> prompt{1, 2, 3, 4, 5};
    EXPECT_TRUE(choice.find("text")->as_string()->starts_with(tests::gpt2_tokenizer().decode(prompt, false)));
    const auto& logprobs = *choice.find("logprobs")->find("token_logprobs")->as_array();
    ASSERT_EQ(logprobs.size(), 7U);
    EXPECT_TRUE(logprobs[0].is_null());
    for (std::size_t i = 1; i < 5; ++i) {
        EXPECT_EQ(static_cast<float>(*logprobs[i].as_number()), tests::hash_logprob(tests::hash_of(std::span(prompt).first(i)), prompt[i]));
    }
}

// Pins: a prompt's scores are complete after a prefix hit, in chunks, for each of its samples, and where nothing is drawn.
TEST(Pipeline, ScoresPromptsForEachOfTheirChoices) {
    const auto expected = [](const std::vector<engine::TokenId>& prompt) {
        std::string text = "[null";
        for (std::size_t i = 1; i < prompt.size(); ++i) {
            const std::uint64_t hash = tests::hash_of(std::span(prompt).first(i));
            const schema::Json logprob(static_cast<double>(tests::hash_logprob(hash, prompt[i])));
            const schema::Json decoded(tests::gpt2_tokenizer().decode(std::span(prompt).subspan(i, 1), false));
            text += fmt::format(R"(,{{"{}":{{"logprob":{},"rank":{},"decoded_token":{}}}}})", prompt[i], logprob.dump(),
                                tests::hash_rank(hash, prompt[i]), decoded.dump());
        }
        return text + "]";
    };
    Rig rig;
    rig.engine_options.step_rows_max = 4;
    rig.source.add(job("warm", R"(,"max_tokens":1)"));  // the prompt is in the prefix cache
    for (const char* more : {R"("max_tokens":3,"n":3)", R"("max_tokens":1)", R"("max_tokens":0)", R"("max_tokens":0,"n":2)",
                             R"("max_tokens":0,"echo":true,"logprobs":0)", R"("max_tokens":2,"truncate_prompt_tokens":3)",
                             R"("max_tokens":0,"truncate_prompt_tokens":1)"}) {
        rig.source.add(job("scored", std::string(R"(,"prompt_logprobs":0,)") + more));
    }
    rig.run();
    const std::vector<engine::TokenId> prompt{1, 2, 3, 4, 5};
    for (std::int64_t offset = 1; offset <= 7; ++offset) {
        ASSERT_EQ(ending(rig.sink.completion(offset)), "200");
        const std::size_t cut = offset == 6 ? 2 : offset == 7 ? 4 : 0;
        const auto& choices = *rig.sink.completion(offset).body.find("choices")->as_array();
        EXPECT_EQ(choices.size(), offset == 1 ? 3U : offset == 4 ? 2U : 1U);
        for (const schema::Json& choice : choices) {
            EXPECT_EQ(choice.find("prompt_logprobs")->dump(), expected({prompt.begin() + static_cast<std::ptrdiff_t>(cut), prompt.end()}));
        }
    }
}

TEST(Pipeline, ClassifiesByTheSummedLogProbabilityOfEachChoice) {
    Rig rig;
    rig.source.add(R"({"custom_id":"c","method":"POST","url":"/classify",)"
                   R"("body":{"model":"base","input":"some text","choices":["yes","no way","maybe it is"]}})");
    rig.run();
    ASSERT_EQ(ending(rig.sink.completion(0)), "200");
    const auto& data = rig.sink.completion(0).body.find("data")->as_array()->front();
    const std::vector<engine::TokenId> prompt = *tests::gpt2_tokenizer().encode("some text", true);
    std::vector<std::string> choices{"yes", "no way", "maybe it is"};
    std::vector<double> expected;
    std::int64_t tokens_computed = std::ssize(prompt);
    for (const std::string& choice : choices) {
        std::vector<engine::TokenId> all = prompt;
        double sum = 0.0;
        const std::vector<engine::TokenId> tokens = *tests::gpt2_tokenizer().encode(choice, false);
        tokens_computed += std::ssize(tokens);
        for (const engine::TokenId token : tokens) {
            sum += static_cast<double>(tests::hash_logprob(tests::hash_of(all), token));
            all.push_back(token);
        }
        expected.push_back(sum);
    }
    EXPECT_EQ(rig.sink.completion(0).usage.prompt_tokens, tokens_computed) << "choices count as what they cost";
    double total = 0.0;
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(*(*data.find("logprobs")->as_array())[i].as_number(), expected[i], 1e-4);
        total += *(*data.find("probs")->as_array())[i].as_number();
    }
    EXPECT_NEAR(total, 1.0, 1e-9);
    EXPECT_EQ(*data.find("label")->as_string(), choices[static_cast<std::size_t>(std::ranges::max_element(expected) - expected.begin())]);
}

// Pins: cached_tokens showed a tenant, token by token, how the prompts of others begin.
TEST(Pipeline, SharesPrefixesWithinATenantAndASaltOnly) {
    struct Case {
        std::string tenant;
        std::string salt;
        std::int64_t cached;         // tokens of the prompt, when all jobs before this one have run
        std::int64_t cached_shared;  // the same with share_prefixes
    };
    const Case cases[] = {{"", "", 0, 0},   {"", "", 4, 4},   {"a", "", 0, 4},   {"b", "", 0, 4},  {"a", "", 4, 4},  {"a", "s", 0, 0},
                          {"a", "s", 4, 4}, {"b", "s", 0, 4}, {"", "s", 0, 4},   {"as", "", 0, 4}, {"", "as", 0, 0}, {"b", "", 4, 4},
                          {"", "0", 0, 0},  {"0", "", 0, 4},  {"1/a", "", 0, 4}, {"", "1/a", 0, 0}};
    for (const bool shared : {false, true}) {
        Rig rig;
        rig.engine_options.sequences_max = 1;
        rig.share_prefixes = shared;
        for (int i = 0; const Case& one : cases) {
            std::vector<schema::Header> headers;
            if (!one.tenant.empty()) headers.emplace_back("tenant", one.tenant);
            // In this order, though tenants take turns.
            std::string members = fmt::format(R"(,"priority":{})", ++i);
            if (!one.salt.empty()) members += R"(,"cache_salt":")" + one.salt + "\"";
            rig.source.add(job("job", members), std::move(headers));
        }
        rig.run();
        for (std::size_t i = 0; i < std::size(cases); ++i) {
            const Case& one = cases[i];
            const schema::Completion& completion = rig.sink.completion(static_cast<std::int64_t>(i));
            EXPECT_EQ(completion.usage.cached_tokens, shared ? one.cached_shared : one.cached)
                << "job " << i << ", tenant '" << one.tenant << "', salt '" << one.salt << "', share_prefixes " << shared;
            EXPECT_EQ(completion.run.tenant, one.tenant) << "its status says whose it was";
        }
    }
}

TEST(Pipeline, EndsExpiredAndCancelledJobsWithTheirBatchErrors) {
    Rig rig;
    rig.cancels.cancel("gone");
    rig.source.add(job("late"), {{"deadline", "1000000000000"}});
    rig.source.add(job("gone", R"(,"max_tokens":100)"));
    rig.source.add(job("fine"));
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "batch_expired");
    EXPECT_EQ(rig.sink.completion(0).state, JobState::expired);
    EXPECT_EQ(ending(rig.sink.completion(1)), "batch_cancelled");
    EXPECT_EQ(ending(rig.sink.completion(2)), "200");
}

// Pins: whoever left a stream before its end had used nothing, so that limits of a day did not hold.
TEST(Pipeline, AStreamThatIsCancelledCountsForWhatWasSentOfIt) {
    Rig rig;
    rig.source.add(job("left", R"(,"max_tokens":190,"stream":true)"));
    rig.source.add(job("unread", R"(,"max_tokens":190)"));
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.drawn_tokens < 40 || !std::exchange(first, false)) return;
        rig.cancels.cancel("left");
        rig.cancels.cancel("unread");
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until they are looked at
    };
    rig.run();
    for (int i = 0; i < 2; ++i) {
        const schema::Completion& ended = rig.sink.completion(i);
        EXPECT_EQ(ending(ended), "batch_cancelled");
        const bool is_stream = ended.custom_id == "left";
        EXPECT_EQ(ended.usage.prompt_tokens > 0, is_stream);
        EXPECT_GE(ended.usage.completion_tokens, ended.chunks.value_or(0));
        EXPECT_EQ(ended.usage.completion_tokens > 5, is_stream);
    }
}

// Both happen while the job runs: the engine drops it, and the jobs beside it go on.
TEST(Pipeline, EndsARunningJobWhenItIsCancelledOrItsDeadlinePasses) {
    Rig rig;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(2);
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.time_since_epoch()).count();
    rig.source.add(job("stopped", R"(,"max_tokens":190)"));
    rig.source.add(job("late", R"(,"max_tokens":190)"), {{"deadline", std::to_string(millis)}});
    rig.source.add(job("fine", R"(,"max_tokens":190)"));
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.running < 3 || !std::exchange(first, false)) return;
        rig.cancels.cancel("stopped");
        std::this_thread::sleep_until(deadline + std::chrono::milliseconds(100));
    };
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "batch_cancelled");
    EXPECT_TRUE(rig.sink.completion(0).run.started) << "it ran";
    EXPECT_EQ(ending(rig.sink.completion(1)), "batch_expired");
    EXPECT_TRUE(rig.sink.completion(1).run.started) << "it ran";
    EXPECT_EQ(ending(rig.sink.completion(2)), "200");
}

// The time counts from a job's own first step, so that waiting behind others costs it nothing.
TEST(Pipeline, EndsAJobThatRunsLongerThanTheJobTimeout) {
    Rig rig;
    rig.engine_options.sequences_max = 1;
    rig.options.job_timeout = std::chrono::seconds(1);
    rig.source.add(job("endless", R"(,"max_tokens":190,"ignore_eos":true)"));
    rig.source.add(job("behind it"));
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.running > 0 && std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(1'100));
    };
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "request_timeout");
    EXPECT_TRUE(rig.sink.completion(0).run.started);
    EXPECT_EQ(ending(rig.sink.completion(1)), "200");
}

TEST(Pipeline, ShowsObserversTheCodeTheFieldAndTheMessageOfAnError) {
    Rig rig;
    std::map<std::string, std::string> seen;
    rig.observer.at_finish = [&](const JobObservation& job) {
        const auto& error = job.error;
        seen[job.run.job_id] = error ? fmt::format("{} | {} | {}", name_of(error->code), error->param, error->message) : "none";
    };
    rig.cancels.cancel("dropped");
    rig.source.add(job("field", R"(,"best_friend":true)"));
    rig.source.add(job("dropped"));
    rig.source.add(job("good"));
    rig.run();
    EXPECT_TRUE(seen["field"].starts_with("unsupported_field | best_friend | field 'best_friend'")) << seen["field"];
    EXPECT_EQ(seen["dropped"], "batch_cancelled |  | the job was cancelled");
    EXPECT_EQ(seen["good"], "none");
}

TEST(Pipeline, LeavesTheResultOfAJobThatIsCancelledAfterItsEnd) {
    Rig rig;
    rig.observer.at_finish = [&](const JobObservation& job) {
        if (job.run.job_id == "done") rig.cancels.cancel("done");
    };
    rig.source.add(job("done", R"(,"max_tokens":1)"));
    rig.source.add(job("beside", R"(,"max_tokens":100)"));
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
    EXPECT_EQ(rig.sink.times_committed.at(0), 1);
    EXPECT_EQ(ending(rig.sink.completion(1)), "200");
}

// The cancellation is known long before the batch's last job is submitted.
TEST(Pipeline, CancelsTheJobsOfABatchThatComeAfterTheCancelWasSeen) {
    Rig rig;
    rig.options.in_flight_max = 4;
    rig.cancels.cancel("gone");
    for (int i = 0; i < 60; ++i) rig.source.add(job("job-" + std::to_string(i)), {{"batch_id", i % 2 == 0 ? "gone" : "kept"}});
    rig.run();
    for (int i = 0; i < 60; ++i) EXPECT_EQ(ending(rig.sink.completion(i)), i % 2 == 0 ? "batch_cancelled" : "200") << i;
}

// If the process went on, the group would consider this worker healthy, and no other would get its partitions.
TEST(PipelineDeathTest, EndsTheProcessWhenACommitHangs) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto hang = [] {
        Rig rig;
        rig.options.commit_timeout = std::chrono::milliseconds(50);
        rig.observer.at_finish = [](const JobObservation&) { std::promise<void>().get_future().wait_for(std::chrono::hours(1)); };
        rig.source.stay_open();
        rig.source.add(job("one", R"(,"max_tokens":1)"));
        rig.run();
    };
    EXPECT_DEATH(hang(), "a commit hangs; before that: a commit hangs: restart the worker");
}

TEST(PipelineDeathTest, EndsTheProcessWhenTheLastStepHangs) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto hang = [] {
        Rig rig;
        rig.options.drain_timeout = std::chrono::milliseconds(0);
        rig.options.step_timeout = std::chrono::milliseconds(20);
        rig.observer.at_step = [&](const engine::EngineStats&) {
            rig.pipeline->request_stop();
            std::promise<void>().get_future().wait_for(std::chrono::hours(1));
        };
        rig.source.stay_open();
        rig.source.add(job("one", R"(,"max_tokens":50)"));
        rig.run();
    };
    EXPECT_DEATH(hang(), "a step of the engine hangs");
}

// Many samples of long prompts would exceed the memory that a window of jobs may take.
TEST(Pipeline, KeepsWithinTheTokensInFlightAndRefusesAJobThatNeverFits) {
    Rig rig;
    rig.options.in_flight.tokens = 300;
    rig.options.commit_interval = std::chrono::milliseconds(1);
    std::int64_t most = 0;
    rig.observer.at_gauges = [&](const PipelineGauges& gauges) {
        most = std::max(most, gauges.tokens);
        EXPECT_EQ(gauges.tokens_max, 300);
    };
    for (int i = 0; i < 40; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":20,"n":4)"));
    rig.source.add(job("giant", R"(,"max_tokens":100,"n":8)"));
    for (int i = 0; i < 10; ++i) rig.source.add(job("late-" + std::to_string(i), R"(,"max_tokens":20,"n":4)"));
    rig.run();
    ASSERT_EQ(rig.sink.committed.size(), 51U);
    for (const auto& [offset, outcome] : rig.sink.committed) {
        EXPECT_EQ(ending(std::get<schema::Completion>(outcome.record)), offset == 40 ? "413 job_too_large" : "200") << offset;
    }
    EXPECT_EQ(most, 100) << "each is more than an eighth of the window, and such jobs share half of it";
}

TEST(Pipeline, DoesNotBuildAResultThatIsTooLarge) {
    Rig rig;
    rig.reply.reply_bytes_max = 500;
    rig.source.add(job("large", R"(,"max_tokens":20,"logprobs":20)"));
    rig.source.add(job("small", R"(,"max_tokens":20)"));
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "500 result_too_large");
    EXPECT_EQ(rig.sink.completion(0).usage.completion_tokens, 20) << "they were computed";
    EXPECT_EQ(schema::find_number<std::int64_t>(schema::completion_headers(rig.sink.completion(0)), schema::tokens_header),
              rig.sink.completion(0).usage.prompt_tokens + 20);
    EXPECT_EQ(ending(rig.sink.completion(1)), "200");
    EXPECT_EQ(schema::find_header(schema::completion_headers(rig.sink.completion(1)), schema::tokens_header), nullptr);
}

TEST(Pipeline, TellsOfTheJobThatIsInFlightTheLongest) {
    Rig rig;
    std::promise<void> told;
    const std::shared_future<void> go_on = told.get_future().share();
    std::optional<OldestJob> oldest;
    rig.observer.at_oldest = [&](const std::optional<OldestJob>& job) {
        if (oldest || !job) return;
        oldest = job;
        told.set_value();
    };
    rig.observer.at_step = [&](const engine::EngineStats&) { go_on.wait(); };
    rig.source.stay_open();
    rig.source.add(job("old", R"(,"max_tokens":50)"));
    rig.source.add(job("young", R"(,"max_tokens":50)"));
    rig.observer.at_finish = [&](const JobObservation&) { rig.pipeline->request_stop(); };
    rig.run();
    ASSERT_TRUE(oldest);
    EXPECT_EQ(oldest->job_id, "old");
    EXPECT_EQ(oldest->source.offset, 0);
    EXPECT_GE(oldest->age.count(), 0);
}

TEST(Pipeline, DrainsOnRequestAndLeavesNothingHalfDone) {
    Rig rig;
    rig.source.stay_open();
    for (int i = 0; i < 20; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":100)"));
    rig.start();
    std::thread stopper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        rig.pipeline->request_stop();
    });
    rig.pipeline->run();
    stopper.join();
    EXPECT_TRUE(rig.sink.pending.empty());
    for (const auto& [offset, times] : rig.sink.times_committed) EXPECT_EQ(times, 1) << "offset " << offset;
}

TEST(Pipeline, ThrowsWhatWentWrongInAnyThread) {
    Rig rig;
    rig.sink.fails = true;
    rig.source.stay_open();
    rig.source.add(job("one"));
    EXPECT_THROW(rig.run(), std::runtime_error);
}

// Sets all weights of the adapter in this folder to the largest value that a float can have.
void blow_up(const std::filesystem::path& adapter) {
    const std::filesystem::path file = adapter / "adapter_model.safetensors";
    std::string bytes = tests::read_whole(file);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    ASSERT_NE(bytes.substr(8, header).find("\"F32\""), std::string::npos) << "the adapter's tensors are float32";
    const float large = 3e38F;
    for (std::size_t at = 8 + header; at + sizeof large <= bytes.size(); at += sizeof large) std::memcpy(&bytes[at], &large, sizeof large);
    tests::write_text(file, bytes);
}

// Finds the adapters in a folder by name.
struct Folder final : AdapterDirectory {
    std::filesystem::path root;
    const engine::ModelConfig& config;
    Folder(std::filesystem::path the_root, const engine::ModelConfig& the_config) : root(std::move(the_root)), config(the_config) {}
    ModelName resolve(std::string_view model, Clock::time_point) const override {
        if (model == "base") return {.kind = ModelName::Kind::base};
        const auto info = engine::inspect_adapter(root / model, config);
        return info ? ModelName{.kind = ModelName::Kind::adapter, .hash = info->hash, .folder = root / model} : ModelName{};
    }
    std::vector<std::string> names() const override { return {}; }
};

// A real model: an adapter that overflows ends its own jobs, and others in the same batch get the same results as without it.
TEST(Pipeline, EndsTheJobsOfAnAdapterThatOverflowsAndNoOthers) {
    const tests::TinyModel tiny;
    std::filesystem::copy(tiny.adapters / "plain", tiny.adapters / "huge");
    blow_up(tiny.adapters / "huge");
    const auto tiny_tokenizer = engine::Tokenizer::load(tiny.model);
    const auto backend = tests::float32_backend();
    engine::EngineOptions engine_options;
    engine_options.kv_bytes = 1 << 22;
    engine_options.adapter_bytes = 1 << 26;
    const auto model = engine::Model::load(tiny.model, *backend, engine_options.step_rows_max, engine_options.sample_rows_max());
    const Folder folder(tiny.adapters, model->config());
    const auto run = [&](const std::vector<std::string>& models) {
        engine::Engine engine(*model, *backend, tiny_tokenizer, engine_options);
        const Preparer preparer(tiny_tokenizer, std::nullopt, model->config(), {.context_max = engine.context_max()});
        tests::FakeSource source;
        tests::FakeSink sink;
        const tests::FakeCancels cancels;
        const ReplyContext reply{.tokenizer = tiny_tokenizer, .base_name = "tiny", .system_fingerprint = "fp_test"};
        Observer observer;
        for (const std::string& name : models) source.add(job(name, R"(,"max_tokens":20,"temperature":0,"ignore_eos":true)", name));
        Pipeline pipeline({.source = source,
                           .sink = sink,
                           .adapters = folder,
                           .cancels = cancels,
                           .preparer = preparer,
                           .engine = engine,
                           .reply = reply,
                           .observer = observer},
                          {.worker = "worker-1", .commit_interval = std::chrono::milliseconds(5), .parse = {.bytes_max = 1 << 20}});
        pipeline.run();
        std::map<std::string, std::string> results;
        for (const auto& [offset, outcome] : sink.committed) {
            const auto& completion = std::get<schema::Completion>(outcome.record);
            const auto* choices = completion.body.find("choices");
            results[completion.custom_id] =
                ending(completion) + " " + (choices == nullptr ? "" : *choices->as_array()->front().find("text")->as_string());
        }
        return results;
    };
    const auto undisturbed = run({"base", "plain", "rank12"});
    ASSERT_EQ(undisturbed.size(), 3U);
    for (const auto& [name, result] : undisturbed) EXPECT_TRUE(result.starts_with("200 ")) << name << result;
    auto beside = run({"base", "huge", "plain", "rank12"});
    EXPECT_EQ(beside["huge"], "500 non_finite_logits ");
    beside.erase("huge");
    EXPECT_EQ(beside, undisturbed);
}

TEST(Pipeline, SeedsARequestByItsJobUnlessTheJobNamesASeed) {
    Rig rig;
    rig.start();
    const auto seed_of = [&](const std::string& id, const std::string& more) {
        auto parsed = schema::parse_job({.source = {.topic = "jobs"}, .value = job(id, more)}, {});
        return rig.preparer->prepare(std::move(*parsed), {.kind = ModelName::Kind::base})->requests.front().seed;
    };
    EXPECT_EQ(seed_of("a", ""), seed_of("a", ""));
    EXPECT_NE(seed_of("a", ""), seed_of("b", ""));
    EXPECT_EQ(seed_of("a", R"(,"seed":7)"), seed_of("b", R"(,"seed":7)"));
}

}  // namespace
}  // namespace lorry::consumer
