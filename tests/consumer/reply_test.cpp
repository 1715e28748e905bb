// Bodies and chunks of /v1/completions with log-probabilities: text_offset counts characters of the text that the client gets.
#include "consumer/reply.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/text/detokenizer.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::consumer {
namespace {

using engine::TokenId;
using schema::Json;

const ReplyContext& context() {
    static const ReplyContext shared{.tokenizer = tests::gpt2_tokenizer(), .base_name = "tiny", .system_fingerprint = "fp"};
    return shared;
}

std::vector<TokenId> ids_of(const std::string& text) { return *tests::gpt2_tokenizer().encode(text, false); }

// One result of the engine: the prompt's scores, and drawn tokens with their places in the drawn text.
struct Answer {
    Answer(const std::vector<TokenId>& prompt, const std::string& text) {
        result.text = text;
        result.tokens = ids_of(text);
        engine::Detokenizer detokenizer(tests::gpt2_tokenizer(), true);
        detokenizer.prime(prompt);
        std::int64_t characters = 0;
        for (const TokenId id : result.tokens) {
            result.logprobs.push_back({.token = id, .logprob = -0.5F, .top = {}, .text_begin = characters});
            characters += schema::count_characters(detokenizer.push(id));
        }
        for (std::size_t i = 1; i < prompt.size(); ++i) result.scores.push_back({.token = prompt[i], .logprob = -2.0F, .top = {}});
    }
    engine::Result result;
};

ReplyPlan completion_job(const std::vector<TokenId>& prompt, const std::string& prompt_text, std::int32_t samples) {
    ReplyPlan plan;
    plan.job.custom_id = "a";
    plan.job.endpoint = schema::Endpoint::completions;
    plan.job.model = "base";
    plan.job.echo = true;
    plan.job.n = samples;
    plan.job.sampling.logprobs = 0;
    plan.echo = {{.text = prompt_text, .first = prompt.front()}};
    for (std::int32_t sample = 0; sample < samples; ++sample) plan.places.push_back({.prompt = 0, .sample = sample, .choice = -1});
    return plan;
}

// Cuts `text` at its tokens' offsets: "Gr|üße| an".
std::string cut(const std::string& text, const Json& logprobs) {
    std::vector<std::string> characters;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i + 1;
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
        characters.push_back(text.substr(i, end - i));
        i = end;
    }
    std::string out;
    std::int64_t last = 0;
    for (const Json& offset : *logprobs.find("text_offset")->as_array()) {
        for (; last < *offset.as_integer(); ++last) out += characters.at(static_cast<std::size_t>(last));
        out += '|';
    }
    for (; last < static_cast<std::int64_t>(characters.size()); ++last) out += characters[static_cast<std::size_t>(last)];
    return out;
}

// The same from the tokens' own bytes: a character belongs to the token that begins it.
std::string cut_by_bytes(const std::vector<TokenId>& ids) {
    std::string out;
    std::string waiting;  // bars and bytes of a character that is not complete
    std::string bytes;
    for (const TokenId id : ids) {
        (bytes.empty() ? out : waiting) += '|';
        for (const char byte : tests::gpt2_tokenizer().token_bytes(id)) {
            bytes += byte;
            if (!schema::is_valid_utf8(bytes)) continue;
            out += waiting + bytes;
            waiting.clear();
            bytes.clear();
        }
    }
    return out;
}

TEST(Reply, TextOffsetsCountCharactersOfPromptAndAnswer) {
    const std::string prompt_text = "Grüße an 中文 😀";
    const std::string text = " 👍🏽 und naïve Leute";
    const std::vector<TokenId> prompt = ids_of(prompt_text);
    const Answer answer(prompt, text);
    const Reply reply = make_reply(context(), completion_job(prompt, prompt_text, 1), std::span(&answer.result, 1), {});
    const Json& choice = reply.body.find("choices")->as_array()->front();
    EXPECT_EQ(*choice.find("text")->as_string(), prompt_text + text);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), answer.result.tokens.begin(), answer.result.tokens.end());
    EXPECT_EQ(cut(prompt_text + text, *choice.find("logprobs")), cut_by_bytes(all));
    EXPECT_TRUE(choice.find("logprobs")->find("token_logprobs")->as_array()->front().is_null());
}

