// From a job to the engine's requests, with the text of one model or adapter: chat template, tokenization, limits, seeds. Made and called
// by preparer.h. All methods may run on any thread at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/pair_template.h"
#include "consumer/plan.h"
#include "consumer/text/answer_planner.h"
#include "consumer/text/text_encoder.h"
#include "engine/model/model_config.h"
#include "engine/text/chat_template.h"
#include "engine/text/grammar_thread.h"
#include "engine/text/model_text.h"
#include "engine/text/tokenizer.h"

namespace lorry::consumer {

struct PreparerOptions {
    std::int64_t context_max = 0;           // prompt and drawn tokens together
    std::optional<std::int64_t> whole_max;  // of a text that one step must compute; nullopt: context_max
    bool share_prefixes = false;            // between tenants
    std::string reasoning_parser = "auto";  // which formats the model has (answer/formats.h)
    std::string tool_parser = "auto";
    const engine::ModelTexts* texts = nullptr;  // where a Preparer finds adapters' own; outlives it. nullptr: they use the base's
};

class TextPreparer {
public:
    // tokenizer, config and cache outlive the preparer; chat_template may be absent, then chats are refused.
    TextPreparer(const engine::Tokenizer& tokenizer, std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config,
                 PreparerOptions options, engine::GrammarCache& cache);
    // With the text of an adapter, which its jobs share. Not null. vocabulary: of the adapter; nullopt: the model's.
    TextPreparer(std::shared_ptr<const engine::ModelText> own, const engine::ModelConfig& config, PreparerOptions options,
                 engine::GrammarCache& cache, std::optional<std::int64_t> vocabulary);
    // With the text of `other`, for an adapter with another vocabulary.
    TextPreparer(const TextPreparer& other, std::int64_t vocabulary);

    // As Preparer's.
    Expected<TokenizedJob, RefusedJob> tokenize(schema::Job job, ModelName model, const engine::GrammarThread::Ordered& grammar) const;
    Expected<std::optional<schema::Structure>, schema::JobError> structure_of(const schema::Job& job) const {
        return answers_.structure_of(job);
    }
    const engine::GrammarCompiler& grammars() const { return grammars_; }
    PreparedJob expand(TokenizedJob tokenized, bool large) const;
    Expected<std::string, schema::JobError> prompt_text(const ReplyPlan& plan) const;

private:
    using Prompt = TokenizedPrompt;
    Expected<std::string, schema::JobError> render(const schema::ChatPrompt& chat) const;
    Expected<std::vector<Prompt>, schema::JobError> prompts_of(ReplyPlan& plan) const;
    std::int64_t text_max_of(engine::PoolingTask task) const;
    Expected<std::vector<Prompt>, schema::JobError> texts_of(const schema::Job& job) const;
    Expected<ChoiceTokens, schema::JobError> choice_tokens(const std::vector<std::string>& choices) const;
    Expected<void, schema::JobError> check_length(const ReplyPlan& plan, const Prompt& prompt) const;
    Expected<void, schema::JobError> fill_or_refuse(TokenizedJob& tokenized, const engine::GrammarThread::Ordered& grammar) const;
    // Adds all that follows from the job and the model in `tokenized`. Throws std::bad_alloc.
    Expected<void, schema::JobError> fill(TokenizedJob& tokenized, const engine::GrammarThread::Ordered& grammar) const;
    Expected<engine::GrammarCompiler::Shared, schema::JobError> compile(const schema::Job& job) const;
    // How many tokens the job and the model's defaults allow to be drawn, regardless of the room. nullopt: any number.
    std::optional<std::int64_t> tokens_allowed(const schema::Job& job) const;
    // At most this many tokens of a prompt, from its end, are kept; nullopt: all are.
    std::optional<std::int64_t> prompt_tokens_max(const schema::Job& job) const;
    // How many tokens may be drawn after a prompt of prompt_tokens tokens.
    std::int64_t max_tokens_of(const schema::Job& job, std::int64_t prompt_tokens) const;
    JobWeight weight_of(const ReplyPlan& plan, const Prompt& prompt) const;
    JobWeight weight_of_drawing(const schema::Job& job, const Prompt& prompt) const;
    JobWeight weight_of_scoring(const ReplyPlan& plan, const Prompt& prompt) const;
    Expected<std::vector<std::vector<engine::TokenId>>, schema::JobError> bad_words_of(const std::vector<std::string>& words) const;
    engine::SharedDrawing drawing_of(const TokenizedJob& tokenized) const;
    std::vector<std::uint32_t> allowed_of(const TokenizedJob& tokenized) const;
    Expected<std::vector<engine::TokenId>, schema::JobError> encode_prompt(const schema::Job& job, std::string_view text, bool adds_special,
                                                                           std::string_view field) const;
    engine::BlockHash prefix_scope_of(const schema::Job& job) const;
    void add_generation(PreparedJob& prepared, engine::Request request, std::int32_t index) const;
    void add_choices(PreparedJob& prepared, engine::Request request, std::int32_t index) const;

    TextPreparer(std::shared_ptr<const engine::ModelText> own, const engine::Tokenizer& tokenizer,
                 std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config, PreparerOptions options,
                 engine::GrammarCache& cache, std::int64_t vocabulary);

    const std::shared_ptr<const engine::ModelText> own_;  // nullptr: the base's
    const engine::Tokenizer& tokenizer_;
    const std::int64_t vocabulary_;  // token ids are below
    const TextEncoder encoder_;
    const std::optional<engine::ChatTemplate> chat_template_;
    std::optional<PairTemplate> pairs_;  // of a model with a token_score
    const engine::ModelConfig& config_;
    const PreparerOptions options_;
    const AnswerPlanner answers_;
    const std::vector<engine::TokenId> end_tokens_;
    const std::uint64_t prefix_key_;  // random, of this process
    engine::GrammarCache& cache_;
    const engine::GrammarCompiler grammars_;

    // The last list of choices, because a million jobs may ask for the same one. Guarded by choices_mutex_.
    mutable std::mutex choices_mutex_;
    mutable std::vector<std::string> last_choices_;
    mutable ChoiceTokens last_choice_tokens_;
    // The last list of bad words, for the same reason. Guarded by bad_words_mutex_.
    mutable std::mutex bad_words_mutex_;
    mutable std::vector<std::string> last_bad_words_;
    mutable std::vector<std::vector<engine::TokenId>> last_spellings_;
};

}  // namespace lorry::consumer
