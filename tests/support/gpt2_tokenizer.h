// A real tokenizer for tests that need one: GPT-2's, of tests/data/text. Loaded once in a process.
#pragma once

#include "engine/text/tokenizer.h"

namespace lorry::tests {

const engine::Tokenizer& gpt2_tokenizer();

}  // namespace lorry::tests
