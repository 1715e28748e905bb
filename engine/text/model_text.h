// What turns jobs into tokens and tokens into text: a tokenizer and, for chats, a template. The base model has one, and so has each adapter
// whose folder has a tokenizer or a template that works differently. Made by ops/, used by adapter_cache.cpp and by the preparer.
#pragma once

#include <cstddef>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "schema/check.h"

namespace lorry::engine {

// Constant; any thread.
struct ModelText {
    Tokenizer tokenizer;
    std::optional<ChatTemplate> chat_template;
    std::string hash;        // xxh128 (hex) over the files of an adapter's folder; empty: the base's
    std::string difference;  // from the base's, with the file: "tokenizer.json: its decoder is another one"; empty: the base's
};

// The texts of a base model and of adapters over it. All members may be called by many threads at once.
class ModelTexts {
public:
    explicit ModelTexts(std::filesystem::path base_folder) : base_folder_(std::move(base_folder)) {}

    // Read by the first call. Throws as Tokenizer::load and ChatTemplate::load do.
    const ModelText& base() const;
    // Of an adapter's folder. nullptr: the base's, because the folder has no such files, or files with the same meaning. Reads all files;
    // those that were not seen recently are compared with the base's, which takes seconds for 100,000 tokens; folders of equal files share
    // one text. The error names the file.
    Expected<std::shared_ptr<const ModelText>, std::string> of(const std::filesystem::path& adapter_folder) const;

private:
    struct Seen {
        std::string hash;
        std::shared_ptr<const ModelText> text;  // nullptr: as the base's
    };
    std::shared_ptr<const ModelText> compared(const std::filesystem::path& adapter_folder, const std::string& hash) const;
    std::optional<Seen> find(const std::string& hash) const;
    void remember(Seen seen) const;

    const std::filesystem::path base_folder_;
    mutable std::once_flag base_read_;
    mutable std::optional<const ModelText> base_;  // constant once it was read
    mutable std::mutex mutex_;
    mutable std::list<Seen> seen_;  // guarded by mutex_; the last that was asked for first
};

}  // namespace lorry::engine
