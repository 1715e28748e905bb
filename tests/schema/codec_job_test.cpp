// parse_job: what a producer may send, and how each wrong line is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/codec.h"

namespace lorry::schema {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* chat_url = "/v1/chat/completions";
constexpr const char* text_url = "/v1/completions";
constexpr const char* classify_url = "/classify";

std::string line_of(const std::string& url, const std::string& body) {
    return fmt::format(R"({{"custom_id":"job-1","method":"POST","url":"{}","body":{}}})", url, body);
}

JobRecord record_of(std::optional<std::string> value, std::vector<Header> headers = {}) {
    return {.source = {.topic = "lorry.jobs", .partition = 3, .offset = 42},
            .key = "key",
            .value = std::move(value),
            .headers = std::move(headers),
            .timestamp = Timestamp(std::chrono::milliseconds(1000))};
}

// The smallest valid body for a url, with more members in front.
std::string body_of(const std::string& url, const std::string& members) {
    const std::string separator = members.empty() ? "" : ",";
    if (url == chat_url) return fmt::format(R"({{{}{}"model":"m","messages":[{{"role":"user","content":"hi"}}]}})", members, separator);
    if (url == text_url) return fmt::format(R"({{{}{}"model":"m","prompt":"hi"}})", members, separator);
    return fmt::format(R"({{{}{}"model":"m","input":"hi","choices":["a","b"]}})", members, separator);
}

Job job_of(const std::string& line, std::vector<Header> headers = {}) {
    auto job = parse_job(record_of(line, std::move(headers)), {});
    EXPECT_TRUE(job.has_value()) << line << "\n" << (job ? "" : job.error().error.message);
    return job ? std::move(*job) : Job();
}

Job job_with(const std::string& url, const std::string& members) { return job_of(line_of(url, body_of(url, members))); }

// "400 code param: message", or "accepted".
std::string refusal(const JobRecord& record) {
    const auto job = parse_job(record, {});
    if (job) return "accepted";
    const JobError& error = job.error().error;
    return fmt::format("{} {} {}: {}", error.status_code(), name_of(error.code), error.param, error.message);
}

std::string refusal_with(const std::string& url, const std::string& members) {
    return refusal(record_of(line_of(url, body_of(url, members))));
}

TEST(ParseJobTest, AChatJobIsReadWithAllItsFields) {
    const Job job = job_of(line_of(chat_url, R"({
        "model":"section@0123","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}],
        "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1.1,
        "logit_bias":{"5":-100,"70":2.5},"seed":-1,"n":3,"stop":["a","b"],"stop_token_ids":[7,8],"max_tokens":20,
        "max_completion_tokens":20,"min_tokens":2,"ignore_eos":true,"include_stop_str_in_output":true,"skip_special_tokens":false,
        "logprobs":true,"top_logprobs":4,"stream":true,"stream_options":{"include_usage":true},"priority":-7,"cache_salt":"s",
        "tools":[{"type":"function","function":{"name":"f","parameters":{"x":1.0}}}],"tool_choice":"none",
        "chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,
        "bad_words":["x","y z"],"allowed_token_ids":[3,9],"thinking_token_budget":64,"include_reasoning":false,
        "add_special_tokens":true,"truncate_prompt_tokens":12,"reasoning_effort":"low",
        "user":"u","metadata":{"a":"b"},"store":true,"service_tier":"flex","response_format":{"type":"text"},"parallel_tool_calls":true})"),
                           {{"trace", "x"}, {"batch_id", "old"}, {"batch_id", "b1"}, {"deadline", "1700000000123"}, {"tenant", "org/t"}});
    EXPECT_EQ(job.source, (Source{"lorry.jobs", 3, 42}));
    EXPECT_EQ(job.custom_id, "job-1");
    EXPECT_EQ(job.id, "b1/job-1");
    EXPECT_EQ(job.batch_id, "b1");
    EXPECT_EQ(job.deadline, Timestamp(std::chrono::milliseconds(1700000000123)));
    EXPECT_EQ(job.submitted, Timestamp(std::chrono::milliseconds(1000)));
    EXPECT_THAT(job.headers, ElementsAre(Header{"trace", "x"}, Header{"tenant", "org/t"}));
    EXPECT_EQ(job.tenant, "org/t");
    EXPECT_EQ(job.cache_salt, "s");
    EXPECT_EQ(job.endpoint, Endpoint::chat_completions);
    EXPECT_EQ(job.model, "section@0123");
    const auto& chat = std::get<ChatPrompt>(job.prompt);
    EXPECT_EQ(chat.messages, R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
    EXPECT_EQ(chat.tools, R"([{"type":"function","function":{"name":"f","parameters":{"x":1.0}}}])");
    EXPECT_EQ(chat.template_options, R"({"enable_thinking":false,"reasoning_effort":"low"})");
    EXPECT_FALSE(chat.continued);
    EXPECT_FALSE(chat.add_generation_prompt);
    const Sampling& sampling = job.sampling;
    EXPECT_EQ(sampling.temperature, 0.5);
    EXPECT_EQ(sampling.top_p, 0.9);
    EXPECT_EQ(sampling.top_k, 40);
    EXPECT_EQ(sampling.min_p, 0.1);
    EXPECT_EQ(sampling.presence_penalty, -2);
    EXPECT_EQ(sampling.frequency_penalty, 2);
    EXPECT_EQ(sampling.repetition_penalty, 1.1);
    EXPECT_THAT(sampling.logit_bias, ElementsAre(std::pair(5, -100.F), std::pair(70, 2.5F)));
    EXPECT_EQ(sampling.seed, std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(sampling.max_tokens, 20);
    EXPECT_EQ(sampling.min_tokens, 2);
    EXPECT_THAT(sampling.stop, ElementsAre("a", "b"));
    EXPECT_THAT(sampling.stop_token_ids, ElementsAre(7, 8));
    EXPECT_TRUE(sampling.ignore_eos);
    EXPECT_TRUE(sampling.include_stop_text);
    EXPECT_FALSE(sampling.skip_special_tokens);
    EXPECT_EQ(sampling.logprobs, 4);
    EXPECT_THAT(sampling.bad_words, ElementsAre("x", "y z"));
    EXPECT_THAT(*sampling.allowed_token_ids, ElementsAre(3, 9));
    EXPECT_EQ(sampling.thinking_token_budget, 64);
    EXPECT_FALSE(job.include_reasoning);
    EXPECT_EQ(job.add_special_tokens, true);
    EXPECT_EQ(job.prompt_truncation->tokens, 12);
    EXPECT_EQ(job.tools.choice, ToolUse::Choice::none);
    EXPECT_EQ(job.n, 3);
    EXPECT_EQ(job.priority, -7);
    EXPECT_TRUE(job.stream);
    EXPECT_TRUE(job.stream_usage);
}

TEST(ParseJobTest, WhatIsLeftOutOrNullHasItsDefault) {
    for (const char* members : {"", R"("temperature":null,"max_tokens":null,"stop":null,"stream":null,"suffix":null,"logprobs":null)"}) {
        const Job job = job_with(text_url, members);
        EXPECT_EQ(job.id, "job-1");
        EXPECT_FALSE(job.sampling.temperature || job.sampling.top_p || job.sampling.top_k || job.sampling.min_p ||
                     job.sampling.repetition_penalty)
            << "the model's own defaults are unknown here";
        EXPECT_EQ(job.sampling.seed, std::nullopt);
        EXPECT_EQ(job.sampling.max_tokens, std::nullopt);
        EXPECT_EQ(job.sampling.logprobs, std::nullopt);
        EXPECT_TRUE(job.sampling.stop.empty());
        EXPECT_TRUE(job.sampling.skip_special_tokens);
        EXPECT_FALSE(job.sampling.ignore_eos);
        EXPECT_FALSE(job.stream);
        EXPECT_FALSE(job.echo);
        EXPECT_EQ(job.prompt_logprobs, std::nullopt);
        EXPECT_EQ(job.n, 1);
        EXPECT_EQ(job.deadline, std::nullopt);
    }
    EXPECT_TRUE(std::get<ChatPrompt>(job_with(chat_url, "").prompt).add_generation_prompt);
    EXPECT_EQ(job_with(text_url, R"("top_k":-1)").sampling.top_k, 0);
    EXPECT_EQ(job_with(chat_url, R"("logprobs":true)").sampling.logprobs, 0);
    EXPECT_EQ(job_with(chat_url, R"("logprobs":false)").sampling.logprobs, std::nullopt);
    EXPECT_EQ(job_with(chat_url, R"("logprobs":false,"top_logprobs":0)").sampling.logprobs, std::nullopt);
    EXPECT_EQ(job_with(text_url, R"("logprobs":0)").sampling.logprobs, 0);
    EXPECT_EQ(job_with(text_url, R"("stop":"x")").sampling.stop, std::vector<std::string>{"x"});
    EXPECT_EQ(job_with(text_url, R"("max_tokens":0,"echo":true)").sampling.max_tokens, 0);
    EXPECT_EQ(job_with(text_url, R"("max_tokens":0,"prompt_logprobs":0)").prompt_logprobs, 0);
    EXPECT_EQ(job_with(chat_url, R"("max_tokens":0,"prompt_logprobs":20)").prompt_logprobs, 20);
    EXPECT_EQ(job_with(chat_url, R"("max_completion_tokens":9)").sampling.max_tokens, 9);
    EXPECT_EQ(job_with(text_url, R"("seed":9223372036854775807)").sampling.seed, 9223372036854775807U);
    EXPECT_EQ(job_with(text_url, R"("n":2,"best_of":2)").n, 2);
}

TEST(ParseJobTest, PromptsComeAsTextListsAndTokenIds) {
    const auto prompts = [](const std::string& prompt) {
        const Job job = job_of(line_of(text_url, fmt::format(R"({{"model":"m","prompt":{}}})", prompt)));
        return std::get<std::vector<TextPrompt>>(job.prompt);
    };
    using Ids = std::vector<std::int32_t>;
    EXPECT_THAT(prompts(R"("hi")"), ElementsAre(TextPrompt("hi")));
    EXPECT_THAT(prompts(R"(["a","b"])"), ElementsAre(TextPrompt("a"), TextPrompt("b")));
    EXPECT_THAT(prompts("[1,2,3]"), ElementsAre(TextPrompt(Ids{1, 2, 3})));
    EXPECT_THAT(prompts("[[1],[2,3]]"), ElementsAre(TextPrompt(Ids{1}), TextPrompt(Ids{2, 3})));
}

TEST(ParseJobTest, ClassifyTakesInputOrMessagesAndItsChoices) {
    const Job with_input = job_of(line_of(classify_url, R"({"model":"m","input":["x","y"],"choices":["yes","no"],"priority":1})"));
    EXPECT_EQ(with_input.endpoint, Endpoint::classify);
    EXPECT_THAT(with_input.choices, ElementsAre("yes", "no"));
    EXPECT_EQ(std::get<std::vector<TextPrompt>>(with_input.prompt).size(), 2U);
    const Job with_messages =
        job_of(line_of(classify_url, R"({"model":"m","messages":[{"role":"user","content":"x"}],"choices":["a","b"]})"));
    EXPECT_EQ(std::get<ChatPrompt>(with_messages.prompt).messages, R"([{"role":"user","content":"x"}])");
}

// Chat templates take a tool call's arguments as an object; the API sends JSON text. The rest is shaped when the template is known.
TEST(ParseJobTest, ArgumentsOfToolCallsBecomeObjects) {
    const Job job = job_of(line_of(chat_url, R"({"model":"m","messages":[
        {"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
        {"role":"tool","tool_call_id":"c1","content":"3","custom":[1]},
        {"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":""}},{"function":{"name":"g","arguments":null}},
                                          {"function":{"name":"h"}},{"function":{"name":"i","arguments":{"y":1.50}}}]},
        {"role":"assistant"},{"role":"assistant","content":null,"tool_calls":[]}]})"));
    EXPECT_EQ(
        std::get<ChatPrompt>(job.prompt).messages,
        R"([{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},)"
        R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
        R"({"role":"tool","tool_call_id":"c1","content":"3","custom":[1]},)"
        R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}},)"
        R"({"function":{"name":"h","arguments":{}}},{"function":{"name":"i","arguments":{"y":1.50}}}]},)"
        R"({"role":"assistant"},{"role":"assistant","content":null,"tool_calls":[]}])");
}

