// Turns vectors and logits into entries. Sums are double; vectors of embeddings are float32, as the model's.
#include "consumer/reply_pooling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>
#include <type_traits>

#include "consumer/entities.h"
#include "consumer/probabilities.h"
#include "schema/base64.h"

namespace lorry::consumer {
namespace {

using engine::ProblemType;
using engine::Result;
using schema::Json;

// Estimates for a reply's bytes.
constexpr std::int64_t result_entry_bytes = 60;
constexpr std::int64_t float_bytes = 13;
constexpr std::int64_t double_bytes = 21;
constexpr std::int64_t entity_bytes = 110;
constexpr std::int64_t fill_bytes = 80;

double sigmoid(double logit) { return 1.0 / (1.0 + std::exp(-logit)); }

// A token that cannot stand in a mask's place may have a log-probability of minus infinity.
bool has_only_numbers(const Result& result) {
    const auto is_finite = [](float value) { return std::isfinite(value); };
    const auto is_number = [](const kernels::TokenLogprob& fill) { return !std::isnan(fill.logprob); };
    return std::ranges::all_of(result.pooled, is_finite) &&
           std::ranges::all_of(result.fills, [&](const engine::TokenLogprobs& mask) { return std::ranges::all_of(mask.top, is_number); });
}

double dot(std::span<const float> a, std::span<const float> b) {
    return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus(),
                                 [](float x, float y) { return static_cast<double>(x) * static_cast<double>(y); });
}

// The shortest digits that read back as the same float32: half as many as a double's.
Json shortest(float value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    std::string text(digits.data(), end);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return schema::Numeral{std::move(text)};
}

// Little-endian float32, as in OpenAI's API.
std::string base64_of(std::span<const float> values) {
    std::string bytes;
    bytes.reserve(values.size() * sizeof(float));
    for (const float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFFU);
    }
    return schema::to_base64(bytes);
}

// The results of one text: one, or one of each of its windows.
struct TextResults {
    std::span<const Result> results;
    std::span<const RequestPlace> places;
    std::size_t first;  // the place of the first in the job's list
};

std::vector<TextResults> results_by_text(const ReplyPlan& plan, std::span<const Result> results) {
    const std::span places(plan.places);
    std::vector<TextResults> texts;
    for (std::size_t begin = 0, end = 0; begin < results.size(); begin = end) {
        end = begin + 1;
        while (end < results.size() && places[end].prompt == places[begin].prompt) ++end;
        texts.push_back({.results = results.subspan(begin, end - begin), .places = places.subspan(begin, end - begin), .first = begin});
    }
    return texts;
}

// What `values_of` gives for each result; of several, the mean with the windows' weights.
template <typename ValuesOf>
auto mean_of(const TextResults& text, ValuesOf values_of) {
    auto values = values_of(text.results.front());
    if (text.results.size() == 1) return values;
    std::vector<double> sums(values.size(), 0.0);
    double weights = 0.0;
    for (std::size_t i = 0; i < text.results.size(); ++i) {
        const auto weight = static_cast<double>(text.places[i].weight);
        weights += weight;
        const auto own = values_of(text.results[i]);
        for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += weight * static_cast<double>(own[k]);
    }
    for (std::size_t k = 0; k < sums.size(); ++k) values[k] = static_cast<std::remove_reference_t<decltype(values[k])>>(sums[k] / weights);
    return values;
}

std::size_t dimensions_of(const ReplyPlan& plan, const Result& result) {
    const auto& wanted = plan.job.pooling.dimensions;
    return wanted ? std::min(static_cast<std::size_t>(*wanted), result.pooled.size()) : result.pooled.size();
}

// The vector as the job wants it: first cut (Matryoshka embeddings), then scaled to length 1. The null vector stays.
std::vector<float> embedding_of(const ReplyPlan& plan, const TextResults& text) {
    std::vector<float> vector = mean_of(text, [&](const Result& result) {
        const auto dimensions = static_cast<std::ptrdiff_t>(dimensions_of(plan, result));
        return std::vector<float>(result.pooled.begin(), result.pooled.begin() + dimensions);
    });
    const double length = std::sqrt(dot(vector, vector));
    if (!plan.normalized || length == 0.0) return vector;
    for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
    return vector;
}

Json embedding_entry(const ReplyPlan& plan, const TextResults& text, std::int32_t index) {
    const std::vector<float> vector = embedding_of(plan, text);
    Json values;
    if (plan.job.pooling.base64) {
        values = base64_of(vector);
    } else {
        Json::Array list;
        list.reserve(vector.size());
        for (const float value : vector) list.push_back(shortest(value));
        values = std::move(list);
    }
    return Json::object({{"object", "embedding"}, {"index", index}, {"embedding", std::move(values)}});
}

Json label_entry(std::int32_t index, const std::string& label, const std::vector<double>& probabilities) {
    return Json::object({{"index", index},
                         {"label", label},
                         {"probs", Json::Array(probabilities.begin(), probabilities.end())},
                         {"num_classes", static_cast<std::int64_t>(probabilities.size())}});
}

