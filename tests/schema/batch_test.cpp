// Records of files and batches, and their ids.
#include "schema/batch.h"

#include <gmock/gmock.h>

namespace lorry::schema {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* file_id = "file-0123456789abcdef0123456789abcdef";
constexpr const char* batch_id = "batch_0123456789abcdef0123456789abcdef";

BatchRecord batch_of_all_members() {
    return {.id = batch_id,
            .tenant = "search",
            .key = "0123456789abcdef",
            .input_file = file_id,
            .endpoint = Endpoint::completions,
            .metadata = {{"job", "nightly"}},
            .models = {{"mail", "base"}},
            .key_jobs_max = 100'000,
            .state = BatchState::cancelling,
            .since = {{BatchState::in_progress, 11}, {BatchState::cancelling, 12}},
            .created = 10,
            .expires = 86'410,
            .errors = {{.code = "c", .line = 3, .message = "m", .param = "p"}, {.code = "d", .message = "n"}},
            .lines = 9,
            .succeeded = 4,
            .failed = 1,
            .output_file = file_id,
            .next_line = 7,
            .next_byte = 700,
            .results_at = {{0, 5}, {3, 1'000'000'000'000}},
            .parts = {"a", "b"}};
}

TEST(BatchRecords, ReadBackAsTheyWereWritten) {
    const BatchRecord batch = batch_of_all_members();
    const auto read = parse_batch(encode_batch(batch));
    ASSERT_TRUE(read) << read.error();
    EXPECT_EQ(encode_batch(*read), encode_batch(batch));
    EXPECT_EQ(read->tenant, batch.tenant);
    EXPECT_EQ(read->key, batch.key);
    EXPECT_EQ(read->results_at, batch.results_at);
    EXPECT_EQ(read->parts, batch.parts);
    EXPECT_EQ(read->models, batch.models);
    EXPECT_EQ(read->key_jobs_max, batch.key_jobs_max);
    EXPECT_EQ(read->output_file, batch.output_file);
    EXPECT_EQ(read->since, batch.since);
    const FileRecord file{.id = file_id, .tenant = "t", .name = "n\"\n", .purpose = FilePurpose::batch_output, .bytes = 7, .created = 8};
    const auto read_file = parse_file(encode_file(file));
    ASSERT_TRUE(read_file) << read_file.error();
    EXPECT_EQ(encode_file(*read_file), encode_file(file));
    EXPECT_EQ(read_file->name, file.name);
}

// Pins: clients saw tenants, positions, or the ids of files that were not written yet.
TEST(BatchRecords, ClientsSeeOpenAisMembersOnly) {
    BatchRecord batch = batch_of_all_members();
    const std::string seen = describe_batch(batch).dump();
    for (const char* hidden : {"tenant", "key", "owner", "parts", "models", "key_jobs_max", "results_at"})
        EXPECT_THAT(seen, Not(HasSubstr(hidden)));
    EXPECT_THAT(seen, HasSubstr(R"("output_file_id":null)"));
    EXPECT_THAT(seen, HasSubstr(R"("request_counts":{"total":9,"completed":4,"failed":1})"));
    EXPECT_THAT(seen, HasSubstr(R"("errors":{"object":"list","data":[{"code":"c","line":3,"message":"m","param":"p"})"));
    batch.state = BatchState::completed;
    EXPECT_THAT(describe_batch(batch).dump(), HasSubstr(R"("output_file_id":"file-0123)"));
}

TEST(BatchRecords, WhatIsNoRecordIsRefused) {
    for (const char* text : {"", "[]", "{}", R"({"id":"../x"})"}) {
        EXPECT_FALSE(parse_file(text)) << text;
        EXPECT_FALSE(parse_batch(text)) << text;
    }
    std::string later = encode_batch(batch_of_all_members());
    later.replace(later.find("cancelling"), 10, "pondering");
    EXPECT_FALSE(parse_batch(later));
}

TEST(BatchIds, AreDrawnAndHaveOneForm) {
    EXPECT_TRUE(is_file_id(draw_file_id()));
    EXPECT_TRUE(is_batch_id(draw_batch_id()));
    EXPECT_NE(draw_file_id(), draw_file_id());
    for (const char* text : {"", "file-", "file-0123456789ABCDEF0123456789abcdef", "file-0123456789abcdef0123456789abcde",
                             "file-0123456789abcdef0123456789abcdef0", "file-../../../../../../../../../../../", batch_id}) {
        EXPECT_FALSE(is_file_id(text)) << text;
    }
    EXPECT_FALSE(is_batch_id(file_id));
}

}  // namespace
}  // namespace lorry::schema
