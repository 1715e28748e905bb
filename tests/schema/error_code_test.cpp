// The table of error codes: each code, which scripts match against, is one word, and each row explains itself.
#include <gtest/gtest.h>

#include <set>

#include "schema/error_code.h"

namespace lorry::schema {
namespace {

TEST(ErrorCodeTest, EachCodeHasItsOwnWordAndASentence) {
    std::set<std::string_view> names;
    for (const ErrorCode code : error_codes) {
        const ErrorRow row = row_of(code);
        EXPECT_TRUE(names.insert(row.name).second) << row.name << " is the name of two codes";
        EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos) << row.name;
        EXPECT_TRUE(row.meaning.ends_with('.')) << row.name;
        EXPECT_TRUE(row.remedy.ends_with('.')) << row.name;
    }
    EXPECT_EQ(error_codes.back(), ErrorCode::request_timeout) << "the list ends with the last enumerator";
}

TEST(ErrorCodeTest, TheTypeSaysWhoseFaultItIs) {
    EXPECT_EQ(row_of(ErrorCode::payload_too_large).type(), "invalid_request_error");
    EXPECT_EQ(row_of(ErrorCode::model_not_found).type(), "invalid_request_error");
    EXPECT_EQ(row_of(ErrorCode::worker_crashed).type(), "server_error");
    EXPECT_EQ(row_of(ErrorCode::batch_expired).type(), "") << "a batch failure has no response and no type";
}

}  // namespace
}  // namespace lorry::schema
