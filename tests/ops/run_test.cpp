// `lorry run` as its users call it: the built program, a tiny model, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "ops/dry_run.h"
#include "ops/machine.h"
#include "ops/tally.h"
#include "schema/codec.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

using schema::Json;
using tests::Program;
using tests::ProgramResult;
using tests::read_whole;
using tests::run_program_of;
using tests::TinyModel;
using tests::write_text;

std::string job(const std::string& id, const std::string& model, const std::string& prompt, int max_tokens = 4) {
    return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"model":"{}","prompt":"{}","max_tokens":{},)"
                       R"("temperature":0.7,"ignore_eos":true}}}})"
                       "\n",
                       id, model, prompt, max_tokens);
}

std::string prompt_of(int number, int words) {
    std::string prompt;
    for (int i = 0; i < words; ++i) prompt += fmt::format("{}w{}", i == 0 ? "" : " ", (number * 7 + i * 3) % 131);
    return prompt;
}

// Results by custom_id (or "line N" for what has none), without what differs from run to run.
std::map<std::string, std::string> results_in(const std::filesystem::path& file) {
    std::map<std::string, std::string> results;
    std::istringstream in(read_whole(file));
    int nameless = 0;
    for (std::string line; std::getline(in, line);) {
        Json json = Json::parse(line).value();
        const std::string* id = json.find("custom_id")->as_string();
        std::string key = id != nullptr ? *id : fmt::format("nameless {}", nameless++);
        Json response = *json.find("response");
        if (response.is_object()) {
            Json body = *response.find("body");
            body.set("created", nullptr);
            if (body.find("usage") != nullptr) {
                Json usage = *body.find("usage");
                usage.set("prompt_tokens_details", nullptr);  // what was cached depends on who ran before
                body.set("usage", std::move(usage));
            }
            response.set("body", std::move(body));
            json.set("response", std::move(response));
        }
        const bool is_new = results.emplace(key, json.dump()).second;
        if (!is_new) results.emplace(key + " again", json.dump());
    }
    return results;
}

std::string error_of(const std::map<std::string, std::string>& results, const std::string& id) {
    const auto place = results.find(id);
    if (place == results.end()) return "no result";
    const Json line = Json::parse(place->second).value();
    const Json* response = line.find("response");
    const Json* error = response->find("body")->find("error");
    if (error == nullptr) return "ok";
    return fmt::format("{} {}", *response->find("status_code")->as_integer(), *error->find("code")->as_string());
}

