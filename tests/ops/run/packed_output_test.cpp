// `lorry run` with Parquet in and out, and with outputs that are compressed: what they hold, kills, retries and refusals.
#include <csignal>
#include <random>

#include "consumer/file/error.h"
#include "consumer/file/journal.h"
#include "consumer/file/packed_output.h"
#include "consumer/file/parquet_lines.h"
#include "ops/run/output.h"
#include "tests/ops/run/pooling_fixture.h"

namespace lorry::ops {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::filesystem::path tables = std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/tables";

class PackedOutput : public PoolingTable {
protected:
    // The records of an output, unpacked, in its order.
    std::vector<std::string> records_of(const std::string& file) const {
        consumer::FileFormat format;
        if (file.ends_with(".parquet")) format.records = consumer::RecordFormat::parquet;
        consumer::FileReader reader(folder / file, format, std::size_t{1} << 30);
        std::vector<std::string> records;
        while (auto record = reader.next(std::chrono::seconds(1))) records.push_back(std::move(record->text));
        return records;
    }
    // Nothing but the output and its journal is left.
    void expect_tidy(const std::string& out) const {
        EXPECT_TRUE(std::filesystem::exists(folder / (out + ".lorry")));
        for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
            const std::string name = entry.path().filename();
            EXPECT_TRUE(!name.starts_with(out) || name == out || name == out + ".lorry") << name;
        }
    }
    void write_table(int rows) const {
        std::string table = "id,text\n";
        for (int i = 0; i < rows; ++i) table += fmt::format("{},w{} w{} w{}\n", i, 5 + i % 60, 5 + i % 7, 5 + i % 31);
        write_text(folder / "in.csv", table);
    }
};

