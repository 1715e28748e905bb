// A chat that must call a function, from its line to its result: the thought, its budget, the call and the chunks, alone and among others.
#include <gtest/gtest.h>

#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "schema/codec.h"
#include "tests/support/hash_engine.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using schema::Json;

// Token 93, "~", ends answers.
engine::ModelConfig config_of_hash_model() {
    engine::ModelConfig config;
    config.vocabulary = tests::hash_vocabulary;
    config.eos_ids = {93};
    return config;
}

PreparedJob prepared(const std::string& id) {
    const std::string line =
        R"({"custom_id":")" + id +
        R"(","url":"/v1/chat/completions","body":{"model":"base","messages":[{"role":"user","content":"q"}],)"
        R"("max_tokens":120,"thinking_token_budget":4,"stream":true,"tool_choice":"required","parallel_tool_calls":false,)"
        R"("tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":{"enum":["x","y"]}},)"
        R"("required":["a"],"additionalProperties":false}}}]}})";
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", "{# [ARGS] </think> #}{{ messages[0].content }}<think>");
    const engine::ModelConfig config = config_of_hash_model();
    const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 200});
    auto made = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
    CHECK(made.has_value(), "the job can run");
    return std::move(*made);
}

struct Ended {
    engine::Result result;
    std::vector<engine::Delta> deltas;
};

// What becomes of the first of these jobs, which run together.
Ended run(const std::vector<PreparedJob>& jobs) {
    tests::HashEngine rig(2, 400, 200, {});
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        engine::Request request = jobs[i].requests.front();
        request.id = i;
        rig.engine->submit(std::move(request));
    }
    Ended ended;
    while (rig.engine->has_work()) {
        CHECK(rig.engine->step(rig.output), "an engine with work and no adapters always gets on");
        for (engine::Delta& delta : rig.output.deltas) {
            if (delta.id == 0) ended.deltas.push_back(std::move(delta));
        }
        for (engine::Result& result : rig.output.results) {
            if (result.id == 0) ended.result = std::move(result);
        }
    }
    return ended;
}

TEST(DemandedCalls, AChatThinksAsFarAsItsBudgetAndThenCallsAloneAndAmongOthers) {
    std::vector<PreparedJob> jobs;
    jobs.push_back(prepared("a"));
    const ReplyContext context{.tokenizer = tests::gpt2_tokenizer(), .base_name = "tiny", .system_fingerprint = "fp"};
    const Ended alone = run(jobs);
    ASSERT_FALSE(alone.result.error) << alone.result.error->message;
    const Json body = make_reply(context, jobs.front().plan, std::span(&alone.result, 1), {}).body;
    const Json& choice = body.find("choices")->as_array()->front();
    const Json& message = *choice.find("message");
    ASSERT_NE(message.find("tool_calls"), nullptr) << body.dump();
    const Json& function = *message.find("tool_calls")->as_array()->front().find("function");
    EXPECT_EQ(*function.find("name")->as_string(), "look");
    const Json arguments = Json::parse(*function.find("arguments")->as_string()).value();
    EXPECT_TRUE(*arguments.find("a")->as_string() == "x" || *arguments.find("a")->as_string() == "y") << body.dump();
    EXPECT_TRUE(message.find("content")->is_null());
    EXPECT_FALSE(message.find("reasoning")->as_string()->empty());
    EXPECT_EQ(*choice.find("finish_reason")->as_string(), "tool_calls");
    EXPECT_EQ(*body.find("usage")->find("completion_tokens_details")->find("reasoning_tokens")->as_integer(), 4 + 8)
        << "</think> is 8 tokens";

    ChunkWriter writer(context, stream_head_of(jobs.front().plan), {}, 1);
    std::string streamed;
    const auto take = [&](const std::vector<schema::Chunk>& chunks) {
        for (const schema::Chunk& chunk : chunks) {
            const Json* calls = chunk.chunk.find("choices")->as_array()->front().find("delta")->find("tool_calls");
            if (calls != nullptr) streamed += calls->as_array()->front().find("function")->dump();
        }
    };
    for (const engine::Delta& delta : alone.deltas) take(writer.text(0, delta));
    take(writer.end(0, alone.result.finish));
    EXPECT_EQ(streamed, function.dump());

    for (const char* id : {"b", "c", "d", "e"}) jobs.push_back(prepared(id));
    EXPECT_EQ(run(jobs).result.tokens, alone.result.tokens);
}

}  // namespace
}  // namespace lorry::consumer
