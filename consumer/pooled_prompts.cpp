// Puts prompts of the model before texts, makes pairs, cuts and checks lengths.
#include "consumer/pooled_prompts.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "consumer/entities.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using engine::EncodeLimit;
using engine::ModelConfig;
using schema::ErrorCode;
using schema::JobError;
using Done = Expected<void, JobError>;

// Of the texts that a job has tokenized, each counted as often as it is read: a third of a minute of the intake's time.
constexpr std::size_t job_bytes_max = std::size_t{32} << 20;
// Of a job's windows together, repeated ones as well: what takes 0.3 GB while the windows are cut.
constexpr std::size_t window_tokens_max = std::size_t{1} << 21;
constexpr std::int64_t labels_expected = 16;  // of an adapter's head, if only the engine finds out

const std::string* find_prompt(const engine::EmbedderConfig& embedder, const std::string& name) {
    const auto found = std::ranges::find(embedder.prompts, name, &std::pair<std::string, std::string>::first);
    return found == embedder.prompts.end() ? nullptr : &found->second;
}

class Maker {
public:
    Maker(const TextEncoder& encoder, const ModelConfig& config, std::int64_t text_max, const std::optional<PairTemplate>& pairs,
          ReplyPlan& plan)
        : encoder_(encoder),
          config_(config),
          text_max_(text_max),
          pairs_(pairs),
          plan_(plan),
          field_(schema::row_of(plan.job.endpoint).prompt_field) {}

    Done make(std::optional<std::string> chat) {
        if (auto read = read_limit(); !read) return read;
        if (chat) return add_chat(std::move(*chat));
        switch (plan_.work) {
            case Work::draw:
            case Work::score_choices: break;
            case Work::embed: return add_embedded();
            case Work::classify:
            case Work::token_classify:
            case Work::fill_mask: return add_each({});
            case Work::zero_shot: return add_hypotheses();
            case Work::score_pairs: return add_pairs();
            case Work::compare_embeddings: return add_compared();
        }
        CHECK(false, "this work has prompts of its own");
    }
    std::vector<TokenizedPrompt> take() { return std::move(prompts_); }

private:
    Done read_limit() {
        const auto& truncation = plan_.job.pooling.truncation;
        if (!truncation) return {};
        const std::int64_t tokens = truncation->tokens.value_or(text_max_);
        if (tokens > text_max_) {
            return unexpected(error_at(ErrorCode::invalid_value, "truncate_prompt_tokens",
                                       fmt::format("field 'truncate_prompt_tokens' is {}; {}: give 1 to {}, or -1 for all of them", tokens,
                                                   limit_text(), text_max_)));
        }
        limit_ = EncodeLimit{
            .max_tokens = static_cast<std::size_t>(tokens),
            .side = truncation->keeps_end ? engine::TruncationSide::left : engine::TruncationSide::right,
            .strategy = plan_.work == Work::zero_shot ? engine::TruncationStrategy::only_first : engine::TruncationStrategy::longest_first};
        return {};
    }

    const std::vector<schema::TextPrompt>& texts() const { return std::get<std::vector<schema::TextPrompt>>(plan_.job.prompt); }
    // Of one of the job's texts, for errors: "input", or "input[2]" in a list.
    std::string place_of(std::size_t index) const {
        return texts().size() == 1 ? std::string(field_) : fmt::format("{}[{}]", field_, index);
    }
    // A text where token ids have no meaning.
    Expected<std::string_view, JobError> text_at(std::size_t index) const {
        if (const auto* text = std::get_if<std::string>(&texts()[index])) return *text;
        return unexpected(error_at(ErrorCode::invalid_type, place_of(index),
                                   fmt::format("field '{}' has token ids; this model compares texts: give strings", place_of(index))));
    }
    // A pair's first text: one for all, or one for each.
    std::size_t first_of(std::size_t pair) const { return texts().size() == 1 ? 0 : pair; }

