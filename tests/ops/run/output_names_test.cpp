// The names that `lorry run` is given for its output: what their endings say, links, pipes, folders, and files that the run reads.
#include <sys/stat.h>

#include "consumer/file/reader.h"
#include "ops/run/output_names.h"
#include "tests/ops/run/pooling_fixture.h"

namespace lorry::ops {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class OutputName : public PoolingTable {
protected:
    OutputName() { write_text(folder / "in.csv", "id,text\n1,\"w5, w6\"\n"); }
    // What a run writes under the name, or why it is refused.
    std::string written(const std::string& in, const std::string& out, std::vector<std::string> more = {}) const {
        more.insert(more.end(), {"--text", "text", "--task", "embed", "--dimensions", "1", "--overwrite"});
        const ProgramResult result = run(encoder, in, out, more);
        if (result.exit_code != 0) return result.err;
        consumer::FileReader reader(folder / out, {}, 1 << 20);
        std::string text;
        while (const auto record = reader.next(std::chrono::seconds(1))) text += record->text + "\n";
        return text;
    }

    const TinyEncoder encoder{"bert"};
};

// Pins: a CSV table gave CSV under every name.
TEST_F(OutputName, TheEndingSaysTheFormat) {
    for (const char* name : {"out.csv", "out.csv.gz", "out", "out.txt", "out.txt.zst"}) {
        EXPECT_THAT(written("in.csv", name), StartsWith("id,text,embedding,error\n1,\"w5, w6\",[")) << name;
    }
    for (const char* name : {"out.tsv", "out.TSV.zst"}) {
        EXPECT_THAT(written("in.csv", name), StartsWith("id\ttext\tembedding\terror\n1\tw5, w6\t[")) << name;
    }
    for (const char* name : {"out.jsonl", "out.ndjson", "out.json", "out.jsonl.gz"}) {
        EXPECT_THAT(written("in.csv", name), StartsWith(R"({"id":"1","text":"w5, w6","embedding":[)")) << name;
    }
    write_text(folder / "semicolons.csv", "id;text\n1;w5\n");
    EXPECT_THAT(written("semicolons.csv", "out.csv"), StartsWith("id;text;embedding;error\n"));
    write_text(folder / "in.tsv", "id\ttext\n1\tw5\n");
    EXPECT_THAT(written("in.tsv", "out.csv"), StartsWith("id,text,embedding,error\n1,w5,["));
    EXPECT_THAT(written("in.tsv", "out"), StartsWith("id\ttext\tembedding\terror\n"));
}

TEST_F(OutputName, AnOutputInAnotherFormatIsRetried) {
    write_text(folder / "in.csv", "id,text\n1,w5\n2,\n");
    for (const char* name : {"out.jsonl", "out.tsv"}) {
        const std::vector<std::string> flags = {"--text", "text", "--task", "embed", "--dimensions", "1"};
        EXPECT_EQ(run(encoder, "in.csv", name, flags).exit_code, 1);
        const std::vector<std::string> before = lines_of(name);
        std::vector<std::string> again = flags;
        again.emplace_back("--retry-failed");
        EXPECT_THAT(run(encoder, "in.csv", name, again).err, HasSubstr("running 1 failed job again"));
        EXPECT_EQ(lines_of(name), before);
    }
}

TEST_F(OutputName, AFormatThatTheInputDoesNotGiveIsRefusedWithThoseThatItGives) {
    write_text(folder / "in.jsonl", "{\"text\":\"w5\"}\n");
    for (const char* name : {"out.csv", "out.tsv.gz"}) {
        EXPECT_THAT(written("in.jsonl", name), HasSubstr("a table of JSON lines gives JSON lines or Parquet"));
        EXPECT_THAT(run(encoder, "in.jsonl", name).err, HasSubstr("results of jobs are JSON lines"));
    }
    EXPECT_THAT(written("in.jsonl", "out.txt"), StartsWith(R"({"text":"w5","embedding":[)"));
    const std::string hint = "for an output in Parquet, a name after -o that ends in .parquet is enough";
    EXPECT_THAT(written("in.csv", "out.parquet", {"--format", "parquet"}),
                HasSubstr("in.csv is, and it is not Parquet: leave --format out"));
    EXPECT_THAT(written("in.csv", "out.parquet", {"--format", "parquet"}), HasSubstr(hint));
    std::vector<std::string> words = command(encoder, "in.csv", "out.parquet", {"--text", "text", "--format", "parquet"});
    words[2] = "-";
    EXPECT_THAT(run_program_of(words).err, HasSubstr(hint));
}

// Pins: an output that is written at the end replaced the link.
TEST_F(OutputName, WhatALinkPointsToIsWritten) {
    std::filesystem::create_directory(folder / "store");
    for (const char* name : {"out.csv", "out.csv.gz"}) {
        std::filesystem::create_symlink(std::filesystem::path("store") / name, folder / name);
        EXPECT_THAT(written("in.csv", name), StartsWith("id,text,embedding,error\n")) << "the file is made";
        EXPECT_THAT(written("in.csv", name), StartsWith("id,text,embedding,error\n")) << "and replaced";
        EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
        EXPECT_TRUE(std::filesystem::is_regular_file(folder / "store" / name));
        EXPECT_EQ(
            run(encoder, "in.csv", std::string("store/") + name, {"--text", "text", "--task", "embed", "--dimensions", "1"}).exit_code, 0)
            << "it is the same output";
    }
    std::filesystem::create_symlink("nowhere/out.csv", folder / "dangling.csv");
    EXPECT_THAT(written("in.csv", "dangling.csv"), HasSubstr("nowhere: make it first"));
    EXPECT_EQ(file_behind("/dev/null"), "/dev/null");
}

// Pins: the run waited for a reader of the pipe without an end.
TEST_F(OutputName, APipeIsRefusedUnlessItIsOpen) {
    for (const char* name : {"pipe", "pipe.gz"}) {
        ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
        EXPECT_THAT(written("in.csv", name), HasSubstr("is a named pipe: give the name of a file, or -o -"));
    }
    std::vector<std::string> words = {"/bin/sh", "-c", "\"$0\" \"$@\" | cat"};
    for (const std::string& word : command(encoder, "in.csv", "out", {"--text", "text", "--task", "embed", "--dimensions", "1"}))
        words.push_back(word == folder / "out" ? "/dev/stdout" : word);
    const ProgramResult result = run_program_of(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("id,text,embedding,error\n"));
}

// Pins: the run failed after the model was loaded, with an error of the system that named no way out.
TEST_F(OutputName, AFolderUnderANameThatTheRunNeedsIsNamed) {
    for (const char* name : {"a.csv.lorry", "b.csv.retry", "c.parquet.rows", "d.gz.new", "e.gz.rows.lorry", "f.gz.lorry"}) {
        std::filesystem::create_directories(folder / name / "inner");
        const std::string out = std::string(name).substr(0, std::string(name).find('.', 2));
        EXPECT_THAT(written("in.csv", out), HasSubstr(std::string(name) + " is a folder, and the run needs that name for a file"));
    }
}

// Pins: --overwrite emptied the file before it was read, or lost it.
TEST_F(OutputName, AFileThatTheRunReadsIsNotItsOutput) {
    write_text(folder / "words", "w5\nw6\n");
    write_text(folder / "prompt", "{{ text }}");
    write_text(folder / "lorry.toml", "threads = 1\n");
    const auto error_of = [&](const std::string& out, const std::vector<std::string>& more) {
        std::vector<std::string> flags = {"--overwrite"};
        flags.insert(flags.end(), more.begin(), more.end());
        const ProgramResult result = run(encoder, "in.csv", out, flags);
        EXPECT_EQ(result.exit_code, 2);
        return result.err;
    };
    const std::vector<std::string> choices = {"--task", "zero-shot", "--text", "text", "--choices", folder / "words"};
    EXPECT_THAT(error_of("words", choices), HasSubstr("words and output are the same file"));
    std::filesystem::create_hard_link(folder / "words", folder / "out.gz.rows");
    EXPECT_THAT(error_of("out.gz", choices), HasSubstr("out.gz.rows is the name of a file that the run itself writes"));
    std::filesystem::create_symlink("prompt", folder / "link");
    EXPECT_THAT(error_of("link", {"--task", "embed", "--template", folder / "prompt"}), HasSubstr("prompt and output are the same file"));
    const std::vector<std::string> configured = {"--task", "embed", "--text", "text", "--config", folder / "lorry.toml"};
    EXPECT_THAT(error_of("lorry.toml", configured), HasSubstr("lorry.toml and output are the same file"));
    EXPECT_EQ(read_whole(folder / "words"), "w5\nw6\n");
    EXPECT_EQ(read_whole(folder / "prompt"), "{{ text }}");

    std::vector<std::string> words = command(encoder, "in.csv", "", {"--task", "embed", "--text", "text", "--overwrite"});
    const std::string config = read_whole(encoder.model / "config.json");
    words[4] = encoder.model / "config.json";
    EXPECT_THAT(run_program_of(words).err, HasSubstr("that no run wrote: give another -o"));
    EXPECT_EQ(read_whole(encoder.model / "config.json"), config);
    words[4] = encoder.model / "vectors.csv";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run_program_of(words).exit_code, 0) << "a new file, then that of the run";

    const std::string in = folder / "in.jsonl";
    write_text(in, "{\"text\":\"w5\"}\n");
    words = {"/bin/sh", "-c", fmt::format("exec \"$0\" run - -o '{}' \"$@\" < '{}'", in, in), LORRY_PROGRAM, "--overwrite"};
    words.insert(words.end(), {"--model", encoder.model.string(), "--task", "embed", "--text", "text", "--format", "jsonl"});
    EXPECT_THAT(run_program_of(words).err, HasSubstr("input and output are the same file"));
    EXPECT_EQ(read_whole(folder / "in.jsonl"), "{\"text\":\"w5\"}\n");
}

}  // namespace
}  // namespace lorry::ops