// Pins: a rounded number in a tool's schema, a call's arguments or a template's variables is another number.
TEST(ParseJobTest, NumbersOf64BitsKeepTheirDigits) {
    const Job job = job_of(line_of(chat_url, R"({"model":"m","chat_template_kwargs":{"id":18446744073709551615},
        "tools":[{"type":"function","function":{"name":"f","parameters":{"maximum":18446744073709551615}}}],
        "messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"id\": 18446744073709551615}"}}]}]})"));
    const ChatPrompt& chat = std::get<ChatPrompt>(job.prompt);
    EXPECT_THAT(chat.template_options, HasSubstr(R"({"id":18446744073709551615})"));
    EXPECT_THAT(chat.tools, HasSubstr(R"({"maximum":18446744073709551615})"));
    EXPECT_THAT(chat.messages, HasSubstr(R"("arguments":{"id":18446744073709551615})"));
}

struct WrongField {
    const char* url;
    std::string members;
    const char* refusal;
};

void expect_refusals(std::span<const WrongField> cases) {
    for (const WrongField& wrong : cases) {
        EXPECT_THAT(refusal_with(wrong.url, wrong.members), HasSubstr(wrong.refusal)) << wrong.members;
        EXPECT_THAT(refusal_with(wrong.url, wrong.members), ::testing::StartsWith("400 ")) << wrong.members;
    }
}

