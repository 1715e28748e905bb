// Multiplying with cuBLASLt: where it is looked for, which rows of the table apply, how rows are padded, what the tuner rejects. Uses the
// emulated library. agreement_test.cpp and invariance_test.cpp run with it as well (device cuda_library_bfloat16).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/cublaslt/library.h"
#include "kernels/cuda/cublaslt/tuner.h"
#include "kernels/cuda/devices.h"
#include "kernels/cuda/emulation/cublaslt.h"
#include "tests/kernels/devices.h"
#include "tests/support/labels.h"
#include "tests/support/temp_folder.h"

namespace lorry::kernels::cuda {
namespace {

using emulation::CublasLtAlgorithm;
using emulation::words_of;
using reference::Table;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Memory;

constexpr MatmulChip chip{.capability = 90, .processors = 1};  // the emulated device's
constexpr MatmulShape shape{Format::bfloat16, 24, 40};
constexpr MatmulShape fp8_shape{Format::fp8_rows, 32, 48};

MatmulRow row(std::int64_t rows_max, CublasLtAlgorithm algorithm = CublasLtAlgorithm::plain, const MatmulShape& of = shape) {
    return {chip, emulation::cublaslt_version, of, {rows_max, words_of(algorithm)}};
}

Expected<lt::Functions, std::string> emulated() { return emulation::cublaslt(); }
Expected<lt::Functions, std::string> not_found() { return open_cublaslt({}); }
Expected<lt::Functions, std::string> older_library() {
    lt::Functions functions = emulation::cublaslt();
    functions.get_version = [] { return std::size_t{120800}; };
    return functions;
}

TEST(CublasLtLibrary, IsLookedForByNameThenBesideTheProgramThenInCudasFolder) {
    const std::vector<std::string> places = cublaslt_places();
    EXPECT_EQ(places.front(), "libcublasLt.so.13");
    EXPECT_THAT(places, ::testing::IsSupersetOf({"/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12"}));
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    EXPECT_EQ(places[1], folder / "libcublasLt.so.13");
    EXPECT_EQ(places[2], folder / "lib" / "libcublasLt.so.13");
}

TEST(CublasLtLibrary, ThatIsMissingSaysWhatToDo) {
    EXPECT_EQ(open_cublaslt(std::vector<std::string>{"/nowhere/libcublasLt.so.13"}).error(),
              "cuBLASLt (libcublasLt.so.13 or .12) was not found: install CUDA's cuBLAS (libcublas, or pip's nvidia-cublas), or name its "
              "folder in LD_LIBRARY_PATH");
}

TEST(CublasLtLibrary, ThatIsAnotherLibraryIsNamed) {
    EXPECT_EQ(open_cublaslt(std::vector<std::string>{"/nowhere/libcublasLt.so.13", "libm.so.6"}).error(),
              "libm.so.6 is not cuBLASLt 12 or 13: it lacks cublasLtGetVersion");
}

TEST(MatmulTable, TheCommittedOneIsWhole) { EXPECT_FALSE(fault_of(committed_rows().rows)); }

TEST(MatmulTable, WhatIsWrongWithOneIsNamed) {
    const auto fault = [](std::vector<MatmulRow> rows) {
        const auto found = fault_of(rows);
        return found ? found->what : "none";
    };
    EXPECT_EQ(fault({row(64), row(2048)}), "none");
    EXPECT_THAT(fault({row(64), row(1024)}), HasSubstr("24 x 40 ends at 1024 rows, not at 2048"));
    EXPECT_THAT(fault({row(64), row(64), row(2048)}), HasSubstr("ranges that do not ascend"));
    EXPECT_THAT(fault({row(65), row(2048)}), HasSubstr("a range that ends within a bucket"));
    MatmulRow other = row(2048);
    other.shape.out_features = 32;
    EXPECT_EQ(fault({row(2048), other}), "none");
    EXPECT_THAT(fault({row(2048), other, row(2048)}), HasSubstr("24 x 40 is listed twice"));
    other.shape.in_features = 33;
    EXPECT_THAT(fault({other}), HasSubstr("32 x 33 has features that are not multiples of 8"));
    MatmulRow narrow = row(2048, CublasLtAlgorithm::plain, fp8_shape);
    EXPECT_EQ(fault({row(2048), narrow}), "none");
    narrow.library = 120800;
    EXPECT_THAT(fault({narrow}), HasSubstr("32 x 48 is fp8, but cuBLASLt 12.8.0 has no scales for each row of fp8"));
    narrow.library = 130100;
    narrow.chip.capability = 80;
    EXPECT_THAT(fault({narrow}), HasSubstr("32 x 48 is fp8, but cuBLASLt has scales for each row of fp8 on compute capability 9.0 only"));
    narrow.shape.in_features = 40;
    EXPECT_THAT(fault({narrow}), HasSubstr("32 x 40 has features that are not multiples of 16"));
}

TEST(MatmulTable, ARowIsWrittenAsItIsRead) {
    MatmulRow wide = row(64);
    wide.range.algorithm = {0x42, 0, 7};
    EXPECT_EQ(text_of(wide), "90 1 130100 bfloat16 24 40 64 0x42 0x0 0x7");
    const MatmulRow narrow = row(2048, CublasLtAlgorithm::plain, fp8_shape);
    MatmulRow zeros = row(2048);
    zeros.range.algorithm = {};
    const auto rows = parse_matmul_rows("# chips\n\n" + text_of(wide) + "  # algorithm 66\r\n" + text_of(zeros) + "\n" + text_of(narrow));
    ASSERT_TRUE(rows) << rows.error();
    EXPECT_EQ(*rows, (std::vector{wide, zeros, narrow}));
}

// Pins: a truncated or mistyped table is rejected with the line, before anything is multiplied.
TEST(MatmulTable, WhatIsWrongWithAFileIsNamedWithItsLine) {
    const std::string good = text_of(row(2048));
    const auto fault = [](const std::string& text) {
        const auto rows = parse_matmul_rows(text);
        return rows ? "none" : rows.error();
    };
    EXPECT_EQ(fault(good + "\n\n90 1 130100 bfloat16 24 40 2048"),
              "line 3: 7 words, where a row has CAPABILITY PROCESSORS LIBRARY bfloat16|fp8_rows OUTPUTS INPUTS ROWS_MAX WORDS, one to 8 of "
              "these");
    EXPECT_THAT(fault(good + " 1 2 3 4 5 6 7 8"), HasSubstr("line 1: 16 words"));
    EXPECT_THAT(fault("90 x 130100 bfloat16 24 40 2048 0x1"), HasSubstr("line 1: 'x' in the place of one of CAPABILITY"));
    EXPECT_THAT(fault("90 -1 130100 bfloat16 24 40 2048 0x1"), HasSubstr("line 1: '-1'"));
    EXPECT_THAT(fault("90 1 130100 float32 24 40 2048 0x1"), HasSubstr("line 1: 'float32'"));
    EXPECT_THAT(fault("90 1 130100 bfloat16 24 40 4096 0x1"), HasSubstr("line 1: '4096'"));
    EXPECT_THAT(fault("90 1 130100 bfloat16 24 40 2048 17"), HasSubstr("line 1: '17'"));
    EXPECT_EQ(fault("# a chip\n" + text_of(row(64)) + "\n"),
              "line 2: compute capability 90, 1 processors, 24 x 40 ends at 64 rows, not at 2048");
    EXPECT_THAT([] { read_matmul_rows("/nowhere/table"); }, ::testing::ThrowsMessage<std::runtime_error>("/nowhere/table: cannot be read"));
}

// Pins: rows measured on a machine are used there, and change the fingerprint as committed rows do.
TEST(MatmulTable, AFileStandsInThePlaceOfTheCommittedRows) {
    const tests::TempFolder folder;
    const std::filesystem::path file = folder / "table";
    tests::write_text(file, text_of(row(2048)) + "\n");
    const MatmulRows rows = read_matmul_rows(file);
    EXPECT_EQ(rows.rows, std::vector{row(2048)});
    const MatmulChoice choice = choose_matmuls(rows, chip, Quantization::none, emulated);
    EXPECT_EQ(choice.note, "cuBLASLt 13.1.0 for the shapes in " + file.string() + ", own kernels for others");
    EXPECT_EQ(choice.library->fingerprint(), choose_matmuls({{row(2048)}}, chip, Quantization::none, emulated).library->fingerprint());
    MatmulRow elsewhere = row(2048);
    elsewhere.chip.processors = 132;
    tests::write_text(file, text_of(elsewhere) + "\n");
    EXPECT_THAT(make_cuda_backend({.matmul_table = file})->info().matmuls, HasSubstr("own kernels, as " + file.string() + " has no rows"));
    tests::write_text(file, "90\n");
    EXPECT_THAT([&] { make_cuda_backend({.matmul_table = file}); },
                ::testing::ThrowsMessage<std::runtime_error>(HasSubstr(file.string() + ": line 1: 1 words")));
}

// Pins: adding, changing or removing a row changes the fingerprint; a row of another chip does not.
TEST(MatmulTable, ItsFingerprintIsThatOfTheRowsOfThisChipAndVersion) {
    MatmulRow elsewhere = row(2048);
    elsewhere.chip.processors = 132;
    const auto fingerprint = [](std::vector<MatmulRow> rows) { return table_of(rows, chip, emulation::cublaslt_version)->fingerprint; };
    const std::string one = fingerprint({row(2048)});
    EXPECT_THAT(one, ::testing::StartsWith("cublaslt-130100-"));
    EXPECT_EQ(fingerprint({elsewhere, row(2048)}), one);
    EXPECT_NE(fingerprint({row(64), row(2048)}), one);
    EXPECT_NE(fingerprint({row(2048, CublasLtAlgorithm::halves)}), one);
    EXPECT_FALSE(table_of(std::vector{elsewhere}, chip, emulation::cublaslt_version));
    EXPECT_FALSE(table_of(std::vector{row(2048)}, chip, 130000));
}

TEST(MatmulChoice, AChipWithoutRowsUsesOurKernelAndOpensNothing) {
    const MatmulChip unknown{.capability = 80, .processors = 108};
    const MatmulChoice choice = choose_matmuls({{row(2048)}}, unknown, Quantization::none, []() -> Expected<lt::Functions, std::string> {
        ADD_FAILURE() << "opened";
        return emulation::cublaslt();
    });
    EXPECT_EQ(choice.library, nullptr);
    EXPECT_TRUE(choice.wants_library);
    EXPECT_THAT(choice.note, HasSubstr("has no rows for compute capability 8.0 with 108 processors"));
}

TEST(MatmulChoice, WithoutTheLibraryOurKernelServesAndTheReasonIsTold) {
    const MatmulChoice choice = choose_matmuls({{row(2048)}}, chip, Quantization::none, not_found);
    EXPECT_EQ(choice.library, nullptr);
    EXPECT_TRUE(choice.wants_library);
    EXPECT_THAT(choice.note, HasSubstr("own kernels, as cuBLASLt (libcublasLt.so.13 or .12) was not found"));
    EXPECT_THAT(CudaBackend(CudaOptions{}).info().fingerprint, ::testing::Not(HasSubstr("cublaslt")));
}

TEST(MatmulChoice, RowsOfAnotherVersionAreNotUsed) {
    MatmulRow older = row(2048);
    older.library = 130000;
    const MatmulChoice choice = choose_matmuls({{older}}, chip, Quantization::none, emulated);
    EXPECT_EQ(choice.library, nullptr);
    EXPECT_TRUE(choice.wants_library);
    EXPECT_THAT(choice.note, HasSubstr("has rows for cuBLASLt 13.0.0, and 13.1.0 is installed"));
}

TEST(MatmulChoice, RowsOfThisChipAndVersionAreUsedAndShowInTheFingerprint) {
    MatmulChoice choice = choose_matmuls({{row(2048)}}, chip_of_device(), Quantization::none, emulated);
    ASSERT_NE(choice.library, nullptr);
    EXPECT_FALSE(choice.wants_library);
    const std::string fingerprint = choice.library->fingerprint();
    const CudaBackend backend(CudaOptions{}, std::move(choice));
    EXPECT_THAT(backend.info().fingerprint, ::testing::EndsWith("-" + fingerprint));
    EXPECT_THAT(backend.info().matmuls, HasSubstr("cuBLASLt 13.1.0"));
}

// Pins: the note says what multiplies fp8, and what would be needed for the library to do it.
TEST(MatmulChoice, ProjectionsOfFp8SayWhyTheLibraryDoesNotMultiplyThem) {
    const auto choice = [](std::vector<MatmulRow> rows, const OpenLibrary& open) {
        return choose_matmuls({rows}, chip, Quantization::fp8, open);
    };
    const auto note = [&](const std::vector<MatmulRow>& rows, const OpenLibrary& open) { return choice(rows, open).note; };
    const MatmulRow narrow = row(2048, CublasLtAlgorithm::plain, fp8_shape);
    EXPECT_THAT(note({row(2048), narrow}, emulated), ::testing::EndsWith("own kernels for others"));
    EXPECT_FALSE(choice({row(2048), narrow}, emulated).wants_library);
    EXPECT_TRUE(choice({row(2048)}, emulated).wants_library);
    EXPECT_THAT(note({row(2048)}, emulated), HasSubstr("; fp8 by own kernels, as there are no rows of it: `lorry bench tune"));
    MatmulRow older = row(2048);
    older.library = 120800;
    EXPECT_THAT(note({older}, older_library), HasSubstr("; fp8 by own kernels, as cuBLASLt 12.8.0 has no scales for each row of fp8"));
    EXPECT_EQ(choose_matmuls({{older}}, chip, Quantization::none, older_library).note.find("fp8"), std::string::npos);
}

class LibraryMatmulTest : public ::testing::TestWithParam<MatmulShape> {
protected:
    // Inputs and outputs with rows at multiples of 16 bytes, and one weight of `shape`.
    LibraryMatmulTest() {
        for (double& value : weight_values_.data) value = reference::rounded(normal_(random_), Format::bfloat16);
        const testing::Part part(weight_values_, Format::float32, false);
        const WeightPart view = part.view();
        weight_ = backend_.pack_weight({&view, 1}, WeightRole::projection);
    }
    Table normal(std::int64_t rows, std::int64_t columns) {
        Table table(rows, columns);
        for (double& value : table.data) value = reference::rounded(normal_(random_), Format::bfloat16);
        return table;
    }
    MatmulRow own_row(std::int64_t rows_max, CublasLtAlgorithm algorithm) const { return row(rows_max, algorithm, shape_); }
    MatmulChoice choice(const std::vector<MatmulRow>& rows) const {
        return choose_matmuls({rows}, chip, options_.storage.quantize, emulated);
    }

