// Reads one line of JSON at a time and answers it with another.
#include "ops/bench/request_bench.h"

#include <istream>
#include <ostream>

#include <fmt/format.h>

#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/machine.h"

namespace lorry::ops {
namespace {

using schema::Json;

const Json& member(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    if (value == nullptr) throw std::runtime_error(fmt::format("a line of requests has no \"{}\"", key));
    return *value;
}

std::int64_t positive(const Json& object, std::string_view key) {
    const auto number = member(object, key).as_integer();
    if (!number || *number < 1) throw std::runtime_error(fmt::format("\"{}\" in a line of requests must be an integer of at least 1", key));
    return *number;
}

const Json::Array& list(const Json& object, std::string_view key) {
    const Json::Array* values = member(object, key).as_array();
    if (values == nullptr || values->empty())
        throw std::runtime_error(fmt::format("\"{}\" in a line of requests must be a list that is not empty", key));
    return *values;
}

engine::Request request_of(engine::RequestId id, const Json& line, const EngineSetup& setup, const AdapterFolders& folders) {
    const std::int64_t output_tokens = positive(line, "output_tokens");
    std::vector<engine::TokenId> prompt;
    for (const Json& one : list(line, "prompt")) {
        const auto token = one.as_integer();
        if (!token || *token < 0 || *token >= setup.model().config().vocabulary)
            throw std::runtime_error("a prompt has a token that is not in the model's vocabulary");
        prompt.push_back(static_cast<engine::TokenId>(*token));
    }
    engine::Request request = greedy_request(id, std::move(prompt), output_tokens);
    const Json* adapter = line.find("adapter");
    if (adapter != nullptr && !adapter->is_null()) {
        const consumer::ModelName found = folders.resolve(adapter->as_string() ? *adapter->as_string() : "", {});
        if (found.kind != consumer::ModelName::Kind::adapter)
            throw std::runtime_error("a request's adapter was not found: " + found.refusal);
        request.adapter = {found.hash, found.folder};
    }
    return request;
}

Json answer(const Json& line, EngineSetup& setup, const AdapterFolders& folders) {
    const auto batch = static_cast<std::size_t>(positive(line, "batch"));
    std::vector<engine::Request> requests;
    for (const Json& one : list(line, "requests")) {
        requests.push_back(request_of(requests.size(), one, setup, folders));
    }
    std::vector<std::vector<engine::TokenId>> outputs(requests.size());
    const engine::Clock::time_point begin = engine::Clock::now();
    keep_full(setup.engine(), batch, requests, [&](engine::Result& done) { outputs[done.id] = std::move(done.tokens); });
    const double seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    Json tokens = Json::Array();
    for (const auto& drawn : outputs) {
        Json ids = Json::Array();
        for (const engine::TokenId id : drawn) ids.push(std::int64_t{id});
        tokens.push(std::move(ids));
    }
    return Json::object({{"seconds", seconds}, {"outputs", std::move(tokens)}, {"peak_memory_bytes", memory_peak()}});
}

}  // namespace

void answer_request_lines(EngineSetup& setup, const AdapterFolders& folders, double load_seconds, std::istream& in, std::ostream& out) {
    const engine::EngineOptions options = setup.options();
    const std::string settings =
        fmt::format("on {}, weights in {}; up to {} sequences and {} tokens a step, prefix cache {}", setup.device().name, setup.storage(),
                    options.sequences_max, options.step_rows_max, options.prefix_cache ? "on" : "off");
    const Json hello =
        Json::object({{"engine", fmt::format("Lorry {}", program_version())}, {"load_seconds", load_seconds}, {"settings", settings}});
    out << hello.dump() << '\n' << std::flush;
    for (std::string line; std::getline(in, line);) {
        const auto parsed = Json::parse(line);
        if (!parsed) throw std::runtime_error("a line of requests: " + parsed.error());
        out << answer(*parsed, setup, folders).dump() << '\n' << std::flush;
    }
}

}  // namespace lorry::ops