TEST(ParseJobTest, EachWrongFieldIsRefusedByNameValueAndAllowedRange) {
    const WrongField cases[] = {
        {chat_url, R"("temperature":2.5)", "400 invalid_value temperature: field 'temperature' is 2.5; allowed is 0 to 2"},
        {chat_url, R"("temperature":"hot")", "400 invalid_type temperature: field 'temperature' must be a number, not a string"},
        {chat_url, R"("temperature":-0.1)", "is -0.1; allowed is 0 to 2"},
        {text_url, R"("top_p":0)", "400 invalid_value top_p: field 'top_p' is 0; allowed is above 0 to 1"},
        {text_url, R"("top_p":1.01)", "allowed is above 0 to 1"},
        {text_url, R"("top_k":-2)", "field 'top_k' is -2; allowed is an integer from -1 to 2147483647"},
        {text_url, R"("top_k":1.5)", "field 'top_k' is 1.5; allowed is an integer"},
        {text_url, R"("min_p":2)", "field 'min_p' is 2; allowed is 0 to 1"},
        {text_url, R"("presence_penalty":3)", "field 'presence_penalty' is 3; allowed is -2 to 2"},
        {text_url, R"("frequency_penalty":-3)", "field 'frequency_penalty' is -3; allowed is -2 to 2"},
        {text_url, R"("repetition_penalty":0)", "field 'repetition_penalty' is 0; allowed is above 0 to 100"},
        {text_url, R"("logit_bias":[1])", "field 'logit_bias' must be an object from token id to number, not an array"},
        {text_url, R"("logit_bias":{"x":1})", "field 'logit_bias' has the key 'x'; allowed are token ids"},
        {text_url, R"("logit_bias":{"05":1})", "has the key '05'"},
        {text_url, R"("logit_bias":{"-5":1})", "has the key '-5'"},
        {text_url, R"("logit_bias":{"99999999999":1})", "has the key '99999999999'"},
        {text_url, R"("logit_bias":{"5":101})", "field 'logit_bias.5' is 101; allowed is -100 to 100"},
        {text_url, R"("logit_bias":{"5":"a"})", "field 'logit_bias.5' must be a number, not a string"},
        {text_url, R"("seed":1.5)", "field 'seed' is 1.5"},
        {text_url, R"("seed":9223372036854775808)", "field 'seed' is 9223372036854775808; allowed is an integer from"},
        {text_url, R"("seed":12345678901234567890)", "field 'seed' is 12345678901234567890; allowed is an integer from"},
        {text_url, R"("temperature":2.50)", "field 'temperature' is 2.50; allowed"},
        {text_url, R"("n":0)", "field 'n' is 0; allowed is an integer from 1 to 128"},
        {text_url, R"("n":129)", "field 'n' is 129"},
        {text_url, R"("n":true)", "field 'n' must be an integer, not a boolean"},
        {text_url, R"("best_of":2)", "400 unsupported_field best_of: field 'best_of' is 2; only the value of n, 1, is supported"},
        {text_url, R"("cache_salt":7)", "field 'cache_salt' must be a string, not a number"},
        {classify_url, R"("cache_salt":"")", "field 'cache_salt' is \"\"; allowed is a text of at least 1 byte"},
        {text_url, R"("stop":7)", "field 'stop' must be a string or an array of strings, not a number"},
        {text_url, R"("stop":[""])", "field 'stop' is \"\"; allowed is a text of 1 to 1024 bytes"},
        {text_url, R"("stop":["a",1])", "field 'stop' must be a string or an array of strings, not a number"},
        {text_url, R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "a list of up to 16 strings"},
        {text_url, R"("bad_words":"a")", "400 invalid_type bad_words: field 'bad_words' must be an array of strings, not a string"},
        {text_url, R"("bad_words":[""])", "field 'bad_words' is \"\"; allowed is a text of 1 to 1024 bytes"},
        {text_url, fmt::format(R"("bad_words":["{}"])", fmt::join(std::vector(17, std::string(1000, 'x')), "\",\"")), "of 16384 bytes"},
        {text_url, R"("allowed_token_ids":[])", "field 'allowed_token_ids' is empty; give at least one token id"},
        {text_url, R"("allowed_token_ids":[1,-1])", "field 'allowed_token_ids[1]' is -1; allowed is a token id"},
        {text_url, R"("truncate_prompt_tokens":0)", "field 'truncate_prompt_tokens' is 0; allowed is a number of tokens"},
        {chat_url, R"("thinking_token_budget":-1)", "field 'thinking_token_budget' is -1"},
        {chat_url, R"("reasoning_effort":"huge")", "field 'reasoning_effort' is \"huge\"; allowed is none, minimal, low"},
        {chat_url, R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"})", "reasoning_effort' differ"},
        {chat_url, R"("continue_final_message":true)", "field 'continue_final_message' needs 'add_generation_prompt': false"},
        {text_url, R"("stop_token_ids":[-1])", "field 'stop_token_ids[0]' is -1; allowed is a token id, 0 or more"},
        {text_url, R"("stop_token_ids":5)", "field 'stop_token_ids' must be an array of token ids, not a number"},
        {text_url, R"("stop_token_ids":[1,"5"])", "field 'stop_token_ids[1]' must be a token id, not a string"},
        {text_url, R"("stop_token_ids":[18446744073709551616])", "field 'stop_token_ids[0]' is 18446744073709551616; allowed"},
        {text_url, R"("max_tokens":-1)", "field 'max_tokens' is -1"},
        {text_url, R"("max_tokens":0)",
         "field 'max_tokens' is 0; allowed is 1 or more, or 0 with 'prompt_logprobs' or, on /v1/completions, 'echo'"},
        {text_url, R"("max_tokens":4294967297)", "field 'max_tokens' is 4294967297; allowed is an integer from 0 to 2147483647"},
        {chat_url, R"("max_tokens":5,"max_completion_tokens":6)",
         "field 'max_tokens' is 5 and 'max_completion_tokens' 6; give one of them"},
        {text_url, R"("max_tokens":4,"min_tokens":5)", "field 'min_tokens' is 5; allowed is 0 to max_tokens, 4"},
        {text_url, R"("min_tokens":17)", "field 'min_tokens' is 17; allowed is 0 to max_tokens, 16"},
        {text_url, R"("ignore_eos":1)", "field 'ignore_eos' must be true or false, not a number"},
        {chat_url, R"("logprobs":2)", "field 'logprobs' must be true or false, not a number"},
        {text_url, R"("logprobs":true)", "field 'logprobs' must be an integer, not a boolean"},
        {text_url, R"("logprobs":21)", "field 'logprobs' is 21; allowed is an integer from 0 to 20"},
        {chat_url, R"("top_logprobs":3)", "field 'top_logprobs' needs 'logprobs': true"},
        {chat_url, R"("logprobs":true,"top_logprobs":21)", "field 'top_logprobs' is 21"},
        {chat_url, R"("stream_options":{"include_usage":true})", "field 'stream_options' needs 'stream': true"},
        {chat_url, R"("stream":true,"stream_options":{"continuous_usage_stats":true})",
         "field 'stream_options.continuous_usage_stats' is not supported"},
        {chat_url, R"("stream":true,"stream_options":{"include_usage":1})", "field 'stream_options.include_usage' must be true or false"},
    };
    expect_refusals(cases);
}

