// Arbitrary bytes as commit metadata, with and without a matching checksum. Accepted metadata must be consistent and be written again as it
// was read.
#include "consumer/commit_metadata.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::consumer {
namespace {

void try_text(std::int64_t offset, std::string_view text) {
    const auto state = decode_commit_metadata(offset, text);
    if (!state) {
        fuzz::check_message(state.error().text);
        return;
    }
    std::int64_t last = offset;
    for (const std::int64_t hole : state->holes) {
        CHECK(hole > last && hole < state->highest_finished, "holes ascend, below what is finished");
        CHECK(!is_finished(*state, hole), "a hole is not finished");
        last = hole;
    }
    CHECK(encode_commit_metadata(*state, text.size()) == text, "one string for each state");
}

}  // namespace
}  // namespace lorry::consumer

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = lorry::fuzz::text_of(data, size);
    const std::int64_t offset = size > 0 ? data[0] : 0;
    lorry::consumer::try_text(offset, bytes);
    lorry::consumer::try_text(offset, lorry::consumer::wrap_commit_metadata(bytes));
    return 0;
}
