// The records that leave a worker: their exact shape, and what readers get back from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/codec.h"

namespace lorry::schema {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Timestamp moment(std::int64_t milliseconds) { return Timestamp(std::chrono::milliseconds(milliseconds)); }

Run run_of(const std::string& batch_id) {
    return {.job_id = job_id(batch_id, "job-1"),
            .batch_id = batch_id,
            .tenant = "org/t",
            .model = "section",
            .adapter = "abc123",
            .worker = "host-1",
            .source = {.topic = "lorry.jobs", .partition = 3, .offset = 42},
            .attempt = 1'700'000'000'123'456,
            .submitted = moment(1000),
            .started = moment(2000),
            .finished = std::nullopt};
}

Completion completion_of(int status_code, Json body) {
    Completion completion;
    completion.id = "batch_req_0f";
    completion.custom_id = "job-1";
    completion.run = run_of("b");
    completion.status_code = status_code;
    completion.body = std::move(body);
    return completion;
}

TEST(CodecRecordsTest, ACompletionIsALineOfAnOpenAiBatchOutputFile) {
    const Completion completion = completion_of(200, Json::object({{"object", "text_completion"}, {"usage", encode_usage({12, 3, 8})}}));
    const std::string line = encode_completion(completion);
    EXPECT_EQ(line, R"({"id":"batch_req_0f","custom_id":"job-1","response":{"status_code":200,"request_id":"req_0f","body":{)"
                    R"("object":"text_completion","usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,)"
                    R"("prompt_tokens_details":{"cached_tokens":8}}}},"error":null})");
    const auto summary = parse_result(line);
    ASSERT_TRUE(summary.has_value());
    EXPECT_EQ(summary->id, "batch_req_0f");
    EXPECT_EQ(summary->custom_id, "job-1");
    EXPECT_TRUE(summary->ok);
    EXPECT_EQ(summary->error, "");
    EXPECT_EQ(summary->usage.prompt_tokens, 12);
    EXPECT_EQ(summary->usage.completion_tokens, 3);
    EXPECT_EQ(summary->usage.cached_tokens, 8);
}

TEST(CodecRecordsTest, ARefusedJobIsAResponseWithAnErrorBodyAndNullError) {
    const JobError error{.code = ErrorCode::model_not_found, .param = "model", .message = "no adapter 'x'\xff"};
    const std::string line = encode_completion(completion_of(404, error_body(error)));
    EXPECT_EQ(line, R"({"id":"batch_req_0f","custom_id":"job-1","response":{"status_code":404,"request_id":"req_0f","body":{"error":)"
                    "{\"message\":\"no adapter "
                    "'x'\uFFFD\",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}},\"error\":null}");
    const auto summary = parse_result(line);
    EXPECT_FALSE(summary->ok);
    EXPECT_EQ(summary->status_code, 404);
    EXPECT_EQ(summary->error, "model_not_found: no adapter 'x'\uFFFD");
    EXPECT_EQ(error_body({.code = ErrorCode::adapter_failed, .param = "", .message = "m"}).dump(),
              R"({"error":{"message":"m","type":"server_error","param":null,"code":"adapter_failed"}})");
}

TEST(CodecRecordsTest, ExpiredAndCancelledJobsHaveAnErrorAndNoResponse) {
    Completion completion = completion_of(200, Json());
    completion.failure = BatchFailure::cancelled;
    completion.failure_message = "cancelled by request";
    const std::string line = encode_completion(completion);
    EXPECT_EQ(
        line,
        R"({"id":"batch_req_0f","custom_id":"job-1","response":null,"error":{"code":"batch_cancelled","message":"cancelled by request"}})");
    const auto summary = parse_result(line);
    EXPECT_FALSE(summary->ok);
    EXPECT_EQ(summary->status_code, 0);
    EXPECT_EQ(summary->error, "batch_cancelled: cancelled by request");
    EXPECT_EQ(name_of(code_of(BatchFailure::expired)), "batch_expired");
    EXPECT_EQ(name_of(code_of(BatchFailure::request_timeout)), "request_timeout");
}

TEST(CodecRecordsTest, ResultsThatAreNoneAreRefusedWithTheReason) {
    EXPECT_THAT(parse_result("nope").error(), HasSubstr("not JSON"));
    EXPECT_THAT(parse_result("{}").error(), HasSubstr("no custom_id"));
    EXPECT_THAT(parse_result(R"({"custom_id":"a"})").error(), HasSubstr("neither response nor error"));
    EXPECT_EQ(parse_result(R"({"custom_id":"a","response":{"status_code":500}})")->error, "the error has no message");
}

