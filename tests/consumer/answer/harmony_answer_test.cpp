// What a client gets of the messages of the harmony format.
#include <gtest/gtest.h>

#include "consumer/answer/answer_reader.h"
#include "tests/support/harmony_text.h"
#include "tests/support/labels.h"

namespace lorry::consumer {
namespace {

// No other thread takes part.
const tests::Labelled harmony_answers_without_tsan{"*", {tests::Label::not_tsan}};

using tests::harmony_text;

AnswerPlan plan_of_messages() {
    return {.form = AnswerForm::harmony,
            .thought = thought_format_of("harmony", ""),
            .begin = engine::ThoughtState::undecided,
            .calls = call_format_of("harmony", ""),
            .names = {"get_weather", "add"}};
}

// "reasoning|content|name {arguments}", the text read in pieces of so many bytes.
std::string read_messages(const AnswerPlan& plan, const std::string& text, std::size_t piece) {
    AnswerReader reader(plan);
    AnswerParts all;
    const auto take = [&](const AnswerParts& parts) {
        all.reasoning += parts.reasoning;
        all.content += parts.content;
        all.calls.insert(all.calls.end(), parts.calls.begin(), parts.calls.end());
    };
    for (std::size_t at = 0; at < text.size(); at += piece) take(reader.push(text.substr(at, piece)));
    take(reader.finish());
    std::string calls;
    for (const FunctionCall& call : all.calls) calls += (calls.empty() ? "" : " ") + call.name + call.arguments;
    return all.reasoning + "|" + all.content + "|" + calls;
}

void expect_messages(const AnswerPlan& plan, const std::string& written, const std::string& expected) {
    const std::string text = harmony_text(written);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, text.size() + 1}) {
        EXPECT_EQ(read_messages(plan, text, piece), expected) << written << " in pieces of " << piece;
    }
}

constexpr const char* thought = "<|channel|>analysis<|message|>We must add.<|end|>";
constexpr const char* call = "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1, \"b\": 2}";

TEST(HarmonyAnswer, ThoughtsAreReasoningFinalMessagesContentAndMessagesToFunctionsCalls) {
    const AnswerPlan plan = plan_of_messages();
    const std::string before = thought;
    expect_messages(plan, before + "<|start|>assistant<|channel|>final<|message|>It is 3.\n", "We must add.|It is 3.\n|");
    expect_messages(plan, before + call, "We must add.||add{\"a\":1,\"b\":2}");
    expect_messages(plan, before + call + "<|call|>", "We must add.||add{\"a\":1,\"b\":2}");
    expect_messages(plan, before + "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{}", "We must add.||add{}");
    expect_messages(plan, "<|channel|>analysis to=functions.add<|message|> \n", "||add{}");
    expect_messages(plan, before + "<|start|>assistant<|channel|>commentary<|message|>I'll add.<|end|>" + call,
                    "We must add.|I'll add.|add{\"a\":1,\"b\":2}");
    expect_messages(plan, "<|channel|>analysis<|message|>cut off", "cut off||");
    expect_messages(plan, "Hello", "|Hello|");
}

TEST(HarmonyAnswer, ACallThatWasCutOffBeforeItsArgumentsIsNone) {
    const AnswerPlan plan = plan_of_messages();
    for (const bool was_cut : {false, true}) {
        AnswerReader reader(plan);
        EXPECT_TRUE(reader.push(harmony_text("<|channel|>commentary to=functions.add json<|message|>")).calls.empty());
        EXPECT_EQ(reader.finish(was_cut).calls.size(), was_cut ? 0U : 1U);
    }
}

TEST(HarmonyAnswer, TextsOfSeveralMessagesAreJoinedByLineBreaks) {
    expect_messages(plan_of_messages(),
                    "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>commentary<|message|>A plan<|end|>"
                    "<|start|>assistant<|channel|>analysis<|message|>two<|end|><|start|>assistant<|channel|>analysis<|message|><|end|>"
                    "<|start|>assistant<|channel|>final<|message|>The end",
                    "one\ntwo|A plan\nThe end|");
}

