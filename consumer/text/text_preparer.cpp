// Renders, tokenizes and checks a job's prompts, then writes the requests that its work takes; pooled_prompts.cpp does it for pooling.
#include "consumer/text/text_preparer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <new>
#include <random>

#include "consumer/pooled_prompts.h"

namespace lorry::consumer {
namespace {

using engine::Request;
using engine::TokenId;
using schema::ErrorCode;
using schema::JobError;

// The field of the body that holds the prompt.
std::string_view prompt_field(const schema::Job& job) {
    if (std::holds_alternative<schema::ChatPrompt>(job.prompt)) return "messages";
    return schema::row_of(job.endpoint).prompt_field;
}

// Equal for every delivery of a job, so that each draws the same tokens.
std::uint64_t seed_of(const schema::Job& job, std::uint64_t index) {
    const std::uint64_t seed = job.sampling.seed ? *job.sampling.seed : XXH3_64bits(job.id.data(), job.id.size());
    return XXH3_64bits_withSeed(&index, sizeof index, seed);
}

// Of one token's log-probability in a result, with so many alternatives.
std::int64_t entry_bytes(std::int64_t top) {
    return static_cast<std::int64_t>(sizeof(engine::TokenLogprobs)) + top * static_cast<std::int64_t>(sizeof(kernels::TokenLogprob));
}

// How many alternatives beside each prompt token its job asks for, in an echo or in prompt_logprobs; nullopt: prompts are not scored.
std::optional<std::int32_t> score_top_of(const schema::Job& job) {
    const auto of_echo = job.echo ? job.sampling.logprobs : std::nullopt;
    return std::max(of_echo, job.prompt_logprobs);  // nullopt is less than any number
}

Expected<engine::GrammarCompiler::Shared, JobError> taken(const schema::Structure& structure, engine::GrammarCompiler::Result compiled) {
    if (compiled) return *std::move(compiled);
    const std::string& field = structure.field;
    return unexpected(error_at(ErrorCode::invalid_structure, field, fmt::format("field '{}' cannot be used: {}", field, compiled.error())));
}

// The text up to the end of its last message, which the answer goes on with: as transformers' continue_final_message. nullopt: it lacks
// the message.
std::optional<std::string> continued_text(const std::string& rendered, const std::string& message) {
    constexpr std::string_view white_space = " \t\r\n\v\f";
    const std::size_t first = std::min(message.size(), message.find_first_not_of(white_space));
    const std::string words = message.substr(first, message.find_last_not_of(white_space) + 1 - first);
    const std::size_t begin = rendered.rfind(words);
    if (begin == std::string::npos) return std::nullopt;
    // Templates may cut white space off.
    const bool is_whole = rendered.compare(begin, message.size(), message) == 0;
    return rendered.substr(0, begin + (is_whole ? message.size() : words.size()));
}

void keep_end(std::vector<TokenId>& tokens, std::optional<std::int64_t> most) {
    if (most && std::ssize(tokens) > *most) tokens.erase(tokens.begin(), tokens.end() - *most);
}

std::uint64_t random_key() {
    std::random_device device;
    return (std::uint64_t{device()} << 32U) | device();
}

}  // namespace

TextPreparer::TextPreparer(const engine::Tokenizer& tokenizer, std::optional<engine::ChatTemplate> chat_template,
                           const engine::ModelConfig& config, PreparerOptions options, engine::GrammarCache& cache)
    : TextPreparer(nullptr, tokenizer, std::move(chat_template), config, std::move(options), cache, config.vocabulary) {}

TextPreparer::TextPreparer(std::shared_ptr<const engine::ModelText> own, const engine::ModelConfig& config, PreparerOptions options,
                           engine::GrammarCache& cache, std::optional<std::int64_t> vocabulary)
    : TextPreparer(own, own->tokenizer, own->chat_template, config, std::move(options), cache, vocabulary.value_or(config.vocabulary)) {}

TextPreparer::TextPreparer(const TextPreparer& other, std::int64_t vocabulary)
    : TextPreparer(other.own_, other.tokenizer_, other.chat_template_, other.config_, other.options_, other.cache_, vocabulary) {}

TextPreparer::TextPreparer(std::shared_ptr<const engine::ModelText> own, const engine::Tokenizer& tokenizer,
                           std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config, PreparerOptions options,
                           engine::GrammarCache& cache, std::int64_t vocabulary)
    : own_(std::move(own)),
      tokenizer_(tokenizer),
      vocabulary_(vocabulary),
      encoder_(tokenizer, vocabulary, options.context_max),
      chat_template_(std::move(chat_template)),
      config_(config),
      options_(std::move(options)),
      answers_(encoder_, chat_template_ ? chat_template_->source() : std::string_view(), vocabulary, options_.reasoning_parser,
               options_.tool_parser),
      end_tokens_(tokenizer.end_tokens(config.eos_ids, vocabulary)),
      prefix_key_(random_key()),
      cache_(cache),
      grammars_(tokenizer, vocabulary, end_tokens_, &cache) {
    if (config.token_score) pairs_.emplace(chat_template_, *config.token_score);
}

Expected<TokenizedJob, RefusedJob> TextPreparer::tokenize(schema::Job job, ModelName model,
                                                          const engine::GrammarThread::Ordered& grammar) const {
    TokenizedJob tokenized;
    tokenized.plan.job = std::move(job);
    tokenized.plan.model = std::move(model);
    tokenized.plan.text = own_;
    auto filled = fill_or_refuse(tokenized, grammar);
    if (!filled) return unexpected(RefusedJob{.job = std::move(tokenized.plan.job), .error = std::move(filled.error())});
    return tokenized;
}

// A job for whose text there is no memory fails alone: what it took is free again.
Expected<void, JobError> TextPreparer::fill_or_refuse(TokenizedJob& tokenized, const engine::GrammarThread::Ordered& grammar) const {
    try {
        return fill(tokenized, grammar);
    } catch (const std::bad_alloc&) {
        return unexpected(error_at(ErrorCode::job_too_large, "",
                                   "there was no memory for the job's text and tokens: shorten it, or give the worker more memory"));
    }
}

Expected<void, JobError> TextPreparer::fill(TokenizedJob& tokenized, const engine::GrammarThread::Ordered& grammar) const {
    ReplyPlan& plan = tokenized.plan;
    const auto work = work_of(plan.job, plan.model, config_);
    if (!work) return unexpected(work.error());
    plan.work = *work;
    auto prompts = prompts_of(plan);
    if (!prompts) return unexpected(prompts.error());
    plan.job.sampling.fill_in(config_.sampling_defaults);
    const schema::Sampling& sampling = plan.job.sampling;
    if (auto valid = encoder_.check_tokens(sampling.stop_token_ids, "stop_token_ids"); !valid) return valid;
    for (const auto& [token, bias] : sampling.logit_bias) {
        if (auto valid = encoder_.check_tokens({token}, "logit_bias"); !valid) return valid;
    }
    if (plan.work == Work::score_choices) {
        auto choices = choice_tokens(plan.job.choices);
        if (!choices) return unexpected(choices.error());
        plan.choices = std::move(*choices);
    }
    if (std::holds_alternative<schema::ChatPrompt>(plan.job.prompt) && plan.work == Work::draw) {
        auto answer = answers_.plan(plan.job, prompts->front().text);
        if (!answer) return unexpected(answer.error());
        plan.answer = std::move(*answer);
    }
    if (sampling.allowed_token_ids) {
        if (auto valid = encoder_.check_tokens(*sampling.allowed_token_ids, "allowed_token_ids"); !valid) return valid;
    }
    auto bad_words = bad_words_of(plan.job.sampling.bad_words);
    if (!bad_words) return unexpected(bad_words.error());
    tokenized.bad_words = std::move(*bad_words);
    auto compiled = grammar == nullptr ? compile(plan.job) : taken(grammar->structure, grammar->result.get());
    if (!compiled) return unexpected(std::move(compiled.error()));
    tokenized.grammar = std::move(*compiled);
    std::int64_t choice_tokens = 0;
    for (const auto& choice : plan.choices) choice_tokens += std::ssize(choice);
    for (const Prompt& prompt : *prompts) {
        if (!pooling_of(plan.work)) {  // those are checked where they are made
            if (auto fits = check_length(plan, prompt); !fits) return fits;
        }
        plan.prompt_tokens += std::ssize(prompt.tokens) + choice_tokens;
        tokenized.weight += weight_of(plan, prompt);
    }
    if (tokenized.grammar != nullptr) {
        const engine::Grammar::Size size = tokenized.grammar->size();
        const std::int64_t answers = std::ssize(*prompts) * plan.job.n;
        tokenized.weight.bytes +=
            static_cast<std::int64_t>(size.bytes) + answers * (static_cast<std::int64_t>(size.answer_bytes) + answer_growth_bytes);
    }
    tokenized.prompts = std::move(*prompts);
    return {};
}

// Null: the job's answers may be anything.
Expected<engine::GrammarCompiler::Shared, JobError> TextPreparer::compile(const schema::Job& job) const {
    const auto structure = answers_.structure_of(job);
    if (!structure) return unexpected(structure.error());
    if (!*structure) return nullptr;
    return taken(**structure, grammars_.compile(**structure));
}

std::optional<std::int64_t> TextPreparer::tokens_allowed(const schema::Job& job) const {
    if (job.sampling.max_tokens) return *job.sampling.max_tokens;
    const auto generation = schema::row_of(job.endpoint).generation;
    const auto of_endpoint = generation ? generation->max_tokens_default : std::nullopt;
    if (!of_endpoint || !config_.max_new_tokens) return of_endpoint ? std::optional<std::int64_t>(*of_endpoint) : config_.max_new_tokens;
    return std::min<std::int64_t>(*of_endpoint, *config_.max_new_tokens);
}

std::optional<std::int64_t> TextPreparer::prompt_tokens_max(const schema::Job& job) const {
    if (!job.prompt_truncation) return std::nullopt;
    const std::int64_t room = std::max<std::int64_t>(1, options_.context_max - job.sampling.max_tokens.value_or(1));
    return job.prompt_truncation->tokens.value_or(room);
}

std::int64_t TextPreparer::max_tokens_of(const schema::Job& job, std::int64_t prompt_tokens) const {
    if (job.sampling.max_tokens) return *job.sampling.max_tokens;
    const std::int64_t room = options_.context_max - prompt_tokens;
    return std::min(tokens_allowed(job).value_or(room), room);
}

// One prompt's part of the job's weight.
JobWeight TextPreparer::weight_of(const ReplyPlan& plan, const Prompt& prompt) const {
    if (pooling_of(plan.work)) return pooled_weight_of(plan, config_, prompt);
    JobWeight weight = plan.work == Work::draw ? weight_of_drawing(plan.job, prompt) : weight_of_scoring(plan, prompt);
    weight.bytes += weight.requests * request_bytes + weight.tokens * token_bytes;
    return weight;
}

JobWeight TextPreparer::weight_of_drawing(const schema::Job& job, const Prompt& prompt) const {
    const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
    const std::int64_t drawn = max_tokens_of(job, tokens);
    JobWeight weight{.requests = job.n, .rows = tokens, .tokens = job.n * (tokens + drawn)};
    std::int64_t repeated = job.echo ? job.n * static_cast<std::int64_t>(prompt.text.size()) : 0;  // bytes of the reply
    if (job.sampling.logprobs) {
        const std::int64_t top = *job.sampling.logprobs;
        weight.bytes += job.n * drawn * entry_bytes(top);
        if (job.echo) repeated += job.n * tokens * (1 + top) * reply_logprob_bytes;
    }
    if (const auto top = score_top_of(job)) weight.bytes += tokens * entry_bytes(*top);
    if (job.prompt_logprobs) {
        const bool each = schema::row_of(job.endpoint).generation->shape == schema::TextShape::text;  // choice has the list
        repeated += (each ? job.n : 1) * tokens * (1 + *job.prompt_logprobs) * reply_prompt_logprob_bytes;
    }
    weight.bytes += repeated * reply_memory_factor;
    // The mask of what may be drawn, of the job and of each sequence.
    if (job.sampling.allowed_token_ids || !job.sampling.bad_words.empty()) weight.bytes += (1 + job.n) * vocabulary_ / 8;
    return weight;
}

JobWeight TextPreparer::weight_of_scoring(const ReplyPlan& plan, const Prompt& prompt) const {
    const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
    JobWeight weight{.requests = 1, .rows = tokens, .tokens = tokens};
    weight.bytes = std::ssize(plan.choices) * (static_cast<std::int64_t>(sizeof(engine::TokenId)) + entry_bytes(0));
    for (const auto& choice : plan.choices) {
        if (choice.size() == 1) continue;
        const auto more = static_cast<std::int64_t>(choice.size());
        ++weight.requests;
        weight.rows += more;
        weight.tokens += tokens + more;
        weight.bytes += more * entry_bytes(0);
    }
    return weight;
}

Expected<void, JobError> TextPreparer::check_length(const ReplyPlan& plan, const Prompt& prompt) const {
    if (prompt.tokens.empty()) {
        return unexpected(
            error_at(ErrorCode::empty_prompt, prompt_field(plan.job), "the prompt has no tokens; give at least one character"));
    }
    const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
    std::int64_t wanted = plan.work == Work::draw ? plan.job.sampling.max_tokens.value_or(1) : 0;
    for (const auto& choice : plan.choices) wanted = std::max(wanted, static_cast<std::int64_t>(choice.size()));
    if (tokens + wanted <= options_.context_max) return {};
    return unexpected(error_at(ErrorCode::context_length_exceeded, prompt_field(plan.job),
                               "this model and its KV cache hold " + std::to_string(options_.context_max) + " tokens; the prompt has " +
                                   std::to_string(tokens) + " and " + std::to_string(wanted) +
                                   " more were asked for: shorten the prompt or ask for less"));
}

Expected<std::string, JobError> TextPreparer::prompt_text(const ReplyPlan& plan) const {
    const schema::Job& job = plan.job;
    if (const auto* chat = std::get_if<schema::ChatPrompt>(&job.prompt)) return render(*chat);
    const schema::TextPrompt& first = std::get<std::vector<schema::TextPrompt>>(job.prompt).front();
    if (const auto* text = std::get_if<std::string>(&first)) {
        if (!plan.renders_pairs) return *text;
        return pairs_->render({.query = *text, .document = job.pooling.second_texts.front(), .instruction = job.pooling.instruction});
    }
    return tokenizer_.decode(std::get<std::vector<std::int32_t>>(first), false);
}

Expected<std::string, JobError> TextPreparer::render(const schema::ChatPrompt& chat) const {
    if (!chat_template_) {
        return unexpected(error_at(ErrorCode::no_chat_template, "messages",
                                   "this model has no chat template; use /v1/completions, or add chat_template.jinja to its folder"));
    }
    auto text = chat_template_->render({.messages_json = answers_.messages_of(chat),
                                        .tools_json = chat.tools,
                                        .add_generation_prompt = chat.add_generation_prompt,
                                        .extra_json = chat.template_options});
    if (!text) return unexpected(error_at(ErrorCode::chat_template_failed, "messages", "the chat template failed: " + text.error()));
    if (!chat.continued) return *text;
    auto continued = continued_text(*text, *chat.continued);
    if (continued) return std::move(*continued);
    return unexpected(error_at(
        ErrorCode::chat_template_failed, "continue_final_message",
        "the chat template changes the text of the last message, so the answer cannot continue it; leave 'continue_final_message' out"));
}

// To a text, the job may add special tokens, or none; of a prompt that is too long, it may keep the end.
Expected<std::vector<TokenId>, JobError> TextPreparer::encode_prompt(const schema::Job& job, std::string_view text, bool adds_special,
                                                                     std::string_view field) const {
    const bool adds = job.add_special_tokens.value_or(adds_special);
    const auto most = prompt_tokens_max(job);
    if (adds && most) {  // special tokens stay, as in vLLM: the text between them loses its beginning
        auto encoding = encoder_.encode_pair(
            text, std::nullopt, engine::EncodeLimit{.max_tokens = static_cast<std::size_t>(*most), .side = engine::TruncationSide::left},
            field);
        if (!encoding) return unexpected(encoding.error());
        return std::move(encoding->ids);
    }
    auto tokens = encoder_.encode(text, adds, field);
    if (tokens) keep_end(*tokens, most);
    return tokens;
}

std::int64_t TextPreparer::text_max_of(engine::PoolingTask task) const {
    if (!options_.whole_max || !engine::reads_whole_text(task, config_)) return options_.context_max;
    return std::min(*options_.whole_max, options_.context_max);
}

Expected<std::vector<TokenizedPrompt>, JobError> TextPreparer::prompts_of(ReplyPlan& plan) const {
    std::optional<std::string> chat;
    if (const auto* messages = std::get_if<schema::ChatPrompt>(&plan.job.prompt)) {
        auto text = render(*messages);
        if (!text) return unexpected(text.error());
        chat = std::move(*text);
    }
    if (const auto task = pooling_of(plan.work))
        return pooled_prompts(encoder_, config_, text_max_of(*task), pairs_, std::move(chat), plan);
    if (!chat) return texts_of(plan.job);
    // The template wrote the special tokens already.
    auto tokens = encode_prompt(plan.job, *chat, false, "messages");
    if (!tokens) return unexpected(tokens.error());
    return std::vector<Prompt>{{.text = *std::move(chat), .tokens = std::move(*tokens)}};
}

Expected<std::vector<TokenizedPrompt>, JobError> TextPreparer::texts_of(const schema::Job& job) const {
    std::vector<Prompt> prompts;
    const std::string_view field = prompt_field(job);
    const auto& texts = std::get<std::vector<schema::TextPrompt>>(job.prompt);
    for (const schema::TextPrompt& prompt : texts) {
        if (const auto* text = std::get_if<std::string>(&prompt)) {
            auto tokens = encode_prompt(job, *text, true, field);
            if (!tokens) return unexpected(tokens.error());
            const bool is_cut = job.echo && job.prompt_truncation;
            prompts.push_back({.text = is_cut ? tokenizer_.decode(*tokens, false) : *text, .tokens = std::move(*tokens)});
        } else {
            std::vector<std::int32_t> ids = std::get<std::vector<std::int32_t>>(prompt);
            if (auto valid = encoder_.check_tokens(ids, field); !valid) return unexpected(valid.error());
            keep_end(ids, prompt_tokens_max(job));
            prompts.push_back({.text = job.echo ? tokenizer_.decode(ids, false) : std::string(), .tokens = std::move(ids)});
        }
    }
    return prompts;
}

Expected<ChoiceTokens, JobError> TextPreparer::choice_tokens(const std::vector<std::string>& choices) const {
    const std::lock_guard lock(choices_mutex_);
    if (choices == last_choices_) return last_choice_tokens_;
    ChoiceTokens tokens;
    for (const std::string& choice : choices) {
        auto encoded = encoder_.encode(choice, false, "choices");
        if (!encoded) return unexpected(encoded.error());
        if (encoded->empty()) return unexpected(error_at(ErrorCode::empty_choice, "choices", "a choice has no tokens"));
        tokens.push_back(std::move(*encoded));
    }
    last_choices_ = choices;
    last_choice_tokens_ = tokens;
    return tokens;
}

// Spelled alone and after a space, as in vLLM.
Expected<std::vector<std::vector<TokenId>>, JobError> TextPreparer::bad_words_of(const std::vector<std::string>& words) const {
    if (words.empty()) return std::vector<std::vector<TokenId>>();
    const std::lock_guard lock(bad_words_mutex_);
    if (words == last_bad_words_) return last_spellings_;
    std::vector<std::vector<TokenId>> spellings;
    for (const std::string& word : words) {
        const std::string bare = word.substr(std::min(word.size(), word.find_first_not_of(" \t\r\n")));
        auto alone = encoder_.encode(bare, false, "bad_words");
        if (!alone) return unexpected(alone.error());
        if (alone->empty()) return unexpected(error_at(ErrorCode::invalid_value, "bad_words", "a word of 'bad_words' has no tokens"));
        auto spaced = encoder_.encode(" " + bare, false, "bad_words");
        if (!spaced) return unexpected(spaced.error());
        const bool differs = spaced->size() == alone->size() && spaced->front() != alone->front();
        spellings.push_back(std::move(*alone));
        if (differs) spellings.push_back(std::move(*spaced));
    }
    last_bad_words_ = words;
    last_spellings_ = spellings;
    return spellings;
}

// What may be drawn at any place.
std::vector<std::uint32_t> TextPreparer::allowed_of(const TokenizedJob& tokenized) const {
    const schema::Sampling& sampling = tokenized.plan.job.sampling;
    const bool thinks = AnswerPlanner::depends_on_thought(tokenized.plan.job, tokenized.plan.answer, tokenized.grammar != nullptr);
    if (!sampling.allowed_token_ids && tokenized.bad_words.empty() && !thinks) return {};
    constexpr std::size_t word_bits = 32;
    const auto size = static_cast<std::size_t>(vocabulary_);
    std::vector<std::uint32_t> allowed((size + word_bits - 1) / word_bits, sampling.allowed_token_ids ? 0U : ~0U);
    if (!sampling.allowed_token_ids && size % word_bits != 0) allowed.back() = (1U << (size % word_bits)) - 1;
    const auto bit_of = [](std::size_t token) { return 1U << (token % word_bits); };
    for (const TokenId token : sampling.allowed_token_ids.value_or(std::vector<TokenId>())) {
        allowed[static_cast<std::size_t>(token) / word_bits] |= bit_of(static_cast<std::size_t>(token));
    }
    for (const std::vector<TokenId>& word : tokenized.bad_words) {
        const auto token = static_cast<std::size_t>(word.front());
        if (word.size() == 1) allowed[token / word_bits] &= ~bit_of(token);
    }
    return allowed;
}

// One for all of the job's requests.
engine::SharedDrawing TextPreparer::drawing_of(const TokenizedJob& tokenized) const {
    const schema::Job& job = tokenized.plan.job;
    if (!schema::row_of(job.endpoint).generation) return engine::default_drawing();
    engine::Drawing drawing{.tokenizer = own_ == nullptr ? nullptr : std::shared_ptr<const engine::Tokenizer>(own_, &own_->tokenizer),
                            .sampling = job.sampling,
                            .grammar = tokenized.grammar,
                            .allowed = allowed_of(tokenized),
                            .thinking = answers_.thinking_of(job, tokenized.plan.answer)};
    for (const auto& word : tokenized.bad_words) {
        if (word.size() > 1) drawing.bad_words.push_back(word);
    }
    drawing.shown_tokens = answers_.shown_tokens_of(tokenized.plan.answer);
    for (const auto& [token, bias] : job.sampling.logit_bias) drawing.logit_bias.push_back({token, bias});
    // Where a grammar lets an answer end, an end token ends it.
    if (!job.sampling.ignore_eos || drawing.grammar != nullptr) {
        drawing.end_tokens = end_tokens_;
        for (const TokenId token : answers_.end_tokens_of(tokenized.plan.answer)) {
            if (std::ranges::find(end_tokens_, token) == end_tokens_.end()) drawing.end_tokens.push_back(token);
        }
    }
    drawing.end_tokens.insert(drawing.end_tokens.end(), job.sampling.stop_token_ids.begin(), job.sampling.stop_token_ids.end());
    return engine::shared(std::move(drawing));
}

// Jobs of the same tenant and cache_salt share prefixes. The key is secret, so that nobody can choose a salt that gives the scope of
// another tenant.
engine::BlockHash TextPreparer::prefix_scope_of(const schema::Job& job) const {
    const std::string_view tenant = options_.share_prefixes ? std::string_view() : job.tenant;
    const std::string text = fmt::format("{}/{}{}", tenant.size(), tenant, job.cache_salt);
    const XXH128_hash_t hash = XXH3_128bits_withSeed(text.data(), text.size(), prefix_key_);
    return {.low = hash.low64, .high = hash.high64};
}

PreparedJob TextPreparer::expand(TokenizedJob tokenized, bool large) const {
    const engine::SharedDrawing drawing = drawing_of(tokenized);
    PreparedJob prepared{.plan = std::move(tokenized.plan)};
    ReplyPlan& plan = prepared.plan;
    Request common{.prefix_scope = prefix_scope_of(plan.job),
                   .drawing = drawing,
                   .priority = plan.job.priority,
                   .tenant = plan.job.tenant,
                   .large = large};
    if (plan.model.kind == ModelName::Kind::adapter) {
        common.adapter = engine::AdapterSource{.hash = plan.model.hash, .folder = plan.model.folder, .vocabulary = plan.model.vocabulary};
    }
    if (pooling_of(plan.work)) {
        add_pooling(prepared, common, std::move(tokenized.prompts));
        return prepared;
    }
    std::int32_t index = 0;
    for (Prompt& prompt : tokenized.prompts) {
        if (plan.job.echo) plan.echo.push_back({.text = std::move(prompt.text), .first = prompt.tokens.front()});
        Request request = common;
        request.id = prepared.requests.size();
        request.prompt = std::move(prompt.tokens);
        if (plan.work == Work::draw) {
            add_generation(prepared, std::move(request), index);
        } else {
            add_choices(prepared, std::move(request), index);
        }
        ++index;
    }
    return prepared;
}

void TextPreparer::add_generation(PreparedJob& prepared, Request request, std::int32_t index) const {
    const schema::Job& job = prepared.plan.job;
    const auto tokens = static_cast<std::int64_t>(request.prompt.size());
    request.max_tokens = max_tokens_of(job, tokens);
    request.tokens_allowed = tokens_allowed(job).value_or(std::numeric_limits<std::int32_t>::max());
    request.stream = job.stream;
    if (const auto top = score_top_of(job)) {
        request.score_begin = 0;
        request.score_top = *top;
        request.score_ranks = job.prompt_logprobs.has_value();
    }
    const engine::RequestId leader = request.id;
    for (std::int32_t sample = 0; sample < job.n; ++sample) {
        Request one = request;
        one.id = leader + static_cast<engine::RequestId>(sample);
        one.seed = seed_of(job, static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(job.n) + static_cast<std::uint64_t>(sample));
        if (sample > 0) {
            one.fork = engine::Fork{.leader = leader, .tokens = tokens - 1};
            one.score_begin.reset();  // the first sample's scores are used for all
        }
        prepared.requests.push_back(std::move(one));
        prepared.plan.places.push_back({.prompt = index, .sample = sample, .choice = -1});
    }
}

void TextPreparer::add_choices(PreparedJob& prepared, Request request, std::int32_t index) const {
    const engine::RequestId leader = request.id;
    const auto tokens = static_cast<std::int64_t>(request.prompt.size());
    Request first = request;
    for (const auto& choice : prepared.plan.choices) first.final_targets.push_back(choice.front());
    prepared.requests.push_back(std::move(first));
    prepared.plan.places.push_back({.prompt = index, .sample = 0, .choice = -1});

    for (std::size_t i = 0; i < prepared.plan.choices.size(); ++i) {
        const auto& choice = prepared.plan.choices[i];
        if (choice.size() == 1) continue;  // the prompt's request scores its only token
        Request rest = request;
        rest.id = prepared.requests.size();
        rest.prompt.insert(rest.prompt.end(), choice.begin(), choice.end());
        rest.score_begin = tokens;
        rest.fork = engine::Fork{.leader = leader, .tokens = tokens};
        prepared.requests.push_back(std::move(rest));
        prepared.plan.places.push_back({.prompt = index, .sample = 0, .choice = static_cast<std::int32_t>(i)});
    }
}

}  // namespace lorry::consumer