TEST(Reply, SpecialTokensThatThePromptDoesNotSpellStandNowhereInItsText) {
    const TokenId special = *tests::gpt2_tokenizer().find("<|endoftext|>");
    std::vector<TokenId> prompt = ids_of("one<|endoftext|>two");
    ASSERT_EQ(std::ranges::count(prompt, special), 1) << "spelled out in the prompt";
    const std::string spelled = cut_by_bytes(prompt);
    prompt.insert(prompt.begin(), special);
    const Answer answer(prompt, " three");
    const Reply reply = make_reply(context(), completion_job(prompt, "one<|endoftext|>two", 1), std::span(&answer.result, 1), {});
    const Json& choice = reply.body.find("choices")->as_array()->front();
    EXPECT_EQ(cut(*choice.find("text")->as_string(), *choice.find("logprobs")), "|" + spelled + cut_by_bytes(answer.result.tokens));
}

// Of vLLM's shape: null, then an object by token id with the prompt's own token first.
TEST(Reply, PromptLogprobsHaveTheTokenAndTheLikeliestByTheirIds) {
    const TokenId special = *tests::gpt2_tokenizer().find("<|endoftext|>");
    std::vector<TokenId> prompt = ids_of(" one");
    ASSERT_EQ(prompt.size(), 1U);
    const TokenId one = prompt.front();
    const TokenId two = ids_of(" two").front();  // " tw"
    const TokenId half = ids_of("😀").front();    // bytes that are no text
    prompt.insert(prompt.end(), {special, two});
    engine::Result result;
    result.text = "x";
    result.scores = {{.token = special, .logprob = -7.5F, .top = {{one, -0.5F}, {two, -1.5F}, {half, -2.0F}}, .rank = 300},
                     {.token = two, .logprob = -1.0F, .top = {{half, -0.25F}, {two, -1.0F}, {one, -INFINITY}}, .rank = 2}};
    ReplyPlan plan = completion_job(prompt, "", 2);
    plan.job.echo = false;
    plan.job.sampling.logprobs.reset();
    plan.echo.clear();
    engine::Result second = result;
    second.scores.clear();
    const std::vector<engine::Result> results{result, second};
    const auto lists = [&](std::int32_t top) {
        plan.job.prompt_logprobs = top;
        std::vector<std::string> texts;
        const Reply reply = make_reply(context(), plan, results, {});
        for (const Json& choice : *reply.body.find("choices")->as_array()) {
            EXPECT_TRUE(choice.find("logprobs")->is_null());
            texts.push_back(choice.find("prompt_logprobs")->dump());
        }
        EXPECT_EQ(texts.at(0), texts.at(1)) << "each choice has the list";
        return texts.at(0);
    };
    const auto entry = [](TokenId token, const char* logprob, int rank, const char* text) {
        return fmt::format(R"("{}":{{"logprob":{},"rank":{},"decoded_token":"{}"}})", token, logprob, rank, text);
    };
    const std::string of_special = entry(special, "-7.5", 300, "<|endoftext|>");
    EXPECT_EQ(lists(0), "[null,{" + of_special + "},{" + entry(two, "-1.0", 2, " tw") + "}]");
    EXPECT_EQ(lists(2), "[null,{" + of_special + "," + entry(one, "-0.5", 1, " one") + "," + entry(two, "-1.5", 2, " tw") + "},{" +
                            entry(two, "-1.0", 2, " tw") + "," + entry(half, "-0.25", 1, "\uFFFD") + "}]");
    EXPECT_NE(lists(3).find(entry(one, "-9999.0", 3, " one")), std::string::npos) << "as vLLM, in place of -infinity";

    plan.job.endpoint = schema::Endpoint::chat_completions;
    const Reply chat = make_reply(context(), plan, results, {});
    EXPECT_EQ(chat.body.find("prompt_logprobs")->as_array()->size(), 3U) << "once, for all choices";
    EXPECT_EQ(chat.body.find("choices")->as_array()->front().find("prompt_logprobs"), nullptr);
}

