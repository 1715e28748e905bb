// Implements grammars with the crate's C functions.
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

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens, GrammarCache* shared)
    : tokenizer_(tokenizer),
      vocabulary_(vocabulary),
      end_tokens_(std::move(end_tokens)),
      cache_(shared == nullptr ? own_cache_.emplace() : *shared),
      key_prefix_(fmt::format("{} ", fmt::ptr(this))) {}

GrammarCompiler::~GrammarCompiler() { cache_.drop(key_prefix_); }

GrammarCompiler::Result GrammarCompiler::compile(const schema::Structure& structure) const {
    return cache_.get(key_of(structure), [&] { return compile_anew(structure); });
}

GrammarCompiler::Pending GrammarCompiler::find(const schema::Structure& structure) const { return cache_.find(key_of(structure)); }

std::string GrammarCompiler::key_of(const schema::Structure& structure) const {
    return fmt::format("{}{} {:d} {} {}{}", key_prefix_, static_cast<int>(structure.kind), structure.closed, structure.space.size(),
                       structure.space, structure.text);
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

GrammarCache::Compiled GrammarCompiler::compile_anew(const schema::Structure& structure) const {
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
