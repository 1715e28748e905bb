// The table of endpoints: the words of the APIs that Lorry speaks, which clients match against.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "schema/endpoint.h"

namespace lorry::schema {
namespace {

std::string words_of(Endpoint endpoint) {
    const EndpointRow row = row_of(endpoint);
    const std::string_view chunk = row.chunk_object.value_or("-");
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
}

TEST(EndpointTest, NoTwoShareAUrlOrAnIdPrefixAndWhatDrawsStreams) {
    std::set<std::string_view> urls;
    std::set<std::string_view> prefixes;
    for (const Endpoint endpoint : endpoints) {
        const EndpointRow row = row_of(endpoint);
        EXPECT_TRUE(urls.insert(row.url).second) << row.url;
        EXPECT_TRUE(prefixes.insert(row.id_prefix).second) << row.id_prefix;
        // The codec takes `stream` wherever tokens are drawn.
        EXPECT_EQ(row.chunk_object.has_value(), row.work == Work::draw) << row.url;
    }
}

}  // namespace
}  // namespace lorry::schema
