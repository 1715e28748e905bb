// What config.json says of disentangled attention and convolutions, and the relative position of each distance.
#include "engine/model/relative_positions.h"
#include "tests/support/thrown.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry {
namespace {

using engine::DisentangledConfig;
using engine::ModelConfig;
using testing::HasSubstr;

ModelConfig parse_positions(const std::string& members, int layers = 2) {
    return ModelConfig::parse(
        fmt::format(R"({{"model_type":"deberta-v2","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":{},"vocab_size":100,)"
                    R"("intermediate_size":96{}{}}})",
                    layers, members.empty() ? "" : ",", members),
        "", "config.json");
}
std::string position_error_of(const std::string& members, int layers = 2) {
    return tests::thrown_by([&] { parse_positions(members, layers); });
}

TEST(RelativePositions, AbsentKeysMeanWhatTheConfigurationClassSays) {
    const ModelConfig config = parse_positions("");
    EXPECT_FALSE(config.disentangled);
    EXPECT_FALSE(config.convolution);
    EXPECT_TRUE(config.learned_positions);
    EXPECT_EQ(config.attention_terms, 1);
    EXPECT_EQ(config.token_types, 0);
    EXPECT_EQ(config.embedding_size, 64);
    EXPECT_EQ(config.norm_epsilon, 1e-7);
}

TEST(RelativePositions, TermsAreAListOrATextWithBars) {
    for (const char* both : {R"("c2p|p2c")", R"(["p2c","c2p"])"}) {
        const ModelConfig config = parse_positions(fmt::format(R"("relative_attention":true,"pos_att_type":{})", both));
        ASSERT_TRUE(config.disentangled) << both;
        EXPECT_TRUE(config.disentangled->has_keys && config.disentangled->has_queries);
        EXPECT_EQ(config.attention_terms, 3);
        EXPECT_EQ(config.disentangled->positions(), 1024) << "max_position_embeddings in either direction";
    }
    const ModelConfig off = parse_positions(R"("pos_att_type":["c2p"])");
    EXPECT_FALSE(off.disentangled);
    EXPECT_EQ(off.attention_terms, 2) << "scores are scaled by the number of terms all the same";
}

TEST(RelativePositions, WhatIsNotComputedIsRefusedByKeyAndValue) {
    EXPECT_THAT(position_error_of(R"("pos_att_type":"c2p|p2p")"), HasSubstr(R"(config.json: pos_att_type = "c2p|p2p" is not supported)"));
    EXPECT_THAT(position_error_of(R"("norm_rel_ebd":"batch_norm")"), HasSubstr("norm_rel_ebd = \"batch_norm\" is not supported"));
    EXPECT_THAT(position_error_of(R"("attention_head_size":8)"), HasSubstr("attention_head_size = 8 is not supported"));
    EXPECT_EQ(position_error_of(R"("attention_head_size":16)"), "accepted");
    EXPECT_THAT(position_error_of(R"("relative_attention":true,"pos_att_type":"c2p","position_buckets":8,"max_relative_positions":5)"),
                HasSubstr("position_buckets = 8 is not supported"));
    EXPECT_THAT(position_error_of(R"("conv_kernel_size":4)"), HasSubstr("conv_kernel_size = 4 is not supported: it must be odd"));
    EXPECT_THAT(position_error_of(R"("conv_kernel_size":3)", 1), HasSubstr("conv_kernel_size = 3 is not supported: a convolution needs"));
    EXPECT_THAT(position_error_of(R"("conv_kernel_size":3,"conv_groups":2)"), HasSubstr("conv_groups = 2 is not supported"));

    EXPECT_THAT(position_error_of(R"("conv_kernel_size":3,"conv_act":"mish")"), HasSubstr("conv_act = \"mish\" is not supported"));
}

// The numbers are those of transformers' make_log_bucket_position(distance, 256, 512).
TEST(RelativePositions, FarDistancesShareBucketsByTheirLogarithm) {
    const DisentangledConfig config{.has_keys = true, .buckets = 256, .distance_max = 512};
    const std::vector<std::int32_t> positions = engine::positions_of_distances(config, 512);
    ASSERT_EQ(positions.size(), 1023U);
    const auto bucket = [&](int distance) { return positions[static_cast<std::size_t>(511 + distance)] - 256; };
    EXPECT_EQ(bucket(1), 1);
    EXPECT_EQ(bucket(-127), -127);
    EXPECT_EQ(bucket(128), 128);
    EXPECT_EQ(bucket(137), 135);
    EXPECT_EQ(bucket(-129), -129);
    EXPECT_EQ(bucket(511), 255);
    EXPECT_EQ(bucket(-511), -255);
    const std::vector<int> every = {128, 144, 158, 169, 180, 189, 198, 205, 213, 219, 225, 231, 237, 242, 247, 251};
    for (std::size_t i = 0; i < every.size(); ++i) EXPECT_EQ(bucket(128 + 24 * static_cast<int>(i)), every[i]) << i;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) sum += static_cast<std::int64_t>(i + 1) * (positions[i] - 256);
    EXPECT_EQ(sum, 54914426) << "of all of transformers' buckets, each times its place";
}

TEST(RelativePositions, WithoutBucketsDistancesAreCutOff) {
    const DisentangledConfig config{.has_keys = true, .distance_max = 2};
    EXPECT_THAT(engine::positions_of_distances(config, 4), testing::ElementsAre(0, 0, 1, 2, 3, 3, 3));
}

}  // namespace
}  // namespace lorry