// An echo and prompt_logprobs may ask for different numbers of alternatives.
TEST(Reply, AnEchoShowsAsManyAlternativesAsLogprobsSays) {
    const std::vector<TokenId> prompt = ids_of("a prompt");
    Answer answer(prompt, " and");
    for (engine::TokenLogprobs& score : answer.result.scores) score.top = {{300, -0.5F}, {301, -1.0F}, {302, -1.5F}};
    ReplyPlan plan = completion_job(prompt, "a prompt", 1);
    plan.job.sampling.logprobs = 1;
    plan.job.prompt_logprobs = 3;
    const Reply reply = make_reply(context(), plan, std::span(&answer.result, 1), {});
    const Json& choice = reply.body.find("choices")->as_array()->front();
    EXPECT_EQ(choice.find("logprobs")->find("top_logprobs")->as_array()->at(1).as_object()->size(), 1U);
    EXPECT_EQ(choice.find("prompt_logprobs")->as_array()->at(1).as_object()->size(), 4U);
}

// Concatenated list by list, the chunks of a stream equal the completion.
TEST(Reply, StreamedChunksAddUpToTheCompletionWithItsOffsets) {
    const std::string prompt_text = "Grüße 😀";
    const std::vector<TokenId> prompt = ids_of(prompt_text);
    const std::vector<Answer> answers{{prompt, " an 中文 Leute"}, {prompt, " und 👍🏽"}};
    const std::vector<engine::Result> results{answers[0].result, answers[1].result};
    const ReplyPlan plan = completion_job(prompt, prompt_text, 2);
    const Reply reply = make_reply(context(), plan, results, {});

    ChunkWriter writer(context(), stream_head_of(plan), {}, 1);
    std::vector<schema::Chunk> chunks;
    const auto take = [&](std::vector<schema::Chunk> more) { chunks.insert(chunks.end(), more.begin(), more.end()); };
    engine::Delta scored{.id = 0, .text = {}, .logprobs = {}, .prompt = engine::Delta::ScoredPrompt{prompt.front(), results[0].scores}};
    take(writer.text(0, scored));
    ASSERT_EQ(chunks.size(), 1U) << "the prompt alone";
    for (const std::int32_t choice : {1, 0}) {
        const engine::Result& result = results[static_cast<std::size_t>(choice)];
        engine::Detokenizer detokenizer(tests::gpt2_tokenizer(), true);
        detokenizer.prime(prompt);
        engine::Delta delta;
        for (std::size_t i = 0; i < result.tokens.size(); ++i) {
            delta.text += detokenizer.push(result.tokens[i]);
            delta.logprobs.push_back(result.logprobs[i]);
            if (delta.text.empty()) continue;
            take(writer.text(choice, delta));
            delta = {};
        }
        take(writer.end(choice, result.finish));
    }
    for (const std::size_t index : {0U, 1U}) {
        std::string text;
        std::map<std::string, std::string> lists;
        for (const schema::Chunk& chunk : chunks) {
            const Json& choice = chunk.chunk.find("choices")->as_array()->front();
            if (*choice.find("index")->as_integer() != static_cast<std::int64_t>(index)) continue;
            text += *choice.find("text")->as_string();
            if (choice.find("logprobs")->is_null()) continue;
            for (const auto& [name, list] : *choice.find("logprobs")->as_object()) {
                for (const Json& one : *list.as_array()) lists[name] += one.dump() + " ";
            }
        }
        const Json& whole = (*reply.body.find("choices")->as_array())[index];
        EXPECT_EQ(text, *whole.find("text")->as_string());
        for (const auto& [name, list] : *whole.find("logprobs")->as_object()) {
            std::string expected;
            for (const Json& one : *list.as_array()) expected += one.dump() + " ";
            EXPECT_EQ(lists[name], expected) << name << " of choice " << index;
        }
    }
}

