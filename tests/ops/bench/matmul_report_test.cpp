// `lorry bench tune --device cuda`: which shapes it measures, what it prints, and what it says when the machine lacks something.
#include "ops/bench/matmul_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "ops/bench/random_model.h"
#include "tests/support/program.h"

namespace lorry::ops {
namespace {

using kernels::Format;
using kernels::cuda::MatmulCandidate;
using kernels::cuda::MatmulRefusal;
using kernels::cuda::MatmulShape;
using kernels::cuda::TunedMatmul;
using kernels::cuda::Tuning;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two shapes in two sizes: two algorithms serve the first shape, none serves the second.
Tuning tuning() {
    const TunedMatmul served{.shape = {Format::bfloat16, 1000, 500},
                             .buckets = {16, 2048},
                             .candidates = {{.algorithm = {0x42, 0, 7}, .name = "algorithm 66", .bits = 1, .seconds = {1e-6, 4e-5}},
                                            {.algorithm = {0x43}, .name = "algorithm 67", .bits = 1, .seconds = {2e-6, 2e-5}},
                                            {.algorithm = {0x44}, .refusal = MatmulRefusal::rows, .seconds = {{}, {}}},
                                            {.algorithm = {0x45}, .refusal = MatmulRefusal::rows, .seconds = {{}, {}}}},
                             .own_seconds = {2e-6, 1.6e-4},
                             .chosen = {0, 1}};
    const TunedMatmul none{.shape = {Format::bfloat16, 8, 16},
                           .buckets = {16, 2048},
                           .candidates = {{.algorithm = {0x42}, .refusal = MatmulRefusal::place, .seconds = {{}, {}}}},
                           .own_seconds = {1e-6, 1e-6}};
    return {.device = "A card",
            .chip = {.capability = 90, .processors = 132},
            .library = 130100,
            .rates = {.copied_per_second = 2.064e12, .operations_per_second = 4.096e14},
            .matmuls = {served, none}};
}

TEST(MatmulReport, EachShapeOfTheModelsIsMeasuredOnceAndOnlyWhatTheTableCanHold) {
    const std::vector configs = {random_model_config("smollm2-135m"), random_model_config("smollm2-135m"), random_model_config("gpt2")};
    const auto bfloat16 = [](std::int64_t out, std::int64_t in) { return MatmulShape{Format::bfloat16, out, in}; };
    EXPECT_THAT(matmul_shapes(configs, Format::bfloat16),
                ElementsAre(bfloat16(960, 576), bfloat16(576, 576), bfloat16(3072, 576), bfloat16(576, 1536), bfloat16(49152, 576),
                            bfloat16(2304, 768), bfloat16(768, 768), bfloat16(3072, 768), bfloat16(768, 3072)))
        << "GPT-2's head has 50,257 outputs";
    const auto fp8 = [](std::int64_t out, std::int64_t in) { return MatmulShape{Format::fp8_rows, out, in}; };
    EXPECT_THAT(matmul_shapes(std::vector{configs.front()}, Format::fp8_rows),
                ElementsAre(fp8(960, 576), fp8(576, 576), fp8(3072, 576), fp8(576, 1536)))
        << "heads stay wide";
}

// Pins: fp8 is measured against twice the rate, so the same time is half the share.
TEST(MatmulReport, Fp8IsMeasuredAgainstItsOwnLimits) {
    const auto share = [](Tuning of) {
        of.rates.copied_per_second = 1e15;  // so that operations take longer than copies
        const schema::Json json = matmuls_json(of);
        return json.find("matmuls")->as_array()->at(0).find("buckets")->as_array()->at(1).find("share_of_limit")->as_number().value();
    };
    Tuning narrow = tuning();
    narrow.matmuls.front().shape.inputs = Format::fp8_rows;
    EXPECT_NEAR(share(narrow), share(tuning()) / 2.0, 1e-9);
    EXPECT_THAT(table_rows(narrow)[1], HasSubstr(" fp8_rows 1000 500 "));
    EXPECT_THAT(show_matmuls(narrow), HasSubstr("\n1000 x 500 fp8: 2 of 4 candidates refused"));
}

TEST(MatmulReport, RowsAreReadyToCommit) {
    EXPECT_THAT(table_rows(tuning()), ElementsAre("90 132 130100 bfloat16 1000 500 16 0x42 0x0 0x7  # A card, algorithm 66",
                                                  "90 132 130100 bfloat16 1000 500 2048 0x43  # A card, algorithm 67"));
}

TEST(MatmulReport, RowsTakeThePlaceOfTheSameShapesInATable) {
    const std::string others =
        "# measured in spring\n"
        "90 132 130100 fp8_rows 1008 512 2048 0x9\n"
        "90 132 130000 bfloat16 1000 500 2048 0x9\n"
        "90 114 130100 bfloat16 1000 500 2048 0x9\n";
    const std::string rows =
        "90 132 130100 bfloat16 1000 500 16 0x42 0x0 0x7  # A card, algorithm 66\n"
        "90 132 130100 bfloat16 1000 500 2048 0x43  # A card, algorithm 67\n";
    EXPECT_EQ(
        with_rows("90 132 130100 bfloat16 1000 500 2048 0x9\n" + others + "90 132 130100 bfloat16 8 16 2048 0x9", tuning(), RowsOf::gains),
        others + rows);
    EXPECT_EQ(with_rows("", tuning(), RowsOf::gains), rows);
    EXPECT_EQ(*kernels::cuda::parse_matmul_row(table_rows(tuning())[0]), kernels::cuda::rows_of(tuning(), tuning().matmuls.front())[0]);
}

// Pins: a shape for which no time was left lost the rows that an earlier run had found.
TEST(MatmulReport, ShapesThatTimeRanOutForKeepTheirRowsAndSaySo) {
    Tuning stopped = tuning();
    TunedMatmul& begun = stopped.matmuls.front();
    begun.is_complete = false;
    stopped.matmuls.back() = {.shape = {Format::bfloat16, 8, 16}, .is_complete = false};
    const std::string before = "90 132 130100 bfloat16 1000 500 2048 0x9\n90 132 130100 bfloat16 8 16 2048 0x9\n";
    EXPECT_EQ(with_rows(before, stopped, RowsOf::gains), "90 132 130100 bfloat16 8 16 2048 0x9\n" + with_rows("", tuning(), RowsOf::gains));
    EXPECT_EQ(
        finding_of(begun),
        "1000 x 500: 2 of 4 candidates refused (2 as its bits depend on the number of rows); no time was left for the others; 4.00 times "
        "our own kernel");
    EXPECT_EQ(finding_of(stopped.matmuls.back()), "8 x 16: no time was left");
    // The algorithms are slower, or none serves: the rows of an earlier run may be better.
    begun.own_seconds = {1e-7, 1e-7};
    EXPECT_EQ(with_rows(before, stopped, RowsOf::gains), before);
    begun.chosen.clear();
    EXPECT_EQ(with_rows(before, stopped, RowsOf::gains), before);
}

TEST(MatmulReport, AShapeThatGainsNothingHasRowsWhereTheyAreAskedFor) {
    Tuning slow = tuning();
    slow.matmuls.front().own_seconds = {1e-7, 1e-7};
    EXPECT_EQ(with_rows("", slow, RowsOf::gains), "");
    EXPECT_EQ(with_rows("", slow, RowsOf::all), with_rows("", tuning(), RowsOf::gains));
}

TEST(MatmulReport, AShapeThatOurOwnKernelMultipliesFasterGetsNoRow) {
    Tuning slow = tuning();
    slow.matmuls.front().own_seconds = {1e-7, 1e-7};
    EXPECT_TRUE(table_rows(slow).empty());
    EXPECT_THAT(show_matmuls(slow), HasSubstr("0.02 times our own kernel, which stays"));
}

TEST(MatmulReport, TheTableShowsRatesShareOfTheLimitAndWhatWasRefused) {
    EXPECT_EQ(show_matmuls(tuning()),
              "A card (compute capability 9.0, 132 processors), cuBLASLt 13.1.0: copies 2064 GB/s, multiplies 410 TFLOP/s\n"
              "\n"
              "outputs x inputs  rows    us  GB/s  TFLOP/s  of the limit  times own  algorithm\n"
              "1000 x 500          16   1.0  1080     16.0          52 %       2.00  algorithm 66\n"
              "1000 x 500        2048  20.0   562    102.4          27 %       8.00  algorithm 67\n"
              "\n"
              "1000 x 500: 2 of 4 candidates refused (2 as its bits depend on the number of rows); 4.00 times our own kernel\n"
              "8 x 16: 1 of 1 candidates refused (1 as its bits depend on a row's place or neighbours); none gives all rows the same bits, "
              "so our own kernel stays\n"
              "\n"
              "Rows for kernels/cuda/cublaslt/matmul_table.cpp, in the place of the same shapes' on this chip, or for --table FILE:\n"
              "\n"
              "90 132 130100 bfloat16 1000 500 16 0x42 0x0 0x7  # A card, algorithm 66\n"
              "90 132 130100 bfloat16 1000 500 2048 0x43  # A card, algorithm 67\n");
}

TEST(MatmulReport, JsonHasAllSizesAndTheRows) {
    const schema::Json json = matmuls_json(tuning());
    const auto& matmuls = *json.find("matmuls")->as_array();
    ASSERT_EQ(matmuls.size(), 2U);
    EXPECT_EQ(matmuls[0].find("buckets")->as_array()->size(), 2U);
    EXPECT_NEAR(matmuls[0].find("gain")->as_number().value_or(0.0), 4.0, 1e-9);
    EXPECT_EQ(matmuls[1].find("buckets")->as_array()->size(), 0U);
    EXPECT_EQ(json.find("rows")->as_array()->size(), 2U);
    EXPECT_EQ(json.find("library")->as_number(), 130100.0);
}

TEST(MatmulReport, WithoutAGpuTheCommandSaysWhatIsMissing) {
    const auto obstacle = kernels::cuda_obstacle();
    if (!obstacle) GTEST_SKIP() << "this machine has a GPU";
    const tests::ProgramResult result = tests::run_program_of({LORRY_PROGRAM, "bench", "tune", "--device", "cuda"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--device cuda: " + *obstacle));
}

// Pins: a program built without nvcc, as ops/demo and the container image build it, did not link.
TEST(WithoutCuda, TheProgramComputesOnTheCpuAndSaysWhatAGpuNeeds) {
    const std::vector<std::string> bench = {
        LORRY_PROGRAM_WITHOUT_CUDA, "bench", "throughput", "--random-weights", "stories260k", "--requests", "1", "--repeat", "1", "--json"};
    EXPECT_EQ(tests::run_program_of(bench).exit_code, 0);
    for (std::vector<std::string> command :
         {std::vector<std::string>{LORRY_PROGRAM_WITHOUT_CUDA, "bench", "tune"}, {LORRY_PROGRAM_WITHOUT_CUDA, "bench", "machine"}, bench}) {
        command.insert(command.end(), {"--device", "cuda"});
        const tests::ProgramResult result = tests::run_program_of(command);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_THAT(result.err, HasSubstr("--device cuda: this program was built without CUDA: run ops/setup --cuda"));
    }
}

}  // namespace
}  // namespace lorry::ops
