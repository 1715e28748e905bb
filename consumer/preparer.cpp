// Chooses the text that a job is prepared with, and keeps those of adapters that were used last.
#include "consumer/preparer.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "engine/model/adapter.h"

namespace lorry::consumer {

namespace {

using schema::ErrorCode;
using schema::JobError;

// As in engine/text/model_text.cpp, whose texts these share.
constexpr std::size_t tokens_kept_max = std::size_t{2} << 20;
constexpr std::size_t own_kept_max = 256;

}  // namespace

Preparer::Preparer(const engine::Tokenizer& tokenizer, std::optional<engine::ChatTemplate> chat_template, const engine::ModelConfig& config,
                   PreparerOptions options)
    : config_(config), options_(std::move(options)), base_(tokenizer, std::move(chat_template), config, options_, grammars_) {}

Expected<TokenizedJob, RefusedJob> Preparer::tokenize(schema::Job job, ModelName model,
                                                      const engine::GrammarThread::Ordered& grammar) const {
    auto own = own_of(model);
    if (!own) return unexpected(RefusedJob{.job = std::move(job), .error = std::move(own.error())});
    if (*own == nullptr) return base_.tokenize(std::move(job), std::move(model), grammar);
    auto tokenized = (*own)->tokenize(std::move(job), std::move(model), grammar);
    if (tokenized) tokenized->own_preparer = std::move(*own);
    return tokenized;
}

std::optional<Preparer::Demand> Preparer::demand(const schema::Job& job, const ModelName& model) const {
    const bool demands = job.structure || job.tools.choice == schema::ToolUse::Choice::required;
    if (!demands) return std::nullopt;
    const auto own = own_of(model);
    if (!own) return std::nullopt;
    const TextPreparer& text = *own == nullptr ? base_ : **own;
    auto structure = text.structure_of(job);
    if (!structure || !*structure) return std::nullopt;
    // The base's lives as long as this.
    return Demand{.structure = **std::move(structure), .compiler = std::shared_ptr<const engine::GrammarCompiler>(*own, &text.grammars())};
}

PreparedJob Preparer::expand(TokenizedJob tokenized, bool large) const {
    const Shared own = std::move(tokenized.own_preparer);
    return (own == nullptr ? base_ : *own).expand(std::move(tokenized), large);
}

Expected<PreparedJob, RefusedJob> Preparer::prepare(schema::Job job, ModelName model) const {
    auto tokenized = tokenize(std::move(job), std::move(model));
    if (!tokenized) return unexpected(std::move(tokenized.error()));
    return expand(std::move(*tokenized), false);
}

Expected<std::string, JobError> Preparer::prompt_text(const ReplyPlan& plan) const {
    const auto own = own_of(plan.model);
    if (!own) return unexpected(own.error());
    return (*own == nullptr ? base_ : **own).prompt_text(plan);
}

Expected<Preparer::Shared, JobError> Preparer::own_of(const ModelName& model) const {
    const std::string key = model.text_key();
    if (key.empty()) return nullptr;
    if (auto known = find(key)) return known;
    try {
        return read_own(model);
    } catch (const std::bad_alloc&) {
        return unexpected(error_at(ErrorCode::adapter_failed, "model",
                                   "there was no memory for the adapter's tokenizer; give the worker more memory, or fewer adapters with "
                                   "tokenizers of their own"));
    }
}

Expected<Preparer::Shared, JobError> Preparer::read_own(const ModelName& model) const {
    if (model.vocabulary && *model.vocabulary > config_.vocabulary + engine::added_tokens_max) {
        return unexpected(error_at(ErrorCode::adapter_failed, "model",
                                   fmt::format("the adapter was registered with {} tokens, which no adapter of this model has; register it "
                                               "again",
                                               *model.vocabulary)));
    }
    Own own{.key = model.text_key(), .preparer = nullptr, .tokens = static_cast<std::size_t>(config_.vocabulary)};
    if (model.text_hash.empty()) {
        own.preparer = std::make_shared<const TextPreparer>(base_, *model.vocabulary);
    } else {
        auto text = read_text(model);
        if (!text) return unexpected(std::move(text.error()));
        own.tokens = (*text)->tokenizer.vocabulary_size();
        own.preparer = std::make_shared<const TextPreparer>(std::move(*text), config_, options_, grammars_, model.vocabulary);
    }
    Shared preparer = own.preparer;
    remember(std::move(own));
    return preparer;
}

Expected<std::shared_ptr<const engine::ModelText>, JobError> Preparer::read_text(const ModelName& model) const {
    CHECK(options_.texts != nullptr, "whoever finds texts of adapters gives them to the preparer");
    auto text = options_.texts->of(model.folder);
    if (!text) return unexpected(error_at(ErrorCode::adapter_failed, "model", text.error()));
    if (*text == nullptr || (*text)->hash != model.text_hash) {
        return unexpected(error_at(ErrorCode::adapter_failed, "model",
                                   fmt::format("{}: the tokenizer or the chat template changed since the adapter was registered; register "
                                               "it again",
                                               model.folder.string())));
    }
    return std::move(*text);
}

Preparer::Shared Preparer::find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(own_, key, &Own::key);
    if (found == own_.end()) return nullptr;
    own_.splice(own_.begin(), own_, found);
    return found->preparer;
}

// Two threads may have made the same one: both are good.
void Preparer::remember(Own own) const {
    const std::lock_guard lock(mutex_);
    own_.push_front(std::move(own));
    std::size_t tokens = 0;
    for (const Own& each : own_) tokens += each.tokens;
    for (; own_.size() > 1 && (own_.size() > own_kept_max || tokens > tokens_kept_max); own_.pop_back()) tokens -= own_.back().tokens;
}

}  // namespace lorry::consumer