// Pins: `messages` sent to /v1/completions was answered with the advice to leave it out.
TEST(ParseJobTest, AFieldOfAnotherUrlNamesThatUrl) {
    const WrongField cases[] = {
        {text_url, R"("max_completion_tokens":5)",
         "400 unsupported_field max_completion_tokens: field 'max_completion_tokens' is not supported on /v1/completions; leave it out, or "
         "use a url that takes it: /v1/chat/completions"},
        {text_url, R"("messages":[])",
         "field 'messages' is not supported on /v1/completions; leave it out, or use a url that takes it: /v1/chat/completions, /classify"},
        {chat_url, R"("prompt":"a")",
         "field 'prompt' is not supported on /v1/chat/completions; leave it out, or use a url that takes it: /v1/completions"},
    };
    expect_refusals(cases);
}

TEST(ParseJobTest, PromptLogprobsAreForTextsThatAreDrawnFromAndNotForStreams) {
    const WrongField cases[] = {
        {text_url, R"("prompt_logprobs":21)", "field 'prompt_logprobs' is 21; allowed is an integer from 0 to 20"},
        {chat_url, R"("prompt_logprobs":-1)", "field 'prompt_logprobs' is -1; allowed is an integer from 0 to 20"},
        {chat_url, R"("prompt_logprobs":true)", "field 'prompt_logprobs' must be an integer, not a boolean"},
        {chat_url, R"("prompt_logprobs":0,"stream":true)", "field 'prompt_logprobs' is not supported with 'stream': true"},
        {classify_url, R"("prompt_logprobs":1)", "field 'prompt_logprobs' is not supported on /classify; leave it out"},
    };
    expect_refusals(cases);
}

