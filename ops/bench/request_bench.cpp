// Reads one line of JSON at a time and answers it with another.
#include "ops/bench/request_bench.h"

#include <algorithm>
#include <istream>
#include <map>
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

// The "task" of a line; nullopt if it has none: tokens are drawn.
std::optional<engine::PoolingTask> task_of(const Json& line) {
    using enum engine::PoolingTask;
    const Json* name = line.find("task");
    if (name == nullptr) return std::nullopt;
    for (const engine::PoolingTask task : {embed, classify, token_classify}) {
        if (name->as_string() && *name->as_string() == name_of(task)) return task;
    }
    throw std::runtime_error("\"task\" in a line of requests must be embed, classify or token_classify");
}

// How answers are drawn that match a JSON schema. Requests with the same schema share one.
class SchemaDrawings {
public:
    explicit SchemaDrawings(const EngineSetup& setup)
        : end_tokens_(setup.reply().tokenizer.end_tokens(setup.model().config().eos_ids, setup.model().config().vocabulary)),
          compiler_(setup.reply().tokenizer, setup.model().config().vocabulary, end_tokens_) {}

    // Throws std::runtime_error if the schema cannot be used.
    const engine::SharedDrawing& of(const Json& schema) {
        if (!schema.is_string()) throw std::runtime_error("\"schema\" in a line of requests must be the text of a JSON schema");
        const auto [known, is_new] = drawings_.try_emplace(*schema.as_string());
        if (is_new)
            known->second = engine::shared(
                {.sampling = {.temperature = 0.0}, .end_tokens = end_tokens_, .grammar = compile_schema(compiler_, known->first)});
        return known->second;
    }

private:
    std::vector<engine::TokenId> end_tokens_;
    engine::GrammarCompiler compiler_;
    std::map<std::string, engine::SharedDrawing> drawings_;
};

engine::Request request_of(engine::RequestId id, const Json& line, std::optional<engine::PoolingTask> task, const EngineSetup& setup,
                           const AdapterFolders& folders, SchemaDrawings& schemas) {
    std::vector<engine::TokenId> prompt;
    for (const Json& one : list(line, "prompt")) {
        const auto token = one.as_integer();
        if (!token || *token < 0 || *token >= setup.model().config().vocabulary)
            throw std::runtime_error("a prompt has a token that is not in the model's vocabulary");
        prompt.push_back(static_cast<engine::TokenId>(*token));
    }
    engine::Request request = greedy_request(id, std::move(prompt), task ? 0 : positive(line, "output_tokens"));
    request.pooling = task;
    if (const Json* schema = line.find("schema")) request.drawing = schemas.of(*schema);
    const Json* adapter = line.find("adapter");
    if (adapter != nullptr && !adapter->is_null()) {
        const consumer::ModelName found = folders.resolve(adapter->as_string() ? *adapter->as_string() : "", {});
        if (found.kind != consumer::ModelName::Kind::adapter)
            throw std::runtime_error("a request's adapter was not found: " + found.refusal);
        request.adapter = {found.hash, found.folder};
    }
    return request;
}

// The drawn tokens, or what `task` wanted.
Json output_of(const engine::Result& done, std::optional<engine::PoolingTask> task) {
    Json output = Json::Array();
    if (!task) {
        for (const engine::TokenId id : done.tokens) output.push(std::int64_t{id});
    } else if (*task == engine::PoolingTask::token_classify) {
        const auto labels = std::ssize(done.labels->names);
        for (auto row = done.pooled.begin(); row != done.pooled.end(); row += labels)
            output.push(std::max_element(row, row + labels) - row);
    } else {
        for (const float value : done.pooled) output.push(double{value});
    }
    return output;
}

Json answer(const Json& line, EngineSetup& setup, const AdapterFolders& folders, SchemaDrawings& schemas) {
    const auto batch = static_cast<std::size_t>(positive(line, "batch"));
    const std::optional<engine::PoolingTask> task = task_of(line);
    std::vector<engine::Request> requests;
    for (const Json& one : list(line, "requests")) {
        requests.push_back(request_of(requests.size(), one, task, setup, folders, schemas));
    }
    std::vector<Json> outputs(requests.size());
    const engine::Clock::time_point begin = engine::Clock::now();
    keep_full(setup.engine(), batch, requests, [&](engine::Result& done) { outputs[done.id] = output_of(done, task); });
    const double seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    return Json::object({{"seconds", seconds}, {"outputs", Json(Json::Array(std::move(outputs)))}, {"peak_memory_bytes", memory_peak()}});
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
    SchemaDrawings schemas(setup);
    for (std::string line; std::getline(in, line);) {
        const auto parsed = Json::parse(line);
        if (!parsed) throw std::runtime_error("a line of requests: " + parsed.error());
        out << answer(*parsed, setup, folders, schemas).dump() << '\n' << std::flush;
    }
}

}  // namespace lorry::ops
