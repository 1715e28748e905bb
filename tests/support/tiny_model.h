// A complete model folder for tests of the program, made in a temporary folder: a golden checkpoint's weights, a tokenizer with one token
// per word ("w0" … "w130") and a chat template. Also has a folder of adapters.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace lorry::tests {

struct TinyModel {
    TinyModel();
    TempFolder folder;
    std::filesystem::path model;     // vocabulary 131
    std::filesystem::path adapters;  // "plain", "rank12", and "broken", which cannot be loaded
};

}  // namespace lorry::tests