    Done add_chat(std::string text) {
        auto tokens = encoder_.encode(text, false, "messages");  // the template wrote the special tokens already
        if (!tokens) return unexpected(tokens.error());
        return add("messages", {.text = std::move(text), .tokens = cut(std::move(*tokens))});
    }

    // What the model puts before texts of the kind that the job names; empty: nothing.
    std::string_view prefix() const {
        const engine::EmbedderConfig& embedder = *config_.embedder;
        const auto* prompt = find_prompt(embedder, plan_.job.pooling.prompt_name.value_or(embedder.default_prompt));
        return prompt == nullptr ? std::string_view() : std::string_view(*prompt);
    }

    Done add_embedded() {
        const schema::PoolingFields& fields = plan_.job.pooling;
        if (auto error = error_of_embedding(fields, *config_.embedder)) return unexpected(*std::move(error));
        plan_.normalized = fields.normalize.value_or(config_.embedder->normalized);
        if (auto room = check_room_after(prefix()); !room) return room;
        return add_each(prefix());
    }

    // Otherwise each text would be cut off, and the answer be about the model's prompt.
    Done check_room_after(std::string_view prompt) const {
        if (!limit_ || plan_.job.pooling.stride || limit_->side == engine::TruncationSide::left || prompt.empty()) return {};
        const auto alone = encoder_.encode_pair(prompt, std::nullopt, std::nullopt, "prompt_name");
        if (!alone) return unexpected(alone.error());
        if (limit_->max_tokens > alone->ids.size()) return {};
        return unexpected(error_at(
            ErrorCode::invalid_value, "truncate_prompt_tokens",
            fmt::format(
                "field 'truncate_prompt_tokens': a limit of {} tokens leaves no room for a text after the model's prompt: the prompt "
                "and special tokens are {}, so at least {} are needed",
                limit_->max_tokens, alone->ids.size(), alone->ids.size() + 1)));
    }