TEST(HarmonyAnswer, AMessageThatIsNoCallOfAKnownFunctionStaysTextOfItsChannel) {
    const AnswerPlan plan = plan_of_messages();
    const auto to = [](const std::string& recipient, const std::string& body) {
        return "<|channel|>commentary to=" + recipient + " <|constrain|>json<|message|>" + body;
    };
    expect_messages(plan, to("functions.sub", "{\"a\":1}"), "|{\"a\":1}|");
    expect_messages(plan, to("functions.add", "{\"a\": 1, "), "|{\"a\": 1, |");
    expect_messages(plan, to("functions.add", "[1]"), "|[1]|");
    expect_messages(plan, to("python", "1 + 1"), "|1 + 1|");
    expect_messages(plan, "<|channel|>analysis to=python code<|message|>1 + 1", "1 + 1||");
    AnswerPlan none = plan_of_messages();
    none.calls = nullptr;
    none.names.clear();
    expect_messages(none, to("functions.add", "{}"), "|{}|");
}

// The format's own end of a call ends the answer, so that a second one is odd.
TEST(HarmonyAnswer, ASecondCallIsOneUnlessTheJobWantsOne) {
    const std::string two = std::string(call) + "<|end|>" + call;
    expect_messages(plan_of_messages(), two, "||add{\"a\":1,\"b\":2} add{\"a\":1,\"b\":2}");
    AnswerPlan one = plan_of_messages();
    one.parallel = false;
    expect_messages(one, two, "|{\"a\": 1, \"b\": 2}|add{\"a\":1,\"b\":2}");
}

TEST(HarmonyAnswer, ThoughtsAreContentWhereTheSettingSaysThatThereAreNone) {
    AnswerPlan plan = plan_of_messages();
    plan.thought = nullptr;
    expect_messages(plan, std::string(thought) + "<|start|>assistant<|channel|>final<|message|>3", "|We must add.\n3|");
}

TEST(HarmonyAnswer, AMessageThatThePromptBeganGoesOn) {
    AnswerPlan plan = plan_of_messages();
    plan.begin = engine::ThoughtState::answering;
    expect_messages(plan, " and so on<|return|>", "| and so on|");
    plan.begin = engine::ThoughtState::thinking;
    expect_messages(plan, "hm<|end|><|start|>assistant<|channel|>final<|message|>3", "hm|3|");
}

TEST(HarmonyAnswer, CostsNoMoreThanTheLengthOfItsText) {
    for (const char* part : {"<|start|>", "<|channel|>", "<|message|>x", "to=", "<|channel|>final x", "\uFDD0<|"}) {
        std::string text;
        for (int i = 0; i < 100'000; ++i) text += harmony_text(part);
        read_messages(plan_of_messages(), text, 7);
    }
}

TEST(AnswerFormats, MessagesNeedTheirSpecialTokensAndNoOtherFormatBesideThem) {
    const ThoughtFormat* thoughts = thought_format_of("harmony", "");
    const CallFormat* calls = call_format_of("harmony", "");
    const auto all = [](std::string_view) { return true; };
    const auto but_call = [](std::string_view mark) { return mark != "<|call|>"; };
    EXPECT_EQ(formats_of(thoughts, calls, all).form, AnswerForm::harmony);
    EXPECT_EQ(formats_of(nullptr, calls, all).form, AnswerForm::harmony);
    EXPECT_EQ(formats_of(thoughts, calls, but_call).form, AnswerForm::text);
    EXPECT_EQ(formats_of(thoughts, calls, but_call).thought, nullptr);
    EXPECT_EQ(formats_of(thoughts, calls, but_call).calls, nullptr);
    const CallFormat* hermes = call_format_of("hermes", "");
    EXPECT_EQ(formats_of(thoughts, hermes, all).calls, nullptr);
    EXPECT_EQ(formats_of(thoughts, hermes, but_call).calls, hermes);
    EXPECT_EQ(formats_of(thought_format_of("think", ""), hermes, all).form, AnswerForm::text);
}

}  // namespace
}  // namespace lorry::consumer
