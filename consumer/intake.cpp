// Jobs become requests.
#include "consumer/intake.h"

#include <xxhash.h>

#include <algorithm>

namespace lorry::consumer {
namespace {

using engine::Request;
using engine::TokenId;
using schema::Endpoint;
using schema::ErrorCode;
using schema::JobError;

JobError error_at(ErrorCode code, std::string param, std::string message) {
    return {.code = code, .param = std::move(param), .message = std::move(message)};
}

// The field of the body that holds what the tokens are made of.
const char* prompt_field(const schema::Job& job) {
    if (std::holds_alternative<schema::ChatPrompt>(job.prompt)) return "messages";
    return job.endpoint == Endpoint::classify ? "input" : "prompt";
}

// The same job gives the same tokens however often it is delivered.
std::uint64_t seed_of(const schema::Job& job, std::uint64_t index) {
    const std::uint64_t seed = job.sampling.seed ? *job.sampling.seed : XXH3_64bits(job.id.data(), job.id.size());
    return XXH3_64bits_withSeed(&index, sizeof index, seed);
}

}  // namespace

Intake::Intake(const engine::Tokenizer& tokenizer, std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config,
               IntakeLimits limits)
    : tokenizer_(tokenizer), chat_template_(std::move(chat_template)), config_(config), limits_(limits) {}

Expected<PreparedJob, JobError> Intake::prepare(schema::Job job, Epoch epoch, ModelName model) const {
    auto prompts = tokenize(job);
    if (!prompts) return unexpected(prompts.error());
    PreparedJob prepared{.job = std::move(job), .epoch = epoch, .model = std::move(model)};
    prepared.job.sampling.fill_in(config_.sampling_defaults);
    const schema::Sampling& sampling = prepared.job.sampling;
    if (auto valid = check_tokens(sampling.stop_token_ids, "stop_token_ids"); !valid) return unexpected(valid.error());
    for (const auto& [token, bias] : sampling.logit_bias) {
        if (auto valid = check_tokens({token}, "logit_bias"); !valid) return unexpected(valid.error());
    }
    if (prepared.job.endpoint == Endpoint::classify) {
        auto choices = choice_tokens(prepared.job.choices);
        if (!choices) return unexpected(choices.error());
        prepared.choices = std::move(*choices);
    }
    std::size_t longest_choice = 0;
    for (const auto& choice : prepared.choices) longest_choice = std::max(longest_choice, choice.size());

    for (std::size_t i = 0; i < prompts->size(); ++i) {
        const Prompt& prompt = (*prompts)[i];
        const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
        const bool draws = prepared.job.endpoint != Endpoint::classify && sampling.max_tokens.value_or(1) > 0;
        const std::int64_t wanted = draws ? sampling.max_tokens.value_or(1) : static_cast<std::int64_t>(longest_choice);
        if (tokens == 0)
            return unexpected(
                error_at(ErrorCode::empty_prompt, prompt_field(prepared.job), "the prompt has no tokens; give at least one character"));
        if (tokens + wanted > limits_.context_max) {
            return unexpected(error_at(ErrorCode::context_length_exceeded, prompt_field(prepared.job),
                                          "this model and its KV cache hold " + std::to_string(limits_.context_max) +
                                              " tokens; the prompt has " + std::to_string(tokens) + " and " + std::to_string(wanted) +
                                              " more were asked for: shorten the prompt or ask for less"));
        }
        prepared.prompt_tokens += tokens;
        if (prepared.job.echo) prepared.prompts.push_back(prompt.text);
        const auto index = static_cast<std::int32_t>(i);
        if (prepared.job.endpoint == Endpoint::classify) {
            add_classification(prepared, prompt, index);
        } else {
            add_generation(prepared, prompt, index);
        }
    }
    return prepared;
}

Expected<std::string, JobError> Intake::prompt_text(const schema::Job& job) const {
    if (const auto* chat = std::get_if<schema::ChatPrompt>(&job.prompt)) return render(*chat);
    const schema::TextPrompt& first = std::get<std::vector<schema::TextPrompt>>(job.prompt).front();
    if (const auto* text = std::get_if<std::string>(&first)) return *text;
    return tokenizer_.decode(std::get<std::vector<std::int32_t>>(first), false);
}

Expected<std::string, JobError> Intake::render(const schema::ChatPrompt& chat) const {
    if (!chat_template_) {
        return unexpected(error_at(ErrorCode::no_chat_template, "messages",
                                      "this model has no chat template; use /v1/completions, or add chat_template.jinja to its folder"));
    }
    auto text = chat_template_->render({.messages_json = chat.messages,
                                        .tools_json = chat.tools,
                                        .add_generation_prompt = chat.add_generation_prompt,
                                        .extra_json = chat.template_options});
    if (!text)
        return unexpected(error_at(ErrorCode::chat_template_failed, "messages", "the chat template refused the messages: " + text.error()));
    return *text;
}

Expected<std::vector<Intake::Prompt>, JobError> Intake::tokenize(const schema::Job& job) const {
    std::vector<Prompt> prompts;
    const char* const field = prompt_field(job);
    const auto add_text = [&](std::string text, bool add_special_tokens) -> Expected<void, JobError> {
        auto tokens = tokenizer_.encode(text, add_special_tokens);
        if (!tokens) return unexpected(error_at(ErrorCode::invalid_text, field, tokens.error()));
        // A tokenizer may know more tokens than the model.
        if (auto valid = check_tokens(*tokens, field); !valid) return unexpected(valid.error());
        prompts.push_back({std::move(text), std::move(*tokens)});
        return {};
    };
    if (const auto* chat = std::get_if<schema::ChatPrompt>(&job.prompt)) {
        auto text = render(*chat);
        if (!text) return unexpected(text.error());
        // The template has written the special tokens already.
        if (auto added = add_text(std::move(*text), false); !added) return unexpected(added.error());
        return prompts;
    }
    const auto& texts = std::get<std::vector<schema::TextPrompt>>(job.prompt);
    for (const schema::TextPrompt& prompt : texts) {
        if (const auto* text = std::get_if<std::string>(&prompt)) {
            if (auto added = add_text(*text, true); !added) return unexpected(added.error());
        } else {
            const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
            if (auto valid = check_tokens(ids, field); !valid) return unexpected(valid.error());
            prompts.push_back({job.echo ? tokenizer_.decode(ids, false) : std::string(), ids});
        }
    }
    return prompts;
}

Expected<void, JobError> Intake::check_tokens(const std::vector<std::int32_t>& ids, const char* field) const {
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= config_.vocabulary) {
            return unexpected(error_at(ErrorCode::unknown_token, field,
                "token id " + std::to_string(id) + " is not in the vocabulary of " + std::to_string(config_.vocabulary) + " tokens"));
        }
    }
    return {};
}