    // One prompt for each text.
    Done add_each(std::string_view before) {
        for (std::size_t i = 0; i < texts().size(); ++i) {
            if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&texts()[i])) {
                if (auto done = add_ids(i, *ids); !done) return done;
                continue;
            }
            const auto& text = std::get<std::string>(texts()[i]);
            auto done = plan_.job.pooling.stride ? add_windows(i, before, text) : add_text(place_of(i), before, text);
            if (!done) return done;
        }
        return {};
    }

    Done add_ids(std::size_t index, const std::vector<std::int32_t>& ids) {
        const std::string place = place_of(index);
        const schema::PoolingFields& fields = plan_.job.pooling;
        if (fields.prompt_name || fields.stride) {
            const std::string_view field = fields.prompt_name ? "prompt_name" : "stride";
            return unexpected(
                error_at(ErrorCode::invalid_value, field, fmt::format("field '{}' needs texts, and '{}' has token ids", field, place)));
        }
        if (auto valid = encoder_.check_tokens(ids, place); !valid) return valid;
        return add(place, {.text = {}, .tokens = cut(ids)});
    }

    Done add_text(const std::string& place, std::string_view before, std::string_view text) {
        if (auto filled = check_filled(place, text); !filled) return filled;
        std::string whole = fmt::format("{}{}", before, text);
        return add_encoded(place, std::move(whole), std::nullopt);
    }

    // `before` is in each window.
    Done add_windows(std::size_t index, std::string_view before, std::string_view text) {
        const std::string place = place_of(index);
        if (auto filled = check_filled(place, text); !filled) return filled;
        if (auto counted = count_bytes(place, before.size() + text.size()); !counted) return counted;
        const std::string whole = fmt::format("{}{}", before, text);
        const std::size_t max_tokens = limit_ ? limit_->max_tokens : static_cast<std::size_t>(text_max_);
        const engine::WindowLimit limit{
            .max_tokens = max_tokens,
            .stride = static_cast<std::size_t>(*plan_.job.pooling.stride),
            .windows_max = std::min(schema::job_sequences_max - prompts_.size(), (window_tokens_max - tokens_) / max_tokens),
            .repeated = static_cast<std::size_t>(schema::count_characters(before))};
        auto windows = encoder_.encode_windows(whole, limit, place);
        if (!windows) return unexpected(windows.error());
        const std::vector<std::size_t> offsets = plan_.work == Work::token_classify ? character_offsets(whole) : std::vector<std::size_t>();
        for (engine::Encoding& encoding : *windows) {
            const bool is_first = &encoding == &windows->front();
            Window window{.text = static_cast<std::int32_t>(index), .new_tokens = new_tokens(encoding, is_first, limit)};
            auto prompt = prompt_of(encoding);
            if (!prompt) return unexpected(prompt.error());
            if (plan_.work == Work::token_classify) {
                window.begin = place_in_part(encoding.spans);
                prompt->text = part_of(whole, offsets, window.begin, encoding.spans);
                prompt->spans = std::move(encoding.spans);
            }
            prompt->window = window;
            if (auto done = add(place, std::move(*prompt)); !done) return done;
        }
        return {};
    }

    // Window::new_tokens.
    static std::int64_t new_tokens(const engine::Encoding& window, bool is_first, const engine::WindowLimit& limit) {
        const auto repeated = static_cast<std::int32_t>(limit.repeated);
        const auto tokens = std::ranges::count_if(
            window.spans, [&](const engine::TokenSpan& span) { return span.text == 0 && (repeated == 0 || span.end > repeated); });
        return tokens - (is_first ? 0 : static_cast<std::int64_t>(limit.stride));
    }

    // Moves the spans of a window to a part of the text that begins one character before them, which shows whether they begin a word.
    // Returns where the part begins.
    static std::int64_t place_in_part(std::vector<engine::TokenSpan>& spans) {
        const auto first = std::ranges::find(spans, 0, &engine::TokenSpan::text);
        if (first == spans.end()) return 0;
        const std::int32_t begin = std::max(first->begin - 1, 0);
        for (engine::TokenSpan& span : spans) {
            if (span.text < 0) continue;
            span.begin -= begin;
            span.end -= begin;
        }
        return begin;
    }
    static std::string part_of(const std::string& text, const std::vector<std::size_t>& offsets, std::int64_t begin,
                               const std::vector<engine::TokenSpan>& spans) {
        const std::int32_t characters = std::ranges::max_element(spans, {}, &engine::TokenSpan::end)->end;
        const std::size_t from = offsets[static_cast<std::size_t>(begin)];
        return text.substr(from, offsets[static_cast<std::size_t>(begin + characters)] - from);
    }

    Done add_hypotheses() {
        const schema::Job& job = plan_.job;
        const std::string pattern = job.pooling.hypothesis_template.value_or(std::string(schema::default_hypothesis_template));
        for (std::size_t i = 0; i < texts().size(); ++i) {
            const auto text = text_at(i);
            if (!text) return unexpected(text.error());
            if (auto filled = check_filled(place_of(i), *text); !filled) return filled;
            for (const std::string& choice : job.choices) {
                std::string hypothesis = pattern;
                hypothesis.replace(hypothesis.find("{}"), 2, choice);
                if (auto done = add_encoded(place_of(i), std::string(*text), hypothesis); !done) return done;
            }
        }
        return {};
    }

    Done add_pairs() {
        const auto& seconds = plan_.job.pooling.second_texts;
        plan_.renders_pairs = renders_pairs(plan_.work, plan_.model, config_);
        for (std::size_t i = 0; i < seconds.size(); ++i) {
            const auto first = text_at(first_of(i));
            if (!first) return unexpected(first.error());
            auto done = plan_.renders_pairs ? add_rendered(second_place(i), {.query = *first, .document = seconds[i]})
                                            : add_encoded(second_place(i), std::string(*first), seconds[i]);
            if (!done) return done;
        }
        return {};
    }

    Done add_rendered(const std::string& place, PairTexts pair) {
        pair.instruction = plan_.job.pooling.instruction;
        auto text = pairs_->render(pair);
        if (!text) return unexpected(text.error());
        if (auto counted = count_bytes(place, text->size()); !counted) return counted;
        auto tokens = encoder_.encode(*text, false, place);  // the template wrote the special tokens already
        if (!tokens) return unexpected(tokens.error());
        return add(place, {.text = {}, .tokens = std::move(*tokens)});
    }

    // One prompt for each distinct text.
    Done add_compared() {
        const std::string_view before = prefix();
        if (auto room = check_room_after(before); !room) return room;
        std::map<std::string_view, std::size_t> known;
        const auto request_of = [&](const std::string& place, std::string_view text) -> Expected<std::size_t, JobError> {
            const auto [found, is_new] = known.try_emplace(text, prompts_.size());
            if (is_new) {
                if (auto done = add_text(place, before, text); !done) return unexpected(done.error());
            }
            return found->second;
        };
        const auto& seconds = plan_.job.pooling.second_texts;
        for (std::size_t i = 0; i < seconds.size(); ++i) {
            const auto text = text_at(first_of(i));
            if (!text) return unexpected(text.error());
            const auto first = request_of(place_of(first_of(i)), *text);
            if (!first) return unexpected(first.error());
            const auto second = request_of(second_place(i), seconds[i]);
            if (!second) return unexpected(second.error());
            plan_.pairs.push_back({.first = *first, .second = *second});
        }
        return {};
    }

    std::string second_place(std::size_t index) const {
        const std::string_view field = plan_.job.endpoint == schema::Endpoint::rerank ? "documents" : "text_2";
        return plan_.job.pooling.second_texts.size() == 1 ? std::string(field) : fmt::format("{}[{}]", field, index);
    }

    // After special tokens, even an empty text has tokens.
    Done check_filled(const std::string& place, std::string_view text) const {
        if (!text.empty()) return {};
        return unexpected(
            error_at(ErrorCode::empty_prompt, place, fmt::format("field '{}' is an empty text; give at least one character", place)));
    }

    Done add_encoded(const std::string& place, std::string text, std::optional<std::string_view> second) {
        if (auto counted = count_bytes(place, text.size() + second.value_or("").size()); !counted) return counted;
        auto encoding = encoder_.encode_pair(text, second, limit_, place);
        if (!encoding) return unexpected(encoding.error());
        auto prompt = prompt_of(*encoding);
        if (!prompt) return unexpected(prompt.error());
        if (plan_.work == Work::token_classify || plan_.work == Work::fill_mask) prompt->text = std::move(text);
        if (plan_.work == Work::token_classify) prompt->spans = std::move(encoding->spans);
        if (plan_.work == Work::fill_mask) {
            if (auto found = find_masks(place, *prompt); !found) return found;
        }
        return add(place, std::move(*prompt));
    }

    Done count_bytes(const std::string& place, std::size_t bytes) {
        bytes_ += bytes;
        if (bytes_ <= job_bytes_max) return {};
        return unexpected(error_at(ErrorCode::job_too_large, place,
                                   fmt::format("the job's texts have more than {} bytes, counted as often as they are read: "
                                               "shorten the text that is read with each of the others, or split the job",
                                               job_bytes_max)));
    }

    // Takes the encoding's ids and types.
    Expected<TokenizedPrompt, JobError> prompt_of(engine::Encoding& encoding) const {
        TokenizedPrompt prompt{.text = {}, .tokens = std::move(encoding.ids)};
        if (config_.token_types <= 1 || !encoder_.tokenizer().gives_types()) return prompt;
        if (std::ranges::any_of(encoding.types, [&](std::int32_t type) { return type >= config_.token_types; })) {
            return unexpected(
                error_at(ErrorCode::unsupported_by_model, "model",
                         fmt::format("the tokenizer gives token types that the model does not have; it has {}", config_.token_types)));
        }
        prompt.types = std::move(encoding.types);
        return prompt;
    }

    Done find_masks(const std::string& place, TokenizedPrompt& prompt) const {
        const auto mask = encoder_.tokenizer().mask_token();
        if (!mask) {
            return unexpected(error_at(ErrorCode::unsupported_by_model, "model",
                                       "this model's tokenizer has no mask token: add \"mask_token\" to its tokenizer_config.json"));
        }
        for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
            if (prompt.tokens[i] == *mask) prompt.mask_positions.push_back(static_cast<std::int64_t>(i));
        }
        if (!prompt.mask_positions.empty()) return {};
        return unexpected(error_at(ErrorCode::invalid_value, place,
                                   fmt::format("field '{}' has no mask token; write {} where the model fills in a word", place,
                                               encoder_.tokenizer().token_spelling(*mask))));
    }

    // Token ids have no special tokens to keep.
    std::vector<engine::TokenId> cut(std::vector<engine::TokenId> ids) const {
        if (!limit_ || ids.size() <= limit_->max_tokens) return ids;
        const auto surplus = static_cast<std::ptrdiff_t>(ids.size() - limit_->max_tokens);
        switch (limit_->side) {
            case engine::TruncationSide::right: ids.erase(ids.end() - surplus, ids.end()); break;
            case engine::TruncationSide::left: ids.erase(ids.begin(), ids.begin() + surplus); break;
        }
        return ids;
    }

    Done add(std::string_view place, TokenizedPrompt prompt) {
        const auto tokens = std::ssize(prompt.tokens);
        if (tokens == 0) return unexpected(error_at(ErrorCode::empty_prompt, place, fmt::format("field '{}' has no tokens", place)));
        if (tokens > text_max_) {
            const bool is_whole = plan_.work == Work::fill_mask || plan_.renders_pairs;
            return unexpected(error_at(ErrorCode::context_length_exceeded, place,
                                       fmt::format("{}; field '{}' has {}: shorten it{}", limit_text(), place, tokens,
                                                   is_whole ? "" : ", or give 'truncate_prompt_tokens': -1 (for a table, --truncate)")));
        }
        if (config_.padding_id && std::ranges::find(prompt.tokens, *config_.padding_id) != prompt.tokens.end()) {
            return unexpected(error_at(ErrorCode::invalid_value, place,
                                       fmt::format("field '{}' has the padding token {}, which has no position in this model; leave it out",
                                                   place, encoder_.tokenizer().token_spelling(*config_.padding_id))));
        }
        tokens_ += prompt.tokens.size();
        prompts_.push_back(std::move(prompt));
        return {};
    }

    // Of what text_max_ is the limit.
    std::string limit_text() const {
        return text_max_ < encoder_.context_max() ? fmt::format("this model pools up to {} tokens of a text (step_tokens)", text_max_)
                                                  : fmt::format("this model takes {} tokens", text_max_);
    }

    const TextEncoder& encoder_;
    const ModelConfig& config_;
    const std::int64_t text_max_;
    const std::optional<PairTemplate>& pairs_;
    ReplyPlan& plan_;
    const std::string_view field_;
    std::optional<EncodeLimit> limit_;
    std::vector<TokenizedPrompt> prompts_;
    std::size_t bytes_ = 0;   // tokenized so far
    std::size_t tokens_ = 0;  // of prompts_
};

}  // namespace

