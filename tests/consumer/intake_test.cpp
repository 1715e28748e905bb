// Intake by itself, called as the pipeline and the dry run call it: what it refuses, and what is then published.
#include "consumer/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/codec.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::consumer {
namespace {

struct Rig {
    engine::ModelConfig config{.vocabulary = 50257};
    tests::FakeDirectory directory;
    Preparer preparer{tests::gpt2_tokenizer(), std::nullopt, config, {.context_max = 20}};
    InFlightLimits limits;

    Intake intake() const { return {directory, preparer, {.worker = "worker-1", .parse = {}, .limits = limits}}; }

    AdmittedJob admitted(const std::string& model, const std::string& prompt, std::int64_t offset = 7) {
        const Delivery delivery =
            delivery_of(R"({"custom_id":"a","url":"/v1/completions","body":{"model":")" + model + R"(","prompt":)" + prompt + "}}", offset);
        auto admitted = intake().admit(delivery, Clock::now());
        CHECK(admitted.has_value(), "the test's job is good");
        return std::move(*admitted);
    }
    Expected<WeighedJob, Refused> weigh(AdmittedJob admitted) {
        ModelName model = intake().resolve(admitted);
        return intake().weigh(std::move(admitted), std::move(model));
    }
    static Delivery delivery_of(const std::string& value, std::int64_t offset) {
        return {.record = {.source = {.topic = "jobs", .partition = 0, .offset = offset},
                           .key = "key",
                           .value = value,
                           .headers = {{"own", "1"}},
                           .timestamp = {}},
                .epoch = 3};
    }
};

TEST(IntakeTest, AJobForAModelBecomesItsRequests) {
    Rig rig;
    auto weighed = rig.weigh(rig.admitted("base", "[1,2,3]"));
    ASSERT_TRUE(weighed);
    EXPECT_EQ(weighed->tokenized.weight.tokens, 3 + 16) << "the url's default of tokens";
    const Submission submission = rig.intake().expand(std::move(*weighed), false);
    ASSERT_EQ(submission.requests.size(), 1U);
    EXPECT_EQ(submission.requests.front().prompt, (std::vector<engine::TokenId>{1, 2, 3}));
    EXPECT_EQ(submission.job.epoch, 3U);
    EXPECT_EQ(submission.job.run.worker, "worker-1");
}

// Pins: an empty header weighed nothing, and 30 KB of Kafka's data took gigabytes.
TEST(IntakeTest, AJobWithManyHeadersIsRefusedAndItsHeadersAreNotCopied) {
    Rig rig;
    Delivery delivery = Rig::delivery_of(R"({"custom_id":"a","url":"/v1/completions","body":{"model":"base","prompt":[1]}})", 7);
    EXPECT_GT(schema::memory_bytes({.headers = {{}}}), 50) << "what an empty header takes";
    delivery.record.headers.assign(schema::job_headers_max, {});
    EXPECT_TRUE(rig.intake().admit(delivery, Clock::now()));
    delivery.record.headers.emplace_back();
    auto refused = rig.intake().admit(delivery, Clock::now());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().error.code, schema::ErrorCode::payload_too_large);
    const Refused published = rig.intake().refusal(std::move(delivery), std::move(refused.error()));
    EXPECT_TRUE(std::get<schema::Completion>(published.outcome.record).headers.empty());
}

