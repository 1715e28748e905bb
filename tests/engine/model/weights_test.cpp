// The rules for safetensors headers, sharded folders, and refused files.
#include "engine/model/weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/thrown.h"

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled files_without_tsan{"Safetensors.Mutated*", {tests::Label::not_tsan}};

using engine::Checkpoint;
using engine::parse_safetensors;
using engine::parse_safetensors_header;

std::string header_error(const std::string& header, std::uint64_t data_bytes) {
    const auto tensors = parse_safetensors_header(header, data_bytes);
    return tensors ? "accepted" : tensors.error();
}

std::string file_of(const std::string& header, const std::string& data) {
    std::string file(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
    return file + header + data;
}

std::string checkpoint_error(const std::filesystem::path& folder) {
    return tests::thrown_by([&] { const Checkpoint checkpoint(folder); });
}

class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("lorry_weights_{}", std::random_device{}())) {
        std::filesystem::create_directory(path_);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    void write(const std::string& name, const std::string& bytes) const { std::ofstream(path_ / name, std::ios::binary) << bytes; }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

constexpr const char* two_tensors = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})";

TEST(Safetensors, TensorsComeSortedByNameWithTheirBytes) {
    const std::string file = file_of(two_tensors, std::string("\0\0\x80\x3f\0\0\0\x40", 8) + std::string("\x80\x3f\x00\xc0", 4));
    const auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
    ASSERT_TRUE(tensors.has_value()) << tensors.error();
    ASSERT_EQ(tensors->size(), 2U);
    EXPECT_EQ((*tensors)[0].name, "a");
    EXPECT_THAT(engine::to_float((*tensors)[0]), testing::ElementsAre(1.0F, -2.0F));
    EXPECT_THAT(engine::to_float(*engine::find_tensor(*tensors, "b")), testing::ElementsAre(1.0F, 2.0F));
    EXPECT_EQ(engine::find_tensor(*tensors, "c"), nullptr);
}

TEST(Safetensors, EachBrokenHeaderIsRefusedWithTheReason) {
    const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
        return fmt::format(R"({{"x":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
    };
    EXPECT_EQ(header_error(two_tensors, 12), "accepted");
    EXPECT_EQ(header_error("{}", 0), "accepted");
    EXPECT_THAT(header_error("{", 0), testing::HasSubstr("not JSON"));
    EXPECT_THAT(header_error("[]", 0), testing::HasSubstr("array"));
    EXPECT_THAT(header_error(R"({"x":3})", 0), testing::HasSubstr("tensor x: needs dtype"));
    EXPECT_THAT(header_error(entry("F7", "[2]", "[0,8]"), 8), testing::HasSubstr("dtype F7 is unknown"));
    EXPECT_THAT(header_error(entry("F32", "[-2]", "[0,8]"), 8), testing::HasSubstr("shape [-2]"));
    EXPECT_THAT(header_error(entry("F32", "[2.5]", "[0,8]"), 8), testing::HasSubstr("shape [2.5]"));
    EXPECT_THAT(header_error(entry("F32", "[3]", "[0,8]"), 8), testing::HasSubstr("does not fill"));
    EXPECT_THAT(header_error(entry("F32", "[4294967296,4294967296,2]", "[0,8]"), 8), testing::HasSubstr("does not fill"));
    EXPECT_THAT(header_error(entry("F4", "[3]", "[0,1]"), 1), testing::HasSubstr("does not fill"));
    EXPECT_THAT(header_error(entry("F32", "[2]", "[0,8]"), 7), testing::HasSubstr("outside"));
    EXPECT_THAT(header_error(entry("F32", "[2]", "[8,0]"), 8), testing::HasSubstr("outside"));
    EXPECT_THAT(header_error(entry("F32", "[2]", "[0,8,9]"), 9), testing::HasSubstr("two data_offsets"));
    EXPECT_THAT(header_error(entry("F32", "[2]", "[1,9]"), 9), testing::HasSubstr("1 unused bytes"));
    EXPECT_THAT(header_error(entry("F32", "[2]", "[0,8]"), 10), testing::HasSubstr("2 bytes at the end"));
    EXPECT_THAT(
        header_error(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7),
        testing::HasSubstr("overlaps"));
    EXPECT_THAT(
        header_error(R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
        testing::HasSubstr("twice"));
}

TEST(Safetensors, AHeaderLongerThanTheFileIsRefused) {
    const auto error = [](const std::string& file) {
        const auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
        return tensors ? "accepted" : tensors.error();
    };
    EXPECT_THAT(error(""), testing::HasSubstr("too short"));
    EXPECT_THAT(error("1234567"), testing::HasSubstr("too short"));
    EXPECT_THAT(error(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), testing::HasSubstr("does not fit"));
    EXPECT_THAT(error(file_of(two_tensors, "").substr(0, 40)), testing::HasSubstr("does not fit"));
}

// Pins: 100 MB of header, which the format allows, took gigabytes as JSON values.
TEST(Safetensors, AHeaderMayHave32MiB) {
    constexpr std::uint64_t most = std::uint64_t{32} << 20;
    const auto header_bytes = [](std::uint64_t length) {
        std::array<std::byte, 8> first{};
        std::memcpy(first.data(), &length, sizeof length);
        return engine::safetensors_header_bytes(first, std::uint64_t{1} << 40);
    };
    EXPECT_EQ(header_bytes(most), most);
    EXPECT_EQ(header_bytes(most + 1).error(), "header has 33554433 bytes; at most 33554432 are supported: split the file");
}

TEST(Safetensors, HalfPrecisionWidensToWhatItStandsFor) {
    std::string data;
    const std::vector<std::uint16_t> halves = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x8000, 0x7C00};
    for (const std::uint16_t half : halves) {
        data += static_cast<char>(half & 0xFFU);
        data += static_cast<char>(half >> 8U);
    }
    const std::string file = file_of(R"({"x":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})", data);
    const auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
    ASSERT_TRUE(tensors.has_value()) << tensors.error();
    const auto values = engine::to_float(tensors->front());
    EXPECT_THAT(values, testing::ElementsAre(1.0F, -2.0F, 0x1p-24F, 65504.0F, 0.0F, std::numeric_limits<float>::infinity()));
    EXPECT_TRUE(std::signbit(values[4]));
}

