// Implements grammars with the crate's C functions, and keeps those that were compiled last.
#include "engine/text/grammar.h"

#include <stdexcept>

#include <fmt/format.h>

#include "engine/text/abi.h"
#include "engine/text/lorry_grammar.h"
#include "engine/text/tokenizer.h"

namespace lorry::engine {
namespace {

lorry_grammar_kind kind_of(schema::Structure::Kind kind) {
    switch (kind) {
        case schema::Structure::Kind::json_schema: return LORRY_GRAMMAR_JSON_SCHEMA;
        case schema::Structure::Kind::regex: return LORRY_GRAMMAR_REGEX;
        case schema::Structure::Kind::choices: return LORRY_GRAMMAR_CHOICES;
        case schema::Structure::Kind::rules: return LORRY_GRAMMAR_RULES;
        case schema::Structure::Kind::tags: return LORRY_GRAMMAR_TAGS;
        case schema::Structure::Kind::lark: break;
    }
    return LORRY_GRAMMAR_LARK;
}

// Equal for structures that compile to the same grammar.
std::string key_of(const schema::Structure& structure) {
    return fmt::format("{} {:d} {} {}{}", static_cast<int>(structure.kind), structure.closed, structure.space.size(), structure.space,
                       structure.text);
}

}  // namespace

void Grammar::Free::operator()(lorry_grammar* handle) const { lorry_grammar_free(handle); }

void Grammar::Answer::Free::operator()(lorry_grammar_answer* handle) const { lorry_grammar_answer_free(handle); }

Grammar::Size Grammar::size() const {
    const lorry_grammar_size size = lorry_grammar_size_of(handle_.get());
    return {.bytes = size.bytes, .answer_bytes = size.answer_bytes};
}

Grammar::Answer Grammar::begin() const {
    Answer answer;
    lorry_grammar_answer* handle = nullptr;
    std::string error;
    const auto status = lorry_grammar_begin(handle_.get(), &handle, abi::sink_into(error));
    CHECK(status == LORRY_TEXT_OK, "a compiled grammar can begin");
    answer.handle_.reset(handle);
    return answer;
}

Grammar::Answer Grammar::Answer::copy() const {
    Answer answer;
    lorry_grammar_answer* handle = nullptr;
    std::string error;
    const auto status = lorry_grammar_answer_copy(handle_.get(), &handle, abi::sink_into(error));
    CHECK(status == LORRY_TEXT_OK, "an answer can be copied");
    answer.handle_.reset(handle);
    return answer;
}

Expected<bool, std::string> Grammar::Answer::accept(TokenId token) {
    bool complete = false;
    std::string error;
    if (lorry_grammar_accept(handle_.get(), token, &complete, abi::sink_into(error)) != LORRY_TEXT_OK) return unexpected(std::move(error));
    return complete;
}

Expected<Grammar::Answer::Forced, std::string> Grammar::Answer::force() {
    Forced forced;
    std::string error;
    if (lorry_grammar_force(handle_.get(), abi::sink_into(forced.tokens), &forced.complete, abi::sink_into(error)) != LORRY_TEXT_OK)
        return unexpected(std::move(error));
    return forced;
}

Expected<std::span<const std::uint32_t>, std::string> Grammar::Answer::allowed() {
    std::string error;
    if (lorry_grammar_allowed(handle_.get(), abi::sink_into(allowed_), abi::sink_into(error)) != LORRY_TEXT_OK)
        return unexpected(std::move(error));
    return std::span<const std::uint32_t>(allowed_);
}

void GrammarCompiler::Free::operator()(lorry_grammar_compiler* handle) const { lorry_grammar_compiler_free(handle); }

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens,
                                 std::size_t kept_bytes_max)
    : tokenizer_(tokenizer), vocabulary_(vocabulary), end_tokens_(std::move(end_tokens)), kept_bytes_max_(kept_bytes_max) {}

