// What the preparer makes of a job: its prompts as tokens, and what the reply needs beside the results of its requests. All types are
// values; they move from intake.h over the generator to the publisher.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/answer/answer_reader.h"
#include "consumer/seams.h"
#include "consumer/weight.h"
#include "consumer/work.h"
#include "engine/request.h"
#include "engine/text/model_text.h"
#include "schema/job.h"

namespace lorry::consumer {

// What a request of a job contributes to the reply.
struct RequestPlace {
    // Index of the prompt in the job's list, also of its windows; of the pair or of the distinct text where pairs are scored.
    std::int32_t prompt = 0;
    std::int32_t sample = 0;   // of n
    std::int32_t choice = -1;  // the choice it scores; -1: the request that draws, or scores first tokens, or has no choice
    std::int64_t weight = 1;   // in the mean of a text's windows: Window::new_tokens
};

// A choice of a classify job as token ids: the first is scored by the prompt's request, the rest by a fork of it.
using ChoiceTokens = std::vector<std::vector<engine::TokenId>>;

// A prompt that the job asked to have repeated before its answers.
struct EchoedPrompt {
    std::string text;
    engine::TokenId first = 0;  // its first token, which has no log-probability and is in no result
};

// A part of a text that was cut into windows (`stride`).
struct Window {
    std::int32_t text = 0;        // its text's index in the job's list
    std::int64_t new_tokens = 0;  // tokens of the text that the window before it does not have
    std::int64_t begin = 0;       // token_classify: the characters of the text before TokenizedPrompt::text
};

// A prompt as the engine takes it.
struct TokenizedPrompt {
    std::string text;  // of a window, where it is needed: the part that its tokens and their spans are of
    std::vector<engine::TokenId> tokens;
    std::vector<std::int32_t> types;           // [tokens]; empty: all 0
    std::vector<engine::TokenSpan> spans;      // token_classify: [tokens]
    std::vector<std::int64_t> mask_positions;  // fill_mask: indices of tokens, ascending
    std::optional<Window> window;              // set in a job with `stride`
};

// Two of a job's requests whose embeddings are compared, by their places in the list of requests.
struct RequestPair {
    std::size_t first = 0;
    std::size_t second = 0;
};

// A job and what its reply needs besides the results of its requests.
struct ReplyPlan {
    schema::Job job;
    ModelName model;
    std::shared_ptr<const engine::ModelText> text;  // of its adapter; nullptr: the base's
    Work work = Work::draw;
    std::vector<EchoedPrompt> echo;      // one per prompt; empty unless the job asks for it
    AnswerPlan answer;                   // chats that are drawn
    ChoiceTokens choices;                // score_choices only
    std::vector<TokenizedPrompt> texts;  // token_classify and fill_mask: one per request
    std::vector<RequestPair> pairs;      // compare_embeddings only
    std::vector<RequestPlace> places;    // one per request, in their order
    bool normalized = false;             // embed: vectors are scaled to length 1
    bool renders_pairs = false;          // score_pairs: the pairs were rendered by the chat template of a model that answers yes or no
    std::int64_t prompt_tokens = 0;      // each prompt counted once
};

class TextPreparer;

// A job whose prompts are tokenized and checked.
struct TokenizedJob {
    ReplyPlan plan;  // without its places
    std::vector<TokenizedPrompt> prompts;
    std::shared_ptr<const engine::Grammar> grammar;       // of what its answers must match; null: anything
    std::vector<std::vector<engine::TokenId>> bad_words;  // spellings of its bad words, none empty
    JobWeight weight;
    std::shared_ptr<const TextPreparer> own_preparer;  // of its adapter's text, which made this; nullptr: the base's
};

struct PreparedJob {
    ReplyPlan plan;
    std::vector<engine::Request> requests;  // ids count from 0: the generator adds its own base
};

// A job that cannot run, and why.
struct RefusedJob {
    schema::Job job;
    schema::JobError error;
};

}  // namespace lorry::consumer
