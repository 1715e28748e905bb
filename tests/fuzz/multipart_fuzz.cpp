// An upload: a Content-Type, and the pieces of a form, with record separators between them. The reader finds the same in one piece, byte by
// byte, and in the given pieces; what it refuses has a short reason; and a form that the upload takes is a file of that many bytes.
#include "ops/gateway/multipart.h"

#include <string>
#include <string_view>
#include <vector>

#include "ops/gateway/upload.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/fake_batches.h"

namespace lorry::ops {
namespace {

// All that a form says, as one text.
class Recorder final : public FormListener {
public:
    std::optional<std::string> on_part(const FormPart& part) override {
        CHECK(!is_in_part_, "a part ends before the next begins");
        is_in_part_ = true;
        text += '[' + part.name + (part.filename ? '=' + *part.filename : std::string()) + ':';
        return std::nullopt;
    }
    std::optional<std::string> on_bytes(std::string_view bytes) override {
        CHECK(is_in_part_ && !bytes.empty(), "bytes belong to a part");
        text += bytes;
        return std::nullopt;
    }
    std::optional<std::string> on_part_end() override {
        CHECK(is_in_part_, "a part ends once");
        is_in_part_ = false;
        text += ']';
        return std::nullopt;
    }
    std::string text;

private:
    bool is_in_part_ = false;
};

struct Outcome {
    std::string text;
    std::optional<std::string> fault;
};

Outcome read(const std::string& boundary, const std::vector<std::string_view>& pieces) {
    Recorder recorder;
    FormReader reader(boundary, recorder);
    for (const std::string_view piece : pieces) {
        if (auto fault = reader.take(piece)) return {.text = {}, .fault = std::move(fault)};
    }
    auto fault = reader.finish();
    return {.text = fault ? std::string() : recorder.text, .fault = std::move(fault)};
}

}  // namespace
}  // namespace lorry::ops

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lorry;
    const std::string input(fuzz::text_of(data, size));
    const std::size_t first = input.find(fuzz::separator);
    const auto boundary = ops::boundary_of(std::string_view(input).substr(0, first));
    if (!boundary || first == std::string::npos) return 0;
    std::vector<std::string_view> pieces;
    std::string whole;
    for (std::size_t begin = first + 1; begin <= input.size();) {
        const std::size_t end = std::min(input.find(fuzz::separator, begin), input.size());
        pieces.push_back(std::string_view(input).substr(begin, end - begin));
        whole += pieces.back();
        begin = end + 1;
    }
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < whole.size(); ++i) bytes.push_back(std::string_view(whole).substr(i, 1));
    const ops::Outcome expected = ops::read(*boundary, {whole});
    for (const auto* each : {&pieces, &bytes}) {
        const ops::Outcome found = ops::read(*boundary, *each);
        CHECK(found.text == expected.text && found.fault.has_value() == expected.fault.has_value(), "pieces make no difference");
    }
    if (expected.fault) fuzz::check_message(*expected.fault);

    tests::MemoryStore store;
    ops::Upload upload(store, "tenant", *boundary);
    for (const std::string_view piece : pieces) {
        if (upload.take(piece)) {
            CHECK(store.contents().empty(), "nothing is kept of a refused upload");
            return 0;
        }
    }
    const auto file = upload.finish(1);
    CHECK(file.has_value() == (store.contents().size() == 1), "a file is kept if the upload is taken");
    CHECK(!file || std::ssize(store.contents().at(file->id)) == file->bytes, "a file has the bytes that it says");
    return 0;
}
