// The pages of docs/ that are made from the program's own tables: settings, metrics, error codes. `lorry docs` prints them, and
// a test compares them with the files.
#pragma once

#include <span>
#include <string>

namespace lorry::ops {

struct ReferencePage {
    const char* name;       // in `lorry docs NAME` and docs/NAME.md
    std::string (*text)();  // Markdown
};

std::span<const ReferencePage> reference_pages();

}  // namespace lorry::ops