std::vector<double> probabilities_of(const Result& result) {
    std::vector<double> scores(result.pooled.begin(), result.pooled.end());
    switch (result.labels->problem) {
        case ProblemType::single_label: scores = softmax(scores); break;
        case ProblemType::multi_label: std::ranges::transform(scores, scores.begin(), sigmoid); break;
        case ProblemType::regression: break;
    }
    return scores;
}

Json class_entry(const TextResults& text, std::int32_t index) {
    const std::vector<double> scores = mean_of(text, probabilities_of);
    return label_entry(index, text.results.front().labels->names[likeliest(scores)], scores);
}

// As transformers' ZeroShotClassificationPipeline: the choices compete by their entailment, or each is decided against contradiction.
// results: of one text, one for each choice.
Json zero_shot_entry(const ReplyPlan& plan, std::span<const Result> results, std::int32_t index) {
    std::vector<double> scores;
    for (const Result& result : results) {
        const auto entailment = entailment_label(*result.labels);
        CHECK(entailment, "error_of_results() refuses other heads");
        const double entails = result.pooled[*entailment];
        if (!plan.job.pooling.multi_label.value_or(false)) {
            scores.push_back(entails);
            continue;
        }
        const double contradicts = *entailment == 0 ? result.pooled.back() : result.pooled.front();
        scores.push_back(softmax(std::array{contradicts, entails})[1]);
    }
    if (!plan.job.pooling.multi_label.value_or(false)) scores = softmax(scores);
    return label_entry(index, plan.job.choices[likeliest(scores)], scores);
}

Json entities_entry(const engine::Tokenizer& tokenizer, const ReplyPlan& plan, const TextResults& text, std::int32_t index) {
    const schema::Aggregation aggregation = plan.job.pooling.aggregation;
    const bool grouped = aggregation != schema::Aggregation::none;
    std::vector<Entity> entities;
    for (std::size_t i = 0; i < text.results.size(); ++i) {
        const Result& result = text.results[i];
        std::ranges::move(entities_of(tokenizer, plan.texts[text.first + i], result.pooled, *result.labels, aggregation),
                          std::back_inserter(entities));
    }
    if (text.results.size() > 1) entities = merged(std::move(entities));
    Json::Array list;
    for (Entity& entity : entities) {
        Json one = Json::object({{grouped ? "entity_group" : "entity", std::move(entity.label)}, {"score", entity.score}});
        if (!grouped) one.set("index", static_cast<std::int64_t>(entity.token));
        one.set("word", std::move(entity.word));
        one.set("start", entity.begin);
        one.set("end", entity.end);
        list.push_back(std::move(one));
    }
    return Json::object({{"index", index}, {"entities", std::move(list)}});
}

// As transformers' FillMaskPipeline: with several masks, a sequence shows special tokens, as the other masks are some.
Json fills_entry(const engine::Tokenizer& tokenizer, const ReplyPlan& plan, const Result& result, std::int32_t index) {
    const TokenizedPrompt& text = plan.texts[static_cast<std::size_t>(index)];
    const bool is_only_mask = text.mask_positions.size() == 1;
    Json::Array masks;
    for (std::size_t mask = 0; mask < text.mask_positions.size(); ++mask) {
        std::vector<engine::TokenId> tokens = text.tokens;
        Json::Array fills;
        for (const auto& fill : result.fills[mask].top) {
            tokens[static_cast<std::size_t>(text.mask_positions[mask])] = fill.token;
            fills.push_back(Json::object({{"token", fill.token},
                                          {"token_str", tokenizer.decode(std::array{fill.token}, false)},
                                          {"score", std::exp(static_cast<double>(fill.logprob))},
                                          {"sequence", tokenizer.decode(tokens, is_only_mask)}}));
        }
        masks.push_back(std::move(fills));
    }
    return Json::object({{"index", index}, {"fills", std::move(masks)}});
}

// The score of each of the job's pairs.
std::vector<double> pair_scores(const ReplyPlan& plan, std::span<const Result> results) {
    std::vector<double> scores;
    if (plan.work == Work::score_pairs) {
        // As sentence-transformers' CrossEncoder for one label.
        for (const Result& result : results) {
            const double logit = result.pooled.front();
            scores.push_back(result.labels->scores_are_logits ? logit : sigmoid(logit));
        }
        return scores;
    }
    for (const RequestPair& pair : plan.pairs) {
        const auto& first = results[pair.first].pooled;
        const auto& second = results[pair.second].pooled;
        const double lengths = std::sqrt(dot(first, first)) * std::sqrt(dot(second, second));
        scores.push_back(lengths == 0.0 ? 0.0 : dot(first, second) / lengths);
    }
    return scores;
}

Json::Array score_entries(const std::vector<double>& scores) {
    Json::Array entries;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        entries.push_back(Json::object({{"index", static_cast<std::int64_t>(i)}, {"object", "score"}, {"score", scores[i]}}));
    }
    return entries;
}