TEST(IntakeTest, ARefusedJobIsPublishedAsAnErrorUnderItsIdWithItsOwnHeaders) {
    Rig rig;
    const auto unknown = rig.weigh(rig.admitted("nobody", "[1,2,3]"));
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().error.code, schema::ErrorCode::model_not_found);
    const auto long_one = rig.weigh(rig.admitted("base", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"));
    ASSERT_FALSE(long_one);
    EXPECT_EQ(long_one.error().error.code, schema::ErrorCode::context_length_exceeded);
    EXPECT_EQ(long_one.error().outcome.epoch, 3U);
    const auto& completion = std::get<schema::Completion>(long_one.error().outcome.record);
    EXPECT_EQ(completion.custom_id, "a");
    EXPECT_EQ(completion.status_code, 400);
    EXPECT_EQ(completion.state, schema::JobState::failed);
    EXPECT_EQ(completion.run.source.offset, 7);
    EXPECT_EQ(completion.headers, (std::vector<schema::Header>{{"own", "1"}}));
}

TEST(IntakeTest, ADeliveryThatIsNoJobIsAnErrorWithAnIdAndADeadLetterWithout) {
    Rig rig;
    Delivery with_id = Rig::delivery_of(R"({"custom_id":"a","url":"/nowhere","body":{}})", 1);
    auto bad = rig.intake().admit(with_id, Clock::now());
    ASSERT_FALSE(bad);
    const Refused error = rig.intake().refusal(std::move(with_id), std::move(bad.error()));
    EXPECT_EQ(std::get<schema::Completion>(error.outcome.record).custom_id, "a");
    EXPECT_EQ(error.error.code, schema::ErrorCode::unsupported_url);

    Delivery nameless = Rig::delivery_of("not JSON", 2);
    auto worse = rig.intake().admit(nameless, Clock::now());
    ASSERT_FALSE(worse);
    const Refused refused = rig.intake().refusal(std::move(nameless), std::move(worse.error()));
    const auto& letter = std::get<schema::DeadLetter>(refused.outcome.record);
    EXPECT_EQ(letter.key, "key");
    EXPECT_EQ(letter.value, "not JSON");
    EXPECT_EQ(letter.source.offset, 2);
    EXPECT_EQ(refused.outcome.source.offset, 2);
    EXPECT_EQ(letter.error.code, schema::ErrorCode::invalid_json);
}

// The source's refusal comes before the codec's: a job that killed workers may be well formed.
TEST(IntakeTest, WhatTheSourceSaysComesBeforeTheCodec) {
    Rig rig;
    for (const char* value :
         {R"({"custom_id":"a","url":"/v1/completions","body":{"model":"base","prompt":"x"}})", R"({"custom_id":"a"})"}) {
        Delivery delivery = Rig::delivery_of(value, 1);
        delivery.refusal = schema::JobError{.code = schema::ErrorCode::worker_crashed, .param = {}, .message = "three times"};
        const auto bad = rig.intake().admit(delivery, Clock::now());
        ASSERT_FALSE(bad) << value;
        EXPECT_EQ(bad.error().custom_id, "a");
        EXPECT_EQ(bad.error().error.code, schema::ErrorCode::worker_crashed);
    }
}

// Pins: a job's lists are not multiplied by its samples before somebody asks whether that is too much.
TEST(IntakeTest, AJobThatIsTooHeavyIsRefusedByTheNameOfItsLimitBeforeItsRequestsAreMade) {
    Rig rig;
    rig.limits = {.tokens = 100, .bytes = 1 << 20};
    const auto refused = [&](const std::string& members) {
        const auto weighed = rig.weigh(rig.admitted("base", "[1,2,3]" + members));
        return weighed ? std::string() : text_of(weighed.error().error);
    };
    EXPECT_EQ(refused(R"(,"max_tokens":7,"n":5)"), "") << "half of the window";
    const std::string tokens = refused(R"(,"max_tokens":8,"n":5)");
    EXPECT_EQ(tokens,
              "job_too_large: the job's 5 sequences may come to hold 55 tokens; one job may take 50, half of in_flight_tokens: ask for "
              "fewer samples, prompts, tokens or log-probabilities, split the job, or raise the setting");
    rig.limits = {.tokens = 1'000'000, .bytes = 1 << 16};
    EXPECT_THAT(refused(R"(,"max_tokens":8,"n":20)"), testing::HasSubstr("bytes; one job may take 32768, half of in_flight_bytes"));
}

TEST(IntakeTest, RequestsOfALargeJobSayThatItIsLarge) {
    Rig rig;
    rig.limits = {.sequences = 32, .step_rows = 64};
    const auto is_large = [&](const std::string& members) {
        return rig.intake().expand(*rig.weigh(rig.admitted("base", "[1,2,3]" + members)), false).requests.front().large;
    };
    EXPECT_FALSE(is_large(R"(,"n":4)"));
    EXPECT_TRUE(is_large(R"(,"n":5)")) << "more than an eighth of the places";
    rig.limits = {.tokens = 8 * (3 + 16) - 1};
    EXPECT_TRUE(is_large("")) << "more than an eighth of the tokens";
    rig.limits = {.step_rows = 0};
    EXPECT_TRUE(is_large("")) << "more rows than eight steps have";
}

}  // namespace
}  // namespace lorry::consumer
