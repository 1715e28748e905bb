// The settings reasoning_parser and tool_parser allow the names of the tables of formats.
#include <gtest/gtest.h>

#include <algorithm>

#include "consumer/answer/formats.h"
#include "ops/settings.h"

namespace lorry::ops {
namespace {

std::string words_of(const std::string& key) {
    for (const Setting& setting : setting_table()) {
        if (setting.key == key) return setting.value;
    }
    return "no such setting";
}

template <typename Rows>
std::string names_of(const Rows& rows) {
    std::string words = "auto|none";
    for (const auto& row : rows) words += "|" + std::string(row.name);
    return words;
}

TEST(ParserSettings, AllowTheFormatsThatThereAre) {
    EXPECT_EQ(words_of("reasoning_parser"), names_of(consumer::thought_formats()));
    EXPECT_EQ(words_of("tool_parser"), names_of(consumer::call_formats()));
}

}  // namespace
}  // namespace lorry::ops
