// From a job to the engine's requests, with the tokenizer and chat template of its model: the base's, or those that an adapter has of its
// own. Called by intake.h and by `lorry bench loss`. All methods may run on any thread at the same time.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "consumer/text/text_preparer.h"

namespace lorry::consumer {

class Preparer {
public:
    // The base's text. tokenizer and config outlive the preparer; chat_template may be absent, then chats are refused.
    Preparer(const engine::Tokenizer& tokenizer, std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config,
             PreparerOptions options);

    // The model must be resolved to the base model or an adapter. Takes memory for the prompts, not for what the job asks for. The first
    // job of an adapter with a text of its own waits until that is read: seconds for a vocabulary of 100,000 tokens. grammar: of the job's
    // demand() for this model, compiled; null: it is found and compiled here, unless it is kept.
    Expected<TokenizedJob, RefusedJob> tokenize(schema::Job job, ModelName model,
                                                const engine::GrammarThread::Ordered& grammar = nullptr) const;
    // What each of the job's answers must match; nullopt: anything, or the job will be refused. The model as for tokenize().
    struct Demand {
        schema::Structure structure;
        std::shared_ptr<const engine::GrammarCompiler> compiler;  // for the model's tokenizer
    };
    std::optional<Demand> demand(const schema::Job& job, const ModelName& model) const;
    // The job's requests. large: as Request::large.
    PreparedJob expand(TokenizedJob tokenized, bool large) const;
    // Both, for a caller that has one job at a time.
    Expected<PreparedJob, RefusedJob> prepare(schema::Job job, ModelName model) const;
    // The text of a prepared job's first prompt as it was tokenized: for --dry-run.
    Expected<std::string, schema::JobError> prompt_text(const ReplyPlan& plan) const;
    // Of the base and of all adapters with texts of their own.
    engine::GrammarCache::Stats grammar_stats() const { return grammars_.stats(); }

private:
    using Shared = std::shared_ptr<const TextPreparer>;
    // nullptr: the base's. The error says why the adapter's text cannot be used. Of an adapter with a text or a vocabulary of its own.
    Expected<Shared, schema::JobError> own_of(const ModelName& model) const;
    Expected<Shared, schema::JobError> read_own(const ModelName& model) const;
    Expected<std::shared_ptr<const engine::ModelText>, schema::JobError> read_text(const ModelName& model) const;
    Shared find(const std::string& key) const;

    const engine::ModelConfig& config_;
    const PreparerOptions options_;
    mutable engine::GrammarCache grammars_;  // of all texts
    const TextPreparer base_;

    struct Own {
        std::string key;  // ModelName::text_key()
        Shared preparer;
        std::size_t tokens = 0;  // of its vocabulary
    };
    void remember(Own own) const;
    mutable std::mutex mutex_;
    mutable std::list<Own> own_;  // guarded by mutex_; the last that was asked for first
};

}  // namespace lorry::consumer