    static constexpr std::uint64_t seed = 20261122;  // of every run
    const MatmulShape shape_ = GetParam();
    const CudaOptions options_{.storage = {.quantize = shape_.inputs == Format::fp8_rows ? Quantization::fp8 : Quantization::none}};
    CudaBackend backend_{options_, choice({own_row(64, CublasLtAlgorithm::for_few_rows), own_row(2048, CublasLtAlgorithm::plain)})};
    std::mt19937_64 random_{seed};
    std::normal_distribution<double> normal_;
    Table weight_values_{shape_.out_features, shape_.in_features};
    std::unique_ptr<PackedWeight> weight_;
};

// Pins: memory after a slice's rows is not overwritten; the result has the same bits wherever rows were padded.
TEST_P(LibraryMatmulTest, RowsArePaddedInPlaceWhereMemoryIsSpareAndInACopyElsewhere) {
    const Table x = normal(32, shape_.in_features);
    const Table before = normal(32, shape_.out_features);
    const Memory bias(backend_, normal(1, shape_.out_features));
    for (const bool accumulate : {false, true}) {
        for (const bool biased : {false, true}) {
            const Memory in(backend_, x, shape_.inputs, 0);
            const Memory copied(backend_, before, Format::float32, 0);
            const Memory in_place(backend_, before, Format::float32, 0);
            const auto multiply = [&](Matrix out, std::int64_t spare_rows) {
                Matrix inputs = in.matrix().slice_rows(0, 21);
                out = out.slice_rows(0, 21);
                out.spare_rows = inputs.spare_rows = spare_rows;
                const std::uint64_t matmuls = emulation::cublaslt_matmuls();
                backend_.matmul(
                    {.out = out, .in = inputs, .weight = *weight_, .bias = biased ? bias.vector() : Vector{}, .accumulate = accumulate});
                EXPECT_EQ(emulation::cublaslt_matmuls(), matmuls + 1);
            };
            multiply(copied.matrix(), 10);    // one spare row too few
            multiply(in_place.matrix(), 11);  // 21 rows are padded to 32
            for (std::int64_t i = 0; i < 21; ++i) EXPECT_EQ(copied.read_row(i), in_place.read_row(i)) << i;
            for (std::int64_t i = 21; i < 32; ++i) {
                EXPECT_EQ(copied.read_row(i),
                          std::vector<float>(before.data.begin() + i * before.columns, before.data.begin() + (i + 1) * before.columns));
                EXPECT_NE(in_place.read_row(i), copied.read_row(i)) << "the padding was computed";
            }
        }
    }
}

// Pins: the library's sums equal our own kernel's, scales included.
TEST_P(LibraryMatmulTest, SumsAreThoseOfStoredWeightsAndInputs) {
    const Table x = normal(21, shape_.in_features);
    const Memory in(backend_, x, shape_.inputs);
    const Memory out(backend_, 21, shape_.out_features);
    backend_.matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight_});
    testing::expect_close(
        out.read(),
        reference::matmul(testing::stored_inputs(x, shape_.inputs), testing::stored_weight(weight_values_, *weight_, Format::bfloat16)),
        testing::tolerance("matmul", Format::bfloat16));
}

