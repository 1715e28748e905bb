// The tokenizers of tests/data/text/encoders, small ones of each kind, for tests of jobs for encoder models.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "engine/text/tokenizer.h"

namespace lorry::tests {

// kind: a folder's name, such as "bert_cased". Loaded once per process.
inline const engine::Tokenizer& encoder_tokenizer(const std::string& kind) {
    static std::map<std::string, engine::Tokenizer> loaded;
    const auto found = loaded.find(kind);
    if (found != loaded.end()) return found->second;
    const auto folder = std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/encoders" / kind;
    return loaded.emplace(kind, engine::Tokenizer::load(folder)).first->second;
}

}  // namespace lorry::tests
