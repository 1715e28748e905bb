// Earlier messages with calls, as GPT-OSS's template takes them.
#include "consumer/answer/harmony_history.h"

#include <gtest/gtest.h>

#include "tests/support/labels.h"

namespace lorry::consumer {
namespace {

// No other thread takes part.
const tests::Labelled harmony_histories_without_tsan{"*", {tests::Label::not_tsan}};

constexpr const char* call_a = R"({"id":"a","function":{"name":"f","arguments":{}}})";
constexpr const char* call_b = R"({"id":"b","function":{"name":"g","arguments":{}}})";
std::string tool_result(const std::string& id) { return R"({"role":"tool","tool_call_id":")" + id + R"(","content":"of )" + id + R"("})"; }
std::string calling(const std::string& calls, const std::string& members = "") {
    return R"({"role":"assistant",)" + members + R"("tool_calls":[)" + calls + "]}";
}
constexpr const char* user = R"({"role":"user","content":"q"})";
std::string list(std::initializer_list<std::string> messages) {
    std::string all;
    for (const std::string& message : messages) all += (all.empty() ? "" : ",") + message;
    return "[" + all + "]";
}
std::string calls_of_both() { return std::string(call_a) + "," + call_b; }

TEST(HarmonyHistory, EachCallHasAMessageAndItsResultsFollowIt) {
    const std::string divided = list({user, calling(call_a), tool_result("a"), calling(call_b), tool_result("b"), user});
    EXPECT_EQ(with_one_call_each(list({user, calling(calls_of_both()), tool_result("b"), tool_result("a"), user})), divided);
    EXPECT_EQ(with_one_call_each(divided), divided);
    const std::string nameless = R"({"role":"tool","content":"x"})";
    EXPECT_EQ(with_one_call_each(list({calling(calls_of_both()), nameless, nameless})),
              list({calling(call_a), nameless, calling(call_b), nameless}));
    EXPECT_EQ(with_one_call_each(list({calling(calls_of_both()), tool_result("c")})),
              list({calling(call_a), calling(call_b), tool_result("c")}))
        << "nothing is lost";
}

TEST(HarmonyHistory, WhatAMessageSaysStaysWithItsFirstCall) {
    EXPECT_EQ(with_one_call_each(list({calling(calls_of_both(), R"("reasoning":"r",)")})),
              list({calling(call_a, R"("reasoning":"r",)"), calling(call_b)}));
    EXPECT_EQ(with_one_call_each(list({calling(call_a, R"("content":"c",)")})), list({calling(call_a, R"("content":"c",)")}));
}

TEST(HarmonyHistory, ContentBesideACallAndItsReasoningIsTheReasoningsEnd) {
    const std::string joined = R"([{"role":"assistant","tool_calls":[)" + std::string(call_a) + R"(],"reasoning":"r\nc"}])";
    EXPECT_EQ(with_one_call_each(list({calling(call_a, R"("content":"c","reasoning":"r",)")})), joined);
    EXPECT_EQ(
        with_one_call_each(list({calling(call_a, R"("content":[{"type":"text","text":"c"}],"reasoning_content":"r","thinking":null,)")})),
        joined);
    const std::string plain = list({R"({"role":"assistant","content":"c","reasoning":"r"})"});
    EXPECT_EQ(with_one_call_each(plain), plain) << "without a call, the template takes both";
}

// Pins: each call copied its message with all calls, so that a job of 1 MiB took minutes and gigabytes.
TEST(HarmonyHistory, ManyCallsOfALargeMessageStaySmall) {
    std::string calls = R"({"function":{}})";
    for (int i = 1; i < 30'000; ++i) calls += R"(,{"function":{}})";
    const std::string messages = list({calling(calls, R"("x":")" + std::string(100'000, 'x') + R"(",)")});
    EXPECT_LT(with_one_call_each(messages).size(), 4 * messages.size());
}

// Pins: arguments of 99 levels, which the codec takes as a text, are more within their message.
TEST(HarmonyHistory, MessagesThatAreNestedTooDeeplyStayAsTheyAre) {
    const std::string deep = std::string(99, '[') + std::string(99, ']');
    const std::string messages = list({calling(R"({"function":{"name":"f","arguments":{"a":)" + deep + "}}}")});
    EXPECT_EQ(with_one_call_each(messages), messages);
}

TEST(HarmonyHistory, IsForTemplatesThatShowOneCall) {
    EXPECT_TRUE(shows_one_call("{%- set tool_call = message.tool_calls[0] %}"));
    EXPECT_FALSE(shows_one_call("{%- for tool_call in message.tool_calls %}"));
}

}  // namespace
}  // namespace lorry::consumer