class RunProgram : public testing::Test {
protected:
    std::vector<std::string> command(std::vector<std::string> more) const {
        std::vector<std::string> words = {LORRY_PROGRAM,
                                          "run",
                                          (tiny.folder / "in.jsonl").string(),
                                          "-o",
                                          (tiny.folder / "out.jsonl").string(),
                                          "--model",
                                          tiny.model.string(),
                                          "--adapters",
                                          tiny.adapters.string(),
                                          "--threads",
                                          "1"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    ProgramResult run(std::vector<std::string> more = {}) const { return run_program_of(command(std::move(more))); }
    std::filesystem::path out() const { return tiny.folder / "out.jsonl"; }

    TinyModel tiny;
};

TEST_F(RunProgram, answers_every_line_and_names_what_is_wrong_with_the_bad_ones) {
    std::string huge = job("huge", "base", "w1");
    huge.insert(huge.find("w1"), std::string(10 << 20, 'x'));
    std::string long_prompt = job("long", "base", prompt_of(1, 20'000));
    write_text(tiny.folder / "in.jsonl",
               job("good", "base", "w5 w6") + "this is not JSON\n" + R"({"method":"POST","url":"/v1/completions","body":{}})" + "\n" +
                   R"({"custom_id":"url","method":"POST","url":"/v1/images","body":{}})" + "\n" + job("model", "nobody", "w1") +
                   R"({"custom_id":"field","method":"POST","url":"/v1/completions","body":{"model":"base","prompt":"w1","best_off":2}})" +
                   "\n" + long_prompt + huge + job("utf8", "base", "w1 \xFF") + job("good", "base", "w7") +
                   job("adapter", "plain", "w5 w6") + job("broken", "broken", "w5") + job("named", "tiny", "w5 w6"));
    const ProgramResult result = run();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    const auto results = results_in(out());
    EXPECT_EQ(results.size(), 13U);
    EXPECT_EQ(error_of(results, "good"), "ok");
    EXPECT_EQ(error_of(results, "adapter"), "ok");
    EXPECT_EQ(error_of(results, "named"), "ok");
    EXPECT_EQ(error_of(results, "url"), "400 unsupported_url");
    EXPECT_EQ(error_of(results, "model"), "404 model_not_found");
    EXPECT_EQ(error_of(results, "field"), "400 unsupported_field");
    EXPECT_EQ(error_of(results, "long"), "400 context_length_exceeded");
    EXPECT_EQ(error_of(results, "huge"), "413 payload_too_large");
    EXPECT_EQ(error_of(results, "good again"), "400 duplicate_custom_id");
    EXPECT_EQ(error_of(results, "broken"), "400 adapter_refused");
    EXPECT_EQ(error_of(results, "nameless 0"), "400 invalid_json");
    EXPECT_EQ(error_of(results, "nameless 1"), "400 invalid_custom_id");
    EXPECT_EQ(error_of(results, "nameless 2"), "400 invalid_json");
    const std::string whole = read_whole(out());
    for (const char* words : {"line 2 of in.jsonl", "line 3 of in.jsonl", "line 9 of in.jsonl"})
        EXPECT_NE(whole.find(words), std::string::npos) << words;
    EXPECT_NE(result.err.find("--retry-failed"), std::string::npos);
    EXPECT_EQ((whole + result.err).find("register it"), std::string::npos);  // a folder of a run is registered nowhere
}

TEST_F(RunProgram, gives_the_same_answers_from_standard_input_to_standard_output) {
    const std::string jobs = job("a", "base", "w5 w6") + job("b", "plain", "w5 w6");
    write_text(tiny.folder / "in.jsonl", jobs);
    EXPECT_EQ(run().exit_code, 0);
    const ProgramResult piped = run_program_of(
        {LORRY_PROGRAM, "run", "-", "-o", "-", "--model", tiny.model.string(), "--adapters", tiny.adapters.string(), "--threads", "1"},
        jobs);
    EXPECT_EQ(piped.exit_code, 0) << piped.err;
    const auto text_of = [](const std::string& lines, const std::string& id) {
        std::istringstream in(lines);
        for (std::string line; std::getline(in, line);) {
            const Json json = Json::parse(line).value();
            if (*json.find("custom_id")->as_string() != id) continue;
            return *json.find("response")->find("body")->find("choices")->as_array()->front().find("text")->as_string();
        }
        return std::string("none");
    };
    for (const char* id : {"a", "b"}) EXPECT_EQ(text_of(piped.out, id), text_of(read_whole(out()), id)) << id;
    EXPECT_NE(text_of(piped.out, "a"), text_of(piped.out, "b"));
}

TEST_F(RunProgram, refuses_to_go_on_with_another_input_model_or_option) {
    write_text(tiny.folder / "in.jsonl", job("a", "plain", "w5"));
    EXPECT_EQ(run().exit_code, 0);
    const std::string before = read_whole(out());
    EXPECT_EQ(run().exit_code, 0);  // nothing is left to do
    EXPECT_EQ(read_whole(out()), before);

    const auto refused = [&](std::vector<std::string> more) {
        const ProgramResult result = run(std::move(more));
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_EQ(read_whole(out()), before);
        return result.err;
    };
    EXPECT_NE(refused({"--dtype", "float32"}).find("another --dtype (then: "), std::string::npos);
    EXPECT_NE(refused({"--sample", "1"}).find("another --sample (then: none; now: 1 job)"), std::string::npos);
    std::filesystem::rename(tiny.adapters / "plain", tiny.folder / "kept");
    EXPECT_NE(refused({}).find("another content of the adapter 'plain'"), std::string::npos);
    std::filesystem::rename(tiny.folder / "kept", tiny.adapters / "plain");
    write_text(tiny.folder / "in.jsonl", job("a", "plain", "w6"));
    EXPECT_NE(refused({}).find("another input content"), std::string::npos);
    std::filesystem::remove(out().string() + ".lorry");
    EXPECT_NE(refused({}).find("has no journal"), std::string::npos);
    EXPECT_EQ(run({"--overwrite"}).exit_code, 0);
    EXPECT_NE(read_whole(out()), before);
}

// Pins: other choices were told by their hashes, and only the first of several changed flags was named.
TEST_F(RunProgram, names_each_changed_flag_with_what_it_was_and_is) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    write_text(tiny.folder / "labels.txt", "w20\nw21\n");
    const auto label = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words = command({"--id", "id", "--template", tiny.folder / "prompt.txt"});
        words[2] = tiny.folder / "in.csv";
        words.insert(words.end(), more.begin(), more.end());
        return run_program_of(words);
    };
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

TEST_F(RunProgram, runs_failed_jobs_again_when_asked) {
    std::filesystem::rename(tiny.adapters / "rank12", tiny.folder / "away");
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "rank12", "w5") + job("c", "base", "w6"));
    EXPECT_EQ(run().exit_code, 1);
    EXPECT_EQ(error_of(results_in(out()), "b"), "404 model_not_found");
    EXPECT_EQ(run().exit_code, 1);  // a plain repetition leaves the failure as it is
    std::filesystem::rename(tiny.folder / "away", tiny.adapters / "rank12");
    const ProgramResult result = run({"--retry-failed"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto results = results_in(out());
    EXPECT_EQ(results.size(), 3U);
    for (const char* id : {"a", "b", "c"}) EXPECT_EQ(error_of(results, id), "ok");
}

TEST_F(RunProgram, sums_up_the_whole_output_after_a_part_of_it_was_run_again) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "nobody", "w5") + job("c", "noone", "w6"));
    const ProgramResult first = run();
    EXPECT_NE(first.err.find("2 × model_not_found, such as\n      'nobody' is neither"), std::string::npos) << first.err;
    EXPECT_NE(first.err.find("'noone'"), std::string::npos) << first.err;
    const ProgramResult again = run({"--retry-failed", "--json"});
    EXPECT_NE(again.err.find("with what earlier calls did: 3 jobs, 1 ok, 2 failed"), std::string::npos) << again.err;
    const auto summary = Json::parse(again.out);
    ASSERT_TRUE(summary) << again.out;
    EXPECT_EQ(summary->find("jobs")->as_integer(), 2);
    EXPECT_EQ(summary->find("in_output")->dump(), R"({"jobs":3,"ok":1,"failed":2})");
}

