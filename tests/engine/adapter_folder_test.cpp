// An adapter's identity covers the tokenizer and the chat template that its jobs use.
#include "engine/adapter_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/model.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace lorry::engine {
namespace {

using testing::HasSubstr;

class AdapterFolderTest : public testing::Test {
protected:
    AdapterInfo info() const { return inspect_adapter(folder, config, texts).value(); }

    tests::TinyModel tiny;
    const std::filesystem::path folder = tiny.adapters / "plain";
    const ModelConfig config = ModelConfig::load(tiny.model);
    const ModelTexts texts{tiny.model};
    const std::string bare_hash = inspect_adapter(folder, config)->hash;
};

TEST_F(AdapterFolderTest, ATextThatIsTheBasesDoesNotChangeTheIdentity) {
    EXPECT_EQ(info().hash, bare_hash);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
        std::filesystem::copy_file(tiny.model / name, folder / name);
    tests::write_text(folder / "tokenizer_config.json", R"({"model_max_length": 9})");
    EXPECT_EQ(info().hash, bare_hash);
    EXPECT_EQ(info().text_hash, "");
    EXPECT_EQ(info().text_difference, "");
}

TEST_F(AdapterFolderTest, AnOwnTextIsPartOfTheIdentity) {
    tests::write_text(folder / "chat_template.jinja", "{{ messages }}");
    const AdapterInfo own = info();
    EXPECT_NE(own.hash, bare_hash);
    EXPECT_EQ(own.text_hash, (*texts.of(folder))->hash);
    EXPECT_EQ(own.text_difference, "chat_template.jinja: its chat template is not the base's");
    tests::write_text(folder / "chat_template.jinja", "{{ messages }}!");
    EXPECT_NE(info().hash, own.hash);
}

// Pins: a worker that registered content without its text, or whose text changed since, would prepare jobs with another text.
TEST_F(AdapterFolderTest, FilesAreReadUnderTheIdentityWithTheirText) {
    const auto backend = tests::float32_backend();
    const auto model = Model::load(tiny.model, *backend, 64, 64);
    const auto read = [&](const std::string& hash) {
        const auto files = read_adapter(folder, hash, *model, texts);
        return files ? std::string("good") : files.error().reason;
    };
    EXPECT_EQ(read(bare_hash), "good");
    tests::write_text(folder / "chat_template.jinja", "{{ messages }}");
    EXPECT_THAT(read(bare_hash), HasSubstr("the files changed since the adapter was registered"));
    EXPECT_EQ(read(info().hash), "good");
    tests::write_text(folder / "chat_template.jinja", "{% if %}");
    EXPECT_THAT(read(bare_hash), HasSubstr("chat_template.jinja cannot be used"));
    EXPECT_TRUE(read_adapter(folder, bare_hash, *model, texts).error().may_pass) << "it may be half copied";
    EXPECT_THAT(inspect_adapter(folder, config, texts).error(), HasSubstr("chat_template.jinja cannot be used"));
}

}  // namespace
}  // namespace lorry::engine