// The best first.
Json::Array rank_entries(const schema::PoolingFields& fields, const std::vector<double>& scores) {
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return scores[i]; });
    if (fields.top_n && static_cast<std::size_t>(*fields.top_n) < order.size()) order.resize(static_cast<std::size_t>(*fields.top_n));
    Json::Array entries;
    for (const std::size_t i : order) {
        Json entry = Json::object({{"index", static_cast<std::int64_t>(i)}, {"relevance_score", scores[i]}});
        if (fields.return_documents) entry.set("document", Json::object({{"text", fields.second_texts[i]}}));
        entries.push_back(std::move(entry));
    }
    return entries;
}

// Its head was trained on plain pairs, but intake did not know of it and rendered them.
schema::JobError error_of_unknown_head() {
    return {.code = schema::ErrorCode::unsupported_by_model,
            .param = "model",
            .message = "the adapter's registration does not say that it has a head of its own: register it again"};
}

}  // namespace

Json::Array pooled_entries(const engine::Tokenizer& tokenizer, const ReplyPlan& plan, std::span<const Result> results) {
    const auto each = [&](auto entry_of) {
        Json::Array entries;
        for (const TextResults& text : results_by_text(plan, results)) {
            entries.push_back(entry_of(text, static_cast<std::int32_t>(entries.size())));
        }
        return entries;
    };
    switch (plan.work) {
        case Work::draw:
        case Work::score_choices: break;
        case Work::embed: return each([&](const TextResults& text, std::int32_t index) { return embedding_entry(plan, text, index); });
        case Work::classify: return each(class_entry);
        case Work::token_classify:
            return each([&](const TextResults& text, std::int32_t index) { return entities_entry(tokenizer, plan, text, index); });
        case Work::fill_mask:
            return each(
                [&](const TextResults& text, std::int32_t index) { return fills_entry(tokenizer, plan, text.results.front(), index); });
        case Work::zero_shot: {
            Json::Array entries;
            const std::size_t choices = plan.job.choices.size();
            for (std::size_t begin = 0; begin < results.size(); begin += choices) {
                entries.push_back(zero_shot_entry(plan, results.subspan(begin, choices), static_cast<std::int32_t>(entries.size())));
            }
            return entries;
        }
        case Work::score_pairs:
        case Work::compare_embeddings: {
            const std::vector<double> scores = pair_scores(plan, results);
            return plan.job.endpoint == schema::Endpoint::rerank ? rank_entries(plan.job.pooling, scores) : score_entries(scores);
        }
    }
    CHECK(false, "this work's answers are not made here");
}

std::int64_t pooled_bytes_of(const ReplyPlan& plan, std::span<const Result> results) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Result& result = results[i];
        // Vectors and classes of windows become one.
        const bool continues = i > 0 && plan.places[i].prompt == plan.places[i - 1].prompt;
        switch (plan.work) {
            case Work::draw:
            case Work::score_choices: break;
            case Work::embed: {
                if (continues) break;
                const auto dimensions = static_cast<std::int64_t>(dimensions_of(plan, result));
                bytes += result_entry_bytes +
                         (plan.job.pooling.base64 ? dimensions * std::int64_t{sizeof(float)} * 4 / 3 : dimensions * float_bytes);
                break;
            }
            case Work::classify:
                if (continues) break;
                bytes += result_entry_bytes + std::ssize(result.pooled) * double_bytes;
                break;
            case Work::zero_shot: bytes += result_entry_bytes / std::ssize(plan.job.choices) + double_bytes; break;
            case Work::token_classify: bytes += result_entry_bytes + std::ssize(plan.texts[i].tokens) * entity_bytes; break;
            case Work::score_pairs:
            case Work::compare_embeddings: bytes += result_entry_bytes; break;
            case Work::fill_mask:
                for (const auto& mask : result.fills) bytes += std::ssize(mask.top) * (fill_bytes + std::ssize(plan.texts[i].text));
                break;
        }
    }
    if (plan.job.endpoint == schema::Endpoint::rerank && plan.job.pooling.return_documents) {
        for (const std::string& document : plan.job.pooling.second_texts) bytes += std::ssize(document);
    }
    return bytes;
}

std::optional<schema::JobError> error_of_results(const ReplyPlan& plan, std::span<const Result> results) {
    for (const Result& result : results) {
        if (result.labels != nullptr) {
            if (auto error = error_of_head(plan.work, *result.labels)) return error;
            if (plan.renders_pairs && !result.labels->answers_yes_or_no) return error_of_unknown_head();
        }
        if (has_only_numbers(result)) continue;
        return schema::JobError{.code = schema::ErrorCode::non_finite_logits,
                                .param = {},
                                .message =
                                    "the model's output for one of the texts is not finite: check the weights of the model and of the "
                                    "adapter, or run the job with dtype = \"float32\""};
    }
    return std::nullopt;
}

}  // namespace lorry::consumer
