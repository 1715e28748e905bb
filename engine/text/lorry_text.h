/* The C functions of the Rust crate in this folder: tokenizer, incremental detokenizer, chat templates. Called only by the C++ classes of
 * engine/text.
 *
 * Results and error messages are passed to a sink during the call; neither side frees memory that the other allocated. A function that
 * returns a lorry_text_status writes to `error` if and only if it returns LORRY_TEXT_ERROR; a panic inside is reported in the same way.
 * Errors have about 1,000 characters at most.
 * Tokenizers and chat templates may be used by many threads at once, a detokenizer by one thread at a time. Each handle is freed once, in
 * any order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* LORRY_TEXT_NO_THREAD: lorry_grammar_compile writes to `error`, too, but the same call may succeed later. */
typedef enum { LORRY_TEXT_OK = 0, LORRY_TEXT_ERROR = 1, LORRY_TEXT_NO_THREAD = 2 } lorry_text_status;

typedef struct lorry_text_tokenizer lorry_text_tokenizer;
typedef struct lorry_text_detokenizer lorry_text_detokenizer;
typedef struct lorry_text_chat_template lorry_text_chat_template;

/* Bytes of the caller, which must be valid during the call. `data` may be null if `size` is 0. */
typedef struct {
    const char* data;
    size_t size;
} lorry_text_view;

/* Takes a result. Called at most once per call; the `size` bytes at `data` are valid until it returns. It must not throw. */
typedef struct {
    void* context;
    void (*write)(void* context, const void* data, size_t size);
} lorry_text_sink;

/* `json` is the content of a tokenizer.json. `settings` is JSON, an object of:
 *   "class": tokenizer_class of tokenizer_config.json or config.json, and "model_type" of config.json, which decides if there is no class;
 *   "config": the object of tokenizer_config.json;
 *   "special_tokens": {"mask_token": "[MASK]", ...}, as far as they are configured;
 *   "added_tokens": the tokens of tokenizer_config.json in the order of their ids: [{"id": 7, "is_named": true, "token": {"content",
 *   "single_word", "lstrip", "rstrip", "normalized", "special"}}, ...], where a named token is special: the eos_token, for example.
 * Any of them may be absent. */
lorry_text_status lorry_text_tokenizer_new(lorry_text_view json, lorry_text_view settings, lorry_text_tokenizer** out,
                                           lorry_text_sink error);
/* The names of the files that the tokenizer class reads where there is no tokenizer.json, one a line. An unknown class is an error that
 * names it. */
lorry_text_status lorry_text_tokenizer_files(lorry_text_view settings, lorry_text_sink names, lorry_text_sink error);
/* Makes a tokenizer.json of these files, given in the same order. The error names the file. */
lorry_text_status lorry_text_convert(lorry_text_view settings, const lorry_text_view* files, size_t count, lorry_text_sink json,
                                     lorry_text_sink error);
void lorry_text_tokenizer_free(lorry_text_tokenizer* tokenizer);

/* `difference` takes a sentence that says what makes `tokenizer` give other ids or texts than `base`, or nothing if they are alike, however
 * their files are written: "it has the token \"<x>\" with the id 7, and the base has none with it". */
lorry_text_status lorry_text_difference(const lorry_text_tokenizer* tokenizer, const lorry_text_tokenizer* base, lorry_text_sink difference,
                                        lorry_text_sink error);

/* `ids` takes int32_t values. `text` must be UTF-8; otherwise the error names the first invalid byte. */
lorry_text_status lorry_text_encode(const lorry_text_tokenizer* tokenizer, lorry_text_view text, bool add_special_tokens,
                                    lorry_text_sink ids, lorry_text_sink error);

/* `begin` and `end` are characters (code points) of text 0 or 1, from which the token came. `text` is -1 for tokens that the post-processor
 * added, whose `begin` and `end` are 0; `word` is -1 for tokens outside words. `window` counts from 0. */
typedef struct {
    int32_t id;
    int32_t type;
    int32_t text;
    int32_t word;
    int32_t begin;
    int32_t end;
    int32_t window;
} lorry_text_token;

typedef enum { LORRY_TEXT_LONGEST_FIRST = 0, LORRY_TEXT_ONLY_FIRST = 1, LORRY_TEXT_ONLY_SECOND = 2 } lorry_text_strategy;

typedef struct {
    size_t max_tokens; /* with special tokens */
    bool keep_end;     /* removes the begin of a text instead of its end */
    lorry_text_strategy strategy;
} lorry_text_limit;