TEST(ParseJobTest, UnknownAndUnsupportedFieldsAndValuesAreRefusedByName) {
    const WrongField cases[] = {
        {chat_url, R"("echo":true)", "400 unsupported_field echo: field 'echo' is not supported on /v1/chat/completions; leave it out"},
        {chat_url, R"("temprature":1)",
         "400 unsupported_field temprature: field 'temprature' is unknown on /v1/chat/completions; leave it out"},
        {chat_url, R"("temprature":null)", "field 'temprature' is unknown"},
        {chat_url, R"("priority":2147483648)", "field 'priority' is 2147483648"},
        {chat_url, R"("user":7)", "field 'user' must be a value of type string, not a number"},
        {chat_url, R"("metadata":"x")", "field 'metadata' must be a value of type object, not a string"},
        {chat_url, R"("guided_choice":["a"])", "field 'guided_choice' is not supported; give 'structured_outputs.choice' instead"},
        {text_url, R"("guided_json":{})", "field 'guided_json' is not supported; give 'structured_outputs.json' instead"},
        {chat_url, R"("functions":[])", "field 'functions' is not supported yet"},
        {text_url, R"("suffix":"x")", "field 'suffix' is not supported yet"},
        {chat_url, R"("tools":{})", "field 'tools' must be an array, not an object"},
        {chat_url, R"("tools":[{"type":"code"}])", "field 'tools[0].type' is \"code\"; allowed is \"function\""},
        {chat_url, R"("tools":[{}])", "400 missing_field tools[0].type: field 'tools[0].type' is missing"},
        {chat_url, R"("tools":[{"type":"function"}])", "field 'tools[0].function' is missing"},
        {chat_url, R"("tools":[{"type":"function","function":7}])",
         "400 invalid_type tools[0].function: field 'tools[0].function' is 7; it"},
        {chat_url, R"("tools":[{"type":"function","function":{}}])", "field 'tools[0].function.name' is missing"},
        {chat_url, R"("tool_choice":"auto")", "field 'tool_choice' needs 'tools'"},
        {chat_url, R"("tool_choice":"required","tools":[])", "field 'tool_choice' needs 'tools'"},
        {chat_url, R"("tool_choice":"any")",
         "400 invalid_value tool_choice: field 'tool_choice' is \"any\"; allowed is \"none\", \"auto\""},
        {chat_url, R"("tool_choice":{"type":"function"})", "400 invalid_value tool_choice"},
        {classify_url, R"("bad_words":["a"])", "field 'bad_words' is not supported on /classify"},
        {chat_url, R"("chat_template_kwargs":[])", "field 'chat_template_kwargs' must be an object, not an array"},
        {chat_url, R"("chat_template_kwargs":{"tools":[]})", "'chat_template_kwargs' has 'tools'; give the field 'tools' instead"},
        {classify_url, R"("temperature":1)", "field 'temperature' is not supported on /classify"},
        {classify_url, R"("stream":true)", "field 'stream' is not supported on /classify"},
        {classify_url, R"("messages":[{"role":"user","content":"x"}])", "fields 'input' and 'messages' are both present"},
    };
    expect_refusals(cases);
}

std::string tools_of(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
        list += (list.empty() ? "" : ",") + (R"({"type":"function","function":{"name":")" + name + R"("}})");
    }
    return R"("tools":[)" + list + "]";
}

TEST(ParseJobTest, ToolsAndTheirChoiceSayWhatMayBeCalled) {
    using Choice = ToolUse::Choice;
    const auto use = [](const std::string& members) {
        return job_of(line_of(chat_url, R"({"model":"m","messages":[{"role":"user","content":"x"}],)" + members + "}")).tools;
    };
    const std::string two = tools_of({"f", "get-weather.v2"});
    EXPECT_EQ(use(two).choice, Choice::automatic);
    EXPECT_EQ(use(two).functions.size(), 2);
    EXPECT_TRUE(use(two).parallel);
    EXPECT_FALSE(use(two + R"(,"parallel_tool_calls":false)").parallel);
    EXPECT_EQ(use(two + R"(,"tool_choice":"required")").choice, Choice::required);
    EXPECT_TRUE(use(two + R"(,"tool_choice":"none")").functions.empty());
    EXPECT_EQ(use(R"("tool_choice":"none")").choice, Choice::none);
    const ToolUse named = use(two + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})");
    EXPECT_TRUE(named.named);
    ASSERT_EQ(named.functions.size(), 1);
    EXPECT_EQ(named.functions.front().name, "f");
    EXPECT_TRUE(job_of(line_of(chat_url, R"({"model":"m","messages":[{"role":"user","content":"x"}],)" + two +
                                             R"(,"tool_choice":"none","response_format":{"type":"json_object"}})"))
                    .structure);
}

