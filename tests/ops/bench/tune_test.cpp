// `lorry bench tune`: what it counts, what it concludes from speeds, what it prints, and that it runs.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "ops/bench/tune_report.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

using kernels::CpuIsa;
using schema::Json;

// Three instruction sets, of which a rule chose one.
TunedChip chip_with(CpuIsa chosen) {
    return {.chip = {.vendor = "AuthenticAMD", .family = 0x1A, .model = 0x02},
            .name = "A new chip",
            .threads = 2,
            .isas = {CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512bf16},
            .choice = {.isa = chosen, .reason = "a rule says so"}};
}

// The seconds that each instruction set takes for the same work.
TuneLine line(std::string weights, std::initializer_list<double> seconds) {
    TuneLine line{.weights = std::move(weights), .work = "matmuls, 8 rows"};
    for (const double each : seconds) line.speeds.push_back({{.bytes = 4e9, .operations = 8e9}, each});
    return line;
}

TEST(Tune, AChoiceThatIsTheFastestIsConfirmed) {
    const TuneVerdict verdict = judge_isas(chip_with(CpuIsa::avx512bf16), std::vector{line("bfloat16", {4.0, 2.0, 1.0})});
    EXPECT_EQ(verdict.fastest, CpuIsa::avx512bf16);
    EXPECT_FALSE(verdict.is_wrong);
    EXPECT_EQ(verdict.finding, "avx512bf16 is the fastest: 2.00 times avx512, 4.00 times avx2. It is in use, because a rule says so.");
}

// Pins: half the speed in bfloat16, as on Emerald Rapids, is not offset by formats in which the speed is equal.
TEST(Tune, AChoiceThatIsWrongIsReportedWithWhatToDo) {
    const TuneVerdict verdict =
        judge_isas(chip_with(CpuIsa::avx512bf16), std::vector{line("float32", {1.1, 1.0, 1.0}), line("bfloat16", {1.1, 1.0, 2.0})});
    EXPECT_EQ(verdict.fastest, CpuIsa::avx512);
    EXPECT_TRUE(verdict.is_wrong);
    EXPECT_EQ(verdict.finding,
              "avx512 is the fastest: 1.41 times avx512bf16, 1.10 times avx2. But avx512bf16 is in use, because a rule says so. "
              "Set --isa avx512, or isa = \"avx512\" in lorry.toml, for all workers. Please report this output, so that the rules in "
              "kernels/cpu/isa.cpp can be corrected.");
}

// Pins: another choice changes answers, so a gain that may be noise changes nothing.
TEST(Tune, AGainThatMayBeNoiseChangesNothing) {
    const TuneVerdict verdict = judge_isas(chip_with(CpuIsa::avx512), std::vector{line("bfloat16", {1.0, 1.02, 1.3})});
    EXPECT_EQ(verdict.fastest, CpuIsa::avx2);
    EXPECT_FALSE(verdict.is_wrong);
    EXPECT_TRUE(verdict.finding.ends_with(" avx512 is in use, because a rule says so. The gain is too small to change it."))
        << verdict.finding;
}

TEST(Tune, AllLinesCountTheSameHoweverLongTheyTake) {
    const TuneVerdict verdict =
        judge_isas(chip_with(CpuIsa::avx512), std::vector{line("bfloat16", {1.0, 4.0, 1.0}), line("int8", {0.4, 0.1, 0.1})});
    EXPECT_DOUBLE_EQ(verdict.speeds[0], 1.0);
    EXPECT_DOUBLE_EQ(verdict.speeds[1], 1.0);
    EXPECT_DOUBLE_EQ(verdict.speeds[2], 2.0);
}

TEST(Tune, OneInstructionSetIsNoChoice) {
    TunedChip chip = chip_with(CpuIsa::avx2);
    chip.isas = {CpuIsa::avx2};
    const TuneVerdict verdict = judge_isas(chip, std::vector{line("bfloat16", {1.0})});
    EXPECT_FALSE(verdict.is_wrong);
    EXPECT_EQ(verdict.finding, "There is no choice: this machine has only avx2.");
}

