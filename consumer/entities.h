// From the classes of a text's tokens to its entities, exactly as transformers' TokenClassificationPipeline groups them: its
// aggregation_strategy is schema::Aggregation. Called by reply_pooling.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/plan.h"
#include "engine/model/pooling.h"

namespace lorry::consumer {

struct Entity {
    std::string label;  // of one token (none): as the head names it, such as "B-PER"; of a group: without "B-" and "I-"
    double score = 0.0;
    std::string word;
    std::int64_t begin = 0;  // characters (code points) of the job's text
    std::int64_t end = 0;
    std::size_t token = 0;  // none: its index in the sequence
};

// text: with tokens and spans. logits: [tokens, labels], row by row. Tokens outside of entities ("O") are left out. One detail differs: the
// word of a group is decoded from all of its tokens at once, where the pipeline decodes each word before it joins them.
std::vector<Entity> entities_of(const engine::Tokenizer& tokenizer, const TokenizedPrompt& text, std::span<const float> logits,
                                const engine::Labels& labels, schema::Aggregation aggregation);

// The entities of a text's windows without those that overlap, as the pipeline's aggregate_overlapping_entities: the longest stays; of
// equally long ones, the one with the highest score.
std::vector<Entity> merged(std::vector<Entity> entities);

// A text by characters: the byte at which each begins, and its end.
std::vector<std::size_t> character_offsets(std::string_view text);

}  // namespace lorry::consumer
