// `lorry run` on tables for models that generate no text: each task with a real small encoder, choice of the task by the model, errors that
// come before anything runs, resumption.
#include <csignal>

#include "tests/ops/run/pooling_fixture.h"
#include "tests/support/golden_model.h"

namespace lorry::ops {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(PoolingTable, ClassifiesATextColumnWithoutIdsOrATemplate) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "text,note\nw5 w6,a\n,b\nw9,c\n");
    const ProgramResult result = run(encoder, "in.csv", "out.csv", {"--task", "classify", "--text", "text"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    const Json answer = answer_of(encoder, "/classify", R"({"model":"base","input":"w5 w6"})");
    double probability = 0.0;
    for (const Json& one : *answer.find("probs")->as_array()) probability = std::max(probability, *one.as_number());
    const auto lines = lines_of("out.csv");
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[0], ",b,,,empty_prompt: field 'input' is an empty text; give at least one character");
    EXPECT_EQ(lines[1], "text,note,label,probability,error");
    EXPECT_EQ(lines[2], fmt::format("w5 w6,a,{},{:.6f},", *answer.find("label")->as_string(), probability));
}

TEST_F(PoolingTable, WritesVectorsAsJsonInCellsAndAsValuesInLines) {
    const TinyEncoder encoder("bert");
    write_text(folder / "in.tsv", "id\ttext\na\tw5 w6\n");
    write_text(folder / "in.jsonl", "{\"id\":\"a\",\"text\":\"w5 w6\"}\n");
    const std::vector<std::string> flags = {"--task", "embed", "--id", "id", "--text", "text", "--dimensions", "3"};
    EXPECT_EQ(run(encoder, "in.tsv", "out.tsv", flags).exit_code, 0);
    EXPECT_EQ(run(encoder, "in.jsonl", "out.jsonl", flags).exit_code, 0);
    const Json answer = answer_of(encoder, "/v1/embeddings", R"({"model":"base","input":"w5 w6","dimensions":3})");
    const std::string vector = answer.find("embedding")->dump();
    EXPECT_EQ(std::ranges::count(vector, ','), 2);
    EXPECT_EQ(read_whole(folder / "out.tsv"), "id\ttext\tembedding\terror\na\tw5 w6\t" + vector + "\t\n");
    EXPECT_EQ(read_whole(folder / "out.jsonl"), R"({"id":"a","text":"w5 w6","embedding":)" + vector + ",\"error\":null}\n");
}

TEST_F(PoolingTable, WritesEntitiesAndScoresAndTakesTemplates) {
    const TinyEncoder tagger("bert-tokens");
    write_text(folder / "in.jsonl", "{\"a\":\"w5 w6\",\"b\":\"w7\"}\n");
    write_text(folder / "prompt.txt", "{{ a }} w8");
    EXPECT_EQ(run(tagger, "in.jsonl", "ner.jsonl", {"--task", "ner", "--text", "a"}).exit_code, 0);
    const Json entities = answer_of(tagger, "/token_classify", R"({"model":"base","input":"w5 w6"})");
    EXPECT_EQ(read_whole(folder / "ner.jsonl"),
              R"({"a":"w5 w6","b":"w7","entities":)" + entities.find("entities")->dump() + ",\"error\":null}\n");
    // Pins: the places of entities were those in the prompt, which the table does not have.
    for (const std::vector<std::string>& task : {std::vector<std::string>{"--task", "ner"}, {}}) {
        std::vector<std::string> flags = {"--template", folder / "prompt.txt"};
        flags.insert(flags.end(), task.begin(), task.end());
        EXPECT_THAT(refused(tagger, "in.jsonl", flags), HasSubstr("name the column with --text COLUMN"));
    }
    const std::vector<std::string> by_word = {"--task", "ner", "--text", "a", "--aggregation", "max"};
    EXPECT_EQ(run(tagger, "in.jsonl", "words.jsonl", by_word).exit_code, 0);
    const Json words = answer_of(tagger, "/token_classify", R"({"model":"base","input":"w5 w6","aggregation_strategy":"max"})");
    EXPECT_THAT(read_whole(folder / "words.jsonl"), HasSubstr(R"("entities":)" + words.find("entities")->dump()));
    EXPECT_THAT(refused(tagger, "in.jsonl", {"--task", "ner", "--text", "a", "--aggregation", "none"}), HasSubstr("--aggregation"));

    const TinyEncoder embedder("bert");
    EXPECT_EQ(run(embedder, "in.jsonl", "score.jsonl", {"--task", "score", "--text", "a", "--text-2", "b"}).exit_code, 0);
    const Json score = answer_of(embedder, "/score", R"({"model":"base","text_1":"w5 w6","text_2":"w7"})");
    EXPECT_EQ(run(embedder, "in.jsonl", "both.jsonl", {"--task", "score", "--template", folder / "prompt.txt", "--text-2", "b"}).exit_code,
              0);
    EXPECT_THAT(read_whole(folder / "both.jsonl"),
                HasSubstr(answer_of(embedder, "/score", R"({"model":"base","text_1":"w5 w6 w8","text_2":"w7"})").find("score")->dump()));
    EXPECT_EQ(read_whole(folder / "score.jsonl"), R"({"a":"w5 w6","b":"w7","score":)" + score.find("score")->dump() + ",\"error\":null}\n");
}

