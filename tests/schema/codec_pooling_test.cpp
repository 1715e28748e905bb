// Jobs for embeddings, classes and scores: what a producer may send to each url, and how each wrong field is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/base64.h"
#include "schema/codec.h"

namespace lorry::schema {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

auto parsed(const std::string& url, const std::string& members) {
    const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"m",{}}}}})", url, members);
    return parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
}

Job job_of(const std::string& url, const std::string& members) {
    auto job = parsed(url, members);
    EXPECT_TRUE(job.has_value()) << url << " " << members << "\n" << (job ? "" : job.error().error.message);
    return job ? std::move(*job) : Job();
}

// "400 code param: message", or "accepted".
std::string refusal(const std::string& url, const std::string& members) {
    const auto job = parsed(url, members);
    if (job) return "accepted";
    const JobError& error = job.error().error;
    return fmt::format("{} {} {}: {}", error.status_code(), name_of(error.code), error.param, error.message);
}

std::vector<std::string> texts_of(const Job& job) {
    std::vector<std::string> texts;
    for (const TextPrompt& text : std::get<std::vector<TextPrompt>>(job.prompt)) texts.push_back(std::get<std::string>(text));
    return texts;
}

TEST(ParsePoolingJobTest, EmbeddingsAreReadWithAllFields) {
    const Job job = job_of("/v1/embeddings", R"("input":["a","b"],"encoding_format":"base64","dimensions":64,"prompt_name":"query",
        "truncate_prompt_tokens":5,"truncation_side":"left","normalize":false,"user":"u","priority":3,"cache_salt":"s","metadata":{})");
    EXPECT_EQ(job.endpoint, Endpoint::embeddings);
    EXPECT_THAT(texts_of(job), ElementsAre("a", "b"));
    EXPECT_TRUE(job.pooling.base64);
    EXPECT_EQ(job.pooling.dimensions, 64);
    EXPECT_EQ(job.pooling.prompt_name, "query");
    EXPECT_EQ(job.pooling.truncation->tokens, 5);
    EXPECT_TRUE(job.pooling.truncation->keeps_end);
    EXPECT_EQ(job.pooling.normalize, false);
    EXPECT_EQ(job.priority, 3);
    const Job plain = job_of("/embeddings", R"("input":[[1,2],[3]],"encoding_format":"float","input_type":"document")");
    EXPECT_THAT(std::get<std::vector<TextPrompt>>(plain.prompt),
                ElementsAre(TextPrompt(std::vector<std::int32_t>{1, 2}), TextPrompt(std::vector<std::int32_t>{3})));
    EXPECT_EQ(plain.pooling.prompt_name, "document");
    EXPECT_FALSE(plain.pooling.base64 || plain.pooling.dimensions || plain.pooling.truncation || plain.pooling.normalize);
    EXPECT_EQ(job_of("/v1/classify", R"("input":"a","stride":0)").pooling.stride, 0);
    EXPECT_EQ(plain.pooling.stride, std::nullopt);
    const Job longest = job_of("/v1/embeddings", R"("input":"a","truncate_prompt_tokens":-1)");
    EXPECT_EQ(longest.pooling.truncation->tokens, std::nullopt);
    EXPECT_FALSE(longest.pooling.truncation->keeps_end);
}

TEST(ParsePoolingJobTest, EachUrlIsReadWithItsFields) {
    const Job zero_shot = job_of("/v1/classify", R"("input":"x","choices":["a","b"],"hypothesis_template":"It is {}.","multi_label":true)");
    EXPECT_EQ(zero_shot.pooling.hypothesis_template, "It is {}.");
    EXPECT_EQ(zero_shot.pooling.multi_label, true);
    EXPECT_TRUE(job_of("/classify", R"("input":["x","y"])").choices.empty());
    EXPECT_EQ(job_of("/token_classify", R"("input":"x")").pooling.aggregation, Aggregation::simple);
    EXPECT_EQ(job_of("/token_classify", R"("input":["x"],"aggregation_strategy":"average")").pooling.aggregation, Aggregation::average);
    const Job score = job_of("/score", R"("text_1":"q","text_2":["a","b"])");
    EXPECT_THAT(texts_of(score), ElementsAre("q"));
    EXPECT_THAT(score.pooling.second_texts, ElementsAre("a", "b"));
    EXPECT_THAT(texts_of(job_of("/score", R"("text_1":["q","r"],"text_2":["a","b"])")), ElementsAre("q", "r"));
    const Job rerank = job_of("/v1/rerank", R"("query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":false)");
    EXPECT_THAT(texts_of(rerank), ElementsAre("q"));
    EXPECT_THAT(rerank.pooling.second_texts, ElementsAre("a", "b"));
    EXPECT_EQ(rerank.pooling.top_n, 1);
    EXPECT_FALSE(rerank.pooling.return_documents);
    EXPECT_TRUE(job_of("/rerank", R"("query":"q","documents":["a"])").pooling.return_documents);
    EXPECT_EQ(job_of("/fill_mask", R"("input":"x","top_k":2)").pooling.top_k, 2);
    EXPECT_EQ(job_of("/fill_mask", R"("input":"x")").pooling.top_k, 5);
}

