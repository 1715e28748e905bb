// GPT-2's tokenizer of tests/data/text, for tests that need a real one. Loaded once per process.
#pragma once

#include "engine/text/tokenizer.h"

namespace lorry::tests {

const engine::Tokenizer& gpt2_tokenizer();

}  // namespace lorry::tests
