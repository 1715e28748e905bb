// What is computed from the last hidden states of a whole text instead of drawing tokens: an embedding, or the scores of a head. The words
// are vLLM's (PoolingTask) and sentence-transformers' (Pooling). Used by requests, model configs and replies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::engine {

// What a request wants of its text.
enum class PoolingTask : std::uint8_t {
    embed,           // one vector: the pooled hidden states
    classify,        // the logits of a head over the pooled hidden states
    token_classify,  // the logits of a head over each token's hidden state
    fill_mask,       // log-probabilities of the vocabulary at some positions, by a masked language model's head
};
constexpr std::string_view name_of(PoolingTask task) {
    switch (task) {
        case PoolingTask::embed: return "embed";
        case PoolingTask::classify: return "classify";
        case PoolingTask::token_classify: return "token_classify";
        case PoolingTask::fill_mask: return "fill_mask";
    }
    return "";
}

// How the hidden states of a text's tokens become one vector, as sentence-transformers' Pooling.
enum class PoolingMode : std::uint8_t {
    cls,            // the first token's
    last,           // the last token's
    mean,           // the sum over all tokens / how many they are
    mean_sqrt_len,  // the sum / the square root of how many they are
    max,            // the largest of each dimension
    weighted_mean,  // the i-th token (from 1) weighs i
};

// How a classifier's logits become probabilities: config.json's problem_type.
enum class ProblemType : std::uint8_t {
    single_label,  // softmax
    multi_label,   // a sigmoid of each
    regression,    // the logits themselves
};

// The labels of a classification head.
struct Labels {
    std::vector<std::string> names;  // by id: config.json's id2label
    ProblemType problem = ProblemType::single_label;
    bool scores_are_logits = false;  // of pairs: a CrossEncoder that was saved with no activation
    bool answers_yes_or_no = false;  // of pairs that the chat template renders: made of the vocabulary's head (TokenScore)
};

}  // namespace lorry::engine