TEST_P(LibraryMatmulTest, MoreRowsThanALibraryMatmulTakesAreCutIntoPieces) {
    const std::int64_t rows = matmul_rows_max + 5;
    const Table x = normal(rows, shape_.in_features);
    const Memory in(backend_, x, shape_.inputs, 0);
    const Memory out(backend_, rows, shape_.out_features, Format::float32, 0);
    const std::uint64_t matmuls = emulation::cublaslt_matmuls();
    backend_.matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight_});
    EXPECT_EQ(emulation::cublaslt_matmuls(), matmuls + 2);
    for (const std::int64_t i : {std::int64_t{0}, matmul_rows_max - 1, matmul_rows_max, rows - 1}) {
        const Memory alone(backend_, 1, shape_.out_features);
        backend_.matmul({.out = alone.matrix(), .in = in.matrix().slice_rows(i, 1), .weight = *weight_});
        EXPECT_EQ(out.read_row(i), alone.read_row(0)) << i;
    }
}

// Pins: rows were multiplied with the scales of others, and scales lay at addresses that the library cannot read.
TEST_P(LibraryMatmulTest, RowsOfASliceKeepTheirScalesWhereverItBegins) {
    const Table x = normal(40, shape_.in_features);
    const Memory in(backend_, x, shape_.inputs, 0);
    const Memory out(backend_, 40, shape_.out_features, Format::float32, 0);
    backend_.matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight_});
    for (const std::int64_t begin : {0, 1, 2, 4, 7, 24}) {
        const Memory part(backend_, 16, shape_.out_features, Format::float32, 0);
        const std::uint64_t matmuls = emulation::cublaslt_matmuls();
        backend_.matmul({.out = part.matrix(), .in = in.matrix().slice_rows(begin, 16), .weight = *weight_});
        EXPECT_EQ(emulation::cublaslt_matmuls(), matmuls + 1);
        for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(part.read_row(i), out.read_row(begin + i)) << begin << " + " << i;
    }
}

