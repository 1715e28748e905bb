/* The C functions of the Rust crate in this folder for grammars. Called only by grammar.cpp. Sinks, views, statuses and panics are as in
 * lorry_text.h. Compilers and grammars may be used by many threads at once, an answer by one thread at a time. Each handle is freed once,
 * in any order. */
#pragma once

#include "engine/text/lorry_text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lorry_grammar_compiler lorry_grammar_compiler;
typedef struct lorry_grammar lorry_grammar;
typedef struct lorry_grammar_answer lorry_grammar_answer;

/* What the text of a structure is.
 * Rules: {"rules": rules of Lark, which may name tokens, "schemas": [JSON schemas, which the rules call schema_0, schema_1, ...]}.
 * Tags: {"structures": [{"begin", "schema", "end"}], "triggers": [texts]}: free text, in which each trigger begins a tag.
 * Choices: a JSON array of strings. A regular expression is one of Rust's crate `regex`. */
typedef enum {
    LORRY_GRAMMAR_JSON_SCHEMA = 0,
    LORRY_GRAMMAR_REGEX = 1,
    LORRY_GRAMMAR_CHOICES = 2,
    LORRY_GRAMMAR_LARK = 3,
    LORRY_GRAMMAR_RULES = 4,
    LORRY_GRAMMAR_TAGS = 5
} lorry_grammar_kind;

/* Of JSON schemas and tags: space is a regular expression of the white space after each comma and colon, and there is no other; closed says
 * that objects whose schema lists properties have no others. */
typedef struct {
    lorry_grammar_kind kind;
    lorry_text_view text;
    lorry_text_view space;
    bool closed;
} lorry_grammar_structure;

/* Takes time for each token. vocabulary: of the model, which draws no other tokens. end_tokens: those that may end an answer, within the
 * vocabulary; none is an error. */
lorry_text_status lorry_grammar_compiler_new(const lorry_text_tokenizer* tokenizer, size_t vocabulary, const int32_t* end_tokens,
                                             size_t count, lorry_grammar_compiler** out, lorry_text_sink error);
void lorry_grammar_compiler_free(lorry_grammar_compiler* compiler);
/* The error says what is wrong with the structure: its syntax, a keyword that is not supported, or that it is too complex. */
lorry_text_status lorry_grammar_compile(const lorry_grammar_compiler* compiler, lorry_grammar_structure structure, lorry_grammar** out,
                                        lorry_text_sink error);
/* Measured: what the grammar takes of memory, and what an answer takes as it begins to draw. */
typedef struct {
    size_t bytes;
    size_t answer_bytes;
} lorry_grammar_size;
lorry_grammar_size lorry_grammar_size_of(const lorry_grammar* grammar);
void lorry_grammar_free(lorry_grammar* grammar);

lorry_text_status lorry_grammar_begin(const lorry_grammar* grammar, lorry_grammar_answer** out, lorry_text_sink error);
/* Another answer that has come as far, with caches of its own. */
lorry_text_status lorry_grammar_answer_copy(const lorry_grammar_answer* answer, lorry_grammar_answer** out, lorry_text_sink error);
void lorry_grammar_answer_free(lorry_grammar_answer* answer);
/* `token` must be allowed and no end token. Sets `complete` if nothing may follow it. */
lorry_text_status lorry_grammar_accept(lorry_grammar_answer* answer, int32_t token, bool* complete, lorry_text_sink error);
/* `ids` takes int32_t values: the tokens of the only text that may come next, none where several may. The answer goes on after them. Sets
 * `complete` if nothing may follow them. The answer must not be complete. */
lorry_text_status lorry_grammar_force(lorry_grammar_answer* answer, lorry_text_sink ids, bool* complete, lorry_text_sink error);
/* `words` takes uint32_t values: bit t % 32 of word t / 32 says whether token t may come next, end tokens included. The answer must not be
 * complete. The error says that the grammar became too complex. */
lorry_text_status lorry_grammar_allowed(lorry_grammar_answer* answer, lorry_text_sink words, lorry_text_sink error);

#ifdef __cplusplus
}
#endif