TEST(ParseJobTest, WrongToolsAreRefusedWithTheirPlace) {
    std::vector<std::string> many;
    for (int i = 0; i < 1000; ++i) many.push_back("f" + std::to_string(i));
    const WrongField cases[] = {
        {chat_url, tools_of({"f", "a b"}), "400 invalid_value tools[1].function.name: field 'tools[1].function.name' is \"a b\"; allowed"},
        {chat_url, tools_of({"f\\\"g"}), "400 invalid_value tools[0].function.name"},
        {chat_url, tools_of({""}), "400 invalid_value tools[0].function.name"},
        {chat_url, tools_of({std::string(65, 'f')}), "400 invalid_value tools[0].function.name"},
        {chat_url, tools_of({"f", "g", "f"}), "field 'tools[2].function.name' repeats \"f\"; names must differ"},
        {chat_url, tools_of(many), "400 invalid_value tools: field 'tools' has 1000 functions; allowed are up to 128"},
        {chat_url, R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
         "400 invalid_type tools[0].function.parameters"},
        {chat_url, tools_of({"f"}) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})",
         "400 invalid_value tool_choice: field 'tool_choice' names the function 'g', which 'tools' do not have"},
        {chat_url, tools_of({"f"}) + R"(,"response_format":{"type":"json_object"})",
         "400 invalid_value response_format: fields 'response_format' and 'tools' are both present"},
        {chat_url, tools_of({"f"}) + R"(,"structured_outputs":{"regex":"a"})", "400 invalid_value structured_outputs.regex"},
    };
    expect_refusals(cases);
}

// tests/schema/codec_structure_test.cpp has all forms of both fields.
TEST(ParseJobTest, AnAnswerMustMatchOneStructureAtMost) {
    for (const auto url : {chat_url, text_url}) {
        for (const std::string members : {R"("response_format":{"type":"json_object"})", R"("structured_outputs":{"json_object":true})"})
            EXPECT_TRUE(job_with(url, members).structure) << members;
        EXPECT_FALSE(job_with(url, R"("response_format":{"type":"text"})").structure);
        EXPECT_THAT(refusal_with(url, R"("structured_outputs":{"regex":"a"},"response_format":{"type":"json_object"})"),
                    HasSubstr("fields 'response_format' and 'structured_outputs' are both present"));
    }
}