TEST_P(LibraryMatmulTest, AShapeWithoutARowIsMultipliedByOurKernel) {
    const testing::Part part(normal(16, 40), Format::float32, false);
    const WeightPart view = part.view();
    const auto other = backend_.pack_weight({&view, 1}, WeightRole::projection);
    const Memory in(backend_, normal(3, 40), shape_.inputs);
    const Memory out(backend_, 3, 16);
    const std::uint64_t matmuls = emulation::cublaslt_matmuls();
    backend_.matmul({.out = out.matrix(), .in = in.matrix(), .weight = *other});
    EXPECT_EQ(emulation::cublaslt_matmuls(), matmuls);
    EXPECT_TRUE(out.padding_is_untouched());
}

// Pins: a row of the table that the library rejects must not change the sums.
TEST_P(LibraryMatmulTest, AnAlgorithmThatTheLibraryRefusesEndsTheProgram) {
    CudaBackend backend(options_, choice({own_row(2048, CublasLtAlgorithm::for_few_rows)}));
    const Memory in(backend, normal(65, shape_.in_features), shape_.inputs);
    const Memory out(backend, 65, shape_.out_features);
    EXPECT_THAT([&] { backend.matmul({.out = out.matrix(), .in = in.matrix(), .weight = *weight_}); },
                ::testing::ThrowsMessage<std::runtime_error>("cuBLASLt failed: multiplying: CUBLAS_STATUS_NOT_SUPPORTED"));
}

