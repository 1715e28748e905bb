// Compressed inputs: unpacked piece by piece, with errors that name the file; and texts of other encodings.
#include "consumer/file/input_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <fmt/format.h>

#include "consumer/file/encoding.h"
#include "consumer/file/error.h"
#include "consumer/file/reader.h"
#include "schema/json.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using testing::HasSubstr;
using tests::TempFolder;
using tests::write_text;

std::string gzip(const std::string& text) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    std::string out(deflateBound(&stream, text.size()) + 100, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

// With a checksum, as the program zstd writes it.
std::string zstd(const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    ZSTD_CCtx* const context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
    ZSTD_freeCCtx(context);
    return out;
}

// All bytes of the file, read in pieces of that size; or the error.
std::string read_in_pieces(const std::filesystem::path& file, std::size_t piece) {
    std::string text;
    try {
        InputBytes bytes(file);
        std::string buffer(piece, '\0');
        while (const auto got = bytes.read(buffer, std::chrono::seconds(1)).value()) text.append(buffer, 0, got);
    } catch (const InputError& error) {
        return std::string("refused: ") + error.what();
    }
    return text;
}

std::string lines_of(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("line {} {}\n", i, i * 7919 % 1000);
    return text;
}

TEST(InputBytes, UnpacksWhateverThePieces) {
    const TempFolder folder;
    const std::string text = lines_of(50'000);
    for (const std::string& packed : {text, gzip(text), zstd(text)}) {
        write_text(folder / "in", packed);
        for (const std::size_t piece : {std::size_t{100}, std::size_t{4096}, text.size(), 2 * text.size()}) {
            EXPECT_TRUE(read_in_pieces(folder / "in", piece) == text) << packed.size() << " bytes in pieces of " << piece;
        }
    }
    for (const char* small : {"", "\x1F", "\x28\xB5", "x"}) {
        write_text(folder / "in", small);
        EXPECT_EQ(read_in_pieces(folder / "in", 10), small) << "too short to be compressed";
    }
}

TEST(InputBytes, JoinsWhatWasCompressedInParts) {
    const TempFolder folder;
    for (const auto& pack : {gzip, zstd}) {
        write_text(folder / "in", pack("one\n") + pack("") + pack("two\n"));
        EXPECT_EQ(read_in_pieces(folder / "in", 3), "one\ntwo\n");
    }
    write_text(folder / "in", gzip("one\n") + std::string(512, '\0'));
    EXPECT_EQ(read_in_pieces(folder / "in", 100), "one\n") << "padding";
}

// Pins: half of a file would count as all of it.
TEST(InputBytes, DataThatIsCutOffOrDamagedIsAnErrorThatNamesTheFile) {
    const TempFolder folder;
    const std::string text = lines_of(50'000);
    const std::string file = folder / "in.jsonl.gz";
    for (const auto& [name, packed] : {std::pair("gzip", gzip(text)), std::pair("zstd", zstd(text))}) {
        for (const std::size_t length : {std::size_t{6}, packed.size() / 2, packed.size() - 1}) {
            write_text(file, packed.substr(0, length));
            EXPECT_EQ(
                read_in_pieces(file, 4096),
                fmt::format("refused: {}: its {} data ends in the middle: the file was cut off, so copy or make it again", file, name));
        }
        std::string damaged = packed;
        damaged[damaged.size() / 2] = static_cast<char>(~damaged[damaged.size() / 2]);
        damaged[damaged.size() / 2 + 1] = static_cast<char>(~damaged[damaged.size() / 2 + 1]);
        write_text(file, damaged);
        EXPECT_THAT(read_in_pieces(file, 4096).substr(0, 300), HasSubstr(fmt::format("{}: its {} data cannot be unpacked (", file, name)));
    }
    write_text(file, gzip("one\n") + "tail");
    EXPECT_THAT(read_in_pieces(file, 100), HasSubstr("its gzip data cannot be unpacked (incorrect header check)"));
}

TEST(FileReader, NumbersTheRecordsOfACompressedFileByItsLines) {
    const TempFolder folder;
    write_text(folder / "in.csv.gz", gzip(std::string(schema::byte_order_mark) + "id,text\r\n1,\"a\nb\"\n2,c\n"));
    FileReader reader(folder / "in.csv.gz", {.records = RecordFormat::csv}, 1000);
    std::string seen;
    while (const auto record = reader.next(std::chrono::seconds(1))) seen += fmt::format("[{}:{}]", record->line, record->text);
    EXPECT_EQ(seen, "[1:id,text][2:1,\"a\nb\"][4:2,c]");
    EXPECT_EQ(summarize_file(folder / "in.csv.gz", {.records = RecordFormat::csv}).records, 2);
    write_text(folder / "in.gz", gzip(gzip("{}\n")));
    EXPECT_THAT([&] { FileReader(folder / "in.gz", {}, 1000).next(std::chrono::seconds(1)); },
                testing::ThrowsMessage<InputError>(HasSubstr("compressed with gzip inside a compressed file; decompress it once")));
}

TEST(FileReader, FindsQuotedFieldsByTheDelimiter) {
    const TempFolder folder;
    write_text(folder / "in.csv", "id;text\n1;\"two\nlines\"\n2;x\n");
    FileReader reader(folder / "in.csv", {.records = RecordFormat::csv, .delimiter = ';'}, 1000);
    std::string seen;
    while (const auto record = reader.next(std::chrono::seconds(1))) seen += fmt::format("[{}]", record->text);
    EXPECT_EQ(seen, "[id;text][1;\"two\nlines\"][2;x]");
}

TEST(Encoding, ReadsTheCharactersOfWindows1252AndLatin1) {
    EXPECT_EQ(to_utf8("caf\xE9 \x80\x99\x81", TextEncoding::windows1252), "caf\xC3\xA9 \xE2\x82\xAC\xE2\x84\xA2\xC2\x81");
    EXPECT_EQ(to_utf8("caf\xE9 \x80\xFF", TextEncoding::latin1), "caf\xC3\xA9 \xC2\x80\xC3\xBF");
    EXPECT_EQ(to_utf8("\xFF", TextEncoding::utf8), "\xFF");
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    for (const TextEncoding encoding : {TextEncoding::latin1, TextEncoding::windows1252}) {
        EXPECT_TRUE(schema::is_valid_utf8(to_utf8(all, encoding)));
        EXPECT_EQ(schema::count_characters(to_utf8(all, encoding)), 256);
    }
}

}  // namespace
}  // namespace lorry::consumer