TEST(ParseJobTest, WrongPromptsMessagesAndChoicesAreRefusedWithTheirPlace) {
    struct Case {
        const char* url;
        const char* body;
        const char* refusal;
    };
    const Case cases[] = {
        {chat_url, R"({"model":"m"})", "400 missing_field messages: field 'messages' is missing"},
        {chat_url, R"({"model":"m","messages":null})", "400 missing_field messages: field 'messages' is null; give the chat"},
        {chat_url, R"({"model":"m","messages":"hi"})", "field 'messages' must be an array, not a string"},
        {chat_url, R"({"model":"m","messages":[]})", "field 'messages' is empty"},
        {chat_url, R"({"model":"m","messages":["hi"]})", "field 'messages[0]' must be an object, not a string"},
        {chat_url, R"({"model":"m","messages":[{"content":"x"}]})", "field 'messages[0].role' is missing"},
        {chat_url, R"({"model":"m","messages":[{"role":1,"content":"x"}]})",
         "400 invalid_type messages[0].role: field 'messages[0].role' is 1; it"},
        {chat_url, R"({"model":"m","messages":[{"role":null,"content":"x"}]})",
         "400 missing_field messages[0].role: field 'messages[0].role' is null"},
        {chat_url, R"({"model":"m","messages":[{"role":"","content":"x"}]})", "field 'messages[0].role' is \"\""},
        {chat_url, R"({"model":"m","messages":[{"role":"user"}]})", "field 'messages[0].content' is missing"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":null}]})",
         "400 missing_field messages[0].content: field 'messages[0].content' is null; only an assistant's message may leave it out"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":7}]})",
         "field 'messages[0].content' must be a string or an array of text parts"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
         "400 unsupported_field messages[0].content[0].type: field 'messages[0].content[0].type' is \"image_url\"; only text is supported"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":["x"]}]})", "field 'messages[0].content[0]' must be an object"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":[{"text":"x"}]}]})",
         "field 'messages[0].content[0].type' is missing"},
        {chat_url, R"({"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]})",
         "field 'messages[0].content[0].text' is missing"},
        {chat_url, R"({"model":"m","messages":[{"role":"assistant","tool_calls":{}}]})", "field 'messages[0].tool_calls' must be an array"},
        {chat_url, R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{}]}]})",
         "field 'messages[0].tool_calls[0].function' is missing"},
        {chat_url, R"({"model":"m","messages":[{"role":"assistant","tool_calls":[null]}]})",
         "field 'messages[0].tool_calls[0]' must be an object, not null"},
        {chat_url, R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":[1]}}]}]})",
         "field 'messages[0].tool_calls[0].function.arguments' is not a JSON object: [1]"},
        {chat_url, R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}]})",
         "field 'messages[0].tool_calls[0].function.arguments' is not a JSON object"},
        {text_url, R"({"model":"m"})", "400 missing_field prompt: field 'prompt' is missing"},
        {text_url, R"({"model":"m","prompt":null})", "400 missing_field prompt: field 'prompt' is null; give a string"},
        {text_url, R"({"model":"m","prompt":7})", "field 'prompt' must be a string, a list of strings, a list of token ids"},
        {text_url, R"({"model":"m","prompt":[]})", "field 'prompt' is empty"},
        {text_url, R"({"model":"m","prompt":["a",1]})", "field 'prompt[1]' must be a string as those before it, not a number"},
        {text_url, R"({"model":"m","prompt":[1,"a"]})", "field 'prompt[1]' must be a token id, not a string"},
        {text_url, R"({"model":"m","prompt":[[1],[]]})", "field 'prompt[1]' is empty; give at least one token id"},
        {text_url, R"({"model":"m","prompt":[[1],"a"]})", "field 'prompt[1]' must be a string or a list of token ids, not a string"},
        {text_url, R"({"model":"m","prompt":[1,-2]})", "field 'prompt[1]' is -2; allowed is a token id, 0 or more"},
        {text_url, R"({"model":"m","prompt":[2147483648]})", "field 'prompt[0]' is 2147483648"},
        {text_url, R"({"model":"m","prompt":[1.5]})", "field 'prompt[0]' is 1.5; allowed is a token id"},
        {text_url, R"({"model":"m","prompt":[true]})", "field 'prompt[0]' must be a string or a list of token ids, not a boolean"},
        {classify_url, R"({"model":"m","choices":["a","b"]})", "field 'input' is missing"},
        {classify_url, R"({"model":"m","input":"x","choices":["a"]})",
         "field 'choices' is [\"a\"]; allowed is a list of at least 2 strings"},
        {classify_url, R"({"model":"m","input":"x","choices":"a"})", "field 'choices' must be an array of strings, not a string"},
        {classify_url, R"({"model":"m","input":"x","choices":["a","b","a"]})", "field 'choices[2]' repeats \"a\"; choices must differ"},
        {classify_url, R"({"model":"m","input":"x","choices":["a",""]})", "field 'choices[1]' is \"\""},
        {classify_url, R"({"model":"m","input":"x","choices":["a",1]})", "field 'choices[1]' must be a string, not a number"},
        {text_url, R"({"prompt":"x"})", "400 missing_field model: field 'model' is missing; name an adapter or the base model"},
        {text_url, R"({"model":null,"prompt":"x"})", "400 missing_field model: field 'model' is null; name an adapter"},
        {text_url, R"({"model":7,"prompt":"x"})", "field 'model' must be a string, not a number"},
        {text_url, R"({"model":"","prompt":"x"})", "field 'model' is \"\"; allowed is a name of 1 to 512 bytes"},
        {text_url, R"([])", "400 invalid_type body: field 'body' must be an object, not an array"},
        {text_url, R"(null)", "field 'body' must be an object, not null"},
    };
    for (const Case& wrong : cases) EXPECT_THAT(refusal(record_of(line_of(wrong.url, wrong.body))), HasSubstr(wrong.refusal)) << wrong.body;
}

TEST(ParseJobTest, AStopTextHasAtMost1024Bytes) {
    const auto stop_of = [](std::size_t bytes) { return R"("stop":[")" + std::string(bytes, 'x') + "\"]"; };
    EXPECT_EQ(job_with(text_url, stop_of(1024)).sampling.stop.front().size(), 1024U);
    EXPECT_THAT(refusal_with(text_url, stop_of(1025)), HasSubstr("allowed is a text of 1 to 1024 bytes"));
}

TEST(ParseJobTest, AJobMayAskForAtMost4096Sequences) {
    std::string prompts = "[\"x\"";
    for (int i = 1; i < 64; ++i) prompts += ",\"x\"";
    prompts += "]";
    EXPECT_EQ(job_of(line_of(text_url, fmt::format(R"({{"model":"m","n":64,"prompt":{}}})", prompts))).n, 64);
    EXPECT_THAT(refusal(record_of(line_of(text_url, fmt::format(R"({{"model":"m","n":65,"prompt":{}}})", prompts)))),
                HasSubstr("the job asks for 4160 sequences (prompts × n); allowed are up to 4096: split it"));
}