TEST_F(RunProgram, replaces_an_adapter_that_was_refused_and_keeps_an_output_that_was_changed) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5") + job("b", "broken", "w5"));
    EXPECT_EQ(run().exit_code, 1);
    std::filesystem::remove_all(tiny.adapters / "broken");
    std::filesystem::copy(tiny.adapters / "plain", tiny.adapters / "broken", std::filesystem::copy_options::recursive);
    const std::string before = read_whole(out());
    for (const std::string& changed : {before + "{}\n", before.substr(before.find('\n') + 1) + before.substr(0, before.find('\n') + 1)}) {
        write_text(out(), changed);
        for (const char* flag : {"--retry-failed", "--json"}) EXPECT_EQ(run({flag}).exit_code, 2);
        EXPECT_EQ(read_whole(out()), changed);
    }
    write_text(out(), before);
    const ProgramResult result = run({"--retry-failed"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(error_of(results_in(out()), "b"), "ok");
}

TEST_F(RunProgram, refuses_what_would_fail_for_every_row_before_it_touches_the_output) {
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
    EXPECT_NE(refused("in.tsv", "id\ttext\n1\tw5\n", table({})).find("tabs"), std::string::npos);
    EXPECT_NE(refused("in.csv.gz", rows, table({})).find("unpack"), std::string::npos);
    EXPECT_NE(refused("in.txt", rows, table({})).find("--format csv"), std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--adapter", "sektion"})).find("no adapter of that name in --adapters, which has: "),
              std::string::npos);
    EXPECT_EQ(refused("in.csv", rows, table({"--adapter", "broken"})).find("register"), std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--choices", (tiny.folder / "twice.txt").string()})).find("'w20' stands there twice"),
              std::string::npos);
    EXPECT_NE(refused("in.csv", rows, table({"--choices", prompt, "--max-tokens", "3"})).find("draws no tokens"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id;text\n1;w5\n", table({})).find("separated by semicolons"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id, text\n1,w5\n", table({})).find("with spaces around it"), std::string::npos);
    EXPECT_NE(refused("in.csv", "\xFF\xFEi", table({})).find("not UTF-8"), std::string::npos);
    EXPECT_NE(refused("in.csv", "id,text\n1,\"w5\n2,w6\n", table({})).find("in line 2 is never closed"), std::string::npos);
}

// Pins: a slip in the call was told after the model had been loaded, which may take minutes.
TEST_F(RunProgram, finds_a_slip_in_the_call_before_it_loads_the_model) {
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
    EXPECT_NE(told("slip.txt", 2, {}).find("the template asks for the column 'texxt', which the table has not; it has: id, text"),
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

TEST_F(RunProgram, wants_the_adapters_that_a_column_names) {
    write_text(tiny.folder / "in.csv", "id,who,text\n1,plain,w5\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const ProgramResult result =
        run_program_of({LORRY_PROGRAM, "run", (tiny.folder / "in.csv").string(), "-o", out().string(), "--model", tiny.model.string(),
                        "--threads", "1", "--id", "id", "--template", (tiny.folder / "prompt.txt").string(), "--adapter-column", "who"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--adapters DIR"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out()));
}

// Pins: of two rows with one id the second said only that there was another.
TEST_F(RunProgram, names_both_rows_of_an_id_and_counts_such_rows) {
    write_text(tiny.folder / "in.csv", "id,text\n1,w5\n2,w6\n1,w7\n2,w8\n");
    write_text(tiny.folder / "prompt.txt", "{{ text }}");
    const std::vector<std::string> words = {LORRY_PROGRAM,
                                            "run",
                                            tiny.folder / "in.csv",
                                            "-o",
                                            tiny.folder / "out.csv",
                                            "--model",
                                            tiny.model,
                                            "--threads",
                                            "1",
                                            "--id",
                                            "id",
                                            "--template",
                                            tiny.folder / "prompt.txt",
                                            "--max-tokens",
                                            "2"};
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

// Pins: a row without a text was answered like any other, and nobody was told.
TEST_F(RunProgram, runs_rows_with_empty_cells_and_warns_of_them) {
    write_text(tiny.folder / "in.csv", "id,text,note\n1,w5,\n2,,w1\n3, ,w1\n,,w1\n");
    write_text(tiny.folder / "prompt.txt", "w9 {{ text }}");
    std::vector<std::string> words = {LORRY_PROGRAM,
                                      "run",
                                      tiny.folder / "in.csv",
                                      "-o",
                                      tiny.folder / "out.csv",
                                      "--model",
                                      tiny.model,
                                      "--threads",
                                      "1",
                                      "--id",
                                      "id",
                                      "--template",
                                      tiny.folder / "prompt.txt",
                                      "--max-tokens",
                                      "2",
                                      "--json"};
    const std::string warning =
        "warning: 2 rows have nothing in a column that the template uses; the first is line 3, with an empty 'text'\n";
    for (const char* flag : {"--overwrite", "--dry-run"}) {
        words.push_back(flag);
        const ProgramResult result = run_program_of(words);
        EXPECT_NE(result.err.find(warning), std::string::npos) << result.err;
        EXPECT_EQ(Json::parse(result.out).value().find("rows_with_empty_cells")->as_integer(), 2);
    }
    EXPECT_EQ(read_whole(tiny.folder / "out.csv").find("2,,w1,,"), std::string::npos) << "it has an answer";
}

TEST_F(RunProgram, labels_a_csv_table_and_keeps_its_columns) {
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

TEST_F(RunProgram, checks_everything_and_writes_nothing_in_a_dry_run) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5 w6") + "nonsense\n" + job("b", "broken", "w5"));
    const ProgramResult result = run({"--dry-run", "--json"});
    EXPECT_EQ(result.exit_code, 1);
    const auto report = Json::parse(result.out);
    ASSERT_TRUE(report) << result.out << result.err;
    EXPECT_EQ(report->find("jobs")->as_integer(), 3);
    EXPECT_EQ(report->find("refused")->as_integer(), 2);
    EXPECT_TRUE(report->find("first_errors")->as_array()->at(1).as_string()->starts_with("line 3 (b): adapter_refused: ")) << result.err;
    EXPECT_EQ(report->find("prompt_tokens")->as_integer(), 2);
    EXPECT_EQ(report->find("sample_jobs")->as_integer(), 1);
    EXPECT_EQ(*report->find("first_prompt")->as_string(), "w5 w6");
    EXPECT_FALSE(std::filesystem::exists(out()));
    EXPECT_FALSE(std::filesystem::exists(out().string() + ".lorry"));
}

// Pins: a dry run had words of its own for a model that is not there, a run a code of its own for lines that are no jobs.
TEST_F(RunProgram, says_in_a_dry_run_what_the_run_will_write) {
    write_text(tiny.folder / "in.jsonl", job("unknown", "nobody", "w1") + "this is not JSON\n" + job("broken", "broken", "w1") +
                                             job("long", "base", prompt_of(1, 20'000)) +
                                             R"({"custom_id":"url","method":"POST","url":"/v1/images","body":{}})" + "\n");
    const auto report = Json::parse(run({"--dry-run", "--json"}).out);
    ASSERT_TRUE(report);
    run();
    std::vector<std::string> written;
    for (const auto& [id, text] : results_in(out())) {
        const Json line = Json::parse(text).value();
        const Json& error = *line.find("response")->find("body")->find("error");
        const std::string& message = *error.find("message")->as_string();
        // A dry run names the line itself.
        const std::size_t words = id.starts_with("nameless") ? message.find(": ") + 2 : 0;
        written.push_back(*error.find("code")->as_string() + ": " + message.substr(words));
    }
    std::vector<std::string> said;
    for (const Json& error : *report->find("first_errors")->as_array()) {
        const std::string& text = *error.as_string();  // line N (ID): CODE: MESSAGE
        said.push_back(text.substr(text.find(": ") + 2));
    }
    EXPECT_EQ(written.size(), 5U);
    EXPECT_THAT(said, ::testing::UnorderedElementsAreArray(written));
}

// Pins: the progress left out what the prefix cache had, which the summary counted, and both said "tokens/s".
TEST(Tally, counts_tokens_in_and_out_whether_they_were_computed_or_cached) {
    Tally tally;
    const schema::Run run{.model = "base"};
    tally.add({.run = run,
               .state = schema::JobState::completed,
               .error = {},
               .usage = {.prompt_tokens = 3000, .completion_tokens = 1000, .cached_tokens = 2900}});
    EXPECT_EQ(tally.total().tokens(), 4000);
    EXPECT_EQ(tally.table(2.0),
              "  model  jobs  ok  failed  tokens in  tokens out  in + out/s\n"
              "  base      1   1       0      3,000       1,000       2,000\n");
}

// Pins: a million lines were checked in silence.
TEST_F(RunProgram, shows_on_a_terminal_how_far_a_dry_run_is) {
    std::string jobs;
    for (int i = 0; i < 30'000; ++i) jobs += job(fmt::format("job-{}", i), "base", prompt_of(i, 5), 1);
    write_text(tiny.folder / "in.jsonl", jobs);
    std::string words = "TERM=xterm exec";
    for (const std::string& word : command({"--dry-run"})) words += " '" + word + "'";
    const ProgramResult result = run_program_of({"/usr/bin/script", "--quiet", "--return", "--command", words, "/dev/null"});
    EXPECT_EQ(result.exit_code, 0) << result.out;
    EXPECT_NE(result.out.find("checking █"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("30,000 jobs: 30,000 good"), std::string::npos) << result.out;
}

// Pins: a sample whose jobs share an instruction seemed to have done far less of the work than it had.
TEST(DryRun, estimates_from_what_a_stopped_sample_has_of_its_tokens_whoever_computed_them) {
    const DryRunReport report{
        .jobs = 1001,
        .refused = 1,
        .output_tokens_max = 100'000,
        .request_tokens_max = 1'000'000,
        .sample = {.jobs = 128, .sequences_max = 64, .ended = std::vector<SampledJob>(3), .tokens = 100'000, .time = Seconds(10)}};
    EXPECT_EQ(report.estimate()->time.count(), 100.0);
    EXPECT_NE(show(report).find(
                  "3 of a sample of 128 jobs ended in 10 s (10,000 tokens in + out/s); all of them would take at most 1 min 40 s\n"),
              std::string::npos)
        << show(report);
    EXPECT_EQ(json_of(report).find("estimate_is_at_most")->as_bool(), true);
}

// Jobs of 100 tokens and a tenth of a second, of which ten run at a time; the first ten take a second longer, as they load their adapter.
Sample steady_sample(std::int64_t jobs, std::int64_t ended) {
    Sample sample{.jobs = jobs, .sequences_max = 10};
    for (std::int64_t i = 0; i < ended; ++i) {
        const Seconds started(i < 10 ? 0.0 : 1.0 + 0.01 * static_cast<double>(i));
        const Seconds end = Seconds(1.0 + 0.01 * static_cast<double>(i + 10));
        sample.ended.push_back({.place = i, .started = started, .ended = end, .tokens = 100});
        sample.time = end;
    }
    sample.tokens = ended * 100;
    return sample;
}

// Pins: the first batch, which loads adapters and fills the prefix cache, and the last, which runs empty, counted like all between.
TEST(DryRun, estimates_from_full_batches_alone) {
    DryRunReport report{.jobs = 100'000, .request_tokens_max = 1, .sample = steady_sample(1000, 500)};
    EXPECT_NEAR(full_batch(report.sample)->jobs_per_second, 100.0, 0.5);
    EXPECT_NEAR(full_batch(report.sample)->tokens_per_second, 10'000.0, 50.0);
    EXPECT_NEAR(report.estimate()->time.count(), 1000.0, 5.0);
    EXPECT_EQ(report.estimate()->spread, 0.1);
    EXPECT_EQ(report.estimate()->at_most, false);
    const std::string text = show(report);
    EXPECT_NE(text.find("a sample of 1,000 jobs ran at 100 jobs/s in full batches (10,0"), std::string::npos) << text;
    EXPECT_NE(text.find("all of them would take about 16 min 40 s (15 min 0 s to 18 min 20 s on a machine as busy as now)\n"),
              std::string::npos)
        << text;

    report = {.jobs = 1500, .request_tokens_max = 1, .sample = steady_sample(1000, 1000)};
    EXPECT_NEAR(report.estimate()->time.count(), 1.1 + 15.0, 0.2) << "it begins and ends once";
    report = {.jobs = 1000, .request_tokens_max = 1, .sample = steady_sample(1000, 1000)};
    EXPECT_EQ(report.estimate()->time.count(), report.sample.time.count()) << "that were all";
}

TEST(DryRun, says_nothing_of_full_batches_while_a_job_of_the_first_runs) {
    Sample sample = steady_sample(1000, 500);
    sample.ended.erase(sample.ended.begin() + 3);
    EXPECT_FALSE(full_batch(sample).has_value());
    EXPECT_FALSE(full_batch(steady_sample(40, 40)).has_value()) << "too few";
}

TEST(DryRun, estimates_from_a_few_jobs_that_have_ended) {
    const DryRunReport report{
        .jobs = 1000,
        .request_tokens_max = 1'000'000,
        .sample = {.jobs = 100, .sequences_max = 64, .ended = std::vector<SampledJob>(100), .tokens = 2000, .time = Seconds(2)}};
    EXPECT_EQ(report.estimate()->time.count(), 20.0);
    EXPECT_NE(
        show(report).find("a sample of 100 jobs took 2.0 s (1,000 tokens in + out/s); all of them would take about 20 s (15 s to 25 s on"),
        std::string::npos)
        << show(report);
    EXPECT_EQ(json_of(report).find("estimate_is_at_most")->as_bool(), false);
    EXPECT_EQ(DryRunReport{}.estimate().has_value(), false);
}

TEST(Reservoir, keeps_each_job_as_likely_as_any_other_and_fewer_of_large_ones) {
    const auto job_of = [](std::int64_t line, std::size_t bytes) {
        consumer::Delivery delivery;
        delivery.record.source.offset = line;
        delivery.record.value = std::string(bytes, 'x');
        return delivery;
    };
    Reservoir small(100, 1'000'000);
    for (int i = 0; i < 10'000; ++i) small.offer(job_of(i, 10));
    const auto kept = small.take();
    ASSERT_EQ(kept.size(), 100U);
    const auto late = std::ranges::count_if(kept, [](const consumer::Delivery& job) { return job.record.source.offset >= 5000; });
    EXPECT_GT(late, 30);
    EXPECT_LT(late, 70);
    Reservoir large(100, 1000);
    for (int i = 0; i < 10'000; ++i) large.offer(job_of(i, 100));
    EXPECT_EQ(large.take().size(), 10U);
}

// Pins: jobs with choices were said to draw at most 0 tokens.
TEST(DryRun, says_of_jobs_with_choices_that_these_are_scored) {
    const auto first_line = [](const DryRunReport& report) { return show(report).substr(0, show(report).find('\n')); };
    EXPECT_EQ(first_line({.jobs = 9, .refused = 1, .classifying = 8, .prompt_tokens = 80}),
              "9 jobs: 8 good, 1 refused; 80 prompt tokens; all have their choices scored, which draws none");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 0, .classifying = 2, .prompt_tokens = 80, .output_tokens_max = 70}),
              "9 jobs: 9 good, 0 refused; 80 prompt tokens, at most 70 to be drawn; 2 jobs have their choices scored, which draws none");
    EXPECT_EQ(first_line({.jobs = 9, .refused = 0, .prompt_tokens = 80, .output_tokens_max = 70}),
              "9 jobs: 9 good, 0 refused; 80 prompt tokens, at most 70 to be drawn");
}

TEST_F(RunProgram, runs_a_sample_and_sums_it_up_as_json) {
    std::string jobs;
    for (int i = 0; i < 50; ++i) jobs += job(fmt::format("job-{}", i), i % 2 == 0 ? "base" : "plain", prompt_of(i, 5));
    write_text(tiny.folder / "in.jsonl", jobs);
    const ProgramResult result = run({"--sample", "6", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto summary = Json::parse(result.out);
    ASSERT_TRUE(summary) << result.out;
    EXPECT_EQ(summary->find("jobs")->as_integer(), 6);
    EXPECT_EQ(summary->find("completion_tokens")->as_integer(), 24);
    EXPECT_EQ(results_in(out()).size(), 6U);
}

// Pins: the same program runs where there is no GPU, no driver and even no CUDA in the build, and says which of them is missing.
TEST_F(RunProgram, says_what_is_missing_when_a_gpu_is_asked_for) {
    const auto obstacle = kernels::cuda_obstacle();
    if (!obstacle) GTEST_SKIP() << "this machine has a GPU";
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const ProgramResult result = run({"--device", "cuda"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--device cuda: " + *obstacle), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out()));
}

// Pins: a supervisor that does not start a wrong call again gave a worker up because somebody else's memory was not free yet.
TEST_F(RunProgram, ends_with_1_when_the_model_is_wrong_or_memory_is_not_free_now) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const auto fails = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {LORRY_PROGRAM, "run", (tiny.folder / "in.jsonl").string(), "-o", out(), "--model", tiny.model};
        words.insert(words.end(), more.begin(), more.end());
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 1) << result.err;
        return result.err;
    };
    // All that there is at all: some of it is taken.
    EXPECT_NE(fails({"--kv-memory", std::to_string(memory_limit())}).find("are free now"), std::string::npos);
    write_text(tiny.model / "config.json", R"({"model_type": "tea"})");
    EXPECT_NE(fails({}).find("model_type"), std::string::npos);
}

TEST_F(RunProgram, ends_with_2_when_the_call_is_wrong) {
    write_text(tiny.folder / "in.jsonl", job("a", "base", "w5"));
    const auto fails = [&](std::vector<std::string> words) {
        words.insert(words.begin(), LORRY_PROGRAM);
        const ProgramResult result = run_program_of(words);
        EXPECT_EQ(result.exit_code, 2) << result.err;
        return result.err;
    };
    const std::string in = (tiny.folder / "in.jsonl").string();
    EXPECT_NE(fails({"run", in}).find("-o OUT"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", in}).find("same file"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", tiny.folder / "nowhere" / "out.jsonl"}).find("make it first"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out()}).find("--model"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--retry-failed"}).find("no run has written"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--template", in}).find("--id"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--max-batch", "many"}).find("--max-batch is 'many'"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--device", "cpu", "--quantize", "fp8"}).find("it has int8 and int4"),
              std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--device", "cpu", "--kv-dtype", "fp8"}).find("it has int8"),
              std::string::npos);
    EXPECT_NE(fails({"run", tiny.model.string(), "-o", out().string()}).find("no regular file"), std::string::npos);
    EXPECT_NE(fails({"run", in, "-o", out().string(), "--adapter-columm", "ad"}).find("there is no flag --adapter-columm"),
              std::string::npos);
    for (const char* memory : {"100TB", "1"}) {
        EXPECT_NE(fails({"run", in, "-o", out(), "--model", tiny.model, "--kv-memory", memory}).find("that there are"), std::string::npos);
    }
    EXPECT_NE(fails({"walk", "--help"}).find("no command 'walk'"), std::string::npos);
    EXPECT_NE(fails({}).find("subcommand"), std::string::npos);
}

TEST_F(RunProgram, says_how_to_go_on_when_the_output_cannot_grow) {
    std::string jobs;
    for (int i = 0; i < 40; ++i) jobs += job(fmt::format("job-{}", i), "base", "w5");
    write_text(tiny.folder / "in.jsonl", jobs);
    std::vector<std::string> words = {"/bin/sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};
    for (const std::string& word : command({})) words.push_back(word);
    const ProgramResult full = run_program_of(words);
    EXPECT_EQ(full.exit_code, 1) << full.err;
    EXPECT_NE(full.err.find("to go on:\n  " + std::string(LORRY_PROGRAM) + " run "), std::string::npos) << full.err;
    EXPECT_EQ(run().exit_code, 0);
    EXPECT_EQ(results_in(out()).size(), 40U);
}

TEST_F(RunProgram, finishes_what_runs_and_says_how_to_go_on_when_it_is_told_to_stop) {
    std::string jobs;
    for (int i = 0; i < 3000; ++i) jobs += job(fmt::format("job-{}", i), "base", prompt_of(i, 20), 40);
    write_text(tiny.folder / "in.jsonl", jobs);
    Program program(command({"--commit-interval", "20ms"}));
    while (!std::filesystem::exists(out()) || std::filesystem::file_size(out()) == 0) {
        ASSERT_FALSE(program.ends_within(std::chrono::milliseconds(5))) << program.err_so_far();
    }
    program.signal(SIGTERM);
    const ProgramResult stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 1);
    EXPECT_NE(stopped.err.find("to go on:\n  " + std::string(LORRY_PROGRAM) + " run "), std::string::npos) << stopped.err;
    const auto first = results_in(out());
    EXPECT_LT(first.size(), 3000U);
    for (const auto& [id, line] : first) EXPECT_EQ(error_of(first, id), "ok");
}

TEST_F(RunProgram, repeats_and_loses_nothing_however_often_it_is_killed_Slow) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    constexpr int count = 3000;
    const char* const models[] = {"base", "plain", "rank12", "nobody"};
    std::string jobs;
    for (int i = 0; i < count; ++i) {
        jobs += job(fmt::format("job-{}", i), models[random() % 4], prompt_of(i, 1 + static_cast<int>(random() % 30)),
                    1 + static_cast<int>(random() % 30));
    }
    write_text(tiny.folder / "in.jsonl", jobs);
    EXPECT_EQ(run().exit_code, 1);
    const auto undisturbed = results_in(out());
    ASSERT_EQ(undisturbed.size(), static_cast<std::size_t>(count));

    std::filesystem::remove(out());
    std::filesystem::remove(out().string() + ".lorry");
    const auto size = [&] { return std::filesystem::exists(out()) ? std::filesystem::file_size(out()) : 0; };
    int kills = 0;
    for (bool ended = false; !ended;) {
        const auto size_before = size();
        Program program(command({"--commit-interval", "5ms"}));
        // Most kills come while results are written, some while the run still finds out where it was.
        if (random() % 4 != 0) {
            while (!ended && size() == size_before) ended = program.ends_within(std::chrono::milliseconds(1));
        }
        if (!ended) ended = program.ends_within(std::chrono::milliseconds(random() % 60));
        if (!ended) {
            program.signal(SIGKILL);
            ++kills;
        }
        const ProgramResult result = program.wait();
        ASSERT_NE(result.exit_code, 2) << result.err;
    }
    EXPECT_GE(kills, 3);
    EXPECT_EQ(results_in(out()), undisturbed);
}

// Memory is bounded by the window of jobs in flight, whatever the size of the file.
TEST_F(RunProgram, takes_no_more_memory_for_a_file_ten_times_as_large_Slow) {
    const auto peak_for = [&](int count) {
        // 8 KB each, so that keeping the file, or most of it, would show.
        const std::string padding(8'000, 'x');
        std::string jobs;
        for (int i = 0; i < count; ++i) {
            std::string line = job(fmt::format("job-{}", i), i % 2 == 0 ? "base" : "plain", prompt_of(i, 3), 1);
            jobs += line.insert(line.rfind("}}"), R"(,"user":")" + padding + "\"");
        }
        write_text(tiny.folder / "in.jsonl", jobs);
        const ProgramResult result = run({"--overwrite"});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(results_in(out()).size(), static_cast<std::size_t>(count));
        EXPECT_GT(result.peak_bytes, 0U);
        return result.peak_bytes;
    };
    constexpr std::size_t bound = 30 << 20;
    const std::size_t small = peak_for(500);  // 4 MB
    const std::size_t large = peak_for(5'000);
    EXPECT_LT(large, small + bound) << small << " bytes for the small file";
}

}  // namespace
}  // namespace lorry::ops
