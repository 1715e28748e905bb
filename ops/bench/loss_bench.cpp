// Runs the same jobs through one engine after another.
#include "ops/bench/loss_bench.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "consumer/file/reader.h"
#include "ops/bench/setup.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "schema/codec.h"

namespace lorry::ops {
namespace {

// The sequences of the jobs that can be run: decoded greedily, with all of each prompt scored.
std::vector<engine::Request> read_requests(const std::filesystem::path& jobs, std::int64_t jobs_max, const EngineSetup& setup,
                                           const AdapterFolders& adapters) {
    std::vector<engine::Request> requests;
    consumer::FileReader reader(jobs, {}, std::size_t{1} << 20);
    for (std::int64_t read = 0; read < jobs_max;) {
        const auto record = reader.next(std::chrono::seconds(60));
        if (!record) break;
        auto job = schema::parse_job({.source = {}, .key = {}, .value = record->text, .headers = {}, .timestamp = {}}, {});
        if (!job) continue;
        consumer::ModelName model = adapters.resolve(job->model, {});
        if (model.kind != consumer::ModelName::Kind::base && model.kind != consumer::ModelName::Kind::adapter) continue;
        auto prepared = setup.preparer().prepare(std::move(*job), std::move(model));
        if (!prepared || prepared->requests.size() != 1) continue;
        engine::Request request = std::move(prepared->requests.front());
        request.id = static_cast<engine::RequestId>(requests.size());
        engine::Drawing greedy = *request.drawing;
        greedy.sampling.temperature = 0.0;
        request.drawing = engine::shared(std::move(greedy));
        request.stream = false;
        request.score_begin = 0;
        requests.push_back(std::move(request));
        ++read;
    }
    if (requests.empty()) throw UsageError(fmt::format("{}: none of its jobs is one prompt for this model", jobs.string()));
    return requests;
}

// A quantized checkpoint stays as it is; what it is computed in, and its KV cache, may differ.
std::vector<StorageFormat> formats_of(const Settings& settings) {
    if (load_config(settings).quantized) return {{"float32", "none"}, {"bfloat16", "none"}, {"bfloat16", "none", "int8"}};
    std::vector<StorageFormat> formats(storage_formats.begin(), storage_formats.end());
    if (!kernels::cuda_obstacle()) {
        for (const StorageFormat& format : {StorageFormat{"bfloat16", "fp8"}, {"bfloat16", "none", "fp8"}, {"bfloat16", "fp8", "fp8"}})
            formats.push_back(format);
    }
    return formats;
}

}  // namespace

std::vector<LossRow> measure_loss(const Settings& settings, const std::filesystem::path& jobs, std::int64_t jobs_max) {
    if (jobs == "-") throw UsageError("--jobs -: the jobs are read once per weight format, so they must be in a file");
    std::vector<LossRow> rows;
    std::map<engine::RequestId, std::vector<engine::TokenId>> exact;
    for (const StorageFormat& format : formats_of(settings)) {
        Settings own = settings;
        format.put_into(own);
        own.device = kernels::obstacle(storage_options(own), kernels::DeviceKind::cpu) ? "cuda" : "cpu";
        EngineSetup setup(own, {.plain_decoding = true});
        const AdapterFolders adapters(own.adapters, base_name_of(own), setup.model().config(), setup.texts());
        std::vector<engine::Request> requests = read_requests(jobs, jobs_max, setup, adapters);
        LossRow row{.circumstances = circumstances_json(setup), .weights = setup.storage()};
        double log_probability = 0.0;
        keep_full(setup.engine(), requests.size(), requests, [&](engine::Result& done) {
            for (const engine::TokenLogprobs& score : done.scores) log_probability += static_cast<double>(score.logprob);
            row.tokens += static_cast<std::int64_t>(done.scores.size());
            ++row.answers;
            const auto place = exact.try_emplace(done.id, std::move(done.tokens)).first;
            // The answers of the first format were just stored.
            if (rows.empty() || done.tokens == place->second) ++row.answers_same;
        });
        if (row.tokens == 0) throw UsageError("none of the jobs has a prompt of more than one token");
        row.perplexity = std::exp(-log_probability / static_cast<double>(row.tokens));
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace lorry::ops
