// What a client is sent of a stream whose call runs more than once.
#include "consumer/kafka/calls/call_stream.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr std::int64_t first = 1'000;
constexpr std::int64_t second = 2'000;

Json chunk(const std::string& delta, const std::string& finish = "null", int index = 0, const std::string& logprobs = "null") {
    return Json::parse(fmt::format(R"({{"id":"x","choices":[{{"index":{},"delta":{},"logprobs":{},"finish_reason":{}}}]}})", index, delta,
                                   logprobs, finish))
        .value();
}
Json text(const std::string& content, int index = 0) { return chunk(fmt::format(R"({{"content":"{}"}})", content), "null", index); }
Json role() { return chunk(R"({"role":"assistant","content":""})"); }
Json end() { return chunk("{}", R"("stop")"); }
Json completion(const std::string& content, const std::string& finish = "null") {
    return Json::parse(fmt::format(R"({{"choices":[{{"index":0,"text":"{}","logprobs":null,"finish_reason":{}}}]}})", content, finish))
        .value();
}
Json usage(int cached) { return Json::parse(fmt::format(R"({{"choices":[],"usage":{{"cached_tokens":{}}}}})", cached)).value(); }

// Sends chunks of attempts through a stream and joins what comes out.
struct StreamRig {
    CallStream stream;
    std::map<std::int64_t, std::int64_t> seq;
    std::string sent;  // "role|Hel|lo|stop"

    void take(std::int64_t attempt, const Json& one) { take(attempt, seq[attempt]++, one); }
    void take(std::int64_t attempt, std::int64_t number, const Json& one) {
        const auto news = stream.take(attempt, number, one);
        if (!news) return;
        const Json* choices = news->find("choices");
        if (choices->as_array()->empty()) {
            sent += "usage|";
            return;
        }
        const Json& choice = choices->as_array()->front();
        const Json* delta = choice.find("delta");
        const Json* content = delta == nullptr ? choice.find("text") : delta->find("content");
        if (const Json* reason = choice.find("finish_reason"); !reason->is_null()) sent += *reason->as_string() + " ";
        if (delta != nullptr && delta->find("role") != nullptr) sent += "role";
        if (delta != nullptr && delta->find("reasoning") != nullptr) sent += "(" + *delta->find("reasoning")->as_string() + ")";
        if (delta != nullptr && delta->find("tool_calls") != nullptr) sent += "call";
        sent += (content == nullptr ? std::string() : *content->as_string()) + "|";
    }
};

TEST(CallStream, PassesTheChunksOfOneAttempt) {
    StreamRig rig;
    for (const Json& one : {role(), text("Hel"), text("lo"), chunk(R"({"reasoning":"hm"})"), end(), usage(3)}) rig.take(first, one);
    EXPECT_EQ(rig.sent, "role|Hel|lo|(hm)|stop |usage|");
    EXPECT_TRUE(rig.stream.has(first, 6));
    EXPECT_FALSE(rig.stream.has(first, 7));
    EXPECT_FALSE(rig.stream.has(second, 1));
    EXPECT_TRUE(rig.stream.has(second, 0)) << "a result without chunks";
    EXPECT_FALSE(rig.stream.differs(first));
}

TEST(CallStream, TakesAChunkThatComesTwiceOnce) {
    StreamRig rig;
    rig.take(first, 0, text("a"));
    rig.take(first, 0, text("a"));
    rig.take(first, 1, text("b"));
    EXPECT_EQ(rig.sent, "a|b|");
}

TEST(CallStream, GoesOnWhereAnEarlierAttemptStopped) {
    StreamRig rig;
    for (const Json& one : {role(), text("Hello "), text("wor")}) rig.take(first, one);
    for (const Json& one : {role(), text("Hel"), text("lo world"), text("!"), end()}) rig.take(second, one);
    EXPECT_EQ(rig.sent, "role|Hello |wor|ld|!|stop |") << "cut where the first one stopped";
    EXPECT_FALSE(rig.stream.differs(second));
}

TEST(CallStream, GoesOnWithCompletionsAndTheirEnd) {
    StreamRig rig;
    rig.take(first, completion("one two"));
    for (const Json& one : {completion("one"), completion(" two"), completion(" three"), completion("", R"("length")")})
        rig.take(second, one);
    EXPECT_EQ(rig.sent, "one two| three|length |");
}