TEST_F(PoolingTable, ReadsLongTextsInWindows) {
    const TinyEncoder encoder("bert");
    std::string text = "w5";
    for (int i = 0; i < 100; ++i) text += fmt::format(" w{}", 6 + i % 60);
    write_text(folder / "in.csv", "text\n" + text + "\n");
    const std::vector<std::string> flags = {"--task", "embed", "--text", "text", "--dimensions", "3"};
    EXPECT_EQ(run(encoder, "in.csv", "cut.csv", flags).exit_code, 1) << "it is too long";
    std::vector<std::string> more = flags;
    more.insert(more.end(), {"--stride", "4"});
    EXPECT_EQ(run(encoder, "in.csv", "out.csv", more).exit_code, 0);
    const Json answer =
        answer_of(encoder, "/v1/embeddings", fmt::format(R"({{"model":"base","input":"{}","dimensions":3,"stride":4}})", text));
    EXPECT_EQ(read_whole(folder / "out.csv"), "text,embedding,error\n" + text + ",\"" + answer.find("embedding")->dump() + "\",\n");
    // Pins: each row failed by itself.
    more.back() = "600";
    EXPECT_THAT(refused(encoder, "in.csv", more), testing::ContainsRegex("every row would fail: field 'stride' is 600, .* give at most"));
    more.emplace_back("--truncate");
    EXPECT_THAT(refused(encoder, "in.csv", more), HasSubstr("--stride reads them whole: give one of them"));
}

TEST_F(PoolingTable, ComparesTextsWithChoicesOfAFileOrOfTheFlag) {
    const TinyEncoder encoder("bert-seq");
    encoder.replace_in_config("positive", "entailment");
    write_text(folder / "in.jsonl", "{\"text\":\"w5 w6\"}\n");
    write_text(folder / "labels.txt", "w20\nw21\n");
    const auto label = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"--overwrite", "--text", "text"});
        const ProgramResult result = run(encoder, "in.jsonl", "out.jsonl", more);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return Json::parse(read_whole(folder / "out.jsonl")).value();
    };
    const Json by_file = label({"--choices", folder / "labels.txt", "--task", "zero-shot"});
    EXPECT_EQ(label({"--choices", "w20, w21"}).dump(), by_file.dump()) << "the task follows from the choices";
    const Json answer = answer_of(encoder, "/classify", R"({"model":"base","input":"w5 w6","choices":["w20","w21"]})");
    EXPECT_EQ(by_file.find("label")->dump(), answer.find("label")->dump());
    const Json other = answer_of(encoder, "/classify",
                                 R"({"model":"base","input":"w5 w6","choices":["w20","w21"],"multi_label":true,)"
                                 R"("hypothesis_template":"w30 {}"})");
    const Json multi = label({"--choices", "w20,w21", "--multi-label", "--hypothesis-template", "w30 {}"});
    const auto& probabilities = *other.find("probs")->as_array();
    const bool first = *probabilities[0].as_number() > *probabilities[1].as_number();
    EXPECT_EQ(multi.find("probability")->dump(), probabilities[first ? 0 : 1].dump());
}

