/* The C functions of the Rust crate beside this file: tokenizer, incremental detokenizer, chat templates. Called by the C++ classes of
 * engine/text, by nobody else; grammar masks will be one more kind of handle, made from a tokenizer.
 *
 * Results and error messages are handed to a sink during the call; nothing that one side allocated is freed by the other. Functions that
 * return a lorry_text_status write to `error` exactly when it is LORRY_TEXT_ERROR; a panic inside becomes such an error too. Tokenizers
 * and chat templates may be used by many threads at once, a detokenizer by one at a time. Handles are freed once, in any order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { LORRY_TEXT_OK = 0, LORRY_TEXT_ERROR = 1 } lorry_text_status;

typedef struct lorry_text_tokenizer lorry_text_tokenizer;
typedef struct lorry_text_detokenizer lorry_text_detokenizer;
typedef struct lorry_text_chat_template lorry_text_chat_template;

/* Bytes of the caller, needed during the call only. `data` may be null when `size` is 0. */
typedef struct {
    const char* data;
    size_t size;
} lorry_text_view;

/* Takes a result: called at most once per call, with `size` bytes at `data` that are gone when it returns. It must not throw. */
typedef struct {
    void* context;
    void (*write)(void* context, const void* data, size_t size);
} lorry_text_sink;

/* `json` is the content of a tokenizer.json. */
lorry_text_status lorry_text_tokenizer_new(lorry_text_view json, lorry_text_tokenizer** out, lorry_text_sink error);
void lorry_text_tokenizer_free(lorry_text_tokenizer* tokenizer);

/* `ids` takes int32_t values. `text` must be UTF-8, else the error says at which byte it is not. */
lorry_text_status lorry_text_encode(const lorry_text_tokenizer* tokenizer, lorry_text_view text, bool add_special_tokens,
                                    lorry_text_sink ids, lorry_text_sink error);
/* Ids without a token are left out. */
lorry_text_status lorry_text_decode(const lorry_text_tokenizer* tokenizer, const int32_t* ids, size_t count, bool skip_special_tokens,
                                    lorry_text_sink text, lorry_text_sink error);
/* The highest id + 1. */
size_t lorry_text_vocabulary_size(const lorry_text_tokenizer* tokenizer);
/* Sets `id` and returns true if the vocabulary, added tokens included, has exactly this token. */
bool lorry_text_find(const lorry_text_tokenizer* tokenizer, lorry_text_view token, int32_t* id);
/* What the token stands for after other tokens; nothing for ids without a token. */
void lorry_text_token_bytes(const lorry_text_tokenizer* tokenizer, int32_t id, lorry_text_sink bytes);
bool lorry_text_is_special(const lorry_text_tokenizer* tokenizer, int32_t id);

/* The detokenizer keeps what it needs of the tokenizer alive. */
lorry_text_detokenizer* lorry_text_detokenizer_new(const lorry_text_tokenizer* tokenizer, bool skip_special_tokens);
void lorry_text_detokenizer_free(lorry_text_detokenizer* detokenizer);
/* Before the first push: the ids that the pushed ones continue. */
lorry_text_status lorry_text_detokenizer_prime(lorry_text_detokenizer* detokenizer, const int32_t* ids, size_t count,
                                               lorry_text_sink error);
/* `text` takes what became certain, whole characters only. */
lorry_text_status lorry_text_detokenizer_push(lorry_text_detokenizer* detokenizer, int32_t id, lorry_text_sink text, lorry_text_sink error);
void lorry_text_detokenizer_finish(lorry_text_detokenizer* detokenizer, lorry_text_sink text);

/* `description` is JSON: {"templates": {NAME: SOURCE, ...}, "special_tokens": {"bos_token": "<s>", ...}} with the names "default" and, for
 * requests with tools, "tool_use". */
lorry_text_status lorry_text_chat_template_new(lorry_text_view description, lorry_text_chat_template** out, lorry_text_sink error);
void lorry_text_chat_template_free(lorry_text_chat_template* chat_template);

typedef struct {
    lorry_text_view messages; /* JSON, a list of objects */
    lorry_text_view tools;    /* JSON, a list; empty: none */
    lorry_text_view extra;    /* JSON, an object of further variables; may be empty */
    bool add_generation_prompt;
} lorry_text_chat_request;

lorry_text_status lorry_text_chat_template_render(const lorry_text_chat_template* chat_template, const lorry_text_chat_request* request,
                                                  lorry_text_sink text, lorry_text_sink error);

#ifdef __cplusplus
}
#endif
