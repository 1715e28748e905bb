// Adapters with a tokenizer, a chat template or an end token of their own, in a whole run.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/ops/run/fixture.h"
#include "tests/support/golden_model.h"

namespace lorry::ops {
namespace {

using testing::HasSubstr;

std::string renamed(std::string text) {
    std::ranges::replace(text, 'w', 'x');
    return text;
}

class OwnTexts : public RunProgram {
protected:
    // The adapter "plain" under another name.
    std::filesystem::path add(const std::string& name) const {
        std::filesystem::copy(tiny.adapters / "plain", tiny.adapters / name);
        return tiny.adapters / name;
    }
    static std::string line(const std::string& model, const std::string& url, const std::string& prompt, const std::string& more) {
        return fmt::format(R"({{"custom_id":"{} {}","method":"POST","url":"/v1/{}","body":{{"model":"{}",{}{}}}}})"
                           "\n",
                           model, url, url, model, prompt, more);
    }
    static Json choice_of(const std::map<std::string, std::string>& results, const std::string& id) {
        const auto place = results.find(id);
        CHECK(place != results.end(), "each job has a result");
        const Json line = Json::parse(place->second).value();
        const Json* choices = line.find("response")->find("body")->find("choices");
        return choices == nullptr ? line : choices->as_array()->front();
    }
    static std::string text_of(const Json& choice) { return *choice.find("text")->as_string(); }
};

// Its tokenizer spells each token with an x in place of the w. So answers must be the same but for this letter, wherever there is text.
TEST_F(OwnTexts, AreWhatJobsAreTokenizedRenderedAndReadWith) {
    const auto folder = add("other");
    std::string words = read_whole(tiny.model / "tokenizer.json");
    for (std::size_t at = 0; (at = words.find("\"w", at)) != std::string::npos; ++at) words[at + 1] = 'x';
    write_text(folder / "tokenizer.json", words);
    std::string turns = read_whole(tiny.model / "chat_template.jinja");
    for (const char* word : {"w1", "w2", "w3"}) turns.replace(turns.find(word), 1, "x");
    write_text(folder / "chat_template.jinja", turns);
    std::string jobs;
    for (const std::string model : {"plain", "other"}) {
        const auto with_letter = [&](std::string text) {
            std::ranges::replace(text, '@', model == "plain" ? 'w' : 'x');
            return text;
        };
        jobs += line(model, "completions", with_letter(R"("prompt":"@5 @6")"),
                     with_letter(R"(,"temperature":0,"max_tokens":6,"ignore_eos":true,"echo":true,"logprobs":2,"bad_words":["@7"])"));
        jobs += line(model, "chat/completions", with_letter(R"("messages":[{"role":"user","content":"@5 @6"}])"),
                     R"(,"temperature":0,"max_tokens":6,"ignore_eos":true,"logprobs":true,"top_logprobs":2)");
        jobs += line(model, "classify", with_letter(R"("input":"@5 @6")"), with_letter(R"(,"choices":["@8","@9 @10"])"));
    }
    write_text(tiny.folder / "in.jsonl", jobs);
    const ProgramResult result = run();
    EXPECT_EQ(result.exit_code, 0) << result.err << read_whole(out());
    const auto results = results_in(out());
    for (const std::string url : {"completions", "chat/completions"}) {
        const std::string plain = choice_of(results, "plain " + url).dump();
        EXPECT_THAT(plain, HasSubstr("w")) << url;
        const auto with_bytes = [](std::string text) {  // of tokens, which are numbers
            for (const auto& [from, to] : {std::pair("[119,", "[120,"), std::pair("[32,119,", "[32,120,")}) {
                for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at) text.replace(at, std::strlen(from), to);
            }
            return text;
        };
        EXPECT_EQ(choice_of(results, "other " + url).dump(), renamed(with_bytes(plain))) << url;
    }
    const auto classified = [&](const std::string& model) {
        const std::string& line = results.at(model + " classify");
        const std::size_t begin = line.find("\"data\"");
        CHECK(begin != std::string::npos, "choices are scored");
        return line.substr(begin);
    };
    EXPECT_EQ(classified("other"), renamed(classified("plain")));
}

TEST_F(OwnTexts, EndTheirAnswers) {
    const std::string prompt = R"("prompt":"w1 w5 w6 w3")";
    const std::string more = R"(,"temperature":0,"max_tokens":5)";
    write_text(tiny.folder / "in.jsonl", line("plain", "completions", prompt, more + R"(,"ignore_eos":true)"));
    EXPECT_EQ(run().exit_code, 0);
    std::istringstream drawn(text_of(choice_of(results_in(out()), "plain completions")));
    std::string first;
    std::string second;
    drawn >> first >> second;
    ASSERT_NE(first, second);
    write_text(add("ends") / "special_tokens_map.json", fmt::format(R"({{"eos_token":"{}"}})", second));
    write_text(tiny.folder / "in.jsonl", line("ends", "completions", prompt, more));
    EXPECT_EQ(run({"--overwrite"}).exit_code, 0);
    const Json ended = choice_of(results_in(out()), "ends completions");
    EXPECT_EQ(text_of(ended), " " + first);
    EXPECT_EQ(*ended.find("finish_reason")->as_string(), "stop");
}

// Pins: the base of many adapters is no chat model, and only the adapter has a template.
TEST_F(OwnTexts, MakeChatsOfABaseWithoutATemplate) {
    std::filesystem::rename(tiny.model / "chat_template.jinja", add("chats") / "chat_template.jinja");
    const std::string chat = R"("messages":[{"role":"user","content":"w5"}])";
    write_text(tiny.folder / "in.jsonl", line("plain", "chat/completions", chat, R"(,"max_tokens":2)") +
                                             line("chats", "chat/completions", chat, R"(,"max_tokens":2)"));
    EXPECT_EQ(run().exit_code, 1);
    const auto results = results_in(out());
    EXPECT_EQ(error_of(results, "plain chat/completions"), "400 no_chat_template");
    EXPECT_EQ(error_of(results, "chats chat/completions"), "ok");
    // A table's rows become chats.
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const ProgramResult table = run_program_of(table_command({"--adapter", "chats", "--max-tokens", "2"}));
    EXPECT_EQ(table.exit_code, 0) << table.err;
}

// Pins: an adapter whose model was resized for tokens that were added, from its folder to its answers, beside the base and others.
TEST_F(OwnTexts, HaveTokensThatWereAddedToTheModel) {
    const auto folder = tiny.adapters / "resized";
    const auto golden_folder = tests::golden_folder() / "adapters" / "resized-plain";
    std::filesystem::create_directories(folder);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
        std::filesystem::copy_file(golden_folder / file, folder / file);
    std::string words = read_whole(tiny.model / "tokenizer.json");
    std::string more;
    for (int token = 131; token < 138; ++token) more += fmt::format(",\"w{0}\":{0}", token);
    words.insert(words.find('}', words.find("\"w130\"")), more);
    write_text(folder / "tokenizer.json", words);

    const auto texts_of = [](std::span<const kernels::TokenId> tokens) {
        std::string text;
        for (const kernels::TokenId token : tokens) text += fmt::format("{}w{}", text.empty() ? "" : " ", token);
        return text;
    };
    const tests::Golden golden = tests::read_golden(golden_folder);
    const tests::GoldenCase& first = golden.cases.front();
    write_text(tiny.folder / "in.jsonl", line("resized", "completions", fmt::format(R"("prompt":"{}")", texts_of(first.prompt)),
                                              R"(,"temperature":0,"max_tokens":64,"ignore_eos":true)") +
                                             line("plain", "completions", R"("prompt":"w130 w5")", R"(,"temperature":2,"max_tokens":64)") +
                                             line("base", "completions", R"("prompt":"w131")", R"(,"max_tokens":2)"));
    const ProgramResult result = run({"--dtype", "float32"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto results = results_in(out());
    EXPECT_EQ(text_of(choice_of(results, "resized completions")), " " + texts_of(first.greedy));

    const ProgramResult checked = run_program_of({LORRY_PROGRAM, "check-model", tiny.model.string(), "--adapters", tiny.adapters.string()});
    EXPECT_THAT(checked.out, HasSubstr("note: resized has 138 tokens, 7 more than the base\n"));
    const ProgramResult json =
        run_program_of({LORRY_PROGRAM, "check-model", tiny.model.string(), "--adapters", tiny.adapters.string(), "--json"});
    EXPECT_THAT(json.out, HasSubstr(R"("vocabulary":138)"));
}

TEST_F(OwnTexts, AreShownByCheckModelOrRefused) {
    write_text(add("chats") / "chat_template.jinja", "{{ messages }}");
    write_text(add("torn") / "tokenizer.json", "{");
    std::filesystem::copy_file(tiny.model / "tokenizer.json", add("same") / "tokenizer.json");
    const ProgramResult checked = run_program_of({LORRY_PROGRAM, "check-model", tiny.model.string(), "--adapters", tiny.adapters.string()});
    EXPECT_EQ(checked.exit_code, 1);
    EXPECT_THAT(checked.out, HasSubstr("note: jobs of chats use the tokenizer and the chat template of its folder: "
                                       "chat_template.jinja: its chat template is not the base's\n"));
    EXPECT_THAT(checked.out, HasSubstr("refused: " + (tiny.adapters / "torn" / "tokenizer.json").string() + " cannot be used"));
    EXPECT_THAT(checked.out, Not(HasSubstr("jobs of same")));
    write_text(tiny.folder / "in.jsonl", job("torn", "torn", "w5"));
    EXPECT_EQ(run().exit_code, 1);
    EXPECT_EQ(error_of(results_in(out()), "torn"), "400 adapter_refused");
}

}  // namespace
}  // namespace lorry::ops
