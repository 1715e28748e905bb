// `lorry run` on tables: rows in, rows with results out, and the errors for malformed rows.
#include <set>
#include <sstream>

#include "tests/ops/run/fixture.h"

namespace lorry::ops {
namespace {

// Pins: changed choices were reported by their hashes, and only the first of several changed flags was named.
TEST_F(RunProgram, NamesEachChangedFlagWithWhatItWasAndIs) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    write_text(tiny.folder / "labels.txt", "w20\nw21\n");
    const auto label = [&](const std::vector<std::string>& more) { return run_program_of(table_command(more)); };
    const std::vector<std::string> choices = {"--choices", tiny.folder / "labels.txt"};
    EXPECT_EQ(label(choices).exit_code, 0);
    write_text(tiny.folder / "labels.txt", "w20\nw22\n");
    EXPECT_NE(label(choices).err.find("another --choices (then: w20, w21; now: w20, w22) and cannot"), std::string::npos)
        << label(choices).err;
    const std::string err = label({"--max-tokens", "3", "--temperature", "0.5"}).err;
    EXPECT_NE(err.find("another --choices (then: w20, w21; now: none), and another --max-tokens (then: by default; now: 3), and another "
                       "--temperature (then: 0; now: 0.5) and cannot"),
              std::string::npos)
        << err;
}

// Pins: answers that max_tokens cut counted as whole, and only a run of the whole table could mend them.
TEST_F(RunProgram, CountsCutAnswersAndRunsThemAgainWithMoreTokens) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n2,w6 w7\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const ProgramResult whole = run_program_of(table_command({"--max-tokens", "6"}));
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    const auto rows_of_output = [&] {
        std::multiset<std::string> rows;
        std::istringstream in(read_whole(out()));
        for (std::string row; std::getline(in, row);) rows.insert(row);
        return rows;
    };
    const auto rows = rows_of_output();
    const ProgramResult first = run_program_of(table_command({"--max-tokens", "2", "--overwrite", "--json"}));
    EXPECT_NE(first.err.find("2 jobs ended at max_tokens or at the context's end, so the answers may not be whole. To run only these rows "
                             "again, repeat the command with --retry-cut and a larger --max-tokens."),
              std::string::npos)
        << first.err;
    EXPECT_EQ(Json::parse(first.out)->find("in_output")->dump(), R"({"jobs":2,"ok":2,"failed":0,"cut":2})");
    EXPECT_NE(
        run_program_of(table_command({"--max-tokens", "2", "--retry-cut"})).err.find("needs a larger --max-tokens than the run had (2)"),
        std::string::npos);
    EXPECT_EQ(run_program_of(table_command({"--max-tokens", "6", "--retry-cut", "--overwrite"})).exit_code, 2);
    const ProgramResult again = run_program_of(table_command({"--max-tokens", "6", "--retry-cut"}));
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_NE(again.err.find("running 2 jobs again"), std::string::npos) << again.err;
    EXPECT_EQ(rows_of_output(), rows);
    EXPECT_EQ(run_program_of(table_command({"--max-tokens", "6"})).exit_code, 0);
}