/* With special tokens. `second` and `limit` may be null. `tokens` takes lorry_text_token values. */
lorry_text_status lorry_text_encode_pair(const lorry_text_tokenizer* tokenizer, lorry_text_view first, const lorry_text_view* second,
                                         const lorry_text_limit* limit, lorry_text_sink tokens, lorry_text_sink error);
typedef struct {
    size_t max_tokens;  /* of a window, with those that the post-processor adds */
    size_t stride;      /* so many tokens of a window are the last of the one before */
    size_t windows_max; /* a text with more is an error */
    size_t repeated;    /* the tokens of so many characters at the beginning of the text are in each window */
} lorry_text_windows;
lorry_text_status lorry_text_encode_windows(const lorry_text_tokenizer* tokenizer, lorry_text_view text, const lorry_text_windows* windows,
                                            lorry_text_sink tokens, lorry_text_sink error);
bool lorry_text_takes_pairs(const lorry_text_tokenizer* tokenizer);
size_t lorry_text_special_tokens_added(const lorry_text_tokenizer* tokenizer, bool pair);
/* Sets `id` and returns true if the tokenizer has a token of this name, for example "mask_token". */
bool lorry_text_named_token(const lorry_text_tokenizer* tokenizer, lorry_text_view name, int32_t* id);

/* Ids without a token are skipped. */
lorry_text_status lorry_text_decode(const lorry_text_tokenizer* tokenizer, const int32_t* ids, size_t count, bool skip_special_tokens,
                                    lorry_text_sink text, lorry_text_sink error);
/* The highest id + 1. */
size_t lorry_text_vocabulary_size(const lorry_text_tokenizer* tokenizer);
/* Sets `id` and returns true if the vocabulary, including added tokens, has exactly this token. */
bool lorry_text_find(const lorry_text_tokenizer* tokenizer, lorry_text_view token, int32_t* id);
/* The bytes that the token stands for after other tokens; none for ids without a token. */
void lorry_text_token_bytes(const lorry_text_tokenizer* tokenizer, int32_t id, lorry_text_sink bytes);
bool lorry_text_is_special(const lorry_text_tokenizer* tokenizer, int32_t id);
/* The token as the vocabulary spells it; none for ids without a token. */
void lorry_text_token_spelling(const lorry_text_tokenizer* tokenizer, int32_t id, lorry_text_sink spelling);
/* True if the vocabulary marks the tokens that continue a word by a prefix, such as "##". */
bool lorry_text_marks_subwords(const lorry_text_tokenizer* tokenizer);

/* The detokenizer may outlive the tokenizer. */
lorry_text_detokenizer* lorry_text_detokenizer_new(const lorry_text_tokenizer* tokenizer, bool skip_special_tokens);
void lorry_text_detokenizer_free(lorry_text_detokenizer* detokenizer);
/* Sets the ids that the pushed ones continue. Call it before the first push. */
lorry_text_status lorry_text_detokenizer_prime(lorry_text_detokenizer* detokenizer, const int32_t* ids, size_t count,
                                               lorry_text_sink error);
/* `text` takes the text that became certain: whole characters only. */
lorry_text_status lorry_text_detokenizer_push(lorry_text_detokenizer* detokenizer, int32_t id, lorry_text_sink text, lorry_text_sink error);
void lorry_text_detokenizer_finish(lorry_text_detokenizer* detokenizer, lorry_text_sink text);

/* `description` is JSON: {"templates": {NAME: SOURCE, ...}, "special_tokens": {"bos_token": "<s>", ...}} with the names "default" and, for
 * requests with tools, "tool_use". */
lorry_text_status lorry_text_chat_template_new(lorry_text_view description, lorry_text_chat_template** out, lorry_text_sink error);
void lorry_text_chat_template_free(lorry_text_chat_template* chat_template);

typedef struct {
    lorry_text_view messages; /* JSON, a list of objects */
    lorry_text_view tools;    /* JSON, a list; empty: no tools */
    lorry_text_view extra;    /* JSON, an object of further variables; may be empty */
    bool add_generation_prompt;
} lorry_text_chat_request;

lorry_text_status lorry_text_chat_template_render(const lorry_text_chat_template* chat_template, const lorry_text_chat_request* request,
                                                  lorry_text_sink text, lorry_text_sink error);

#ifdef __cplusplus
}
#endif
