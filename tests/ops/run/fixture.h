// Runs the built program's `lorry run` with a tiny model and files. Shared by the tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schema/codec.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {

using schema::Json;
using tests::Program;
using tests::ProgramResult;
using tests::read_whole;
using tests::run_program_of;
using tests::TinyModel;
using tests::write_text;

inline std::string job(const std::string& id, const std::string& model, const std::string& prompt, int max_tokens = 4) {
    return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"model":"{}","prompt":"{}","max_tokens":{},)"
                       R"("temperature":0.7,"ignore_eos":true}}}})"
                       "\n",
                       id, model, prompt, max_tokens);
}

inline std::string prompt_of(int number, int words) {
    std::string prompt;
    for (int i = 0; i < words; ++i) prompt += fmt::format("{}w{}", i == 0 ? "" : " ", (number * 7 + i * 3) % 131);
    return prompt;
}

// Results by custom_id (or "line N" without one), without the parts that differ from run to run.
inline std::map<std::string, std::string> results_in(const std::filesystem::path& file) {
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
                usage.set("prompt_tokens_details", nullptr);  // depends on the order in which jobs ran
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

inline std::string error_of(const std::map<std::string, std::string>& results, const std::string& id) {
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
    // A run of the table in.csv with prompt.txt into out.csv.
    std::vector<std::string> table_command(const std::vector<std::string>& more) const {
        std::vector<std::string> words = command({"--id", "id", "--template", (tiny.folder / "prompt.txt").string()});
        words[2] = (tiny.folder / "in.csv").string();
        words[4] = (tiny.folder / "out.csv").string();
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    ProgramResult run(std::vector<std::string> more = {}) const { return run_program_of(command(std::move(more))); }
    std::filesystem::path out() const { return tiny.folder / "out.jsonl"; }

    TinyModel tiny;
};

}  // namespace lorry::ops
