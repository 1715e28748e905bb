// A whole model folder for tests of the program: a golden checkpoint's weights with a tokenizer of one token per word ("w0" … "w130") and a
// chat template, made in a temporary folder; and adapters beside it.
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