INSTANTIATE_TEST_SUITE_P(Formats, LibraryMatmulTest, ::testing::Values(shape, fp8_shape),
                         [](const auto& tested) { return std::string(kernels::name_of(tested.param.inputs)); });

const TuneOptions few{.rows_max = 160, .candidates_max = 16, .seconds = 0.0, .walked_bytes = 8192, .copied_bytes = 4096, .square = 64};

// The name of a candidate of the emulated library: "plain" and so on.
CublasLtAlgorithm kind_of(const MatmulCandidate& candidate) { return static_cast<CublasLtAlgorithm>(candidate.algorithm[0]); }

// The tuner has one thread, and its other tests launch the same.
const tests::Labelled tuner_without_tsan{
    "MatmulTuner.EndsInItsTime*:MatmulTuner.TellsOfEach*:MatmulTuner.TheLibrarysFirst*:*.ATrialAllocates*", {tests::Label::not_tsan}};

class MatmulTunerTest : public ::testing::TestWithParam<MatmulShape> {};

TEST_P(MatmulTunerTest, RefusesWhatDependsOnTheBatchAndTakesTheFastestOfTheRest) {
    const Tuning tuning = tune_matmuls(std::vector{GetParam()}, few, emulated);
    EXPECT_EQ(tuning.device, "emulated");
    EXPECT_EQ(tuning.chip, chip);
    EXPECT_EQ(tuning.library, emulation::cublaslt_version);
    EXPECT_GT(tuning.rates.operations_per_second, 0.0);
    ASSERT_EQ(tuning.matmuls.size(), 1U);
    const TunedMatmul& tuned = tuning.matmuls.front();
    std::map<CublasLtAlgorithm, std::optional<MatmulRefusal>> refusals;
    for (const MatmulCandidate& candidate : tuned.candidates) refusals[kind_of(candidate)] = candidate.refusal;
    const std::map<CublasLtAlgorithm, std::optional<MatmulRefusal>> want{{CublasLtAlgorithm::split_by_rows, MatmulRefusal::rows},
                                                                         {CublasLtAlgorithm::backwards_at_odds, MatmulRefusal::place},
                                                                         {CublasLtAlgorithm::rounded, MatmulRefusal::value},
                                                                         {CublasLtAlgorithm::for_few_rows, std::nullopt},
                                                                         {CublasLtAlgorithm::plain, std::nullopt},
                                                                         {CublasLtAlgorithm::for_many_rows, std::nullopt},
                                                                         {CublasLtAlgorithm::halves, std::nullopt},
                                                                         {CublasLtAlgorithm::starts_from_out, std::nullopt}};
    EXPECT_EQ(refusals, want);
    EXPECT_THAT(tuned.buckets, ElementsAre(16, 32, 48, 64, 80, 96, 112, 128, 160));
    EXPECT_EQ(tuned.own_seconds.size(), tuned.buckets.size());

    std::vector<std::pair<std::int64_t, CublasLtAlgorithm>> ranges;
    for (const MatmulRow& each : rows_of(tuning, tuned)) {
        EXPECT_EQ(each.shape, GetParam());
        ranges.emplace_back(each.range.rows_max, static_cast<CublasLtAlgorithm>(each.range.algorithm[0]));
    }
    EXPECT_THAT(ranges, ElementsAre(std::pair(std::int64_t{64}, CublasLtAlgorithm::for_few_rows),
                                    std::pair(std::int64_t{112}, CublasLtAlgorithm::plain),
                                    std::pair(std::int64_t{160}, CublasLtAlgorithm::for_many_rows)));
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulTunerTest, ::testing::Values(shape, fp8_shape),
                         [](const auto& tested) { return std::string(kernels::name_of(tested.param.inputs)); });