TEST(Reply, AStreamWithoutLogProbabilitiesHasNone) {
    ReplyPlan plan = completion_job(ids_of("one"), "one", 1);
    plan.job.sampling.logprobs.reset();
    ChunkWriter writer(context(), stream_head_of(plan), {}, 1);
    const auto chunks = writer.text(0, {.id = 0, .text = " two", .logprobs = {}, .prompt = {}});
    ASSERT_EQ(chunks.size(), 2U);
    for (const schema::Chunk& chunk : chunks) EXPECT_TRUE(chunk.chunk.find("choices")->as_array()->front().find("logprobs")->is_null());
}

// The estimate is what keeps a reply of hundreds of megabytes from being built.
TEST(ReplyBytes, AreEstimatedWithinAFactorOfTwo) {
    const auto expect_close = [](const ReplyPlan& plan, const std::vector<engine::Result>& results) {
        const auto estimate = static_cast<double>(reply_bytes_of(plan, results));
        const auto real = static_cast<double>(make_reply(context(), plan, results, {}).body.dump().size());
        EXPECT_LT(estimate, 2 * real);
        EXPECT_GT(estimate, real / 2);
    };
    const std::string prompt_text = "A prompt of some length, which the reply repeats with its log-probabilities.";
    const std::vector<TokenId> prompt = ids_of(prompt_text);
    engine::Result answer = Answer(prompt, " An answer that is drawn token by token, too.").result;
    for (auto* entries : {&answer.logprobs, &answer.scores}) {
        for (engine::TokenLogprobs& entry : *entries) {
            entry.logprob = -1.2345678F;
            for (TokenId id = 300; id < 320; ++id) entry.top.push_back({.token = id, .logprob = -0.1F * static_cast<float>(id)});
        }
    }
    ReplyPlan plan = completion_job(prompt, prompt_text, 3);
    plan.job.sampling.logprobs = 20;
    expect_close(plan, {answer, answer, answer});
    plan.job.prompt_logprobs = 20;
    engine::Result more = answer;
    for (engine::TokenLogprobs& score : more.scores) score.rank = 1234;
    expect_close(plan, {more, more, more});
    plan.job.prompt_logprobs.reset();
    plan.job.sampling.logprobs.reset();
    engine::Result plain = answer;
    plain.logprobs.clear();
    plain.scores.clear();
    expect_close(plan, {plain, plain, plain});
    plan.job.endpoint = schema::Endpoint::chat_completions;
    plan.job.echo = false;
    plan.job.sampling.logprobs = 20;
    plan.job.prompt_logprobs = 5;
    expect_close(plan, {more, more, more});
    plan.job.prompt_logprobs.reset();
    answer.scores.clear();
    expect_close(plan, {answer, answer, answer});
    ReplyPlan labels;
    labels.job.endpoint = schema::Endpoint::classify;
    labels.work = Work::score_choices;
    engine::Result scored;
    for (int i = 0; i < 100; ++i) {
        labels.job.choices.push_back(std::to_string(i));
        labels.choices.push_back({static_cast<TokenId>(i)});
        scored.final_targets.push_back(-0.01F * static_cast<float>(i));
    }
    labels.places = {RequestPlace{}};
    expect_close(labels, {scored});
}

ReplyPlan chat_job(const std::string& calls) {
    ReplyPlan plan;
    plan.job.custom_id = "a";
    plan.job.endpoint = schema::Endpoint::chat_completions;
    plan.job.model = "base";
    plan.answer = {.thought = thought_format_of("think", ""),
                   .begin = engine::ThoughtState::undecided,
                   .calls = call_format_of(calls, ""),
                   .names = {"add"}};
    plan.places.push_back({.prompt = 0, .sample = 0, .choice = -1});
    return plan;
}