TEST(CodecRecordsTest, AnAnswerIsAStatusWithABodyOrAFailure) {
    const auto answer = parse_answer(encode_completion(completion_of(404, Json::object({{"error", 1}}))));
    EXPECT_EQ(answer->status_code, 404);
    EXPECT_EQ(answer->body.dump(), R"({"error":1})");
    EXPECT_FALSE(answer->failure);
    Completion completion = completion_of(200, Json());
    for (const BatchFailure failure : {BatchFailure::expired, BatchFailure::cancelled, BatchFailure::request_timeout}) {
        completion.failure = failure;
        EXPECT_EQ(parse_answer(encode_completion(completion))->failure, failure);
    }
    EXPECT_THAT(parse_answer("nope").error(), HasSubstr("not JSON"));
    EXPECT_THAT(parse_answer(R"({"error":{"code":"new"}})").error(), HasSubstr("'new', which this version does not know"));
    for (const char* bad : {"{}", "7", R"({"response":{"status_code":200}})", R"({"response":{"status_code":99,"body":{}}})"}) {
        EXPECT_THAT(parse_answer(bad).error(), HasSubstr("neither response nor error")) << bad;
    }
}

TEST(CodecRecordsTest, TheResultOfAStreamSaysHowManyChunksItHas) {
    Completion completion = completion_of(200, Json());
    completion.headers = {{"chunks", "999"}};
    EXPECT_EQ(find_header(completion_headers(completion), chunks_header), nullptr) << "not the job's own";
    completion.chunks = 12;
    EXPECT_EQ(*find_header(completion_headers(completion), chunks_header), "12");
}

TEST(CodecRecordsTest, ResultsCarryTheirSourceAndTheJobsOwnHeadersButNoForgedOnes) {
    Completion completion = completion_of(200, Json());
    completion.headers = {{"traceparent", "00-1"}, {"attempt", "999"}, {"source_offset", "0"}, {"x", "y"}};
    EXPECT_THAT(completion_headers(completion), ElementsAre(Header{"source_topic", "lorry.jobs"}, Header{"source_partition", "3"},
                                                            Header{"source_offset", "42"}, Header{"attempt", "1700000000123456"},
                                                            Header{"batch_id", "b"}, Header{"traceparent", "00-1"}, Header{"x", "y"}));
}

// Ends without a topic id count as well: some brokers give no id, and others did not when the end was written.
TEST(CodecRecordsTest, AnEndIsOneOfTheTopicsJobsUnlessItNamesAnotherTopic) {
    const auto is_ours = [](const std::string& topic, const std::string& named_id, const std::string& id) {
        return is_job_of({.source = {topic, 0, 7}, .topic_id = named_id}, {{"lorry.calls", ""}, {"lorry.jobs", id}});
    };
    EXPECT_TRUE(is_ours("lorry.jobs", "one", "one"));
    EXPECT_FALSE(is_ours("lorry.jobs", "one", "two")) << "an earlier topic of the same name";
    EXPECT_TRUE(is_ours("lorry.jobs", "", "two"));
    EXPECT_TRUE(is_ours("lorry.jobs", "one", ""));
    EXPECT_FALSE(is_ours("other.jobs", "", ""));
}

TEST(CodecRecordsTest, AResultsIdDependsOnSourceAndCustomIdAlone) {
    const Source source{"lorry.jobs", 1, 2};
    const std::string id = result_id(source, "a");
    EXPECT_EQ(id, result_id(source, "a"));
    EXPECT_THAT(id, ::testing::MatchesRegex("batch_req_[0-9a-f]{32}"));
    EXPECT_NE(id, result_id(source, "b"));
    EXPECT_NE(id, result_id({"lorry.jobs", 1, 3}, "a"));
    EXPECT_NE(id, result_id({"lorry.jobs", 2, 2}, "a"));
    EXPECT_NE(id, result_id({"other.jobs", 1, 2}, "a"));
    // Pinned: readers compare ids across versions to drop duplicates.
    EXPECT_EQ(id, "batch_req_65e4d32f9a5fa687c07f68a434b45a66");
}

