// The vectors of tests/data/text, and temporary folders for model files. Used by the tests of engine/text.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/token.h"
#include "schema/json.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine::text_vectors {

// Each is a folder of tests/data/text; make_vectors.py says what it is for.
inline const std::vector<std::string> kinds = {"gpt2", "llama3", "qwen2", "llama2", "mistral", "bert", "unigram", "words"};

inline std::filesystem::path folder_of(std::string_view kind) {
    return std::filesystem::path(LORRY_SOURCE_DIR) / "tests" / "data" / "text" / kind;
}

inline std::string read(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    CHECK(in.is_open(), "the vectors are in the tree");
    return std::move(content).str();
}

inline schema::Json read_json(const std::filesystem::path& file) {
    auto json = schema::Json::parse(read(file));
    CHECK(json.has_value(), "the vectors are JSON");
    return std::move(*json);
}

inline schema::Json vectors_of(std::string_view kind) { return read_json(folder_of(kind) / "vectors.json"); }

inline const schema::Json& member(const schema::Json& object, std::string_view key) {
    const auto* value = object.find(key);
    CHECK(value != nullptr, "the vectors have this member");
    return *value;
}

inline const schema::Json::Array& list(const schema::Json& object, std::string_view key) { return *member(object, key).as_array(); }

inline const std::string& text(const schema::Json& object, std::string_view key) { return *member(object, key).as_string(); }

inline std::vector<TokenId> ids(const schema::Json& object, std::string_view key) {
    std::vector<TokenId> out;
    for (const auto& id : list(object, key)) out.push_back(static_cast<TokenId>(*id.as_integer()));
    return out;
}

// The member as JSON; empty if there is none.
inline std::string dump_of(const schema::Json& object, std::string_view key) {
    const auto* value = object.find(key);
    return value == nullptr ? "" : value->dump();
}

// An empty folder for model files, removed with the object.
class ModelFolder {
public:
    const std::filesystem::path& path() const { return folder_.path(); }
    void write(const std::string& name, std::string_view content) const {
        const auto file = path() / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << content;
    }

private:
    tests::TempFolder folder_;
};

}  // namespace lorry::engine::text_vectors