// Pins: the check of the exponent bits agrees with std::isfinite.
TEST(Safetensors, NumbersThatAreNotFiniteAreFoundInEveryFormat) {
    const auto tensor = [](kernels::Format format, std::span<const std::byte> bytes) {
        engine::Tensor one;
        one.format = format;
        one.bytes = bytes;
        return one;
    };
    for (const kernels::Format format : {kernels::Format::float16, kernels::Format::bfloat16}) {
        for (std::uint32_t pattern = 0; pattern <= 0xFFFFU; ++pattern) {
            const std::array<std::uint16_t, 3> values = {0x3C00, static_cast<std::uint16_t>(pattern), 0x3C00};
            const engine::Tensor three = tensor(format, std::as_bytes(std::span(values)));
            const auto element = engine::first_not_finite(three.bytes, format);
            ASSERT_EQ(element.has_value(), !std::isfinite(engine::to_float(three)[1])) << pattern;
            ASSERT_EQ(element.value_or(1), 1U) << pattern;
        }
    }
    constexpr float largest = std::numeric_limits<float>::max();
    for (const float value : {0.0F, -0.0F, largest, -largest, std::numeric_limits<float>::denorm_min(), HUGE_VALF, -HUGE_VALF,
                              std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_EQ(engine::first_not_finite(std::as_bytes(std::span(&value, 1)), kernels::Format::float32).has_value(),
                  !std::isfinite(value))
            << value;
    }
}

// For any bytes the parser returns, and what it accepts is within the file.
// Pins: two copies of one matrix, as of a tied head, must be equal whatever their dtypes; one changed element makes them differ.
TEST(Safetensors, ValuesAreComparedAcrossDtypes) {
    std::vector<float> floats(200'000, 1.5F);
    std::vector<std::uint16_t> halves(floats.size(), 0x3FC0);
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(floats.size())};
    engine::Tensor a{.format = kernels::Format::float32, .shape = shape, .bytes = std::as_bytes(std::span(floats))};
    const engine::Tensor b{.format = kernels::Format::bfloat16, .shape = shape, .bytes = std::as_bytes(std::span(halves))};
    EXPECT_TRUE(engine::equal_values(a, b));
    floats.back() = 1.25F;
    EXPECT_FALSE(engine::equal_values(a, b));
    EXPECT_TRUE(engine::equal_values(a, a));
    floats.back() = -0.0F;
    std::vector<float> others = floats;
    others.back() = 0.0F;
    EXPECT_TRUE(engine::equal_values(a, {.format = a.format, .shape = shape, .bytes = std::as_bytes(std::span(others))}));
    a.shape = {1, shape.front()};
    EXPECT_FALSE(engine::equal_values(a, b));
}

TEST(Safetensors, MutatedFilesNeverCrashAndNeverReachBeyondTheData) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const std::string good = file_of(two_tensors, std::string(12, '\1'));
    std::size_t accepted = 0;
    for (int i = 0; i < 50000; ++i) {
        std::string file = good;
        for (auto changes = random() % 4; changes > 0; --changes) {
            const std::size_t at = random() % file.size();
            switch (random() % 4) {
                case 0: file[at] = static_cast<char>(random()); break;
                case 1: file[at] = "0123456789{}[],:\"eE.-"[random() % 21]; break;
                case 2: file.erase(at, random() % 5); break;
                default: file.insert(at, file.substr(random() % file.size(), random() % 9));
            }
            if (file.empty()) file = "x";
        }
        // An exact copy on the heap, so that a sanitizer sees a read beyond it.
        const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(file.data()),
                                           reinterpret_cast<const std::byte*>(file.data() + file.size()));
        const auto tensors = parse_safetensors(bytes);
        if (!tensors) continue;
        ++accepted;
        std::size_t covered = 0;
        for (const engine::Tensor& tensor : *tensors) {
            covered += tensor.bytes.size();
            if (tensor.format) engine::to_float(tensor);
        }
        EXPECT_LE(covered, bytes.size());
    }
    EXPECT_GT(accepted, 1000U);
}