struct Wrong {
    const char* url;
    const char* members;
    const char* refusal;
};

TEST(ParsePoolingJobTest, WrongFieldsAreRefusedByName) {
    const Wrong cases[] = {
        {"/v1/embeddings", R"("input":"a","temperature":1)", "400 unsupported_field temperature: field 'temperature' is not supported on"},
        {"/v1/embeddings", R"("input":"a","choices":["a","b"])", "400 unsupported_field choices"},
        {"/v1/embeddings", R"("input":"a","truncate":true)", "400 unsupported_field truncate: field 'truncate' is unknown on"},
        {"/v1/embeddings", R"("dimensions":3)", "400 missing_field input: field 'input' is missing; give a string"},
        {"/v1/embeddings", R"("input":"a","dimensions":0)", "400 invalid_value dimensions: field 'dimensions' is 0; allowed is an integer"},
        {"/v1/embeddings", R"("input":"a","encoding_format":"int8")",
         "400 invalid_value encoding_format: field 'encoding_format' is \"int8\"; allowed is one of float, base64"},
        {"/v1/embeddings", R"("input":"a","encoding_format":1)", "400 invalid_type encoding_format"},
        {"/v1/embeddings", R"("input":"a","prompt_name":"x","input_type":"y")",
         "400 invalid_value input_type: fields 'prompt_name' and 'input_type' differ; give one of them"},
        {"/v1/embeddings", R"("input":"a","truncate_prompt_tokens":0)",
         "400 invalid_value truncate_prompt_tokens: field 'truncate_prompt_tokens' is 0; allowed is a number of tokens, 1 or more, or -1"},
        {"/v1/embeddings", R"("input":"a","truncate_prompt_tokens":"5")", "400 invalid_type truncate_prompt_tokens"},
        {"/v1/embeddings", R"("input":"a","truncation_side":"left")",
         "400 invalid_value truncation_side: field 'truncation_side' needs 'truncate_prompt_tokens'"},
        {"/v1/embeddings", R"("input":"a","truncate_prompt_tokens":5,"truncation_side":"up")", "400 invalid_value truncation_side"},
        {"/v1/embeddings", R"("input":"a","normalize":1)", "400 invalid_type normalize"},
        {"/classify", R"("input":"a","multi_label":true)", "400 invalid_value multi_label: field 'multi_label' needs 'choices'"},
        {"/classify", R"("input":"a","hypothesis_template":"It is {}.")", "400 invalid_value hypothesis_template: field"},
        {"/classify", R"("input":"a","choices":["a","b"],"hypothesis_template":"It is.")",
         "400 invalid_value hypothesis_template: field 'hypothesis_template' is \"It is.\"; allowed is a text with {}"},
        {"/token_classify", R"("input":[1,2])", "400 invalid_type input[0]: field 'input[0]' must be a string, not a number"},
        {"/token_classify", R"("input":"")", "400 empty_prompt input: field 'input' is an empty text"},
        {"/token_classify", R"("input":[])", "400 invalid_value input: field 'input' is empty; give at least one text"},
        {"/token_classify", R"("input":{})", "400 invalid_type input: field 'input' must be a string or a list of strings"},
        {"/token_classify", R"("input":"a","aggregation_strategy":"last")",
         "400 invalid_value aggregation_strategy: field 'aggregation_strategy' is \"last\"; allowed is one of none, simple, first"},
        {"/score", R"("text_1":"a")", "400 missing_field text_2: field 'text_2' is missing"},
        {"/score", R"("text_2":"a")", "400 missing_field text_1: field 'text_1' is missing"},
        {"/score", R"("text_1":["a","b"],"text_2":["c","d","e"])",
         "400 invalid_value text_2: field 'text_2' has 3 texts and 'text_1' 2; give one text_1 for all, or as many as of the other"},
        {"/score", R"("text_1":"a","text_2":["b",""])", "400 empty_prompt text_2[1]: field 'text_2[1]' is an empty text"},
        {"/rerank", R"("query":"q")", "400 missing_field documents: field 'documents' is missing"},
        {"/rerank", R"("query":["q"],"documents":["a"])", "400 invalid_type query: field 'query' must be a string"},
        {"/rerank", R"("query":"q","documents":"a")", "400 invalid_type documents"},
        {"/rerank", R"("query":"q","documents":[])", "400 invalid_value documents: field 'documents' is empty"},
        {"/rerank", R"("query":"q","documents":[{"text":"a","title":"b"}])",
         "400 unsupported_field documents[0].title: field 'documents[0].title' is not supported; a document has a text"},
        {"/rerank", R"("query":"q","documents":[{}])", "400 missing_field documents[0].text: field 'documents[0].text' is missing"},
        {"/rerank", R"("query":"q","documents":[7])", "400 invalid_type documents[0]: field 'documents[0]' must be a string or an object"},
        {"/rerank", R"("query":"q","documents":["a"],"top_n":0)", "400 invalid_value top_n"},
        {"/fill_mask", R"("input":"a","top_k":0)", "400 invalid_value top_k: field 'top_k' is 0; allowed is an integer from 1 to 100"},
        {"/fill_mask", R"("input":"a","truncate_prompt_tokens":5)",
         "400 unsupported_field truncate_prompt_tokens: field 'truncate_prompt_tokens' is not supported yet"},
        {"/v1/embeddings", R"("input":"a","stride":-1)", "400 invalid_value stride: field 'stride' is -1; allowed is an integer from 0"},
        {"/v1/embeddings", R"("input":"a","stride":"1")", "400 invalid_type stride"},
        {"/v1/embeddings", R"("input":"a","stride":1,"truncate_prompt_tokens":9,"truncation_side":"left")",
         "400 unsupported_field stride: field 'stride' is not supported with 'truncation_side': \"left\""},
        {"/classify", R"("input":"a","stride":1,"choices":["a","b"])",
         "400 unsupported_field stride: field 'stride' is not supported with 'choices'"},
        {"/classify", R"("messages":[{"role":"user","content":"a"}],"stride":1)",
         "400 unsupported_field stride: field 'stride' is not supported with 'messages'"},
        {"/token_classify", R"("input":"a","stride":1,"aggregation_strategy":"none")",
         "400 unsupported_field stride: field 'stride' is not supported with 'aggregation_strategy': \"none\""},
        {"/score", R"("text_1":"a","text_2":"b","stride":1)", "400 unsupported_field stride: field 'stride' is not supported on /score"},
        {"/rerank", R"("query":"a","documents":["b"],"stride":1)", "400 unsupported_field stride: field 'stride' is not supported on"},
        {"/fill_mask", R"("input":"a","stride":1)", "400 unsupported_field stride: field 'stride' is not supported on /fill_mask"},
        {"/v1/completions", R"("prompt":"a","dimensions":5)", "400 unsupported_field dimensions: field 'dimensions' is not supported on"},
    };
    for (const Wrong& wrong : cases) EXPECT_THAT(refusal(wrong.url, wrong.members), StartsWith(wrong.refusal)) << wrong.members;
}

