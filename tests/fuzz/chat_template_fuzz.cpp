// A chat template with messages, tools and further variables. The result is a prompt or an error, the same each time, and no panic.
#include <stdexcept>

#include "engine/text/chat_template.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

void check_error(std::string_view message) {
    fuzz::check_message(message);
    CHECK(message.find("the text library failed") == message.npos, "templates do not panic");
}

void try_template(const std::filesystem::path& folder, const ChatRequest& request) {
    try {
        const auto chat_template = ChatTemplate::load(folder);
        const auto prompt = chat_template->render(request);
        CHECK(schema::is_valid_utf8(prompt ? *prompt : prompt.error()), "a prompt is UTF-8");
        if (!prompt) check_error(prompt.error());
        const auto again = chat_template->render(request);
        CHECK(prompt.has_value() == again.has_value() && (!prompt || *prompt == *again), "the same prompt each time");
    } catch (const std::runtime_error& error) {
        check_error(error.what());
    }
}

}  // namespace
}  // namespace lorry::engine

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const lorry::tests::TempFolder folder;
    const auto [source, messages, tools, extra] = lorry::fuzz::parts_of<4>(lorry::fuzz::text_of(data, size));
    lorry::tests::write_text(folder / "chat_template.jinja", std::string(source));
    lorry::engine::try_template(
        folder.path(), {.messages_json = std::string(messages), .tools_json = std::string(tools), .extra_json = std::string(extra)});
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