// Pins: each trial allocated and freed memory, which waits for the device, 24 times per candidate.
TEST_P(MatmulTunerTest, ATrialAllocatesNothing) {
    const auto waits_of = [&](int candidates_max) {
        TuneOptions options = few;
        options.candidates_max = candidates_max;
        const std::uint64_t before = emulation::device_wide_waits();
        const Tuning tuning = tune_matmuls(std::vector{GetParam()}, options, emulated);
        return std::pair(tuning.matmuls.front().candidates.size(), emulation::device_wide_waits() - before);
    };
    const auto [few_candidates, few_waits] = waits_of(1);
    const auto [all_candidates, all_waits] = waits_of(16);
    EXPECT_LT(few_candidates, all_candidates);
    EXPECT_EQ(few_waits, all_waits);
}

constexpr MatmulShape small_shape{Format::bfloat16, 16, 24};

// Pins: a run that was stopped before its last shape had written nothing.
TEST(MatmulTuner, TellsOfEachShapeAndTakesTheLargestLast) {
    std::vector<MatmulShape> told;
    const Tuning tuning = tune_matmuls(std::vector{shape, small_shape}, few, emulated, [&](const Tuning& so_far) {
        told.push_back(so_far.matmuls.back().shape);
        EXPECT_EQ(so_far.matmuls.size(), told.size());
        EXPECT_FALSE(rows_of(so_far, so_far.matmuls.back()).empty());
    });
    EXPECT_THAT(told, ElementsAre(small_shape, shape));
    EXPECT_TRUE(tuning.matmuls.front().is_complete && tuning.matmuls.back().is_complete);
}

