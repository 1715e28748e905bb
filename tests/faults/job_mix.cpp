// Writes the jobs and computes the fake engine's answers to them without an engine; see job_mix.h.
#include "tests/faults/job_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/text/detokenizer.h"
#include "schema/check.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::faults {
namespace {

using kernels::TokenId;

constexpr std::array job_kinds = {
    std::pair{JobKind::plain, "plain"},         std::pair{JobKind::twin, "twin"},           std::pair{JobKind::stream, "stream"},
    std::pair{JobKind::slow, "slow"},           std::pair{JobKind::stuck, "stuck"},         std::pair{JobKind::late, "late"},
    std::pair{JobKind::unknown, "unknown"},     std::pair{JobKind::expired, "expired"},     std::pair{JobKind::cancel, "cancel"},
    std::pair{JobKind::malformed, "malformed"}, std::pair{JobKind::oversized, "oversized"}, std::pair{JobKind::large, "large"},
    std::pair{JobKind::killer, "killer"},       std::pair{JobKind::broken, "broken"},       std::pair{JobKind::nameless, "nameless"},
    std::pair{JobKind::null, "null"},
};

JobKind kind_named(std::string_view custom_id) {
    const std::string_view name = custom_id.substr(0, custom_id.find('-'));
    const auto found = std::ranges::find_if(job_kinds, [&](const auto& one) { return one.second == name; });
    CHECK(found != job_kinds.end(), "a fault test's job says its kind");
    return found->first;
}

std::string list_of(const std::vector<std::int32_t>& tokens) { return fmt::format("[{}]", fmt::join(tokens, ",")); }

std::vector<TokenId> answer_of(std::vector<TokenId> tokens, std::int64_t count) {
    std::vector<TokenId> drawn;
    for (std::int64_t i = 0; i < count; ++i) {
        drawn.push_back(tests::next_token(tests::hash_of(tokens)));
        tokens.push_back(drawn.back());
    }
    return drawn;
}

std::string text_of(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer) {
    engine::Detokenizer detokenizer(tests::gpt2_tokenizer(), true);
    detokenizer.prime(prompt);
    std::string text;
    for (const TokenId token : answer) text += detokenizer.push(token);
    return text + detokenizer.finish();
}

}  // namespace

std::string_view name_of(JobKind kind) {
    return std::ranges::find_if(job_kinds, [&](const auto& one) { return one.first == kind; })->second;
}

JobMix::Weights JobMix::everyday() {
    return {{JobKind::plain, 60},    {JobKind::twin, 3},    {JobKind::stream, 20},  {JobKind::slow, 2},
            {JobKind::unknown, 0.2}, {JobKind::expired, 2}, {JobKind::cancel, 2},   {JobKind::malformed, 3},
            {JobKind::oversized, 1}, {JobKind::broken, 2},  {JobKind::nameless, 1}, {JobKind::null, 1}};
}

schema::JobRecord JobMix::next() {
    double sum = 0;
    for (const auto& [kind, weight] : weights_) sum += weight;
    double drawn = std::uniform_real_distribution<double>(0, sum)(random_);
    for (const auto& [kind, weight] : weights_) {
        if (drawn < weight) return next(kind);
        drawn -= weight;
    }
    return next(weights_.begin()->first);
}

schema::JobRecord JobMix::next(JobKind kind) {
    const auto between = [&](std::int32_t low, std::int32_t high) {
        return std::uniform_int_distribution<std::int32_t>(low, high)(random_);
    };
    const std::uint64_t number = count_++;
    std::vector<std::int32_t> prompt;
    if (kind == JobKind::killer) prompt.push_back(killer_token);
    // A large job echoes it: at least one byte per token.
    for (std::int32_t i = kind == JobKind::large ? 9'000 : between(3, 12); i > 0; --i) prompt.push_back(between(1, killer_token - 1));
    std::int32_t tokens = between(1, 24);
    if (kind == JobKind::slow) tokens = between(200, 600);
    if (kind == JobKind::stuck) tokens = 20'000;
    std::string model = "base";
    if (kind == JobKind::unknown) model = "nobody";
    if (kind == JobKind::late) model = late_adapter();
    std::string more;
    if (kind == JobKind::stream || (kind == JobKind::slow && number % 2 == 0)) more += R"(,"stream":true)";
    if (kind == JobKind::large) more += R"(,"echo":true)";
    if (kind == JobKind::malformed) more += R"(,"best_friend":true)";
    if (kind == JobKind::oversized) more += R"(,"user":")" + std::string(100 << 10, 'x') + "\"";
    const std::string custom_id = kind == JobKind::twin ? "twin-of-many" : fmt::format("{}-{}", name_of(kind), number);

    schema::JobRecord record{.source = {}, .key = fmt::format("{}#{}", model, number % 64), .value = {}, .headers = {}, .timestamp = {}};
    if (kind == JobKind::expired) record.headers.emplace_back(schema::deadline_header, "1000000000000");
    record.value =
        fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"model":"{}","prompt":{},"max_tokens":{}{}}}}})",
                    custom_id, model, list_of(prompt), tokens, more);
    if (kind == JobKind::broken) record.value = fmt::format("broken-{} {{", number);
    if (kind == JobKind::nameless) record.value = fmt::format(R"({{"method":"POST","number":{}}})", number);
    if (kind == JobKind::null) record.value.reset();
    return record;
}

Expectation expectation_of(const schema::JobRecord& record, const FaultRules& rules) {
    const auto parsed = schema::parse_job(record, {.bytes_max = rules.job_bytes_max});
    if (!parsed && !parsed.error().custom_id) {
        Expectation letter;
        letter.kind = !record.value ? JobKind::null : record.value->starts_with("broken") ? JobKind::broken : JobKind::nameless;
        letter.dead_letter = true;
        return letter;
    }
    using schema::ErrorCode;
    Expectation expected;
    expected.custom_id = parsed ? parsed->custom_id : *parsed.error().custom_id;
    expected.job_id = parsed ? parsed->id : parsed.error().job_id;
    expected.kind = kind_named(expected.custom_id);
    // Even a job that is refused at once may be waiting for the commit of its start when a worker dies.
    if (rules.crashes_by_chance) expected.codes.push_back(ErrorCode::worker_crashed);
    if (!parsed) {
        expected.codes.push_back(parsed.error().error.code);
        return expected;
    }
    switch (expected.kind) {
        case JobKind::unknown: expected.codes.push_back(ErrorCode::model_not_found); return expected;
        case JobKind::expired: expected.codes.push_back(ErrorCode::batch_expired); return expected;
        case JobKind::killer: expected.codes = {ErrorCode::worker_crashed}; return expected;
        case JobKind::large: expected.codes.push_back(ErrorCode::result_too_large); return expected;
        case JobKind::cancel: expected.codes.push_back(ErrorCode::batch_cancelled); break;
        default: break;
    }
    const auto& prompt = std::get<std::vector<std::int32_t>>(std::get<std::vector<schema::TextPrompt>>(parsed->prompt).at(0));
    const std::vector<TokenId> tokens(prompt.begin(), prompt.end());
    expected.tokens = parsed->sampling.max_tokens.value();
    expected.text = text_of(tokens, answer_of(tokens, expected.tokens));
    expected.stream = parsed->stream;
    return expected;
}

}  // namespace lorry::faults