TEST(Tune, TheReportShowsRatesRatiosMeansAndTheFinding) {
    const TunedChip chip = chip_with(CpuIsa::avx512);
    const std::vector lines = {line("float32", {4.0, 2.0, 2.0}), line("bfloat16", {4.0, 2.0, 1.0})};
    const TuneVerdict verdict = judge_isas(chip, lines);
    EXPECT_EQ(show_tuning(chip, lines, verdict),
              "A new chip (AuthenticAMD, family 0x1A, model 0x02), 2 threads\n"
              "\n"
              "                            avx2               avx512        in use  avx512bf16\n"
              "weights   work             GOP/s  GB/s  speed   GOP/s  GB/s   speed       GOP/s  GB/s  speed\n"
              "float32   matmuls, 8 rows    2.0   1.0   0.50     4.0   2.0    1.00         4.0   2.0   1.00\n"
              "float32   geometric mean                 0.50                  1.00                     1.00\n"
              "bfloat16  matmuls, 8 rows    2.0   1.0   0.50     4.0   2.0    1.00         8.0   4.0   2.00\n"
              "bfloat16  geometric mean                 0.50                  1.00                     2.00\n"
              "all       geometric mean                 0.50                  1.00                     1.41\n"
              "\n" +
                  verdict.finding + "\n");
}

TEST(Tune, OperationsAndBytesAreCounted) {
    const tests::TinyModel tiny;
    const TuneShape shape{.config = engine::ModelConfig::load(tiny.model), .threads = 2, .quick = true};
    const std::vector<CpuIsa> isas = {tune_isas().back()};
    const std::vector<TuneLine> lines = measure_isas(shape, isas);
    const auto find = [&](std::string_view weights, std::string_view work) -> Work {
        const auto found = std::ranges::find_if(lines, [&](const TuneLine& one) { return one.weights == weights && one.work == work; });
        EXPECT_NE(found, lines.end()) << weights << ' ' << work;
        return found->speeds.front().work;
    };
    const engine::ModelConfig& config = shape.config;
    const std::int64_t width = config.heads * config.head_dim;
    const std::int64_t kv_width = config.kv_heads * config.head_dim;
    const std::int64_t weights = config.hidden * (2 * width + 2 * kv_width + (config.gated ? 3 : 2) * config.intermediate);
    EXPECT_EQ(find("float32", "matmuls, 1 row").operations, static_cast<double>(2 * weights));
    EXPECT_EQ(find("int8", "matmuls, 512 rows").operations, static_cast<double>(2 * 512 * weights));
    EXPECT_GE(find("float32", "matmuls, 8 rows").bytes, static_cast<double>(4 * weights)) << "panels may be filled up";
    EXPECT_GE(find("bfloat16", "matmuls, 8 rows").bytes, static_cast<double>(2 * weights));
    EXPECT_GE(find("bfloat16", "attention, 64 rows").bytes, static_cast<double>(64 * 160 * 2 * kv_width * 2)) << "heads may be filled up";
    EXPECT_LT(find("bfloat16", "attention, 64 rows").bytes, static_cast<double>(64 * 160 * 2 * kv_width * 2) * 1.5);
    EXPECT_EQ(find("bfloat16", "attention, 64 rows").operations, static_cast<double>(64 * 160 * 4 * width));
    EXPECT_EQ(find("float32", "attention, 512 rows").operations, static_cast<double>(512 * 513 / 2 * 4 * width));
}

// Pins: the command measures every instruction set of this machine and compares each with the one in use.
TEST(Tune, RunsWithEveryInstructionSetOfThisMachine) {
    const tests::ProgramResult result = tests::run_program_of({LORRY_PROGRAM, "bench", "tune", "--quick", "--threads", "2", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json all = Json::parse(result.out).value();
    const kernels::cpu::IsaChoice choice = kernels::cpu::choose_isa();
    EXPECT_EQ(*all.find("in_use")->as_string(), kernels::cpu::name_of(choice.isa));
    EXPECT_EQ(*all.find("reason")->as_string(), choice.reason);
    EXPECT_EQ(*all.find("isa")->as_string(), *all.find("in_use")->as_string());
    EXPECT_FALSE(all.find("date")->as_string()->empty());
    const auto& lines = *all.find("lines")->as_array();
    EXPECT_EQ(lines.size(), 16 * tune_isas().size());
    for (const Json& one : lines) {
        EXPECT_GT(one.find("operations_per_second")->as_number(), 0.0) << one.dump();
        if (*one.find("isa")->as_string() == *all.find("in_use")->as_string()) {
            EXPECT_EQ(one.find("speed")->as_number(), 1.0) << one.dump();
        }
    }
    EXPECT_EQ(all.find("speeds")->as_object()->size(), tune_isas().size());
}

}  // namespace
}  // namespace lorry::ops