TEST(Checkpoint, ShardsAreJoinedAndANameMayLackItsPrefix) {
    const Checkpoint sharded(tests::golden_folder() / "checkpoints" / "qwen3");
    const engine::Tensor* embedding = sharded.find("model.embed_tokens.weight", "model.");
    ASSERT_NE(embedding, nullptr);
    EXPECT_THAT(sharded.file_of(*embedding), testing::HasSubstr("model-0000"));
    const Checkpoint bare(tests::golden_folder() / "checkpoints" / "gpt2-bare-names");
    EXPECT_NE(bare.find("transformer.wte.weight", "transformer."), nullptr);
    EXPECT_EQ(bare.find("transformer.wte.weight", "other."), nullptr);
}

// Pins: names that an older version of transformers wrote, which begin otherwise.
TEST(Checkpoint, OlderNamesAreReadAsThoseOfToday) {
    constexpr std::array renamed{engine::Renamed{"a", "new.a"}, engine::Renamed{"missing.", "x."}};
    const Folder folder;
    folder.write("model.safetensors", file_of(two_tensors, std::string(12, '\1')));
    const Checkpoint checkpoint(folder.path(), renamed);
    ASSERT_NE(checkpoint.find("new.a", ""), nullptr);
    EXPECT_EQ(checkpoint.find("a", ""), nullptr);
    EXPECT_NE(checkpoint.find("b", ""), nullptr);
    constexpr std::array twice{engine::Renamed{"a", "b"}};
    try {
        const Checkpoint broken(folder.path(), twice);
        ADD_FAILURE() << "two tensors of one name";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("tensor b is there twice")));
    }
}

TEST(Checkpoint, FoldersWithoutReadableWeightsAreRefusedWithAdvice) {
    const Folder folder;
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("neither model.safetensors nor"));
    folder.write("gptq_model-4bit-128g.safetensors", "x");
    EXPECT_THAT(checkpoint_error(folder.path()),
                testing::AllOf(testing::HasSubstr("gptq_model-4bit-128g.safetensors"), testing::HasSubstr("rename the file")));
    folder.write("model-00002-of-00002.safetensors", "x");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("neither model.safetensors nor"));
    folder.write("pytorch_model.bin", "x");
    EXPECT_THAT(checkpoint_error(folder.path()),
                testing::AllOf(testing::HasSubstr("pytorch_model.bin"), testing::HasSubstr("save_pretrained")));
    folder.write("model.safetensors", "");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::AllOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("too short")));
    folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 65\n");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("model.safetensors: this is a Git LFS pointer"));
    folder.write("model.safetensors", file_of(two_tensors, std::string(12, '\1')));
    EXPECT_EQ(checkpoint_error(folder.path()), "accepted");
}

TEST(Checkpoint, AnIndexThatDisagreesWithItsShardsIsRefused) {
    const Folder folder;
    const std::string shard = file_of(two_tensors, std::string(12, '\1'));
    folder.write("one.safetensors", shard);
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
    EXPECT_EQ(checkpoint_error(folder.path()), "accepted");
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","c":"one.safetensors"}})");
    EXPECT_THAT(checkpoint_error(folder.path()),
                testing::AllOf(testing::HasSubstr("one.safetensors"), testing::HasSubstr("tensor c is missing")));
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"../one.safetensors"}})");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("not a file name"));
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"two.safetensors"}})");
    EXPECT_THAT(checkpoint_error(folder.path()),
                testing::AllOf(testing::HasSubstr("two.safetensors"), testing::HasSubstr("cannot be opened")));
    folder.write("two.safetensors", shard);
    folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("tensor a is in"));
    folder.write("model.safetensors.index.json", "{}");
    EXPECT_THAT(checkpoint_error(folder.path()), testing::HasSubstr("weight_map"));
}

}  // namespace
}  // namespace lorry
