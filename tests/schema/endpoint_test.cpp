// The table of endpoints: the words of the APIs that Lorry speaks, which clients match against.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "schema/endpoint.h"

namespace lorry::schema {
namespace {

std::string words_of(Endpoint endpoint) {
    const EndpointRow row = row_of(endpoint);
    const std::string_view chunk = row.generation ? row.generation->chunk_object : "-";
    std::string words;
    for (const std::string_view word : {row.url, row.prompt_field, row.id_prefix, row.object, chunk, row.list_key}) {
        words += words.empty() ? "" : " ";
        words += word;
    }
    return words;
}

TEST(EndpointTest, EachSpeaksTheWordsOfItsApi) {
    EXPECT_EQ(words_of(Endpoint::chat_completions),
              "/v1/chat/completions messages chatcmpl- chat.completion chat.completion.chunk choices");
    EXPECT_EQ(words_of(Endpoint::completions), "/v1/completions prompt cmpl- text_completion text_completion choices");
    EXPECT_EQ(words_of(Endpoint::classify), "/classify input classify- list - data");
    EXPECT_EQ(words_of(Endpoint::embeddings), "/v1/embeddings input embd- list - data");
    EXPECT_EQ(words_of(Endpoint::token_classify), "/token_classify input tokclass- list - data");
    EXPECT_EQ(words_of(Endpoint::score), "/score text_1 score- list - data");
    EXPECT_EQ(words_of(Endpoint::rerank), "/rerank query rerank- list - results");
    EXPECT_EQ(words_of(Endpoint::fill_mask), "/fill_mask input fill- list - data");
}

TEST(EndpointTest, EachIsFoundWithAndWithoutItsVersion) {
    for (const Endpoint endpoint : endpoints) {
        const std::string url(row_of(endpoint).url);
        EXPECT_EQ(endpoint_at(url), endpoint) << url;
        EXPECT_EQ(endpoint_at(url.starts_with("/v1/") ? url.substr(3) : "/v1" + url), endpoint) << url;
        EXPECT_EQ(endpoint_at("/v2" + url), std::nullopt) << url;
        EXPECT_EQ(endpoint_at(url + "/"), std::nullopt) << url;
    }
    EXPECT_EQ(endpoint_at("/v1"), std::nullopt);
    EXPECT_EQ(endpoint_at("/v1/v1/classify"), std::nullopt);
    EXPECT_EQ(endpoint_at("/v1classify"), std::nullopt);
}

TEST(EndpointTest, NoTwoShareAUrlOrAnIdPrefix) {
    std::set<std::string_view> urls;
    std::set<std::string_view> prefixes;
    for (const Endpoint endpoint : endpoints) {
        const EndpointRow row = row_of(endpoint);
        EXPECT_TRUE(urls.insert(row.url).second) << row.url;
        EXPECT_TRUE(prefixes.insert(row.id_prefix).second) << row.id_prefix;
    }
}

}  // namespace
}  // namespace lorry::schema