TEST(ParsePoolingJobTest, AJobMayAskForSoManySequences) {
    const auto list = [](std::size_t count) {
        std::string texts = "[\"x\"";
        for (std::size_t i = 1; i < count; ++i) texts += ",\"x\"";
        return texts + "]";
    };
    EXPECT_EQ(refusal("/v1/embeddings", R"("input":)" + list(4096)), "accepted");
    EXPECT_THAT(refusal("/v1/embeddings", R"("input":)" + list(4097)),
                StartsWith("400 invalid_value input: the job asks for 4097 sequences (prompts); allowed are up to 4096: split it"));
    EXPECT_THAT(refusal("/rerank", R"("query":"q","documents":)" + list(4097)),
                StartsWith("400 invalid_value documents: the job asks for 4097 sequences (pairs)"));
    EXPECT_THAT(refusal("/classify", R"("choices":["a","b"],"input":)" + list(2049)),
                StartsWith("400 invalid_value choices: the job asks for 4098 sequences (prompts × choices)"));
}

TEST(Base64Test, IsThatOfTheSpecification) {
    // The test vectors of RFC 4648, section 10.
    for (const auto& [bytes, text] : {std::pair("", ""), {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}) {
        EXPECT_EQ(to_base64(bytes), text);
        EXPECT_EQ(from_base64(text), bytes);
    }
    for (const char* wrong : {"Zg=", "Zh==", "Zm9v\n", "Z-=="}) EXPECT_EQ(from_base64(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace lorry::schema
