// A complete folder of an encoder for tests of the program, made in a temporary folder: a golden encoder with its seeded weights, and a
// tokenizer with one token per word ("w5" … "w66") that frames texts and pairs as BERT does.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/seeded_model.h"

namespace lorry::tests {

struct TinyEncoder {
    // kind: a folder of tests/data/models/encoders, such as "bert-seq"
    explicit TinyEncoder(const std::string& kind);
    // Replaces a text in config.json, such as a label's name.
    void replace_in_config(const std::string& text, const std::string& by) const;

    SeededFolder folder;
    std::filesystem::path model;
};

}  // namespace lorry::tests