TEST_F(RunProgram, RefusesWhatWouldFailForEveryRowBeforeItTouchesTheOutput) {
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    write_text(tiny.folder / "labels.txt", "w20\nw21\n");
    write_text(tiny.folder / "twice.txt", "w20\nw21\nw20\n");
    write_text(out(), "good results\n");
    const auto refused = [&](const std::string& input, const std::string& text, std::vector<std::string> more) {
        write_text(tiny.folder / input, text);
        std::vector<std::string> words = command({"--overwrite"});
        words[2] = (tiny.folder / input).string();
        words.insert(words.end(), more.begin(), more.end());
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_EQ(read_whole(out()), "good results\n");
        return result.err;
    };
    const std::string prompt = (tiny.folder / "prompt.txt").string();
    const auto table = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"--id", "id", "--template", prompt});
        return more;
    };
    const std::string rows = "id,text\n1,w5\n";
    EXPECT_NE(refused("in.csv", rows, {}).find("--id COLUMN"), std::string::npos);
    EXPECT_NE(refused("in.tsv", "id\ttext\n1\tw5\n", {}).find("is a table: name the column with the texts with --text COLUMN"),
              std::string::npos);
    EXPECT_NE(refused("in.csv", "id\ttext\n1\tw5\n", table({"--delimiter", ","})).find("separated by tabs: give --delimiter 'tab'"),
              std::string::npos);
    // Pins: a long header was cut, and a column that the cut made was named as the fault.
    EXPECT_NE(
        refused("in.csv", "id,text," + std::string(5000, 'c') + "\n1,w5,\n", table({"--job-bytes-max", "4000"}))
            .find("the first line, which names the columns, is longer than the 4000 bytes of job_bytes_max: shorten the names or take "
                  "out columns, or raise --job-bytes-max"),
        std::string::npos);
    EXPECT_NE(refused("in.csv.xz", rows, table({})).find("unpack"), std::string::npos);
    EXPECT_NE(refused("in.jsonl", rows, table({"--delimiter", ";"})).find("--delimiter separates the columns of CSV"), std::string::npos);
    EXPECT_NE(refused("in.txt", rows, table({})).find("--format csv"), std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--adapter", "sektion"})).find("no adapter of that name in --adapters, which has: "),
              std::string::npos);
    EXPECT_EQ(refused("in.csv", rows, table({"--adapter", "broken"})).find("register"), std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--choices", (tiny.folder / "twice.txt").string()})).find("'w20' occurs twice"),
              std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--choices", prompt, "--max-tokens", "3"})).find("draws no tokens"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id;body\n1;w5\n", table({})).find("does not have; it has: id, body"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id, text\n1,w5\n", table({})).find("has spaces around it"), std::string::npos);
    EXPECT_NE(refused("in.csv", "\xFF\xFEi", table({})).find("the file is UTF-16; save it as UTF-8"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id,caf\xE9\n1,x\n", table({})).find("line 1 is not UTF-8"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id,text\n1,\"w5\n2,w6\n", table({})).find("in line 2 is never closed"), std::string::npos);
}

// Pins: a mistake in the call was reported only after loading the model, which may take minutes.
TEST_F(RunProgram, FindsASlipInTheCallBeforeItLoadsTheModel) {
    for (const auto& entry : std::filesystem::directory_iterator(tiny.model)) {
        if (entry.path().extension() == ".safetensors") write_text(entry.path(), "no weights");
    }
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    write_text(tiny.folder / "slip.txt", "{{ texxt }}");
    write_text(tiny.folder / "open.txt", "{{ text");
    write_text(tiny.folder / "one.txt", "w20\n");
    const auto told = [&](const std::string& prompt, int exit_code, const std::vector<std::string>& more) {
        std::vector<std::string> words = command({"--id", "id", "--template", tiny.folder / prompt});
        words[2] = tiny.folder / "in.csv";
        words.insert(words.end(), more.begin(), more.end());
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, exit_code) << result.err;
        return result.err;
    };
    EXPECT_NE(told("slip.txt", 2, {}).find("the template asks for the column 'texxt', which the table does not have; it has: id, text"),
              std::string::npos);
    EXPECT_NE(told("open.txt", 2, {}).find("never closes it"), std::string::npos);
    EXPECT_NE(told("prompt.txt", 2, {"--choices", tiny.folder / "none.txt"}).find("--choices: "), std::string::npos);
    EXPECT_NE(told("prompt.txt", 2, {"--choices", tiny.folder / "one.txt"}).find("at least two labels"), std::string::npos);
    EXPECT_NE(told("prompt.txt", 2, {"--adapter", "nobody"}).find("no adapter of that name"), std::string::npos);
    std::filesystem::create_directory(out());
    EXPECT_NE(told("prompt.txt", 2, {}).find("is a folder: name a file in it"), std::string::npos);
    std::filesystem::remove(out());
    EXPECT_NE(told("prompt.txt", 1, {}).find("safetensors"), std::string::npos) << "the model is loaded last";
}

