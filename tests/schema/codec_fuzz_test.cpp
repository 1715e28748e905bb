// parse_job on random and mutated bytes: whatever they are, the answer is a job or an error, and both can be encoded.
#include <chrono>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "schema/codec.h"

namespace lorry::schema {
namespace {

constexpr const char* seeds[] = {
    R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":)"
    R"("héllo"}],"temperature":0.7,"stop":["x"],"logprobs":true,"top_logprobs":2}})",
    R"({"custom_id":"b","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":[[1,2],[3]],"max_tokens":5,"seed":-7,)"
    R"("logit_bias":{"5":-1.5},"stream":true,"stream_options":{"include_usage":true}}})",
    R"({"custom_id":"c","method":"POST","url":"/classify","body":{"model":"m","input":["x","y"],"choices":["yes","no"]}})",
    R"({"custom_id":"d","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"assistant","content":[{"type":"text",)"
    R"("text":"t"}],"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}],)"
    R"("tool_choice":"auto","chat_template_kwargs":{"a":1e3}}})",
};
constexpr const char* fragments[] = {
    "null",          "-1",           "1e999",    "1e-999", "9223372036854775808", "{}", "[]", "\"\"", "true", "\\ud800",
    "\xff",          "\xed\xa0\x80", "[[[[[[[[", "\"n\":", "\"model\":",          ",",  ":",  "\"",   "\\",   "0.1",
    "\"custom_id\":"};

class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}

    std::string next() {
        std::string text = seeds[below(std::size(seeds))];
        for (std::size_t changes = 1 + below(2) * below(4); changes > 0; --changes) change(text);
        return text;
    }

private:
    std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }

    void change(std::string& text) {
        if (text.empty()) return;
        const std::size_t at = below(text.size());
        const std::size_t length = 1 + below(std::min<std::size_t>(text.size() - at, 12));
        switch (below(8)) {
            case 0: text[at] = static_cast<char>(below(256)); break;
            case 1: text.erase(at, length); break;
            case 2: text.insert(at, text.substr(at, length)); break;
            case 3: text.replace(at, length, fragments[below(std::size(fragments))]); break;
            case 4: text.resize(at); break;
            case 5: text[at] = static_cast<char>('0' + below(10)); break;
            case 6: text[at] = static_cast<char>('a' + below(26)); break;
            case 7: text.insert(at, fragments[below(std::size(fragments))]); break;
        }
    }

    std::mt19937_64 random_;
};

TEST(CodecFuzzTest, ParseJobAnswersEveryMutatedLineWithAJobOrAReasonThatCanBeWritten) {
    const std::uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << "\n";
    Mutator mutator(seed);
    int accepted = 0;
    int with_id = 0;
    constexpr int rounds = 20'000;
    for (int round = 0; round < rounds; ++round) {
        const std::string line = mutator.next();
        const auto job = parse_job({.source = {"t", 0, round}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
        if (job) {
            ++accepted;
            ASSERT_FALSE(job->custom_id.empty()) << line;
            ASSERT_FALSE(job->model.empty()) << line;
            if (const auto* chat = std::get_if<ChatPrompt>(&job->prompt)) {
                ASSERT_TRUE(Json::parse(chat->messages).has_value()) << line;
            }
            continue;
        }
        const BadRecord& bad = job.error();
        ASSERT_FALSE(bad.error.message.empty()) << line;
        ASSERT_FALSE(name_of(bad.error.code).empty()) << line;
        ASSERT_LT(bad.error.message.size(), 1000U) << line;
        ASSERT_TRUE(Json::parse(error_body(bad.error).dump()).has_value()) << line;
        if (bad.custom_id) ++with_id;
    }
    // Otherwise the mutator would only test one branch.
    EXPECT_GT(accepted, rounds / 100);
    EXPECT_GT(with_id, rounds / 100);
    EXPECT_LT(accepted + with_id, rounds * 99 / 100);
}

TEST(CodecFuzzTest, ReadersOfStatusesResultsAndRegistrationsSurviveMutatedRecords) {
    const std::uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << "\n";
    std::mt19937_64 random(seed);
    Status status;
    status.run = {.job_id = "j",
                  .batch_id = "b",
                  .model = "m",
                  .adapter = "h",
                  .worker = "w",
                  .source = {"t", 1, 2},
                  .attempt = 3,
                  .submitted = Timestamp(),
                  .started = Timestamp(),
                  .finished = Timestamp()};
    const std::string texts[] = {
        encode_status(status),
        encode_adapter(
            {.name = "a", .hash = "h", .path = "p/q", .base = "b", .rank_max = 8, .targets = {"x"}, .bytes = 1, .registered = Timestamp()}),
        encode_cancel({.id = "x", .is_batch = true, .jobs_end = {1, 20}})};
    for (int round = 0; round < 5'000; ++round) {
        std::string text = texts[random() % std::size(texts)];
        for (int i = 0; i < 2; ++i) text[random() % text.size()] = "{}[]\":,09atn\\\xff"[random() % 15];
        const auto read_status = parse_status(text);
        ASSERT_TRUE(read_status || !read_status.error().empty()) << text;
        const auto adapter = parse_adapter(text);
        ASSERT_TRUE(adapter || !adapter.error().empty()) << text;
        const auto cancel = parse_cancel(text, {});
        ASSERT_TRUE(cancel || !cancel.error().empty()) << text;
        const auto result = parse_result(text);
        ASSERT_TRUE(result || !result.error().empty()) << text;
    }
}

}  // namespace
}  // namespace lorry::schema