std::optional<JobError> error_of_embedding(const schema::PoolingFields& fields, const engine::EmbedderConfig& embedder) {
    if (fields.dimensions && *fields.dimensions > embedder.dimensions) {
        return error_at(ErrorCode::invalid_value, "dimensions",
                        fmt::format("field 'dimensions' is {}; this model allows 1 to {}", *fields.dimensions, embedder.dimensions));
    }
    if (!fields.prompt_name || find_prompt(embedder, *fields.prompt_name) != nullptr) return std::nullopt;
    std::vector<std::string_view> names;
    for (const auto& [known, text] : embedder.prompts) names.emplace_back(known);
    return error_at(
        ErrorCode::invalid_value, "prompt_name",
        fmt::format("the model has no prompt '{}'; {}", *fields.prompt_name,
                    names.empty() ? "it has none: put it before the texts" : fmt::format("it has: {}", fmt::join(names, ", "))));
}

Expected<std::vector<TokenizedPrompt>, JobError> pooled_prompts(const TextEncoder& encoder, const ModelConfig& config,
                                                                std::int64_t text_max, const std::optional<PairTemplate>& pairs,
                                                                std::optional<std::string> chat, ReplyPlan& plan) {
    Maker maker(encoder, config, text_max, pairs, plan);
    if (auto made = maker.make(std::move(chat)); !made) return unexpected(made.error());
    return maker.take();
}