engine::Result written(const std::string& text) {
    engine::Result result;
    result.text = text;
    result.tokens = ids_of(text);
    result.thought_tokens = 3;
    return result;
}

TEST(Reply, AMessageHasReasoningContentAndCalls) {
    const auto choice_of = [](const ReplyPlan& plan, const engine::Result& result) {
        const Reply reply = make_reply(context(), plan, std::span(&result, 1), {});
        return reply.body.find("choices")->as_array()->front();
    };
    const std::string call = "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>";
    ReplyPlan plan = chat_job("hermes");
    const Json both = choice_of(plan, written("<think>hm</think>" + call));
    const std::string id = call_id(*plan.answer.calls, body_id(plan.job.endpoint, plan.job.source, "a"), 0, 0);
    EXPECT_EQ(both.find("message")->dump(), R"({"role":"assistant","content":null,"reasoning":"hm","tool_calls":[{"id":")" + id +
                                                R"(","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]})");
    EXPECT_EQ(*both.find("finish_reason")->as_string(), "tool_calls");
    engine::Result cut = written(call);
    cut.finish = engine::FinishReason::length;
    EXPECT_EQ(*choice_of(plan, cut).find("finish_reason")->as_string(), "length");
    plan.job.tools.named = true;
    EXPECT_EQ(*choice_of(plan, written(call)).find("finish_reason")->as_string(), "stop");
    plan.job.include_reasoning = false;
    EXPECT_EQ(choice_of(plan, written("<think>hm</think>yes")).find("message")->dump(), R"({"role":"assistant","content":"yes"})");
    EXPECT_EQ(choice_of(plan, written("<think>hm")).find("message")->dump(), R"({"role":"assistant","content":null})");
    EXPECT_EQ(choice_of(plan, written("")).find("message")->dump(), R"({"role":"assistant","content":""})");
    const engine::Result result = written("x");
    EXPECT_EQ(make_reply(context(), plan, std::span(&result, 1), {}).body.find("usage")->find("completion_tokens_details")->dump(),
              R"({"reasoning_tokens":3})");
}

TEST(Reply, ChunksOfAChatHaveItsPartsAsDeltas) {
    const ReplyPlan plan = chat_job("hermes");
    const std::string text = "<think>hm, so</think>\n\nYes.<tool_call>{\"name\":\"add\"}</tool_call>";
    ChunkWriter writer(context(), stream_head_of(plan), {}, 1);
    std::string reasoning;
    std::string content;
    std::string calls;
    std::string finish;
    const auto take = [&](const std::vector<schema::Chunk>& chunks) {
        for (const schema::Chunk& chunk : chunks) {
            const Json& choice = chunk.chunk.find("choices")->as_array()->front();
            const Json& delta = *choice.find("delta");
            if (const Json* part = delta.find("reasoning")) reasoning += *part->as_string();
            if (const Json* part = delta.find("content")) content += *part->as_string();
            if (const Json* part = delta.find("tool_calls")) calls += part->dump();
            if (choice.find("finish_reason")->is_string()) finish += *choice.find("finish_reason")->as_string();
        }
    };
    for (const char c : text) take(writer.text(0, {.id = 0, .text = std::string(1, c), .logprobs = {}, .prompt = {}}));
    take(writer.end(0, engine::FinishReason::stop));
    EXPECT_EQ(reasoning, "hm, so");
    EXPECT_EQ(content, "Yes.");
    const std::string id = call_id(*plan.answer.calls, body_id(plan.job.endpoint, plan.job.source, "a"), 0, 0);
    EXPECT_EQ(calls, R"([{"index":0,"id":")" + id + R"(","type":"function","function":{"name":"add","arguments":"{}"}}])");
    EXPECT_EQ(finish, "tool_calls");
}

}  // namespace
}  // namespace lorry::consumer