TEST(ParseJobTest, WrongLinesWithAnIdBecomeItsErrorAndOnesWithoutBecomeDeadLetters) {
    struct Case {
        const char* line;
        bool has_id;
        const char* refusal;
    };
    const std::string long_id = fmt::format(R"({{"custom_id":"{}","url":"/classify","body":{{}}}})", std::string(513, 'x'));
    const Case cases[] = {
        {"not json", false, "400 invalid_json : the job is not JSON: "},
        {"", false, "the job is not JSON"},
        {"[1]", false, "the job is a JSON array; a job is an object"},
        {"\"x\"", false, "the job is a JSON string"},
        {"{}", false, "400 invalid_custom_id custom_id: field 'custom_id' is missing"},
        {R"({"custom_id":7})", false, "field 'custom_id' must be a string, not a number"},
        {R"({"custom_id":null})", false, "field 'custom_id' must be a string, not null"},
        {R"({"custom_id":""})", false, "field 'custom_id' is empty"},
        {long_id.c_str(), false, "field 'custom_id' has 513 bytes; allowed are up to 512"},
        {"{\"custom_id\":\"a\xff\"}", false, "the job is not JSON"},
        {R"({"custom_id":"job-1"})", true,
         "400 missing_field url: field 'url' is missing; it is one of /v1/chat/completions, /v1/completions, /classify"},
        {R"({"custom_id":"job-1","url":7,"body":{}})", true, "field 'url' is 7; it is one of"},
        {R"({"custom_id":"job-1","url":"/v1/responses","body":{}})", true,
         "400 unsupported_url url: url \"/v1/responses\" is not supported; supported are"},
        {R"({"custom_id":"job-1","url":"/classify"})", true, "field 'body' is missing"},
        {R"({"custom_id":"job-1","method":"GET","url":"/classify","body":{}})", true, "field 'method' is \"GET\"; allowed is \"POST\""},
        {R"({"custom_id":"job-1","method":1,"url":"/classify","body":{}})", true, "field 'method' must be a string"},
        {R"({"custom_id":"job-1","url":"/classify","body":{},"model":"x"})", true,
         "400 unsupported_field model: field 'model' is unknown; a job has custom_id, method, url and body"},
        {R"({"custom_id":"old","custom_id":"job-1","url":"/classify"})", true, "field 'body' is missing"},
    };
    for (const Case& wrong : cases) {
        const JobRecord record = record_of(wrong.line, {{"batch_id", "b"}});
        EXPECT_THAT(refusal(record), HasSubstr(wrong.refusal)) << wrong.line;
        const BadRecord bad = parse_job(record, {}).error();
        EXPECT_EQ(bad.custom_id, wrong.has_id ? std::optional<std::string>("job-1") : std::nullopt) << wrong.line;
        EXPECT_EQ(bad.job_id, wrong.has_id ? "b/job-1" : "") << wrong.line;
        EXPECT_EQ(bad.batch_id, "b");
    }
    EXPECT_THAT(refusal(record_of(std::nullopt)), HasSubstr("400 null_value : the record has a null value"));
    const auto model_known = parse_job(record_of(line_of(text_url, R"({"prompt":7,"model":"m"})")), {});
    EXPECT_EQ(model_known.error().model, "m");
}

TEST(ParseJobTest, ATooLargeJobIsA413UnderItsIdAsLongAsItCanBeFound) {
    const auto large = [](std::size_t bytes) {
        return line_of(text_url, fmt::format(R"({{"model":"m","prompt":"{}"}})", std::string(bytes, 'x')));
    };
    const ParseLimits limits;
    EXPECT_TRUE(parse_job(record_of(large(limits.bytes_max - 200)), limits).has_value());
    const auto refused = parse_job(record_of(large(10'000'000)), limits).error();
    EXPECT_EQ(refused.custom_id, "job-1");
    EXPECT_EQ(refused.error.status_code(), 413);
    EXPECT_EQ(name_of(refused.error.code), "payload_too_large");
    EXPECT_THAT(refused.error.message, HasSubstr("allowed are up to 1048576"));
    EXPECT_EQ(parse_job(record_of(large(10'000'000)), {.scanned_bytes_max = 5'000'000}).error().custom_id, std::nullopt);
    const auto broken = parse_job(record_of("{\"custom_id\":\"job-1\"," + std::string(2'000'000, 'x')), limits).error();
    EXPECT_EQ(broken.custom_id, std::nullopt);
    EXPECT_EQ(broken.error.status_code(), 413);
}

TEST(ParseJobTest, HeadersThatMeanSomethingAreChecked) {
    const std::string line = line_of(text_url, body_of(text_url, ""));
    for (const char* deadline : {"", "soon", "-1", "1.5", "12 ", "99999999999999999999", "\xff"}) {
        EXPECT_THAT(refusal(record_of(line, {{"deadline", deadline}})), HasSubstr("400 invalid_header deadline: header 'deadline' is '"))
            << deadline;
    }
    EXPECT_THAT(refusal(record_of(line, {{"deadline", "1764115200"}})), HasSubstr("is '1764115200', which looks like seconds; allowed is"));
    for (const char* deadline : {"1764115200000000", "1764115200000000000"}) {
        EXPECT_THAT(refusal(record_of(line, {{"deadline", deadline}})), HasSubstr("', which looks like microseconds or nanoseconds; "));
    }
    EXPECT_NE(job_of(line, {{"deadline", "100000000000"}}).deadline, std::nullopt);
    EXPECT_NE(job_of(line, {{"deadline", "100000000000000"}}).deadline, std::nullopt);
    for (const std::string& batch : {std::string("a/b"), std::string("\xff"), std::string(513, 'x')}) {
        const auto bad = parse_job(record_of(line, {{"batch_id", batch}}), {}).error();
        EXPECT_EQ(bad.error.param, "batch_id") << batch;
        EXPECT_EQ(bad.job_id, "job-1");
        EXPECT_TRUE(is_valid_utf8(bad.error.message));
    }
    EXPECT_EQ(job_of(line, {{"batch_id", ""}}).id, "job-1");
    for (const std::string& tenant : {std::string("\xff"), std::string(513, 'x')}) {
        EXPECT_THAT(refusal(record_of(line, {{"tenant", tenant}})), HasSubstr("400 invalid_header tenant: header 'tenant' is '")) << tenant;
    }
    EXPECT_EQ(job_of(line, {{"tenant", ""}}).tenant, "");
}

}  // namespace
}  // namespace lorry::schema