Expected<ChoiceTokens, JobError> Intake::choice_tokens(const std::vector<std::string>& choices) const {
    const std::lock_guard lock(choices_mutex_);
    if (choices == last_choices_) return last_choice_tokens_;
    ChoiceTokens tokens;
    for (const std::string& choice : choices) {
        auto encoded = tokenizer_.encode(choice, false);
        if (!encoded) return unexpected(error_at(ErrorCode::invalid_text, "choices", encoded.error()));
        if (encoded->empty()) return unexpected(error_at(ErrorCode::empty_choice, "choices", "a choice has no tokens"));
        if (auto valid = check_tokens(*encoded, "choices"); !valid) return unexpected(valid.error());
        tokens.push_back(std::move(*encoded));
    }
    last_choices_ = choices;
    last_choice_tokens_ = tokens;
    return tokens;
}

Request Intake::base_request(const PreparedJob& prepared, const Prompt& prompt) const {
    Request request;
    request.id = prepared.requests.size();
    request.prompt = prompt.tokens;
    if (prepared.model.kind == ModelName::Kind::adapter) {
        request.adapter = engine::AdapterSource{.hash = prepared.model.hash, .folder = prepared.model.folder};
    }
    request.sampling = prepared.job.sampling;
    request.priority = prepared.job.priority;
    return request;
}

void Intake::add_generation(PreparedJob& prepared, const Prompt& prompt, std::int32_t index) const {
    const schema::Job& job = prepared.job;
    const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
    Request request = base_request(prepared, prompt);
    const std::int64_t room = limits_.context_max - tokens;
    std::int64_t by_default = std::min(config_.max_new_tokens.value_or(room), room);
    if (job.endpoint == Endpoint::completions) by_default = std::min<std::int64_t>(schema::completions_max_tokens_default, by_default);
    request.max_tokens = job.sampling.max_tokens ? *job.sampling.max_tokens : by_default;
    request.stream = job.stream;
    for (const auto& [token, bias] : job.sampling.logit_bias) request.logit_bias.push_back({token, bias});
    if (!job.sampling.ignore_eos) request.end_tokens = config_.eos_ids;
    request.end_tokens.insert(request.end_tokens.end(), job.sampling.stop_token_ids.begin(), job.sampling.stop_token_ids.end());
    if (job.echo && job.sampling.logprobs) {
        request.score_begin = 0;
        request.score_top = *job.sampling.logprobs;
    }
    const engine::RequestId leader = request.id;
    for (std::int32_t sample = 0; sample < job.n; ++sample) {
        Request one = request;
        one.id = leader + static_cast<engine::RequestId>(sample);
        one.seed = seed_of(job, static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(job.n) + static_cast<std::uint64_t>(sample));
        if (sample > 0) {
            one.fork = engine::Fork{.leader = leader, .tokens = tokens - 1};
            one.score_begin.reset();  // the first sample's scores serve all
        }
        prepared.requests.push_back(std::move(one));
        prepared.places.push_back({.prompt = index, .sample = sample, .choice = -1});
    }
}

void Intake::add_classification(PreparedJob& prepared, const Prompt& prompt, std::int32_t index) const {
    Request request = base_request(prepared, prompt);
    request.sampling = {};
    const engine::RequestId leader = request.id;
    for (const auto& choice : prepared.choices) request.final_targets.push_back(choice.front());
    prepared.requests.push_back(std::move(request));
    prepared.places.push_back({.prompt = index, .sample = 0, .choice = -1});

    const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
    for (std::size_t i = 0; i < prepared.choices.size(); ++i) {
        const auto& choice = prepared.choices[i];
        if (choice.size() == 1) continue;  // its only token is scored by the prompt's request
        Request rest = base_request(prepared, prompt);
        rest.sampling = {};
        rest.prompt.insert(rest.prompt.end(), choice.begin(), choice.end());
        rest.score_begin = tokens;
        rest.fork = engine::Fork{.leader = leader, .tokens = tokens};
        prepared.requests.push_back(std::move(rest));
        prepared.places.push_back({.prompt = index, .sample = 0, .choice = static_cast<std::int32_t>(i)});
    }
}

}  // namespace lorry::consumer
