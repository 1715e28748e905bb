// The grammar's own answers say how many tokens the others draw.
#include "ops/bench/structure/structure_bench.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

#include "ops/bench/workload.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

using Answers = std::map<engine::RequestId, engine::Result>;
struct Run {
    double seconds = 0.0;
    double processor_seconds = 0.0;
    Answers answers;
};

double seconds_since(engine::Clock::time_point begin) { return std::chrono::duration<double>(engine::Clock::now() - begin).count(); }

// The schema with one more field, so that no compiled one is found again.
std::string with_field(const schema::Json& schema, std::int64_t number) {
    schema::Json properties = *schema.find("properties");
    properties.set(fmt::format("field_{}", number), schema::Json::object({{"type", "boolean"}}));
    schema::Json copy = schema;
    copy.set("properties", std::move(properties));
    return copy.dump();
}

void measure_compiles(const engine::GrammarCompiler& compiler, const StructureShape& shape, StructureResult& result) {
    const auto schema = schema::Json::parse(shape.schema);
    if (!schema || schema->find("properties") == nullptr) throw std::runtime_error("the schema must be an object with properties");
    for (std::int64_t i = 0; i < shape.compiles; ++i) {
        const std::string text = with_field(*schema, i);
        const auto begin = engine::Clock::now();
        compile_schema(compiler, text);
        result.compile_seconds.push_back(seconds_since(begin));
    }
    std::ranges::sort(result.compile_seconds);
}

}  // namespace

StructureResult run_structure(EngineSetup& setup, const StructureShape& shape) {
    const engine::Tokenizer& tokenizer = setup.reply().tokenizer;
    const engine::ModelConfig& config = setup.model().config();
    const std::vector<engine::TokenId> end_tokens = tokenizer.end_tokens(config.eos_ids, config.vocabulary);
    engine::GrammarCompiler compiler(tokenizer, config.vocabulary, end_tokens);
    StructureResult result;
    const auto begin = engine::Clock::now();
    const schema::Sampling sampling{.temperature = 1.0};
    const engine::SharedDrawing structured = engine::shared(
        {.sampling = sampling, .logit_bias = {}, .end_tokens = end_tokens, .grammar = compile_schema(compiler, shape.schema)});
    const engine::SharedDrawing free = engine::shared({.sampling = sampling, .logit_bias = {}, .end_tokens = {}, .grammar = nullptr});
    result.first_compile_seconds = seconds_since(begin);
    measure_compiles(compiler, shape, result);

    Answers answers;  // with forced tokens computed together
    const auto run = [&](const engine::SharedDrawing& drawing, bool force_together) {
        engine::EngineOptions options = setup.options();
        options.force_together = force_together;
        engine::Engine& engine = setup.replace_engine(options);
        std::mt19937_64 random(1);
        std::vector<engine::Request> requests;
        for (std::int64_t i = 0; i < shape.requests; ++i) {
            const auto id = static_cast<engine::RequestId>(i);
            const auto drawn = answers.find(id);
            const auto most = drawn == answers.end() ? shape.output_tokens_max : std::ssize(drawn->second.tokens);
            requests.push_back(greedy_request(id, made_up_prompt(config, id, shape.input_tokens.draw(random)), most));
            requests.back().drawing = drawing;
            requests.back().seed = id;
        }
        Answers ended;
        const auto start = engine::Clock::now();
        const double processor_start = processor_seconds();
        keep_full(engine, requests.size(), requests, [&](engine::Result& done) { ended.emplace(done.id, std::move(done)); });
        return Run{
            .seconds = seconds_since(start), .processor_seconds = processor_seconds() - processor_start, .answers = std::move(ended)};
    };
    answers = run(structured, true).answers;
    result.forced_tokens = setup.engine().stats().forced_tokens;
    for (const auto& [id, answer] : answers) {
        result.tokens += answer.tokens.size();
        if (answer.finish == engine::FinishReason::stop) ++result.complete;
    }

    struct Way {
        const char* name;
        const engine::SharedDrawing& drawing;
        bool force_together;
    };
    const std::array ways = {Way{"free text", free, true}, Way{"structured, one token a step", structured, false},
                             Way{"structured", structured, true}};
    for (const Way& way : ways) result.ways.push_back({.name = way.name});
    // In turn, so that other users of the machine slow down all of them.
    for (std::int64_t i = 0; i < shape.repeat; ++i) {
        for (std::size_t way = 0; way < ways.size(); ++way) {
            const Run took = run(ways[way].drawing, ways[way].force_together);
            for (const auto& [id, answer] : took.answers) {
                const bool is_same = ways[way].drawing == free ? answer.tokens.size() == answers.at(id).tokens.size()
                                                               : answer.tokens == answers.at(id).tokens;
                if (!is_same) throw std::runtime_error(fmt::format("request {} was answered in another way by \"{}\"", id, ways[way].name));
            }
            StructureResult::Way& best = result.ways[way];
            if (i == 0 || took.seconds < best.seconds) best.seconds = took.seconds;
            if (i == 0 || took.processor_seconds < best.processor_seconds) best.processor_seconds = took.processor_seconds;
            best.steps = setup.engine().stats().steps;
        }
    }
    return result;
}

}  // namespace lorry::ops
