// Chats with a model that writes harmony's messages, from their lines to their results: the hash model draws what it may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "schema/codec.h"
#include "tests/support/harmony_tokenizer.h"
#include "tests/support/hash_engine.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using schema::Json;
using testing::HasSubstr;
using tests::harmony_tokenizer;

constexpr const char* tools_of_harmony =
    R"("tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":{"enum":["x","y"]}},)"
    R"("required":["a"],"additionalProperties":false}}},{"type":"function","function":{"name":"wait","parameters":{"type":"object",)"
    R"("properties":{},"additionalProperties":false}}}])";

engine::ModelConfig config_of_harmony() {
    engine::ModelConfig config;
    config.vocabulary = tests::hash_vocabulary;
    config.eos_ids = {tests::harmony_token("<|return|>")};
    return config;
}

constexpr const char* template_of_harmony =
    "{# <|channel|>analysis<|message|> <|channel|>commentary tools #}"
    "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant"
    "{% if messages[1] %}<|channel|>final<|message|>{{ messages[1].content }}<|return|>{% endif %}";

Expected<PreparedJob, RefusedJob> prepared_messages(const std::string& members, const std::string& content = "q",
                                                    const std::string& reasoning_parser = "auto",
                                                    const engine::Tokenizer& tokenizer = harmony_tokenizer(),
                                                    const std::string& chat_template = template_of_harmony) {
    const std::string line =
        R"({"custom_id":"a","url":"/v1/chat/completions","body":{"model":"base","messages":[{"role":"user","content":")" + content +
        R"("}],"max_tokens":150,)" + members + "}}";
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", chat_template);
    static const engine::ModelConfig config = config_of_harmony();
    const Preparer preparer(tokenizer, engine::ChatTemplate::load(folder.path()), config,
                            {.context_max = 2'000, .reasoning_parser = reasoning_parser});
    return preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
}

struct Chat {
    Json message;
    std::string finish;
    std::string streamed;  // reasoning|content|calls, as told() writes the message
    std::int64_t reasoning_tokens = 0;
};

std::string text_of_member(const Json& message, std::string_view name) {
    const Json* value = message.find(name);
    return value == nullptr || value->is_null() ? std::string() : *value->as_string();
}

std::string functions_of(const Json& message) {
    std::string told;
    const Json* calls = message.find("tool_calls");
    if (calls == nullptr) return told;
    for (const Json& call : *calls->as_array()) told += call.find("function")->dump();
    return told;
}

std::string told(const Json& message) {
    return text_of_member(message, "reasoning") + "|" + text_of_member(message, "content") + "|" + functions_of(message);
}

struct Ran {
    engine::Result result;
    std::vector<engine::Delta> deltas;
};

Ran run_first_request(const PreparedJob& job, std::int64_t steps_queued, const engine::EngineOptions& options) {
    tests::HashEngine rig(steps_queued, 400, 400, options, harmony_tokenizer());
    engine::Request request = job.requests.front();
    request.stream = true;
    rig.engine->submit(std::move(request));
    Ran ran;
    while (rig.engine->has_work()) {
        CHECK(rig.engine->step(rig.output), "an engine with work and no adapters always gets on");
        for (engine::Delta& delta : rig.output.deltas) ran.deltas.push_back(std::move(delta));
        for (engine::Result& one : rig.output.results) ran.result = std::move(one);
    }
    return ran;
}

// Runs a job's first request, and reads its chunks as a client does. How the engine goes about it changes nothing.
Chat run_chat(const PreparedJob& job) {
    const Ran ran = run_first_request(job, 2, {});
    const engine::Result& result = ran.result;
    EXPECT_EQ(run_first_request(job, 1, {.force_together = false}).result.tokens, result.tokens);
    const ReplyContext context{.tokenizer = harmony_tokenizer(), .base_name = "tiny", .system_fingerprint = "fp"};
    ChunkWriter writer(context, stream_head_of(job.plan), {}, 1);
    std::vector<schema::Chunk> chunks;
    for (const engine::Delta& delta : ran.deltas) std::ranges::move(writer.text(0, delta), std::back_inserter(chunks));
    std::ranges::move(writer.end(0, result.finish), std::back_inserter(chunks));
    EXPECT_FALSE(result.error) << result.error->message;
    const Json body = make_reply(context, job.plan, std::span(&result, 1), {}).body;
    const Json& choice = body.find("choices")->as_array()->front();
    Chat chat{.message = *choice.find("message"), .finish = *choice.find("finish_reason")->as_string()};
    chat.reasoning_tokens = *body.find("usage")->find("completion_tokens_details")->find("reasoning_tokens")->as_integer();
    std::string reasoning;
    std::string content;
    std::string calls;
    for (const schema::Chunk& chunk : chunks) {
        const Json& delta = *chunk.chunk.find("choices")->as_array()->front().find("delta");
        reasoning += text_of_member(delta, "reasoning");
        content += text_of_member(delta, "content");
        calls += functions_of(delta);
    }
    chat.streamed = reasoning + "|" + content + "|" + calls;
    EXPECT_EQ(chat.streamed, told(chat.message));
    for (const char* part : {"<|", "\uFDD0"}) EXPECT_EQ(chat.streamed.find(part), std::string::npos) << chat.streamed;
    return chat;
}

// Each over prompts of which some make the model think first.
template <typename Check>
void expect_of_chats(const std::string& members, const Check& check) {
    int thoughtful = 0;
    for (const char* content : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
        const auto job = prepared_messages(members, content);
        ASSERT_TRUE(job.has_value()) << schema::text_of(job.error().error);
        const Chat chat = run_chat(*job);
        SCOPED_TRACE(content + std::string(": ") + chat.message.dump());
        check(chat);
        thoughtful += chat.reasoning_tokens > 0 ? 1 : 0;
    }
    EXPECT_GT(thoughtful, 0) << "the prompts make nothing of thoughts";
}

TEST(HarmonyChat, RequiredCallsAreMessagesToFunctionsAfterAThoughtWithinItsBudget) {
    std::set<std::string> names;
    expect_of_chats(std::string(tools_of_harmony) + R"(,"tool_choice":"required","thinking_token_budget":5)", [&](const Chat& chat) {
        ASSERT_NE(chat.message.find("tool_calls"), nullptr);
        const Json& function = *chat.message.find("tool_calls")->as_array()->front().find("function");
        names.insert(*function.find("name")->as_string());
        EXPECT_THAT(*function.find("arguments")->as_string(), testing::AnyOf(R"({"a":"x"})", R"({"a":"y"})", "{}"));
        EXPECT_TRUE(chat.message.find("content")->is_null());
        EXPECT_EQ(chat.finish, "tool_calls");
        EXPECT_EQ(chat.reasoning_tokens > 0, chat.message.find("reasoning") != nullptr);
    });
    for (const std::string& name : names) EXPECT_TRUE(name == "look" || name == "wait");
}

TEST(HarmonyChat, ANamedFunctionIsCalledAndTheAnswerStops) {
    expect_of_chats(
        std::string(tools_of_harmony) + R"(,"tool_choice":{"type":"function","function":{"name":"look"}},"thinking_token_budget":3)",
        [](const Chat& chat) {
            EXPECT_THAT(functions_of(chat.message), testing::StartsWith(R"({"name":"look","arguments":"{\"a\":\")"));
            EXPECT_EQ(chat.finish, "stop");
        });
}

TEST(HarmonyChat, AStructureIsForTheFinalMessage) {
    expect_of_chats(R"("structured_outputs":{"regex":"[x-z]{3}"},"thinking_token_budget":4)", [](const Chat& chat) {
        EXPECT_THAT(text_of_member(chat.message, "content"), testing::MatchesRegex("[x-z]{3}"));
        EXPECT_EQ(chat.finish, "stop");
    });
    expect_of_chats(R"("structured_outputs":{"regex":"[x-z]{3}"},"thinking_token_budget":4,"logprobs":true)", [](const Chat& chat) {
        EXPECT_THAT(text_of_member(chat.message, "content"), testing::MatchesRegex("[x-z]{3}")) << "forced tokens are drawn one by one";
    });
}

TEST(HarmonyChat, ReasoningIsLeftOutIfTheJobSaysSo) {
    expect_of_chats(R"("structured_outputs":{"regex":"[x-z]{3}"},"thinking_token_budget":4,"include_reasoning":false)",
                    [](const Chat& chat) { EXPECT_EQ(chat.message.find("reasoning"), nullptr); });
}

// Nothing is held to anything: tokens of the format come where they may not.
TEST(HarmonyChat, WhateverTheModelWritesThereAreNoMarksInItsResult) {
    std::string allowed = "65,66,67,220,12";
    for (engine::TokenId token = 480; token < tests::hash_vocabulary; ++token) allowed += "," + std::to_string(token);
    for (const std::string& more :
         {std::string(), R"(,"allowed_token_ids":[)" + allowed + "]", std::string(R"(,"skip_special_tokens":false)")}) {
        for (int i = 0; i < 20; ++i) {
            const auto job =
                prepared_messages(std::string(tools_of_harmony) + R"(,"ignore_eos":true)" + more, "prompt " + std::to_string(i));
            ASSERT_TRUE(job.has_value()) << schema::text_of(job.error().error);
            run_chat(*job);
        }
    }
}

TEST(HarmonyChat, OneAnswerHasOneCall) {
    const auto job = prepared_messages(std::string(tools_of_harmony) + R"(,"tool_choice":"required","parallel_tool_calls":true)");
    engine::Grammar::Answer answer = job->requests.front().drawing->grammar->begin();
    bool complete = false;
    const auto tokens = harmony_tokenizer().encode(" to=functions.wait <|constrain|>json<|message|>{}", false);
    for (const engine::TokenId token : *tokens) {
        ASSERT_FALSE(complete);
        complete = answer.accept(token).value();
    }
    EXPECT_TRUE(complete);
}

TEST(HarmonyChat, AMessageThatTheAnswerGoesOnWithIsOpen) {
    EXPECT_EQ(prepared_messages(R"("n":1)")->plan.answer.begin, engine::ThoughtState::undecided);
    const auto job =
        prepared_messages(R"("add_generation_prompt":false,"continue_final_message":true,"structured_outputs":{"regex":"[x-z]{3}"})",
                          R"(q"},{"role":"assistant","content":"It is)");
    ASSERT_TRUE(job.has_value()) << schema::text_of(job.error().error);
    EXPECT_EQ(job->plan.answer.begin, engine::ThoughtState::answering);
    EXPECT_THAT(told(run_chat(*job).message), testing::MatchesRegex("\\|[x-z]{3}\\|"));
}

// The template is in tests/data/text; what it makes of messages is compared there.
TEST(HarmonyChat, AnAnswerWithAThoughtAPreambleAndACallMayBeSentBack) {
    const std::string source = tests::read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/templates/harmony.jinja");
    const std::string history =
        R"(q"},{"role":"assistant","content":"I look.","reasoning":"Look?","tool_calls":[{"id":"1","type":"function","function":)"
        R"({"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x)";
    const auto job = prepared_messages(R"("reasoning_effort":"low")", history, "auto", harmony_tokenizer(), source);
    ASSERT_TRUE(job.has_value()) << schema::text_of(job.error().error);
    const std::string prompt = harmony_tokenizer().decode(job->requests.front().prompt, false);
    EXPECT_THAT(prompt, HasSubstr("Reasoning: low"));
    EXPECT_THAT(prompt, testing::EndsWith("<|start|>assistant<|channel|>analysis<|message|>Look?\nI look.<|end|><|start|>assistant "
                                          "to=functions.look<|channel|>commentary json<|message|>{}<|call|><|start|>functions.look "
                                          "to=assistant<|channel|>commentary<|message|>\"x\"<|end|><|start|>assistant"));
}

// Pins: some checkpoints name <|return|> alone, and the model goes on after its call.
TEST(HarmonyChat, AnAnswerEndsWithItsCallWhateverTheModelsFilesSay) {
    const auto ends = [](const std::string& members) { return prepared_messages(members)->requests.front().drawing->end_tokens; };
    EXPECT_THAT(ends(R"("n":1)"), testing::UnorderedElementsAre(tests::harmony_token("<|return|>"), tests::harmony_token("<|call|>")));
    EXPECT_THAT(ends(R"("ignore_eos":true)"), testing::IsEmpty());
}

TEST(HarmonyChat, BuiltInToolsAreRefused) {
    const auto refusal = [](const std::string& options) {
        const auto job = prepared_messages(R"("chat_template_kwargs":)" + options);
        return job ? std::string("none") : schema::text_of(job.error().error);
    };
    EXPECT_THAT(refusal(R"({"builtin_tools":["python"]})"), HasSubstr("unsupported_by_model: field 'chat_template_kwargs.builtin_tools'"));
    EXPECT_EQ(refusal(R"({"builtin_tools":[]})"), "none");
    EXPECT_EQ(refusal(R"({"model_identity":"You are a lorry."})"), "none");
}

TEST(HarmonyChat, SettingsChooseTheFormat) {
    EXPECT_EQ(prepared_messages(R"("n":1)")->plan.answer.form, AnswerForm::harmony);
    const auto without_thoughts = prepared_messages(R"("n":1)", "q", "none");
    EXPECT_EQ(without_thoughts->plan.answer.form, AnswerForm::harmony) << "calls are messages, too";
    EXPECT_EQ(without_thoughts->plan.answer.thought, nullptr);
    EXPECT_THAT(schema::text_of(prepared_messages(R"("thinking_token_budget":3)", "q", "none").error().error), HasSubstr("no thoughts"));
    EXPECT_EQ(prepared_messages(R"("n":1)", "q", "harmony", tests::gpt2_tokenizer())->plan.answer.form, AnswerForm::text)
        << "its tokenizer has no such tokens";
}

}  // namespace
}  // namespace lorry::consumer