TEST(CodecRecordsTest, AChunkNamesItsAttemptAndPlace) {
    EXPECT_EQ(encode_chunk({.job_id = "b/job-1", .custom_id = "job-1", .attempt = 7, .seq = 0, .chunk = Json::object({{"object", "x"}})}),
              R"({"custom_id":"job-1","attempt":7,"seq":0,"chunk":{"object":"x"}})");
}

TEST(CodecRecordsTest, AStatusIsReadBackAsItWasWritten) {
    Status status;
    status.run = run_of("b");
    status.run.key = "0123456789abcdef";
    status.run.finished = moment(3000);
    status.state = JobState::failed;
    status.usage = {5, 6, 2};
    status.error = "context_length_exceeded: too long";
    const std::string text = encode_status(status);
    EXPECT_EQ(text, R"({"id":"b/job-1","batch_id":"b","tenant":"org/t","key":"0123456789abcdef","state":"failed","model":"section",)"
                    R"("adapter":"abc123","worker":"host-1","attempt":1700000000123456,)"
                    R"("source":{"topic":"lorry.jobs","partition":3,"offset":42},"submitted_at":1000,"started_at":2000,"finished_at":3000,)"
                    R"("usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":2}},)"
                    R"("error":"context_length_exceeded: too long"})");
    const auto read = parse_status(text);
    ASSERT_TRUE(read.has_value()) << read.error();
    EXPECT_EQ(encode_status(*read), text);
    EXPECT_EQ(read->run.source, status.run.source);

    Status bare;
    bare.run.job_id = "x";
    bare.run.source.topic = "t";
    EXPECT_EQ(encode_status(*parse_status(encode_status(bare))), encode_status(bare));
}

TEST(CodecRecordsTest, StatusesOfNewerWorkersAreReadAndBrokenOnesRefused) {
    EXPECT_EQ(parse_status(R"({"id":"x","state":"running","source":{"topic":"t","new":1},"later":{"a":[1]}})")->run.job_id, "x");
    EXPECT_THAT(parse_status("[]").error(), HasSubstr("the status is a JSON array"));
    EXPECT_THAT(parse_status(R"({"state":"running","source":{"topic":"t"}})").error(), HasSubstr("field 'id' is missing"));
    EXPECT_THAT(parse_status(R"({"id":"x","source":{"topic":"t"}})").error(), HasSubstr("field 'state' is missing"));
    EXPECT_THAT(parse_status(R"({"id":"x","state":"dancing","source":{"topic":"t"}})").error(), HasSubstr("field 'state' is 'dancing'"));
    EXPECT_THAT(parse_status(R"({"id":"x","state":"running"})").error(), HasSubstr("field 'topic' is missing"));
    EXPECT_THAT(parse_status(R"({"id":"x","state":"running","source":{"topic":"t","offset":"1"}})").error(),
                HasSubstr("field 'offset' must be an integer"));
    EXPECT_THAT(parse_status(R"({"id":"x","state":"running","source":{"topic":"t"},"started_at":"now"})").error(),
                HasSubstr("field 'started_at' must be an integer"));
}

// Pins: see StoreTest.ATimeBeyondTheYear9999CountsAsMissing.
TEST(CodecRecordsTest, ATimeBeyondTheYear9999CountsAsMissing) {
    const auto status = parse_status(R"({"id":"x","state":"running","source":{"topic":"t"},"submitted_at":9223372036854775807,)"
                                     R"("started_at":-1,"finished_at":253402300799999})");
    ASSERT_TRUE(status) << status.error();
    EXPECT_EQ(status->run.submitted, std::nullopt);
    EXPECT_EQ(status->run.started, std::nullopt);
    EXPECT_EQ(status->run.finished, moment(253'402'300'799'999));
}

TEST(CodecRecordsTest, StatesHaveNamesBothWays) {
    for (const JobState state : {JobState::running, JobState::completed, JobState::failed, JobState::expired, JobState::cancelled}) {
        EXPECT_EQ(state_named(name_of(state)), state);
        EXPECT_EQ(is_terminal(state), state != JobState::running);
    }
    EXPECT_EQ(state_named("queued"), std::nullopt);
}