TEST(CallStream, SeesAnotherText) {
    StreamRig rig;
    rig.take(first, text("Hello"));
    for (const Json& one : {text("Hell"), text("fire"), end()}) rig.take(second, one);
    EXPECT_EQ(rig.sent, "Hello|") << "nothing of the second one";
    EXPECT_TRUE(rig.stream.differs(second));
    EXPECT_FALSE(rig.stream.differs(first)) << "it may still win";
    EXPECT_TRUE(rig.stream.has(second, 3));
}

TEST(CallStream, SeesThatTheAnswerEndsElsewhere) {
    StreamRig shorter;
    for (const Json& one : {text("Hello"), text(" world")}) shorter.take(first, one);
    for (const Json& one : {text("Hello"), end()}) shorter.take(second, one);
    EXPECT_TRUE(shorter.stream.differs(second));
    StreamRig longer;
    for (const Json& one : {text("Hello"), end()}) longer.take(first, one);
    for (const Json& one : {text("Hello"), text(" world")}) longer.take(second, one);
    EXPECT_TRUE(longer.stream.differs(second));
}

TEST(CallStream, ComparesEachChoiceByItself) {
    StreamRig rig;
    for (const Json& one : {text("a", 0), text("x", 1), text("b", 0)}) rig.take(first, one);
    for (const Json& one : {text("x", 1), text("y", 1), text("ab", 0), text("c", 0)}) rig.take(second, one);
    EXPECT_EQ(rig.sent, "a|x|b|y|c|");
    EXPECT_FALSE(rig.stream.differs(second));
}

TEST(CallStream, TellsReasoningFromContent) {
    StreamRig rig;
    rig.take(first, chunk(R"({"reasoning":"a"})"));
    rig.take(second, text("a"));
    EXPECT_TRUE(rig.stream.differs(second));
}

TEST(CallStream, ComparesCallsOfToolsAsAWhole) {
    StreamRig rig;
    rig.take(first, chunk(R"({"tool_calls":[{"index":0,"id":"c1"}]})"));
    rig.take(second, chunk(R"({"tool_calls":[{"index":0,"id":"c1"}]})"));
    rig.take(second, chunk(R"({"tool_calls":[{"index":1,"id":"c2"}]})"));
    EXPECT_EQ(rig.sent, "call|call|");
    rig.take(3'000, chunk(R"({"tool_calls":[{"index":0,"id":"other"}]})"));
    EXPECT_TRUE(rig.stream.differs(3'000));
}

TEST(CallStream, DoesNotCutATextThatHasLogProbabilities) {
    const auto scored = [](const std::string& content) {
        return chunk(fmt::format(R"({{"content":"{}"}})", content), "null", 0, R"({"content":[]})");
    };
    StreamRig equal;
    for (const Json& one : {scored("a"), scored("b")}) equal.take(first, one);
    for (const Json& one : {scored("a"), scored("b"), scored("c")}) equal.take(second, one);
    EXPECT_EQ(equal.sent, "a|b|c|");
    StreamRig cut;
    cut.take(first, scored("a"));
    cut.take(second, scored("ab"));
    EXPECT_TRUE(cut.stream.differs(second));
    StreamRig alone;  // some chunks have nothing but log-probabilities
    alone.take(first, scored(""));
    EXPECT_EQ(alone.sent, "|");
}

TEST(CallStream, DoesNotCompareUsage) {
    StreamRig rig;
    for (const Json& one : {text("a"), usage(0)}) rig.take(first, one);
    for (const Json& one : {text("a"), usage(7)}) rig.take(second, one);
    EXPECT_EQ(rig.sent, "a|usage|");
    EXPECT_FALSE(rig.stream.differs(second));
}

TEST(CallStream, SeesThatAChunkIsMissing) {
    StreamRig rig;
    rig.take(first, 1, text("b"));
    EXPECT_TRUE(rig.stream.differs(first));
}

TEST(CallStream, IsNotMisledByStrangeChunks) {
    CallStream stream;
    for (const char* strange : {"{}", R"({"choices":7})", R"({"choices":[]})", R"({"choices":[{}]})", R"({"choices":[{"delta":3}]})",
                                R"({"choices":[{"index":"x","delta":{"content":5}}]})", "[]", "7"}) {
        CallStream one;
        static_cast<void>(one.take(first, 0, Json::parse(strange).value()));
    }
}

}  // namespace
}  // namespace lorry::consumer