// Pins: an empty --id was taken for none, and the rows got the numbers of their lines.
TEST_F(RunProgram, RefusesEmptyFlagsOfTables) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    for (const char* flag : {"--adapter-column", "--system", "--choices"}) {
        const ProgramResult result = run_program_of(table_command({flag, ""}));
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_NE(result.err.find(fmt::format("{}: it is empty", flag)), std::string::npos) << result.err;
    }
    EXPECT_EQ(run_program_of(table_command({"--result-prefix", "", "--max-tokens", "2"})).exit_code, 0);
}

TEST_F(RunProgram, WantsTheAdaptersThatAColumnNames) {
    write_text(tiny.folder / "in.csv", "id,who,text\n1,plain,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const ProgramResult result =
        run_program_of({LORRY_PROGRAM, "run", (tiny.folder / "in.csv").string(), "-o", out().string(), "--model", tiny.model.string(),
                        "--threads", "1", "--id", "id", "--template", (tiny.folder / "prompt.txt").string(), "--adapter-column", "who"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--adapters DIR"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(RunProgram, DropsTheByteOrderMarkOfATemplate) {
    write_text(tiny.folder / "in.csv", "\xEF\xBB\xBFid,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "\xEF\xBB\xBFw9 {{ text }}");
    const ProgramResult result = run_program_of(table_command({"--max-tokens", "2", "--dry-run", "--json"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(*Json::parse(result.out).value().find("first_prompt")->as_string(), "w1 w9 w5 w3") << "as the chat template renders it";
}

// Pins: it was taken for a folder of adapters, and had none.
TEST_F(RunProgram, RefusesTheFolderOfOneAdapter) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    tiny.adapters /= "plain";
    const ProgramResult result = run_program_of(table_command({"--max-tokens", "2"}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("plain: this folder is an adapter itself; give the folder that it is in"), std::string::npos) << result.err;
}

// Otherwise the base model would silently answer the adapter's jobs.
TEST_F(RunProgram, RefusesAnAdapterNamedLikeTheBaseModel) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    for (const std::string& name : {std::string("base"), tiny.model.filename().string()}) {
        std::filesystem::copy(tiny.adapters / "plain", tiny.adapters / name);
        const ProgramResult result = run_program_of(table_command({"--max-tokens", "2"}));
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_NE(result.err.find("has the same name as the base model"), std::string::npos) << result.err;
        EXPECT_EQ(result.err.find("--base-name") == std::string::npos, name == "base");
        std::filesystem::remove_all(tiny.adapters / name);
    }
}

// Pins: of two rows with the same id, the second's error did not say which row the other was.
TEST_F(RunProgram, NamesBothRowsOfAnIdAndCountsSuchRows) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n2,w6\n1,w7\n2,w8\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const std::vector<std::string> words = table_command({"--max-tokens", "2"});
    const ProgramResult result = run_program_of(words);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(read_whole(tiny.folder / "out.csv").find("1,w7,,\"duplicate_custom_id: line 4 has the same id as line 2, '1': "),
              std::string::npos)
        << read_whole(tiny.folder / "out.csv");
    EXPECT_NE(result.err.find("2 × duplicate_custom_id"), std::string::npos) << result.err;
    std::vector<std::string> dry = words;
    dry.push_back("--dry-run");
    EXPECT_NE(run_program_of(dry).err.find("  2 × duplicate_custom_id\n  line 4 (1): duplicate_custom_id: "), std::string::npos);
}

// Pins: a row without a text was answered like any other, without a warning.
TEST_F(RunProgram, RunsRowsWithEmptyCellsAndWarnsOfThem) {
    write_text(tiny.folder / "in.csv", "id,text,note\n1,w5,\n2,,w1\n3, ,w1\n,,w1\n");
    write_text(tiny.folder / "prompt.txt", "w9 {{ text }}");
    std::vector<std::string> words = table_command({"--max-tokens", "2", "--json"});
    const std::string warning =
        "warning: 2 rows have nothing in a column that the prompt uses; the first is line 3, with an empty 'text'\n";
    for (const char* flag : {"--overwrite", "--dry-run"}) {
        words.push_back(flag);
        const ProgramResult result = run_program_of(words);
        EXPECT_NE(result.err.find(warning), std::string::npos) << result.err;
        EXPECT_EQ(Json::parse(result.out).value().find("rows_with_empty_cells")->as_integer(), 2);
    }
    EXPECT_EQ(read_whole(tiny.folder / "out.csv").find("2,,w1,,"), std::string::npos) << "it has an answer";
}

TEST_F(RunProgram, ATextColumnAsksAsATemplateOfItDoes) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n2,w6 w7\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    EXPECT_EQ(run_program_of(table_command({"--max-tokens", "3"})).exit_code, 0);
    std::vector<std::string> words = command({"--text", "text", "--max-tokens", "3"});
    words[2] = (tiny.folder / "in.csv").string();
    words[4] = (tiny.folder / "text.csv").string();
    const ProgramResult result = run_program_of(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("--task"), std::string::npos) << "a model that generates text needs none";
    const auto lines_of = [&](const std::filesystem::path& file) {
        std::multiset<std::string> lines;
        std::istringstream in(read_whole(file));
        for (std::string line; std::getline(in, line);) lines.insert(line);
        return lines;
    };
    EXPECT_EQ(lines_of(tiny.folder / "text.csv"), lines_of(tiny.folder / "out.csv"));
}

// --task is for what models do besides writing text.
TEST_F(RunProgram, RefusesATaskThatAModelThatGeneratesTextCannotDo) {
    write_text(tiny.folder / "in.jsonl", "{\"text\":\"w5\"}\n");
    for (const char* task : {"classify", "embed", "ner", "zero-shot"}) {
        std::vector<std::string> words = command({"--task", task, "--text", "text"});
        if (task == std::string("zero-shot")) words.insert(words.end(), {"--choices", "w20,w21"});
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find("; it generates text (/v1/chat/completions"), std::string::npos) << result.err;
        EXPECT_FALSE(std::filesystem::exists(out()));
    }
}

TEST_F(RunProgram, LabelsACsvTableAndKeepsItsColumns) {
    write_text(tiny.folder / "in.csv", "id,who,text\n1,plain,\"w5, w6\"\n2,,w7\n,,w8\n3,nobody,w9\n");
    write_text(tiny.folder / "prompt.txt", "w10 {{ text }}\n");
    write_text(tiny.folder / "labels.txt", "w20\nw21 w22\n");
    const ProgramResult result = run_program_of(
        {LORRY_PROGRAM, "run", (tiny.folder / "in.csv").string(), "-o", (tiny.folder / "out.csv").string(), "--model", tiny.model.string(),
         "--adapters", tiny.adapters.string(), "--threads", "1", "--id", "id", "--template", (tiny.folder / "prompt.txt").string(),
         "--choices", (tiny.folder / "labels.txt").string(), "--adapter-column", "who"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    std::istringstream in(read_whole(tiny.folder / "out.csv"));
    std::map<std::string, std::string> rows;
    for (std::string line; std::getline(in, line);) rows[line.substr(0, line.find(','))] = line;
    EXPECT_EQ(rows["id"], "id,who,text,label,probability,error");
    EXPECT_TRUE(rows["1"].starts_with("1,plain,\"w5, w6\",w2")) << rows["1"];
    EXPECT_TRUE(rows["2"].starts_with("2,,w7,w2")) << rows["2"];
    EXPECT_TRUE(rows[""].starts_with(",,w8,,,\"invalid_row: ")) << rows[""];
    EXPECT_TRUE(rows["3"].starts_with("3,nobody,w9,,,\"model_not_found: ")) << rows["3"];
    EXPECT_EQ(rows.size(), 5U);
}

}  // namespace
}  // namespace lorry::ops