// The number of candidates of each shape, as "3" or "3, incomplete", when each reading of the clock is a second after the last.
std::vector<std::string> tried_within(double seconds) {
    TuneOptions options = few;
    options.time_max = std::chrono::duration<double>(seconds);
    TuneClock::time_point time;
    options.now = [&] { return time += std::chrono::seconds(1); };
    std::vector<std::string> tried;
    for (const TunedMatmul& matmul : tune_matmuls(std::vector{shape, small_shape}, options, emulated).matmuls)
        tried.push_back(std::to_string(matmul.candidates.size()) + (matmul.is_complete ? "" : ", incomplete"));
    return tried;
}

// Pins: the tuner had no time limit, and stopping it lost all its results.
TEST(MatmulTuner, EndsInItsTimeOfWhichEachShapeHasAShare) {
    EXPECT_THAT(tried_within(1000.0), ElementsAre("8", "8"));
    EXPECT_THAT(tried_within(0.5), ElementsAre("0, incomplete", "0, incomplete"));
    // The first shape gets half of the time that is left after two readings of the clock, the other shape the rest.
    EXPECT_THAT(tried_within(8.0), ElementsAre("3, incomplete", "1, incomplete"));
    // The other shape gets the time that the first one leaves.
    EXPECT_THAT(tried_within(20.0), ElementsAre("8", "8"));
}

// The library with another first choice for each question.
Expected<lt::Functions, std::string> fickle_library() {
    lt::Functions functions = emulation::cublaslt();
    functions.matmul_algo_get_heuristic = [](auto... task_and_results) {
        static int asked = 0;
        const auto results = std::get<8>(std::tuple(task_and_results...));
        const auto found = std::get<9>(std::tuple(task_and_results...));
        const lt::Status status = emulation::cublaslt().matmul_algo_get_heuristic(task_and_results...);
        std::rotate(results, results + asked++ % *found, results + *found);
        return status;
    };
    return functions;
}

// Pins: when time ran out for a shape, all choices for few rows had been tried and none for many rows.
TEST(MatmulTuner, TheLibrarysFirstChoicesForAllBucketsComeBeforeItsOthers) {
    const Tuning tuning = tune_matmuls(std::vector{shape}, few, fickle_library);
    std::vector<CublasLtAlgorithm> order;
    for (const MatmulCandidate& candidate : tuning.matmuls.front().candidates) order.push_back(kind_of(candidate));
    using enum CublasLtAlgorithm;
    // It was asked twice before, for the chip's rates.
    EXPECT_THAT(order, ElementsAre(rounded, for_few_rows, plain, for_many_rows, starts_from_out, split_by_rows, backwards_at_odds, halves));
}

