// The sample op: copies the rows' parameters to the device in tables and reads all results back in one copy; sample.cu computes them.
#include <algorithm>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/views.h"
#include "kernels/greedy.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

// Fills the step's draws, one per row, and the lists that they refer to. Returns how many top tokens the rows ask for together.
std::int64_t CudaBackend::list_draws(const SampleArgs& args, Step& sampled) {
    std::vector<DrawTable>& draws = sampled.draws;
    auto& [changes, counted, allowed, targets] = draw_lists_;
    changes.clear();
    counted.clear();
    allowed.clear();
    targets.clear();
    std::int64_t tops = 0;
    for (const SampleRow& row : args.rows) {
        const std::int64_t vocabulary = row.vocabulary.value_or(args.logits.columns);
        const auto mask_words = static_cast<std::size_t>(ceil_div(vocabulary, 32));
        const std::int64_t change_begin = std::ssize(changes);
        append_logit_changes(row, changes);
        const bool repeats = row.has_repetition_penalty();
        const bool counts = repeats || row.has_output_penalty();
        const std::span<const TokenId> prompt = repeats ? row.prompt : std::span<const TokenId>{};
        const std::span<const TokenId> output = counts ? row.output : std::span<const TokenId>{};
        CHECK(!row.ends_with_drawn || std::ssize(args.rows) == sampled.rows_sampled,
              "sample: with ends_with_drawn, all sampled rows of the step have logits");
        const std::span<const std::uint32_t> mask = row.allowed.first(std::min(row.allowed.size(), mask_words));
        const auto top_count = std::clamp<std::int64_t>(row.top_logprobs, 0, vocabulary);
        draws.push_back({.seed = row.seed,
                         .position = row.position,
                         .vocabulary = int_of(vocabulary),
                         .temperature = is_greedy(row) ? 0.0F : row.temperature,
                         .top_p = row.top_p,
                         .min_p = row.min_p,
                         .top_k = row.top_k,
                         .draw = row.draw ? 1 : 0,
                         .repetition_penalty = row.repetition_penalty,
                         .presence_penalty = row.presence_penalty,
                         .frequency_penalty = row.frequency_penalty,
                         .change_begin = int_of(change_begin),
                         .change_count = int_of(std::ssize(changes) - change_begin),
                         .prompt_begin = int_of(std::ssize(counted)),
                         .prompt_count = int_of(std::ssize(prompt)),
                         .output_count = int_of(std::ssize(output)),
                         .counts_own = counts && row.ends_with_drawn ? 1 : 0,
                         .allowed_begin = int_of(std::ssize(allowed)),
                         .allowed_words = int_of(std::ssize(mask)),
                         .target_begin = int_of(std::ssize(targets)),
                         .target_count = int_of(std::ssize(row.targets)),
                         .ranks = row.want_ranks ? 1 : 0,
                         .top_begin = int_of(tops),
                         .top_count = int_of(top_count),
                         .logprobs = (row.draw && row.want_logprob) || top_count > 0 || !row.targets.empty() ? 1 : 0});
        counted.insert(counted.end(), prompt.begin(), prompt.end());
        counted.insert(counted.end(), output.begin(), output.end());
        allowed.insert(allowed.end(), mask.begin(), mask.end());
        targets.insert(targets.end(), row.targets.begin(), row.targets.end());
        tops += top_count;
    }
    return tops;
}

void CudaBackend::execute(const SampleArgs& args) {
    const std::int64_t vocabulary = args.logits.columns;
    settle();
    Step& sampled = step();
    CHECK(sampled.draws.empty(), "sample: called at most once in a step");
    if (args.rows.empty()) return;
    const std::int64_t tops = list_draws(args, sampled);
    auto& [changes, counted, allowed, targets] = draw_lists_;
    const std::size_t rows = args.rows.size();
    sampled.tops_begin = rows * sizeof(DrawResult);
    sampled.targets_begin = sampled.tops_begin + static_cast<std::size_t>(tops) * sizeof(TokenLogprob);
    sampled.ranks_begin = sampled.targets_begin + targets.size() * sizeof(float);
    const std::size_t bytes = sampled.ranks_begin + targets.size() * sizeof(std::int32_t);
    auto* const results = sampled.on_device.of<std::byte>(bytes);
    const SampleTask task{.logits = view_of(args.logits),
                          .rows = int_of(args.logits.rows),
                          .vocabulary = int_of(vocabulary),
                          .draws = sampled.tables.put(sampled.draws),
                          .changes = sampled.tables.put(changes),
                          .counted = sampled.tables.put(counted),
                          .allowed = sampled.tables.put(allowed),
                          .targets = sampled.tables.put(targets),
                          .weights = weight_scratch_.of<float>(rows * static_cast<std::size_t>(vocabulary)),
                          .token_of_row = sampled.tokens,
                          .row_of = sampled.sample_rows,
                          .results = reinterpret_cast<DrawResult*>(results),
                          .tops = reinterpret_cast<TokenLogprob*>(results + sampled.tops_begin),
                          .target_logprobs = reinterpret_cast<float*>(results + sampled.targets_begin),
                          .target_ranks = reinterpret_cast<std::int32_t*>(results + sampled.ranks_begin)};
    sampled.tables.copy();
    run_sample(task, stream_.get());
    check(cudaGetLastError(), "sample");
    check(cudaMemcpyAsync(sampled.on_host.of<std::byte>(bytes), results, bytes, cudaMemcpyDeviceToHost, stream_.get()),
          "copying what was sampled");
    sampled.results = args.results;
    note_end(sampled);
    sampled.end_is_exact = true;
}

void CudaBackend::hand_out_results(Step& step) {
    const auto* const host = step.on_host.of<std::byte>(0);
    const auto* const drawn = reinterpret_cast<const DrawResult*>(host);
    const auto* const top = reinterpret_cast<const TokenLogprob*>(host + step.tops_begin);
    const auto* const target = reinterpret_cast<const float*>(host + step.targets_begin);
    const auto* const rank = reinterpret_cast<const std::int32_t*>(host + step.ranks_begin);
    for (std::size_t i = 0; i < step.results.size(); ++i) {
        const DrawTable& draw = step.draws[i];
        SampleResult& result = step.results[i];
        result.token = drawn[i].token;
        result.is_finite = drawn[i].is_finite != 0;
        result.logprob = drawn[i].logprob;
        result.top.assign(top + draw.top_begin, top + draw.top_begin + draw.top_count);
        result.targets.assign(target + draw.target_begin, target + draw.target_begin + draw.target_count);
        const std::int32_t ranks = draw.ranks != 0 ? draw.target_count : 0;
        result.ranks.assign(rank + draw.target_begin, rank + draw.target_begin + ranks);
    }
}

}  // namespace lorry::kernels::cuda
