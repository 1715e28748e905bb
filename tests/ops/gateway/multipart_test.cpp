// Forms, in pieces of every size; and those that are refused.
#include "ops/gateway/multipart.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

namespace lorry::ops {
namespace {

using testing::HasSubstr;

struct Recorder final : FormListener {
    std::optional<std::string> on_part(const FormPart& part) override {
        text += fmt::format("[{}{}:", part.name, part.filename ? "=" + *part.filename : "");
        return std::nullopt;
    }
    std::optional<std::string> on_bytes(std::string_view bytes) override {
        text += bytes;
        return std::nullopt;
    }
    std::optional<std::string> on_part_end() override {
        text += ']';
        return std::nullopt;
    }
    std::string text;
};

// What the form says, or why it is refused.
std::string read(const std::string& form, std::size_t piece, const std::string& boundary = "b") {
    Recorder recorder;
    FormReader reader(boundary, recorder);
    for (std::size_t at = 0; at < form.size(); at += piece) {
        if (auto fault = reader.take(std::string_view(form).substr(at, piece))) return "refused: " + *fault;
    }
    if (auto fault = reader.finish()) return "refused: " + *fault;
    return recorder.text;
}

constexpr const char* part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";

TEST(Multipart, ReadsAFormInPiecesOfEverySize) {
    const std::string form =
        "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b  \r\ncontent-type: text/plain\r\n"
        "CONTENT-DISPOSITION: form-data; filename=\"a \\\"b\\\";c.jsonl\"; name=file\r\n\r\nline 1\r\n--c\r\n-\r\n--\r\n\r\n--b\r\n"
        "Content-Disposition: form-data; name=\"\"\r\n\r\n\r\n--b--\r\nepilogue --b";
    for (std::size_t piece = 1; piece <= form.size(); ++piece) {
        EXPECT_EQ(read(form, piece), "[purpose:batch][file=a \"b\";c.jsonl:line 1\r\n--c\r\n-\r\n--\r\n][:]") << piece;
    }
}

TEST(Multipart, RefusesWhatIsNoForm) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{1'000'000}}) {
        EXPECT_THAT(read("", piece), HasSubstr("breaks off"));
        EXPECT_THAT(read("no boundary at all", piece), HasSubstr("breaks off"));
        EXPECT_THAT(read(part + std::string("text"), piece), HasSubstr("breaks off"));
        EXPECT_THAT(read(part + std::string("text\r\n--b"), piece), HasSubstr("breaks off"));
        EXPECT_THAT(read("--b\r\nX: y\r\n\r\ntext\r\n--b--", piece), HasSubstr("Content-Disposition"));
        EXPECT_THAT(read("--b\r\n\r\n\r\ntext\r\n--b--", piece), HasSubstr("Content-Disposition"));
        EXPECT_THAT(read("--b\r\nContent-Disposition: attachment; name=a\r\n\r\ntext\r\n--b--", piece), HasSubstr("Content-Disposition"));
        EXPECT_THAT(read("--b\r\nContent-Disposition: form-data; filename=a\r\n\r\ntext\r\n--b--", piece),
                    HasSubstr("Content-Disposition"));
        EXPECT_THAT(read("--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\ntext\r\n--b--", piece), HasSubstr("Content-Disposition"));
        EXPECT_THAT(read("--b\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\ntext\r\n--b--", piece), HasSubstr("UTF-8"));
        EXPECT_THAT(read("--b junk\r\n\r\n", piece), HasSubstr("end of its line"));
        EXPECT_THAT(read("--b\r\n" + std::string(9'000, 'x'), piece), HasSubstr("8192 bytes"));
        EXPECT_THAT(read("--b" + std::string(9'000, ' '), piece), HasSubstr("too long"));
        std::string many;
        for (int i = 0; i < 17; ++i) many += part + std::string("\r\n");
        EXPECT_THAT(read(many + "--b--", piece), HasSubstr("16 parts"));
    }
}

TEST(Multipart, FindsTheBoundaryOfAContentType) {
    EXPECT_EQ(boundary_of("multipart/form-data; boundary=b"), "b");
    EXPECT_EQ(boundary_of("Multipart/Form-Data ; charset=utf-8; Boundary=\"a b\""), "a b");
    for (const char* type :
         {"", "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"", "text/plain; boundary=b",
          "multipart/mixed; boundary=b", "multipart/form-data; boundary=\"b \"", "multipart/form-data; boundary=\x01"}) {
        EXPECT_EQ(boundary_of(type), std::nullopt) << type;
    }
    EXPECT_EQ(boundary_of("multipart/form-data; boundary=" + std::string(71, 'b')), std::nullopt);
}

}  // namespace
}  // namespace lorry::ops
