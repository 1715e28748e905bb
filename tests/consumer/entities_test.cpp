// Entities against those of transformers 5.23's TokenClassificationPipeline, for the same tokens and logits: each vector is what its
// postprocess() returned.
#include "consumer/entities.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/encoder_tokenizer.h"

namespace lorry::consumer::entities_test {
namespace {

using schema::Aggregation;

const engine::Labels labels{.names = {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"}};

// A formula that the vectors were made with, too.
float logit(std::size_t token, std::size_t label, std::size_t seed) {
    return static_cast<float>((token * token * 3 + token * 7 + label * 5 + seed * 3) % 11) * 0.5F;
}

// "PER 0.565419 'Ada' 0-3", one a line; "… #2" with the token's index.
std::string shown(const std::vector<Entity>& entities, Aggregation aggregation) {
    std::string lines;
    for (const Entity& entity : entities) {
        lines += fmt::format("{} {:.6f} '{}' {}-{}", entity.label, entity.score, entity.word, entity.begin, entity.end);
        if (aggregation == Aggregation::none) lines += fmt::format(" #{}", entity.token);
        lines += '\n';
    }
    return lines;
}

std::string entities_in(const std::string& kind, const std::string& text, std::size_t seed, Aggregation aggregation) {
    const engine::Tokenizer& tokenizer = tests::encoder_tokenizer(kind);
    engine::Encoding encoding = *tokenizer.encode_pair(text, std::nullopt, std::nullopt);
    std::vector<float> logits;
    for (std::size_t token = 0; token < encoding.ids.size(); ++token) {
        for (std::size_t label = 0; label < labels.names.size(); ++label) logits.push_back(logit(token, label, seed));
    }
    const TokenizedPrompt prompt{.text = text, .tokens = std::move(encoding.ids), .types = {}, .spans = std::move(encoding.spans)};
    return shown(entities_of(tokenizer, prompt, logits, labels, aggregation), aggregation);
}

struct Vector {
    const char* kind;
    const char* text;
    std::size_t seed;
    Aggregation aggregation;
    const char* entities;
};

// clang-format off
const Vector vectors[] = {
    {"bert_cased", "Ada Lovelace lived in London.", 0, Aggregation::none,
     "B-PER 0.565419 '##d' 1-2 #2\n"
     "B-PER 0.565419 '##a' 2-3 #3\n"
     "I-PER 0.573020 '##o' 5-6 #5\n"
     "B-LOC 0.784963 '##a' 9-10 #8\n"
     "I-PER 0.573020 'li' 13-15 #11\n"
     "B-PER 0.565419 '##d' 17-18 #13\n"
     "B-PER 0.565419 'in' 19-21 #14\n"
     "I-PER 0.573020 '##on' 23-25 #16\n"
     "B-LOC 0.784963 '.' 28-29 #19\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 0, Aggregation::simple,
     "PER 0.565419 '##d' 1-2\n"
     "PER 0.565419 '##a' 2-3\n"
     "PER 0.573020 '##o' 5-6\n"
     "LOC 0.784963 '##a' 9-10\n"
     "PER 0.573020 'li' 13-15\n"
     "PER 0.565419 '##d' 17-18\n"
     "PER 0.565419 'in' 19-21\n"
     "PER 0.573020 '##on' 23-25\n"
     "LOC 0.784963 '.' 28-29\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 0, Aggregation::first,
     "PER 0.573020 'lived' 13-18\n"
     "PER 0.565419 'in' 19-21\n"
     "LOC 0.784963 '.' 28-29\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 0, Aggregation::average,
     "PER 0.385024 'Ada' 0-3\n"
     "PER 0.298802 'lived' 13-18\n"
     "PER 0.565419 'in' 19-21\n"
     "LOC 0.784963 '.' 28-29\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 0, Aggregation::max,
     "PER 0.565419 'Ada' 0-3\n"
     "LOC 0.784963 'Lovelace' 4-12\n"
     "PER 0.573020 'lived' 13-18\n"
     "PER 0.569219 'in London' 19-28\n"
     "LOC 0.784963 '.' 28-29\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 1, Aggregation::none,
     "B-PER 0.565419 'A' 0-1 #1\n"
     "B-PER 0.565419 'L' 4-5 #4\n"
     "B-PER 0.565419 '##o' 5-6 #5\n"
     "I-LOC 0.809541 '##l' 8-9 #7\n"
     "I-LOC 0.809541 '##c' 10-11 #9\n"
     "B-PER 0.565419 'li' 13-15 #11\n"
     "B-PER 0.565419 '##ve' 15-17 #12\n"
     "B-PER 0.565419 'L' 22-23 #15\n"
     "B-PER 0.565419 '##on' 23-25 #16\n"
     "I-LOC 0.809541 '##on' 26-28 #18\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 1, Aggregation::simple,
     "PER 0.565419 'A' 0-1\n"
     "PER 0.565419 'L' 4-5\n"
     "PER 0.565419 '##o' 5-6\n"
     "LOC 0.809541 '##l' 8-9\n"
     "LOC 0.809541 '##c' 10-11\n"
     "PER 0.565419 'li' 13-15\n"
     "PER 0.565419 '##ve' 15-17\n"
     "PER 0.565419 'L' 22-23\n"
     "PER 0.565419 '##on' 23-25\n"
     "LOC 0.809541 '##on' 26-28\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 1, Aggregation::first,
     "PER 0.565419 'Ada' 0-3\n"
     "PER 0.565419 'Lovelace' 4-12\n"
     "PER 0.565419 'lived' 13-18\n"
     "PER 0.565419 'London' 22-28\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 1, Aggregation::average,
     "LOC 0.312920 'Lovelace' 4-12\n"
     "PER 0.385024 'lived' 13-18\n"
     "PER 0.316158 'London' 22-28\n"},
    {"bert_cased", "Ada Lovelace lived in London.", 1, Aggregation::max,
     "PER 0.565419 'Ada' 0-3\n"
     "LOC 0.809541 'Lovelace' 4-12\n"
     "PER 0.565419 'lived' 13-18\n"
     "LOC 0.809541 'London' 22-28\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 0, Aggregation::none,
     "B-PER 0.565419 '中文' 6-8 #2\n"
     "B-PER 0.565419 '☃' 9-10 #3\n"
     "I-PER 0.573020 're' 17-19 #5\n"
     "B-LOC 0.784963 '##ng' 22-24 #8\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 0, Aggregation::simple,
     "PER 0.565419 '中文' 6-8\n"
     "PER 0.565419 '☃' 9-10\n"
     "PER 0.573020 're' 17-19\n"
     "LOC 0.784963 '##ng' 22-24\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 0, Aggregation::first,
     "PER 0.565419 '中文' 6-8\n"
     "PER 0.565419 '☃' 9-10\n"
     "PER 0.573020 'reading' 17-24\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 1, Aggregation::none,
     "B-PER 0.565419 'naïve' 0-5 #1\n"
     "B-PER 0.565419 'wörld' 11-16 #4\n"
     "B-PER 0.565419 're' 17-19 #5\n"
     "I-LOC 0.809541 '##i' 21-22 #7\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 1, Aggregation::simple,
     "PER 0.565419 'naïve' 0-5\n"
     "PER 0.565419 'wörld' 11-16\n"
     "PER 0.565419 're' 17-19\n"
     "LOC 0.809541 '##i' 21-22\n"},
    {"bert_cased", "naïve 中文 ☃ wörld reading", 1, Aggregation::first,
     "PER 0.565419 'naïve' 0-5\n"
     "PER 0.565419 'wörld' 11-16\n"
     "PER 0.565419 'reading' 17-24\n"},
    {"roberta", "Ada Lovelace lived in London.", 1, Aggregation::none,
     "B-PER 0.565419 'A' 0-1 #1\n"
     "B-PER 0.565419 'Ġ' 4-4 #4\n"
     "B-PER 0.565419 'L' 4-5 #5\n"
     "I-LOC 0.809541 've' 6-8 #7\n"
     "I-LOC 0.809541 'a' 9-10 #9\n"
     "B-PER 0.565419 'e' 11-12 #11\n"
     "B-PER 0.565419 'Ġl' 13-14 #12\n"
     "B-PER 0.565419 'Ġin' 19-21 #15\n"
     "B-PER 0.565419 'Ġ' 22-22 #16\n"
     "I-LOC 0.809541 'o' 23-24 #18\n"
     "I-LOC 0.809541 'on' 26-28 #20\n"},
    {"roberta", "Ada Lovelace lived in London.", 1, Aggregation::simple,
     "PER 0.565419 'A' 0-1\n"
     "PER 0.565419 ' ' 4-4\n"
     "PER 0.565419 'L' 4-5\n"
     "LOC 0.809541 've' 6-8\n"
     "LOC 0.809541 'a' 9-10\n"
     "PER 0.565419 'e' 11-12\n"
     "PER 0.565419 ' l' 13-14\n"
     "PER 0.565419 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.809541 'o' 23-24\n"
     "LOC 0.809541 'on' 26-28\n"},
    {"roberta", "Ada Lovelace lived in London.", 1, Aggregation::first,
     "PER 0.565419 'Ada' 0-3\n"
     "PER 0.565419 ' ' 4-4\n"
     "PER 0.565419 'Lovelace' 4-12\n"
     "PER 0.565419 ' lived' 13-18\n"
     "PER 0.565419 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"},
    {"roberta", "Ada Lovelace lived in London.", 1, Aggregation::average,
     "PER 0.565419 ' ' 4-4\n"
     "LOC 0.312920 'Lovelace' 4-12\n"
     "PER 0.565419 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.431258 'London.' 22-29\n"},
    {"roberta", "Ada Lovelace lived in London.", 1, Aggregation::max,
     "PER 0.565419 'Ada' 0-3\n"
     "PER 0.565419 ' ' 4-4\n"
     "LOC 0.809541 'Lovelace' 4-12\n"
     "PER 0.565419 ' lived' 13-18\n"
     "PER 0.565419 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.809541 'London.' 22-29\n"},
    {"xlm_roberta", "Ada Lovelace lived in London.", 0, Aggregation::none,
     "B-PER 0.565419 'A' 0-1 #2\n"
     "B-PER 0.565419 'd' 1-2 #3\n"
     "I-PER 0.573020 '▁' 3-4 #5\n"
     "B-LOC 0.784963 've' 6-8 #8\n"
     "I-PER 0.573020 'ce' 10-12 #11\n"
     "B-PER 0.565419 'l' 13-14 #13\n"
     "B-PER 0.565419 'i' 14-15 #14\n"
     "I-PER 0.573020 'd' 17-18 #16\n"
     "B-LOC 0.784963 '▁' 21-22 #19\n"
     "I-PER 0.573020 'd' 25-26 #22\n"
     "B-PER 0.565419 '.' 28-29 #24\n"},
    {"xlm_roberta", "Ada Lovelace lived in London.", 0, Aggregation::simple,
     "PER 0.565419 'A' 0-1\n"
     "PER 0.565419 'd' 1-2\n"
     "PER 0.573020 '' 3-4\n"
     "LOC 0.784963 've' 6-8\n"
     "PER 0.573020 'ce' 10-12\n"
     "PER 0.565419 'l' 13-14\n"
     "PER 0.565419 'i' 14-15\n"
     "PER 0.573020 'd' 17-18\n"
     "LOC 0.784963 '' 21-22\n"
     "PER 0.573020 'd' 25-26\n"
     "PER 0.565419 '.' 28-29\n"},
    {"xlm_roberta", "Ada Lovelace lived in London.", 1, Aggregation::none,
     "B-PER 0.565419 '▁' 0-1 #1\n"
     "B-PER 0.565419 'a' 2-3 #4\n"
     "B-PER 0.565419 '▁' 3-4 #5\n"
     "I-LOC 0.809541 'o' 5-6 #7\n"
     "I-LOC 0.809541 'l' 8-9 #9\n"
     "B-PER 0.565419 'ce' 10-12 #11\n"
     "B-PER 0.565419 '▁' 12-13 #12\n"
     "B-PER 0.565419 've' 15-17 #15\n"
     "B-PER 0.565419 'd' 17-18 #16\n"
     "I-LOC 0.809541 'in' 19-21 #18\n"
     "I-LOC 0.809541 'L' 22-23 #20\n"
     "B-PER 0.565419 'd' 25-26 #22\n"
     "B-PER 0.565419 'on' 26-28 #23\n"},
    {"xlm_roberta", "Ada Lovelace lived in London.", 1, Aggregation::simple,
     "PER 0.565419 '' 0-1\n"
     "PER 0.565419 'a' 2-3\n"
     "PER 0.565419 '' 3-4\n"
     "LOC 0.809541 'o' 5-6\n"
     "LOC 0.809541 'l' 8-9\n"
     "PER 0.565419 'ce' 10-12\n"
     "PER 0.565419 '' 12-13\n"
     "PER 0.565419 've' 15-17\n"
     "PER 0.565419 'd' 17-18\n"
     "LOC 0.809541 'in' 19-21\n"
     "LOC 0.809541 'L' 22-23\n"
     "PER 0.565419 'd' 25-26\n"
     "PER 0.565419 'on' 26-28\n"},
};
// clang-format on

TEST(Entities, AreThoseOfTransformers) {
    for (const Vector& vector : vectors) {
        EXPECT_EQ(entities_in(vector.kind, vector.text, vector.seed, vector.aggregation), vector.entities)
            << vector.kind << ", seed " << vector.seed << ", strategy " << static_cast<int>(vector.aggregation);
    }
}

// One label for each token, with certainty.
std::string entities_of_labels(const std::vector<std::size_t>& chosen, Aggregation aggregation) {
    const engine::Tokenizer& tokenizer = tests::encoder_tokenizer("bert_cased");
    const std::string text = "in in in in in in";
    engine::Encoding encoding = *tokenizer.encode_pair(text, std::nullopt, std::nullopt);
    std::vector<float> logits(encoding.ids.size() * labels.names.size(), 0.0F);
    for (std::size_t i = 0; i < chosen.size(); ++i) logits[(i + 1) * labels.names.size() + chosen[i]] = 100.0F;
    const TokenizedPrompt prompt{.text = text, .tokens = std::move(encoding.ids), .types = {}, .spans = std::move(encoding.spans)};
    return shown(entities_of(tokenizer, prompt, logits, labels, aggregation), aggregation);
}

TEST(Entities, ABeginsAnEntityAndIContinuesOneOfItsKind) {
    EXPECT_EQ(entities_of_labels({1, 2, 1, 2, 4, 0}, Aggregation::simple),
              "PER 1.000000 'in in' 0-5\nPER 1.000000 'in in' 6-11\nLOC 1.000000 'in' 12-14\n");
    EXPECT_EQ(entities_of_labels({2, 2, 3, 4, 4, 3}, Aggregation::first),
              "PER 1.000000 'in in' 0-5\nLOC 1.000000 'in in in' 6-14\nLOC 1.000000 'in' 15-17\n")
        << "an I- without a B- begins one, too";
    EXPECT_EQ(entities_of_labels({0, 0, 0, 0, 0, 0}, Aggregation::simple), "");
}

}  // namespace
}  // namespace lorry::consumer::entities_test