TEST_F(PoolingTable, TheModelChoosesItsOnlyTaskAndSaysSo) {
    write_text(folder / "in.jsonl", "{\"text\":\"w5\"}\n");
    for (const auto& [kind, task] : {std::pair("bert-seq", "classify"), std::pair("bert-tokens", "ner"), std::pair("bert", "embed")}) {
        const ProgramResult result = run(TinyEncoder(kind), "in.jsonl", "out.jsonl", {"--text", "text", "--overwrite"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_THAT(result.err, HasSubstr(fmt::format(": --task {}\n", task)));
    }
    EXPECT_THAT(refused(TinyEncoder("bert-regression"), "in.jsonl", {"--text", "text"}),
                HasSubstr("say what to do with the rows: --task classify, zero-shot, embed, ner, score; this model classifies and scores"));
}

TEST_F(PoolingTable, AWrongTaskOrFlagIsAnErrorBeforeAnythingRuns) {
    const TinyEncoder encoder("bert");
    write_text(folder / "in.csv", "id,text\n1,w5\n");
    const auto error_of = [&](std::vector<std::string> flags) { return refused(encoder, "in.csv", flags); };
    EXPECT_THAT(error_of({"--task", "classify", "--text", "text"}),
                HasSubstr("--task classify: this model cannot classify texts; it makes embeddings (/v1/embeddings, /score, /rerank)"));
    EXPECT_THAT(error_of({"--task", "ner", "--text", "text"}), HasSubstr("cannot classify tokens; it makes embeddings"));
    EXPECT_THAT(error_of({"--task", "zero-shot", "--text", "text", "--choices", "a,b"}), HasSubstr("; it makes embeddings"));
    EXPECT_THAT(error_of({"--task", "zero-shot", "--text", "text"}), HasSubstr("give them with --choices"));
    EXPECT_THAT(error_of({"--task", "embed"}), HasSubstr("name their column with --text COLUMN"));
    EXPECT_THAT(error_of({"--task", "embed", "--text", "body"}),
                HasSubstr("--text names the column 'body', which the table does not have; it has: id, text"));
    EXPECT_THAT(error_of({"--task", "embed", "--text", "text", "--text-2", "id"}),
                HasSubstr("--text-2 does not belong to --task embed, only to --task score"));
    EXPECT_THAT(error_of({"--task", "score", "--text", "text"}), HasSubstr("with --text-2 COLUMN"));
    EXPECT_THAT(error_of({"--task", "score", "--text", "text", "--text-2", "other"}), HasSubstr("--text-2 names the column 'other'"));
    EXPECT_THAT(error_of({"--task", "score", "--text", "text", "--text-2", "id", "--dimensions", "3"}),
                HasSubstr("--dimensions does not belong to --task score, only to --task embed"));
    EXPECT_THAT(error_of({"--task", "embed", "--text", "text", "--dimensions", "9999"}), HasSubstr("this model allows 1 to 36"));
    EXPECT_THAT(error_of({"--task", "embed", "--text", "text", "--prompt-name", "query"}), HasSubstr("has no prompt 'query'"));
    EXPECT_THAT(error_of({"--task", "embed", "--text", "text", "--max-tokens", "3"}), HasSubstr("only to models that generate text"));
    EXPECT_THAT(error_of({"--task", "sort", "--text", "text"}), HasSubstr("--task"));
    EXPECT_THAT(refused(TinyEncoder("bert-seq"), "in.csv", {"--task", "zero-shot", "--text", "text", "--choices", "a,b"}),
                HasSubstr("a label that starts with \"entail\"; this model's head has 3: negative, neutral, positive"));
}

// Pins: with an adapter that has a head, the base's task was chosen, or a task that the head cannot do was accepted, and every row failed.
TEST_F(PoolingTable, TheHeadOfAnAdapterDecidesWhatItDoes) {
    const TinyEncoder encoder("bert");
    write_text(folder / "in.csv", "id,text\n1,w5\n");
    std::filesystem::create_directory(folder / "adapters");
    for (const char* name : {"bert-topics", "bert-ner"}) {
        const tests::SeededFolder adapter(tests::golden_folder() / "encoder_adapters" / name, "adapter_model.safetensors");
        std::filesystem::copy(adapter.path(), folder / "adapters" / name, std::filesystem::copy_options::recursive);
    }
    const auto flags_of = [&](std::vector<std::string> more) {
        std::vector<std::string> flags = {"--text", "text", "--adapters", (folder / "adapters").string()};
        flags.insert(flags.end(), more.begin(), more.end());
        return flags;
    };
    for (const auto& [name, task] : {std::pair("bert-topics", "classify"), std::pair("bert-ner", "ner")}) {
        const ProgramResult result = run(encoder, "in.csv", "out.csv", flags_of({"--adapter", name, "--overwrite"}));
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_THAT(result.err, HasSubstr("the adapter classifies t"));
        EXPECT_THAT(result.err, HasSubstr(fmt::format(": --task {}\n", task)));
    }
    const auto error_of = [&](const std::vector<std::string>& more) { return refused(encoder, "in.csv", flags_of(more)); };
    EXPECT_THAT(error_of({"--adapter", "bert-ner", "--task", "classify"}),
                HasSubstr("--task classify, --adapter bert-ner: this model cannot classify texts; it classifies tokens (/token_cl"));
    EXPECT_THAT(error_of({"--adapter", "bert-topics", "--task", "embed"}),
                HasSubstr("--adapter bert-topics: this model cannot make embeddings; it classifies texts"));
    EXPECT_THAT(error_of({"--adapter", "bert-topics", "--task", "zero-shot", "--choices", "a,b"}), HasSubstr("starts with \"entail\""));
    EXPECT_THAT(error_of({"--task", "embed", "--dimensions", "999"}), Not(HasSubstr("--adapter")));
    EXPECT_THAT(error_of({"--task", "classify"}), HasSubstr("; or name an adapter with a head for it with --adapter NAME"));
}

TEST_F(PoolingTable, CutsLongTextsIfAsked) {
    const TinyEncoder encoder("bert");
    std::string text;
    for (int i = 0; i < 200; ++i) text += fmt::format("{}w{}", i == 0 ? "" : " ", 5 + i % 60);
    write_text(folder / "in.csv", "id,text\n1," + text + "\n");
    EXPECT_EQ(run(encoder, "in.csv", "whole.csv", {"--task", "embed", "--text", "text"}).exit_code, 1);
    EXPECT_THAT(read_whole(folder / "whole.csv"), HasSubstr("context_length_exceeded"));
    EXPECT_EQ(run(encoder, "in.csv", "cut.csv", {"--task", "embed", "--text", "text", "--truncate"}).exit_code, 0);
}

TEST_F(PoolingTable, DryRunCountsItsRowsAsOnlyRead) {
    const TinyEncoder encoder("bert");
    write_text(folder / "in.csv", "id,text\n1,w5\n2,w6\n");
    const ProgramResult result = run(encoder, "in.csv", "out.csv", {"--task", "embed", "--text", "text", "--dry-run"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("2 jobs: 2 good, 0 refused"));
    EXPECT_THAT(result.err, HasSubstr("all are only read"));
}

TEST_F(PoolingTable, AKilledRunOfACompressedTableResumesWithoutLossOrRepetition) {
    const TinyEncoder encoder("bert");
    std::string table = "id;text\n";
    for (int i = 0; i < 3000; ++i) table += fmt::format("{};w{} w{} w{}\n", i, 5 + i % 60, 5 + i % 7, 5 + i % 31);
    write_text(folder / "in.csv", table);
    const std::vector<std::string> flags = {"--task", "embed", "--text", "text", "--id", "id", "--commit-interval", "5ms"};
    const ProgramResult whole = run(encoder, "in.csv", "whole.csv", flags);
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_THAT(whole.err, HasSubstr("in.csv: the columns are separated by semicolons\n"));
    ASSERT_EQ(run_program_of({"/bin/gzip", (folder / "in.csv").string()}).exit_code, 0);

    int kills = 0;
    const auto size = [&] { return std::filesystem::exists(folder / "out.csv") ? std::filesystem::file_size(folder / "out.csv") : 0; };
    for (bool ended = false; !ended;) {
        const auto before = size();
        Program program(command(encoder, "in.csv.gz", "out.csv", flags));
        while (!ended && size() < before + 40'000) ended = program.ends_within(std::chrono::milliseconds(1));
        if (!ended) {
            program.signal(SIGKILL);
            ++kills;
        }
        ASSERT_NE(program.wait().exit_code, 2);
    }
    EXPECT_GE(kills, 2);
    EXPECT_EQ(lines_of("out.csv"), lines_of("whole.csv"));
}

TEST_F(PoolingTable, RetriesTheFailedRowsOfATableWithSemicolonsAndKeepsTheOthers) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "id;text\n1;\"w5\nw6\"\n2;\n3;w7\n");
    EXPECT_EQ(run(encoder, "in.csv", "out.csv", {"--text", "text"}).exit_code, 1);
    const auto before = lines_of("out.csv");
    const ProgramResult again = run(encoder, "in.csv", "out.csv", {"--text", "text", "--retry-failed"});
    EXPECT_THAT(again.err, HasSubstr("running 1 failed job again"));
    EXPECT_EQ(lines_of("out.csv"), before);
    EXPECT_EQ(before.size(), 5U) << "the header, and a row of two lines";
}

TEST_F(PoolingTable, ReadsOtherEncodingsAndNamesTheLineThatIsNotUtf8) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "caf\xE9,text\n1,w5\n\x80,w6\n");
    EXPECT_THAT(refused(encoder, "in.csv", {"--text", "text"}), HasSubstr("line 1 is not UTF-8: save the table in that encoding, or name "
                                                                          "its own with --encoding"));
    EXPECT_EQ(run(encoder, "in.csv", "out.csv", {"--text", "text", "--encoding", "windows-1252"}).exit_code, 0);
    const auto lines = lines_of("out.csv");
    EXPECT_EQ(lines[1], "caf\xC3\xA9,text,label,probability,error");
    EXPECT_THAT(lines[2], testing::StartsWith("\xE2\x82\xAC,w6,"));

    write_text(folder / "in.csv", "text\nw5\nw\xE9\n");
    EXPECT_EQ(run(encoder, "in.csv", "bad.csv", {"--text", "text"}).exit_code, 1);
    EXPECT_THAT(read_whole(folder / "bad.csv"), HasSubstr("invalid_text: line 3 is not UTF-8"));
}

TEST_F(PoolingTable, RefusesACutInputByName) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "id,text\n1,w5\n2,w6\n3,w7 w8 w9\n");
    ASSERT_EQ(run_program_of({"/bin/gzip", (folder / "in.csv").string()}).exit_code, 0);
    std::filesystem::resize_file(folder / "in.csv.gz", std::filesystem::file_size(folder / "in.csv.gz") - 12);
    EXPECT_THAT(refused(encoder, "in.csv.gz", {"--text", "text"}),
                HasSubstr("in.csv.gz: its gzip data ends in the middle: the file was cut off"));
}

}  // namespace
}  // namespace lorry::ops