TEST(CodecRecordsTest, ARegistrationIsReadBackAndCannotLeaveTheAdaptersRoot) {
    const AdapterRegistration adapter{.name = "section",
                                      .hash = "abc",
                                      .path = "team/section",
                                      .base = "tiny",
                                      .rank_max = 8,
                                      .targets = {"q_proj", "v_proj"},
                                      .bytes = 1234,
                                      .registered = moment(5)};
    const std::string text = encode_adapter(adapter);
    EXPECT_EQ(text, R"({"name":"section","hash":"abc","path":"team/section","base":"tiny","rank":8,)"
                    R"("targets":["q_proj","v_proj"],"bytes":1234,"registered_at":5})");
    EXPECT_EQ(encode_adapter(*parse_adapter(text)), text);
    AdapterRegistration classifier = adapter;
    classifier.head = RegisteredHead{.task = "classify", .labels = 3};
    const std::string with_head = encode_adapter(classifier);
    EXPECT_THAT(with_head, testing::EndsWith(R"("registered_at":5,"head":{"task":"classify","labels":3}})"));
    EXPECT_EQ(encode_adapter(*parse_adapter(with_head)), with_head);
    classifier.text = "0af3";
    EXPECT_THAT(encode_adapter(classifier), testing::EndsWith(R"("labels":3},"text":"0af3"})"));
    EXPECT_EQ(parse_adapter(encode_adapter(classifier))->text, "0af3");
    EXPECT_EQ(parse_adapter(encode_adapter(classifier))->vocabulary, std::nullopt);
    classifier.vocabulary = 50'000;
    EXPECT_THAT(encode_adapter(classifier), testing::EndsWith(R"("text":"0af3","vocabulary":50000})"));
    EXPECT_EQ(parse_adapter(encode_adapter(classifier))->vocabulary, 50'000);
    for (const char* bad : {"0", "-1", "1.5", R"("many")"}) {
        const std::string text_of_bad = std::string(R"({"name":"a","hash":"h","path":"p","vocabulary":)") + bad + "}";
        EXPECT_THAT(parse_adapter(text_of_bad).error(), HasSubstr("field 'vocabulary'")) << bad;
    }
    EXPECT_THAT(parse_adapter(R"({"name":"a","hash":"h","path":"p","head":{"task":"classify","labels":-1}})").error(),
                HasSubstr("field 'head': field 'labels'"));
    for (const char* path : {"/etc/passwd", "../x", "a/../../x", "..", "", "a\\u0000b"}) {
        const std::string bad = std::string(R"({"name":"a","hash":"h","path":")") + path + "\"}";
        EXPECT_FALSE(parse_adapter(bad).has_value()) << path;
        EXPECT_THAT(parse_adapter(bad).error(), HasSubstr("'path'")) << path;
    }
    EXPECT_TRUE(parse_adapter(R"({"name":"a","hash":"h","path":"a/../b"})").has_value());
    EXPECT_THAT(parse_adapter(R"({"name":"a@1","hash":"h","path":"p"})").error(), HasSubstr("'a@1' cannot be an adapter's name"));
    EXPECT_THAT(parse_adapter(R"({"name":"a","hash":"h","path":"p","targets":[1]})").error(),
                HasSubstr("field 'targets' must be an array of strings"));
    EXPECT_EQ(adapter_name_error("section-v2.1 é"), std::nullopt);
    for (const char* name : {"", "base", "*", "a#1", "a/b", "a\n", "\xff"}) EXPECT_TRUE(adapter_name_error(name).has_value()) << name;
    EXPECT_TRUE(adapter_name_error(std::string(201, 'x')).has_value());
}

TEST(CodecRecordsTest, CancelsNameAJobOrABatch) {
    EXPECT_EQ(encode_cancel({.id = "b/j"}), R"({"type":"cancel","job_id":"b/j"})");
    const std::string batch = encode_cancel({.id = "b", .is_batch = true, .jobs_end = {7, 0, 12}});
    EXPECT_EQ(batch, R"({"type":"cancel","batch_id":"b","jobs_end":[7,0,12]})");
    EXPECT_THAT(parse_cancel(batch, {})->jobs_end, ElementsAre(7, 0, 12));
    const std::string with_id = encode_cancel({.id = "x", .jobs_end = {7}, .jobs_topic_id = "vUGm4uAqQdSiSJqQ8DGZ3w"});
    EXPECT_EQ(with_id, R"({"type":"cancel","job_id":"x","jobs_end":[7],"jobs_topic_id":"vUGm4uAqQdSiSJqQ8DGZ3w"})");
    EXPECT_EQ(parse_cancel(with_id, {})->jobs_topic_id, "vUGm4uAqQdSiSJqQ8DGZ3w");
    EXPECT_EQ(parse_cancel(batch, {})->jobs_topic_id, "");
    const auto cancel = parse_cancel(R"({"type":"cancel","batch_id":"b"})", moment(9));
    EXPECT_EQ(cancel->id, "b");
    EXPECT_TRUE(cancel->is_batch);
    EXPECT_EQ(cancel->at, moment(9));
    EXPECT_THAT(cancel->jobs_end, ElementsAre()) << "as earlier versions send it";
    EXPECT_THAT(parse_cancel(R"({"type":"pause","job_id":"x"})", {}).error(), HasSubstr("field 'type' is 'pause'"));
    EXPECT_THAT(parse_cancel(R"({"type":"cancel"})", {}).error(), HasSubstr("either 'job_id' or 'batch_id'"));
    EXPECT_THAT(parse_cancel(R"({"type":"cancel","job_id":"x","batch_id":"y"})", {}).error(), HasSubstr("either"));
    const std::string call = encode_cancel({.id = "x", .jobs_topic_id = "id", .call = Source{"lorry.calls", 3, 12}});
    EXPECT_EQ(call, R"({"type":"cancel","job_id":"x","call":{"topic":"lorry.calls","partition":3,"offset":12},"jobs_topic_id":"id"})");
    EXPECT_EQ(parse_cancel(call, {})->call, (Source{"lorry.calls", 3, 12}));
    EXPECT_THAT(parse_cancel(R"({"type":"cancel","job_id":"x","call":{"partition":1}})", {}).error(), HasSubstr("field 'call'"));
    EXPECT_THAT(parse_cancel(R"({"type":"cancel","job_id":"x","call":7})", {}).error(), HasSubstr("field 'call'"));
    EXPECT_THAT(parse_cancel(R"({"type":"cancel","batch_id":"x","call":{"topic":"t","partition":1,"offset":2}})", {}).error(),
                HasSubstr("needs 'job_id'"));
    for (const char* ends : {"7", R"(["7"])", "[-1]", "[1.5]"}) {
        const std::string message = std::string(R"({"type":"cancel","job_id":"x","jobs_end":)") + ends + "}";
        EXPECT_THAT(parse_cancel(message, {}).error(), HasSubstr("field 'jobs_end' must be an array of offsets")) << ends;
    }
}

// Pins: a few kilobytes of compressed cancels took gigabytes of every worker.
TEST(CodecRecordsTest, CancelsHaveLimits) {
    EXPECT_TRUE(parse_cancel(encode_cancel({.id = std::string(2 * id_bytes_max + 1, 'x')}), {}));
    EXPECT_THAT(parse_cancel(encode_cancel({.id = std::string(2 * id_bytes_max + 2, 'x')}), {}).error(), HasSubstr("id is longer"));
    EXPECT_TRUE(parse_cancel(encode_cancel({.id = "x", .jobs_end = std::vector<std::int64_t>(cancel_partitions_max, 7)}), {}));
    EXPECT_THAT(parse_cancel(encode_cancel({.id = "x", .jobs_end = std::vector<std::int64_t>(cancel_partitions_max + 1, 7)}), {}).error(),
                HasSubstr("names 10001 partitions; allowed are up to 10000"));
    EXPECT_THAT(parse_cancel(std::string(cancel_bytes_max + 1, ' '), {}).error(), HasSubstr("allowed are up to 524288"));
}

TEST(CodecRecordsTest, ADeadLetterSaysWhereItCameFromAsKafkaConnectDoes) {
    const DeadLetter letter{.source = {"lorry.jobs", 3, 42},
                            .key = "k",
                            .value = std::nullopt,
                            .headers = {{"own", "1"}},
                            .error = {.code = ErrorCode::invalid_json, .param = {}, .message = "no JSON\xff"}};
    EXPECT_THAT(dead_letter_headers(letter),
                ElementsAre(Header{"own", "1"}, Header{"__connect.errors.topic", "lorry.jobs"}, Header{"__connect.errors.partition", "3"},
                            Header{"__connect.errors.offset", "42"}, Header{"__connect.errors.stage", "VALUE_CONVERTER"},
                            Header{"__connect.errors.class.name", "lorry::schema::parse_job"},
                            Header{"__connect.errors.exception.class.name", "lorry::schema::BadRecord"},
                            Header{"__connect.errors.exception.message", "no JSON\uFFFD"}));
}

}  // namespace
}  // namespace lorry::schema
