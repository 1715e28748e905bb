// Loads tests/data/text/gpt2 at its first use.
#include "tests/support/gpt2_tokenizer.h"

#include <filesystem>

namespace lorry::tests {

const engine::Tokenizer& gpt2_tokenizer() {
    static const engine::Tokenizer loaded = engine::Tokenizer::load(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/gpt2");
    return loaded;
}

}  // namespace lorry::tests