JobWeight pooled_weight_of(const ReplyPlan& plan, const ModelConfig& config, const TokenizedPrompt& prompt) {
    const auto tokens = std::ssize(prompt.tokens);
    const std::int64_t of_base = config.labels != nullptr ? std::ssize(config.labels->names) : labels_expected;
    const std::int64_t labels = plan.model.head ? plan.model.head->labels : of_base;
    constexpr std::int64_t value_bytes = sizeof(float);
    JobWeight weight{.requests = 1, .rows = tokens, .tokens = tokens};
    const auto pooling = pooling_of(plan.work);
    CHECK(pooling, "the work of pooled prompts has a PoolingTask");
    switch (*pooling) {
        case engine::PoolingTask::embed: weight.bytes = config.embedder->dimensions * value_bytes; break;
        case engine::PoolingTask::classify: weight.bytes = labels * value_bytes; break;
        case engine::PoolingTask::token_classify:
            weight.bytes = tokens * (labels * value_bytes + static_cast<std::int64_t>(sizeof(engine::TokenSpan)));
            break;
        case engine::PoolingTask::fill_mask:
            weight.bytes =
                std::ssize(prompt.mask_positions) *
                (static_cast<std::int64_t>(sizeof(engine::TokenLogprobs)) +
                 plan.job.pooling.top_k * (static_cast<std::int64_t>(sizeof(kernels::TokenLogprob)) + tokens * fill_token_bytes));
            break;
    }
    weight.bytes += request_bytes + tokens * token_bytes;
    return weight;
}

void add_pooling(PreparedJob& prepared, const engine::Request& common, std::vector<TokenizedPrompt> prompts) {
    ReplyPlan& plan = prepared.plan;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        TokenizedPrompt& prompt = prompts[i];
        engine::Request request = common;
        request.id = i;
        request.prompt = prompt.tokens;
        request.token_types = std::move(prompt.types);
        request.pooling = pooling_of(plan.work);
        RequestPlace place{.prompt = static_cast<std::int32_t>(i)};
        if (prompt.window) {
            place.prompt = prompt.window->text;
            place.weight = prompt.window->new_tokens;
        }
        if (plan.work == Work::zero_shot) {
            place.prompt = static_cast<std::int32_t>(i / plan.job.choices.size());
            place.choice = static_cast<std::int32_t>(i % plan.job.choices.size());
        }
        if (plan.work == Work::fill_mask) {
            request.mask_positions = prompt.mask_positions;
            request.score_top = plan.job.pooling.top_k;
        }
        if (plan.work == Work::fill_mask || plan.work == Work::token_classify) plan.texts.push_back(std::move(prompt));
        prepared.requests.push_back(std::move(request));
        plan.places.push_back(place);
    }
}

}  // namespace lorry::consumer