GrammarCompiler::~GrammarCompiler() = default;

GrammarCompiler::Result GrammarCompiler::compile(const schema::Structure& structure) const {
    std::string key = key_of(structure);
    std::promise<Result> promise;
    std::unique_lock lock(mutex_);
    if (const auto place = places_.find(key); place != places_.end()) {
        kept_.splice(kept_.begin(), kept_, place->second);
        const Pending result = place->second->result;
        lock.unlock();
        return result.get();
    }
    kept_.push_front({.key = std::move(key), .result = promise.get_future().share()});
    const auto kept = kept_.begin();
    places_.emplace(kept->key, kept);
    ++compilations_;
    lock.unlock();
    Compiled compiled;
    try {
        compiled = compile_anew(structure);
        promise.set_value(compiled.result);
    } catch (...) {
        settle(kept, {});
        promise.set_exception(std::current_exception());
        throw;
    }
    settle(kept, compiled);
    return std::move(compiled.result);
}

GrammarCompiler::Pending GrammarCompiler::find(const schema::Structure& structure) const {
    const std::string key = key_of(structure);
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(key);
    if (place == places_.end() || place->second->result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    kept_.splice(kept_.begin(), kept_, place->second);
    return place->second->result;
}

// Keeps what was compiled, if it will be the same another time, and forgets what was asked for longest ago.
void GrammarCompiler::settle(std::list<Kept>::iterator kept, const Compiled& compiled) const {
    const std::lock_guard lock(mutex_);
    if (!compiled.is_final) return forget(kept);
    kept->bytes = kept->key.size() + sizeof(Kept) + (compiled.result ? (*compiled.result)->size().bytes : compiled.result.error().size());
    kept_bytes_ += *kept->bytes;
    for (auto place = kept_.end(); kept_bytes_ > kept_bytes_max_ && place != kept_.begin();) {
        const auto oldest = std::prev(place);
        if (oldest->bytes) {
            forget(oldest);
        } else {
            place = oldest;
        }
    }
}

void GrammarCompiler::forget(std::list<Kept>::iterator kept) const {
    kept_bytes_ -= kept->bytes.value_or(0);
    places_.erase(kept->key);
    kept_.erase(kept);
}

GrammarCompiler::Stats GrammarCompiler::stats() const {
    const std::lock_guard lock(mutex_);
    return {.compilations = compilations_, .kept = kept_.size(), .kept_bytes = kept_bytes_};
}

const lorry_grammar_compiler* GrammarCompiler::handle(std::string& error) const {
    const std::lock_guard lock(handle_mutex_);
    if (handle_ == nullptr) {
        lorry_grammar_compiler* handle = nullptr;
        const auto status = lorry_grammar_compiler_new(tokenizer_.handle_.get(), static_cast<std::size_t>(vocabulary_), end_tokens_.data(),
                                                       end_tokens_.size(), &handle, abi::sink_into(error));
        if (status == LORRY_TEXT_OK) handle_.reset(handle);
    }
    return handle_.get();
}

GrammarCompiler::Compiled GrammarCompiler::compile_anew(const schema::Structure& structure) const {
    std::string error;
    const lorry_grammar_compiler* compiler = handle(error);
    if (compiler == nullptr) return {.result = unexpected(std::move(error)), .is_final = true};
    lorry_grammar* handle = nullptr;
    const lorry_grammar_structure described{.kind = kind_of(structure.kind),
                                            .text = abi::view_of(structure.text),
                                            .space = abi::view_of(structure.space),
                                            .closed = structure.closed};
    const auto status = lorry_grammar_compile(compiler, described, &handle, abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return {.result = unexpected(std::move(error)), .is_final = status != LORRY_TEXT_NO_THREAD};
    auto grammar = std::make_unique<Grammar>();
    grammar->handle_.reset(handle);
    return {.result = Shared(std::move(grammar)), .is_final = true};
}

}  // namespace lorry::engine