TEST_F(PackedOutput, AParquetTableKeepsItsColumnsAndOrderAndGetsTypedResults) {
    const TinyEncoder encoder("bert-seq");
    const std::vector<std::string> flags = {"--text", "nested", "--id", "id", "--result-prefix", "r_"};
    std::filesystem::copy_file(tables / "types.parquet", folder / "in.parquet");
    const ProgramResult result = run(encoder, "in.parquet", "out.parquet", flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto before = records_of("in.parquet");
    const auto after = records_of("out.parquet");
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
        EXPECT_THAT(after[i], StartsWith(before[i].substr(0, before[i].size() - 1) + R"(,"r_label":")"));
        EXPECT_TRUE(Json::parse(after[i])->find("r_probability")->is_number());
        EXPECT_TRUE(Json::parse(after[i])->find("r_error")->is_null());
    }
    expect_tidy("out.parquet");
    EXPECT_EQ(run(encoder, "in.parquet", "sample.parquet", {"--text", "nested", "--result-prefix", "r_", "--sample", "2"}).exit_code, 0);
    EXPECT_EQ(records_of("sample.parquet").size(), 2U);
    EXPECT_EQ(run(encoder, "in.parquet", "out.jsonl", flags).exit_code, 0);
    EXPECT_THAT(lines_of("out.jsonl"), testing::UnorderedElementsAreArray(after));
}

TEST_F(PackedOutput, TablesOfTextBecomeParquetWithVectorsEntitiesAndErrors) {
    const TinyEncoder encoder("bert");
    write_text(folder / "in.csv", "id,text\n1,w5 w6\n2,\n3,\"w7\n\"\"w8\"\"\"\n4\n");
    EXPECT_EQ(run(encoder, "in.csv", "plain.jsonl.csv", {"--text", "text", "--id", "id"}).exit_code, 1);
    EXPECT_EQ(run(encoder, "in.csv", "out.parquet", {"--text", "text", "--id", "id"}).exit_code, 1);
    const auto rows = records_of("out.parquet");
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_THAT(rows[0], StartsWith(R"({"id":"1","text":"w5 w6","embedding":[)"));
    EXPECT_THAT(rows[1], StartsWith(R"({"id":"2","text":"","embedding":null,"error":"empty_prompt: )"));
    EXPECT_THAT(rows[2], StartsWith(R"({"id":"3","text":"w7\n\"w8\"","embedding":[)"));
    EXPECT_THAT(rows[3], HasSubstr(R"("error":"invalid_row: line 6)"));
    const std::string vector = Json::parse(rows[0])->find("embedding")->dump();
    EXPECT_THAT(read_whole(folder / "plain.jsonl.csv"), HasSubstr("1,w5 w6,\"" + vector + "\",\n"));

    write_text(folder / "in.jsonl", "{\"n\":1.5,\"text\":\"w5\"}\n{\"n\":2,\"text\":\"w6\",\"more\":[1]}\n");
    const TinyEncoder tagger("bert-tokens");
    EXPECT_EQ(run(tagger, "in.jsonl", "entities.parquet", {"--text", "text"}).exit_code, 0);
    const auto tagged = records_of("entities.parquet");
    EXPECT_THAT(tagged[0], StartsWith(R"({"n":1.5,"text":"w5","more":null,"entities":[)"));
    EXPECT_THAT(tagged[1], StartsWith(R"({"n":2.0,"text":"w6","more":"[1]","entities":[)"));

    // Pins: as a double, 2^53 + 1 became 2^53.
    write_text(folder / "long.jsonl", "{\"n\":9007199254740993,\"text\":\"w5\"}\n{\"n\":1.5,\"text\":\"w6\"}\n");
    EXPECT_EQ(run(tagger, "long.jsonl", "long.parquet", {"--text", "text"}).exit_code, 0);
    EXPECT_THAT(records_of("long.parquet")[0], StartsWith(R"({"n":"9007199254740993",)"));
}

TEST_F(PackedOutput, CompressedTablesAndJobsAreTheSameAsPlainOnesInTheOrderOfTheInput) {
    const TinyEncoder encoder("bert-seq");
    write_table(200);
    EXPECT_EQ(run(encoder, "in.csv", "plain.csv", {"--text", "text"}).exit_code, 0);
    std::string jobs;
    for (int i = 0; i < 20; ++i) {
        jobs +=
            fmt::format(R"({{"custom_id":"{:02}","method":"POST","url":"/classify","body":{{"model":"base","input":"w{}"}}}})", i, 5 + i) +
            "\n";
    }
    write_text(folder / "jobs.jsonl", jobs);
    for (const std::string ending : {".gz", ".zst"}) {
        EXPECT_EQ(run(encoder, "in.csv", "out.csv" + ending, {"--text", "text"}).exit_code, 0);
        const auto rows = records_of("out.csv" + ending);
        EXPECT_THAT(rows, testing::UnorderedElementsAreArray(lines_of("plain.csv")));
        EXPECT_EQ(rows[0], "id,text,label,probability,error");
        for (int i = 0; i < 200; ++i) EXPECT_THAT(rows.at(static_cast<std::size_t>(i) + 1), StartsWith(fmt::format("{},", i)));
        expect_tidy("out.csv" + ending);
        EXPECT_EQ(run(encoder, "jobs.jsonl", "jobs.out.jsonl" + ending).exit_code, 0);
        const auto results = records_of("jobs.out.jsonl" + ending);
        ASSERT_EQ(results.size(), 20U);
        EXPECT_THAT(results[7], HasSubstr(R"("custom_id":"07")"));
    }
    EXPECT_EQ(run_program_of({"/bin/gzip", "-t", (folder / "out.csv.gz").string()}).exit_code, 0);
}

TEST_F(PackedOutput, TablesWithoutRowsGiveOutputsWithoutRows) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "id,text\n");
    for (const std::string out : {"out.csv.gz", "out.parquet"}) {
        EXPECT_EQ(run(encoder, "in.csv", out, {"--text", "text"}).exit_code, 0);
    }
    EXPECT_THAT(records_of("out.csv.gz"), ElementsAre("id,text,label,probability,error"));
    EXPECT_THAT(consumer::parquet_facts(folder / "out.parquet").columns, ElementsAre("id", "text", "label", "probability", "error"));
    EXPECT_EQ(run(encoder, "out.parquet", "again.parquet", {"--text", "text", "--result-prefix", "a_"}).exit_code, 0);
    EXPECT_EQ(consumer::parquet_facts(folder / "again.parquet").columns.size(), 8U);
}

TEST_F(PackedOutput, KilledRunsResumeAndGiveTheSameFile) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const TinyEncoder encoder("bert");
    write_table(3000);
    const std::vector<std::string> flags = {"--task", "embed", "--text", "text", "--id", "id", "--commit-interval", "5ms"};
    EXPECT_EQ(run(encoder, "in.csv", "whole.parquet", flags).exit_code, 0);
    const auto whole = records_of("whole.parquet");
    ASSERT_EQ(whole.size(), 3000U);
    EXPECT_EQ(run(encoder, "in.csv", "whole.csv.zst", flags).exit_code, 0);
    const auto expect_whole = [&](const std::string& name) {
        if (name == "csv.zst")
            EXPECT_EQ(read_whole(folder / "out.csv.zst"), read_whole(folder / "whole.csv.zst"));
        else
            EXPECT_EQ(records_of("out.parquet").size(), 3000U);
    };
    for (const std::string name : {"parquet", "csv.zst"}) {
        // A Parquet input is copied into the output.
        const std::string in = name == "parquet" ? "whole.parquet" : "in.csv";
        std::vector<std::string> more = flags;
        if (name == "parquet") more.insert(more.end(), {"--result-prefix", "again_"});
        const std::string out = "out." + name;
        int kills = 0;
        const auto rows = consumer::rows_of(folder / out);
        const auto size = [&] { return std::filesystem::exists(rows) ? std::filesystem::file_size(rows) : 0; };
        for (bool ended = false; !ended;) {
            const auto before = size();
            Program program(command(encoder, in, out, more));
            while (!ended && size() < before + 40'000) ended = program.ends_within(std::chrono::milliseconds(1));
            if (!ended) ended = program.ends_within(std::chrono::milliseconds(random() % 40));
            if (!ended) {
                program.signal(SIGKILL);
                ++kills;
            }
            ASSERT_NE(program.wait().exit_code, 2);
            // The output appears at once, and the rows go after it.
            if (std::filesystem::exists(folder / out) && !std::filesystem::exists(rows)) expect_whole(name);
        }
        EXPECT_GE(kills, 2);
        expect_tidy(out);
        expect_whole(name);
    }
    const auto again = records_of("out.parquet");
    for (std::size_t i = 0; i < again.size(); i += 97) {
        const Json row = Json::parse(again[i]).value();
        EXPECT_EQ(row.find("again_embedding")->dump(), row.find("embedding")->dump());
    }
}

TEST_F(PackedOutput, AFinishedRunIsFinishedAndRetriesOnlyWhatFailed) {
    const TinyEncoder encoder("bert-seq");
    write_text(folder / "in.csv", "id,text\n1,w5\n2,\n3,w7\n");
    for (const std::string out : {"out.parquet", "out.csv.gz"}) {
        EXPECT_EQ(run(encoder, "in.csv", out, {"--text", "text"}).exit_code, 1);
        const std::string bytes = read_whole(folder / out);
        const auto rows = records_of(out);
        const ProgramResult same = run(encoder, "in.csv", out, {"--text", "text"});
        EXPECT_EQ(same.exit_code, 1);
        EXPECT_THAT(same.err, HasSubstr("resuming: 3 of 3 jobs are already in"));
        EXPECT_EQ(read_whole(folder / out), bytes);
        const ProgramResult again = run(encoder, "in.csv", out, {"--text", "text", "--retry-failed"});
        EXPECT_THAT(again.err, HasSubstr("running 1 failed job again"));
        EXPECT_THAT(again.err, HasSubstr("with earlier runs: 3 jobs, 2 ok, 1 failed"));
        EXPECT_EQ(records_of(out), rows);
        expect_tidy(out);
        EXPECT_THAT(run(encoder, "in.csv", out, {"--text", "text", "--truncate"}).err, HasSubstr("was begun with another --truncate"));

        write_text(folder / out, read_whole(folder / out) + "x");
        const ProgramResult changed = run(encoder, "in.csv", out, {"--text", "text"});
        EXPECT_EQ(changed.exit_code, 2);
        EXPECT_THAT(changed.err, HasSubstr("it was changed after `lorry run` wrote it"));
        EXPECT_EQ(run(encoder, "in.csv", out, {"--text", "text", "--overwrite"}).exit_code, 1);
        EXPECT_EQ(records_of(out), rows);
    }
    write_text(folder / "other.parquet", "not ours");
    const ProgramResult other = run(encoder, "in.csv", "other.parquet", {"--text", "text"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr("other.parquet exists already and has no journal (other.parquet.lorry) to resume from"));
    EXPECT_EQ(read_whole(folder / "other.parquet"), "not ours");
    EXPECT_THAT(run(encoder, "in.csv", "none.parquet", {"--text", "text", "--retry-failed"}).err, HasSubstr("no run has written"));
}

// Pins: an output that an earlier version had appended to was taken for a whole one, and the other results went nowhere.
TEST_F(PackedOutput, AnOutputThatLacksResultsIsNotTakenForAWholeOne) {
    const std::filesystem::path out = folder / "out.csv.gz";
    write_text(out, "id,text\n");
    consumer::FileJournal journal = consumer::FileJournal::create(consumer::journal_of(out), {});
    journal.append(std::vector<consumer::JournalEntry>{{.record = 0}}, "id,text\n");
    journal.end();
    try {
        open_run_output({.output = out, .jobs = 2, .packing = consumer::PackedOutput{.file = out}});
        FAIL() << "a result is missing";
    } catch (const consumer::ResumeRefused& refused) {
        EXPECT_THAT(refused.what(), HasSubstr("has 1 of 2 results"));
    }
}

// Pins: files with the names that a run uses beside its output were removed, the input among them.
TEST_F(PackedOutput, FilesThatARunDidNotWriteAreNotRemoved) {
    const TinyEncoder encoder("bert");
    write_table(2);
    for (const std::string ending : {".rows", ".new", ".rows.retry", ".lorry.new"}) {
        const std::string name = "out.parquet" + ending;
        write_text(folder / name, "precious");
        const ProgramResult result = run(encoder, "in.csv", "out.parquet", {"--text", "text"});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_THAT(result.err, HasSubstr(name + " exists already, and this run would replace it"));
        EXPECT_EQ(read_whole(folder / name), "precious");
        std::filesystem::rename(folder / "in.csv", folder / name);
        for (const std::vector<std::string>& more : {std::vector<std::string>{}, std::vector<std::string>{"--overwrite"}}) {
            std::vector<std::string> flags = {"--text", "text", "--format", "csv"};
            flags.insert(flags.end(), more.begin(), more.end());
            EXPECT_THAT(run(encoder, name, "out.parquet", flags).err, HasSubstr("is the name of a file that the run itself writes"));
        }
        std::filesystem::rename(folder / name, folder / "in.csv");
    }
    EXPECT_EQ(run(encoder, "in.csv", "out.parquet", {"--text", "text"}).exit_code, 0);
}

// Pins: rows of the new file got the results of the old one.
TEST_F(PackedOutput, AParquetTableThatIsReplacedDuringItsRunIsRefused) {
    const TinyEncoder encoder("bert");
    const std::vector<std::string> flags = {"--task", "embed", "--text", "text", "--commit-interval", "5ms"};
    write_table(3000);
    EXPECT_EQ(run(encoder, "in.csv", "in.parquet", flags).exit_code, 0);
    write_text(folder / "in.csv", read_whole(folder / "in.csv") + "3000,w9\n");
    EXPECT_EQ(run(encoder, "in.csv", "other.parquet", flags).exit_code, 0);
    Program program(command(encoder, "in.parquet", "out.parquet", {"--task", "embed", "--text", "text", "--result-prefix", "r_"}));
    const auto rows = consumer::rows_of(folder / "out.parquet");
    while (!std::filesystem::exists(rows) && !program.ends_within(std::chrono::milliseconds(1))) continue;
    std::filesystem::rename(folder / "other.parquet", folder / "in.parquet");
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("in.parquet was changed during the run: put back what it was"));
    EXPECT_FALSE(std::filesystem::exists(folder / "out.parquet"));
}

// Pins: the results of a run from standard input that was stopped were dropped by the next run.
TEST_F(PackedOutput, RowsOfAStoppedRunAreNotDropped) {
    const TinyEncoder encoder("bert");
    write_table(3000);
    std::string jobs;
    for (int i = 0; i < 3000; ++i)
        jobs +=
            fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/embeddings","body":{{"model":"base","input":"w5"}}}})", i) + "\n";
    write_text(folder / "jobs.jsonl", jobs);
    std::vector<std::string> words = {"/bin/sh", "-c", "exec \"$0\" \"$@\" < '" + (folder / "jobs.jsonl").string() + "'"};
    for (std::string& word : command(encoder, "jobs.jsonl", "out.jsonl.gz", {"--commit-interval", "5ms"}))
        words.push_back(word == (folder / "jobs.jsonl").string() ? "-" : std::move(word));
    const auto rows = consumer::rows_of(folder / "out.jsonl.gz");
    {
        Program program(words);
        while (!std::filesystem::exists(rows) || std::filesystem::file_size(rows) == 0)
            ASSERT_FALSE(program.ends_within(std::chrono::milliseconds(1)));
        program.signal(SIGINT);
        EXPECT_THAT(program.wait().err, HasSubstr("out.jsonl.gz is written when all are done, until then "));
    }
    const std::string bytes = read_whole(rows);
    const ProgramResult again = run_program_of(words);
    EXPECT_EQ(again.exit_code, 2);
    EXPECT_THAT(again.err, HasSubstr("out.jsonl.gz.rows exists already, and this run would replace it: move it away"));
    EXPECT_EQ(read_whole(rows), bytes);
}

TEST_F(PackedOutput, WhatParquetIsNotUsedForIsRefusedBeforeAnythingRuns) {
    const TinyEncoder encoder("bert-seq");
    std::filesystem::copy_file(tables / "bytes.parquet", folder / "in.parquet");
    EXPECT_THAT(refused(encoder, "in.parquet", {"--text", "body"}),
                HasSubstr("--text names the column 'body', which the table does not have; it has: text, image"));
    EXPECT_THAT(refused(encoder, "in.parquet", {"--text", "text", "--encoding", "latin-1"}), HasSubstr("Parquet's texts are UTF-8"));
    EXPECT_THAT(refused(encoder, "in.parquet", {"--text", "text", "--delimiter", ";"}), HasSubstr("the table is not CSV"));
    EXPECT_THAT(refused(encoder, "in.parquet", {}), HasSubstr("in.parquet is a table"));
    std::filesystem::copy_file(folder / "in.parquet", folder / "in.csv");
    EXPECT_THAT(refused(encoder, "in.csv", {"--text", "text"}), HasSubstr("the file is Parquet; give it a name that ends in .parquet"));
    write_text(folder / "cut.parquet", read_whole(folder / "in.parquet").substr(0, 300));
    EXPECT_THAT(refused(encoder, "cut.parquet", {"--text", "text"}), HasSubstr("cut.parquet: the file ends in the middle"));
    const auto refused_output = [&](const std::string& in, const std::string& out, const std::vector<std::string>& more) {
        const ProgramResult result = run(encoder, in, out, more);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_FALSE(std::filesystem::exists(folder / out));
        return result.err;
    };
    EXPECT_THAT(refused_output("in.parquet", "out.csv.gz", {"--text", "text"}), HasSubstr("a Parquet table gives Parquet or JSON lines"));
    EXPECT_THAT(refused_output("in.parquet", "out.parquet.gz", {"--text", "text"}), HasSubstr("Parquet is compressed by itself"));
    write_text(folder / "jobs.jsonl", "{}\n");
    EXPECT_THAT(refused_output("jobs.jsonl", "out.parquet", {}), HasSubstr("results of jobs are JSON lines"));
    // Only columns that the prompt uses are read.
    EXPECT_EQ(run(encoder, "in.parquet", "out.parquet", {"--text", "text"}).exit_code, 0);
    EXPECT_EQ(consumer::parquet_facts(folder / "out.parquet").columns.size(), 5U);
}

// Pins: bytes that are not text, and pages that are too large, ended the run in its middle or at its end, and resuming could not help.
TEST_F(PackedOutput, WhatCannotBeReadOrCopiedIsFoundBeforeAnythingIsComputed) {
    const TinyEncoder encoder("bert-seq");
    std::filesystem::copy_file(tables / "bytes.parquet", folder / "in.parquet");
    std::filesystem::copy_file(tables / "hostile" / "size_beside_id.parquet", folder / "large.parquet");
    const auto error_of = [&](const std::string& in, const std::string& out, const std::string& text) {
        const ProgramResult result = run(encoder, in, out, {"--text", text});
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_FALSE(std::filesystem::exists(folder / (out + ".lorry")) || std::filesystem::exists(folder / (out + ".rows")));
        return result.err;
    };
    const std::string bytes = "in.parquet: row 2, column 'image': holds bytes that are not UTF-8 text: leave the column out or convert it";
    EXPECT_THAT(error_of("in.parquet", "image.parquet", "image"), HasSubstr(bytes));
    EXPECT_THAT(error_of("in.parquet", "out.jsonl", "text"), HasSubstr(bytes + "; an output in Parquet copies columns that the prompt"));
    EXPECT_THAT(error_of("large.parquet", "out.parquet", "id"), HasSubstr("row group 1, column 'text': a page claims 2147483647 bytes"));
}

}  // namespace
}  // namespace lorry::ops