// The library; with the algorithm that is fastest for few rows it rejects adding to existing outputs.
Expected<lt::Functions, std::string> reluctant_library() {
    lt::Functions functions = emulation::cublaslt();
    functions.matmul = [](auto... task) {
        const auto all = std::tuple(task...);
        const bool adds = *static_cast<const float*>(std::get<7>(all)) != 0.0F;
        if (adds && static_cast<CublasLtAlgorithm>(std::get<12>(all)->data[0]) == CublasLtAlgorithm::for_few_rows)
            return lt::Status::not_supported;
        return emulation::cublaslt().matmul(task...);
    };
    return functions;
}

// Pins: takes() does not ask about adding to existing outputs; one such rejection ended the tuning of all shapes.
TEST(MatmulTuner, WhatTheLibraryRefusesAtLastItDoesNotTake) {
    const Tuning tuning = tune_matmuls(std::vector{shape}, few, reluctant_library);
    ASSERT_EQ(tuning.matmuls.size(), 1U);
    const TunedMatmul& tuned = tuning.matmuls.front();
    const auto refused = std::ranges::find(tuned.candidates, CublasLtAlgorithm::for_few_rows, kind_of);
    ASSERT_NE(refused, tuned.candidates.end());
    EXPECT_THAT(refused->seconds, ::testing::Each(std::optional<double>()));
    EXPECT_EQ(refused->refusal, std::nullopt);
    for (const MatmulRow& each : rows_of(tuning, tuned))
        EXPECT_NE(static_cast<CublasLtAlgorithm>(each.range.algorithm[0]), CublasLtAlgorithm::for_few_rows);
}

TEST(MatmulTuner, OfFp8NeedsAVersionThatHasScalesForRows) {
    EXPECT_THAT([] { tune_matmuls(std::vector{fp8_shape}, few, older_library); },
                ::testing::ThrowsMessage<std::runtime_error>("cuBLASLt 12.8.0 has no scales for each row of fp8: install 12.9.0 or later"));
}

TEST(MatmulTuner, MeasuresTheChipAlone) {
    EXPECT_GT(measure_chip(few, emulated)->operations_per_second, 0.0);
    EXPECT_GT(measure_chip(few, emulated)->fp8_operations_per_second, 0.0);
    EXPECT_EQ(measure_chip(few, older_library)->fp8_operations_per_second, std::nullopt);
    EXPECT_EQ(describe_chip().chip, chip);
    EXPECT_EQ(describe_chip().cudart, describe_chip().driver);
    EXPECT_THAT(measure_chip(few, not_found).error(), HasSubstr("was not found: install CUDA's cuBLAS"));
}

TEST(MatmulTuner, WithoutTheLibrarySaysWhatToDo) {
    EXPECT_THAT([] { tune_matmuls(std::vector{shape}, few, not_found); },
                ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("was not found: install CUDA's cuBLAS")));
}

MatmulCandidate candidate(std::uint64_t bits, std::vector<std::optional<double>> seconds, std::optional<MatmulRefusal> refusal = {}) {
    return {.refusal = refusal, .bits = bits, .seconds = std::move(seconds)};
}

TEST(MatmulTuner, BitsThatDoNotServeAllBucketsServeNone) {
    EXPECT_THAT(choose_candidates(std::vector{candidate(1, {1.0, std::nullopt}), candidate(2, {5.0, 5.0})}, 2), ElementsAre(1, 1));
    EXPECT_TRUE(choose_candidates(std::vector{candidate(1, {1.0, std::nullopt}), candidate(2, {std::nullopt, 5.0})}, 2).empty());
    EXPECT_TRUE(choose_candidates(std::vector{candidate(1, {1.0, 1.0}, MatmulRefusal::rows)}, 2).empty());
}

TEST(MatmulTuner, BucketsShareAnAlgorithmWhereAnotherGainsTooLittle) {
    EXPECT_THAT(choose_candidates(std::vector{candidate(1, {1.0, 2.0, 2.0}), candidate(1, {2.0, 1.98, 1.5})}, 3), ElementsAre(0, 0, 1));
}

// Pins: all buckets have the same weight, however long they take.
TEST(MatmulTuner, OfSeveralBitsTheLeastMeanWins) {
    EXPECT_THAT(choose_candidates(std::vector{candidate(1, {1.0, 9.0}), candidate(2, {4.0, 4.0})}, 2), ElementsAre(0, 0));
}

}  // namespace
}  // namespace lorry::kernels::cuda
