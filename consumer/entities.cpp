// Tokens become words, except for the strategies none and simple; neighbours of one class become groups.
#include "consumer/entities.h"

#include <algorithm>
#include <string_view>

#include "consumer/probabilities.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using schema::Aggregation;

constexpr std::string_view outside = "O";

// A token of the text, or a word of several.
struct Piece {
    std::vector<std::size_t> tokens;  // indices in the sequence
    std::vector<double> scores;       // [labels]
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool continues_word = false;
};

class Grouper {
public:
    Grouper(const engine::Tokenizer& tokenizer, const TokenizedPrompt& text, const engine::Labels& labels)
        : tokenizer_(tokenizer),
          text_(text),
          labels_(labels),
          offsets_(character_offsets(text.text)),
          unknown_(tokenizer.unknown_token()),
          marks_subwords_(tokenizer.marks_subwords()) {}

    // The tokens of the text, without those that the tokenizer added.
    std::vector<Piece> pieces(std::span<const float> logits) const {
        const std::size_t labels = labels_.names.size();
        std::vector<Piece> pieces;
        for (std::size_t i = 0; i < text_.tokens.size(); ++i) {
            const engine::TokenSpan& span = text_.spans[i];
            if (span.text < 0) continue;
            const auto own = logits.subspan(i * labels, labels);
            pieces.push_back({.tokens = {i},
                              .scores = softmax(std::vector<double>(own.begin(), own.end())),
                              .begin = span.begin,
                              .end = span.end,
                              .continues_word = continues_word(i)});
        }
        return pieces;
    }

    // Of each word, one piece with the scores that the strategy takes.
    static std::vector<Piece> words(std::vector<Piece> pieces, Aggregation aggregation) {
        std::vector<Piece> words;
        for (std::size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
            end = begin + 1;
            while (end < pieces.size() && pieces[end].continues_word) ++end;
            const std::span word(pieces.data() + begin, end - begin);
            Piece whole{.tokens = {}, .scores = scores_of(word, aggregation), .begin = word.front().begin, .end = word.back().end};
            for (const Piece& piece : word) whole.tokens.push_back(piece.tokens.front());
            words.push_back(std::move(whole));
        }
        return words;
    }

    std::vector<Entity> ungrouped(const std::vector<Piece>& pieces) const {
        std::vector<Entity> entities;
        for (const Piece& piece : pieces) {
            const std::size_t label = likeliest(piece.scores);
            const std::size_t token = piece.tokens.front();
            entities.push_back({.label = labels_.names[label],
                                .score = piece.scores[label],
                                .word = is_unknown(token) ? quoted(piece.begin, piece.end) : tokenizer_.token_spelling(text_.tokens[token]),
                                .begin = piece.begin,
                                .end = piece.end,
                                .token = token});
        }
        return entities;
    }

    // Neighbours of one class, except that a "B-" begins a new entity.
    std::vector<Entity> grouped(const std::vector<Piece>& pieces) const {
        std::vector<Entity> entities;
        for (std::size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
            const std::string_view tag = tag_of(label_of(pieces[begin]));
            double sum = 0.0;
            std::vector<std::size_t> tokens;
            do {
                sum += std::ranges::max(pieces[end].scores);
                tokens.insert(tokens.end(), pieces[end].tokens.begin(), pieces[end].tokens.end());
                ++end;
            } while (end < pieces.size() && tag_of(label_of(pieces[end])) == tag && !label_of(pieces[end]).starts_with("B-"));
            // As in the pipeline, a group is named by what follows the first hyphen of any label.
            const std::string_view label = label_of(pieces[begin]);
            const std::size_t hyphen = label.find('-');
            entities.push_back({.label = std::string(hyphen == std::string_view::npos ? label : label.substr(hyphen + 1)),
                                .score = sum / static_cast<double>(end - begin),
                                .word = decoded(tokens),
                                .begin = pieces[begin].begin,
                                .end = pieces[end - 1].end});
        }
        return entities;
    }

private:
    static std::vector<double> scores_of(std::span<const Piece> word, Aggregation aggregation) {
        switch (aggregation) {
            case Aggregation::none:
            case Aggregation::simple: break;
            case Aggregation::first: return word.front().scores;
            case Aggregation::max:
                return std::ranges::max_element(word, {}, [](const Piece& piece) { return std::ranges::max(piece.scores); })->scores;
            case Aggregation::average: {
                std::vector<double> mean(word.front().scores.size(), 0.0);
                for (const Piece& piece : word) {
                    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += piece.scores[i] / static_cast<double>(word.size());
                }
                return mean;
            }
        }
        CHECK(false, "this strategy makes no words");
    }

    static std::string_view tag_of(std::string_view label) {
        return label.starts_with("B-") || label.starts_with("I-") ? label.substr(2) : label;
    }
    std::string_view label_of(const Piece& piece) const { return labels_.names[likeliest(piece.scores)]; }

    bool is_unknown(std::size_t token) const { return unknown_ && text_.tokens[token] == *unknown_; }
    std::string quoted(std::int64_t begin, std::int64_t end) const {
        const std::size_t from = offset_of(begin);
        return text_.text.substr(from, offset_of(end) - from);
    }
    std::size_t offset_of(std::int64_t character) const {
        return offsets_[std::min(static_cast<std::size_t>(character), offsets_.size() - 1)];
    }

    // A vocabulary that marks subwords spells them longer than the text does. Without marks, what follows no space continues a word.
    bool continues_word(std::size_t token) const {
        if (is_unknown(token)) return false;
        const engine::TokenSpan& span = text_.spans[token];
        if (marks_subwords_) return schema::count_characters(tokenizer_.token_spelling(text_.tokens[token])) != span.end - span.begin;
        return span.begin > 0 && quoted(span.begin - 1, span.begin + 1).find(' ') == std::string::npos;
    }

    // As the decoder joins the tokens, with what the vocabulary does not have as the text spells it.
    std::string decoded(const std::vector<std::size_t>& tokens) const {
        std::string word;
        std::vector<engine::TokenId> known;  // at the beginning
        for (const std::size_t token : tokens) {
            const engine::TokenSpan& span = text_.spans[token];
            if (is_unknown(token)) {
                if (known.size() > 0 && word.empty()) word = tokenizer_.decode(known, false);
                if (marks_subwords_ && !word.empty()) word += ' ';
                word += quoted(span.begin, span.end);
            } else if (word.empty()) {
                known.push_back(text_.tokens[token]);
            } else {
                word += tokenizer_.token_bytes(text_.tokens[token]);
            }
        }
        return word.empty() ? tokenizer_.decode(known, false) : schema::repair_utf8(word);
    }

    const engine::Tokenizer& tokenizer_;
    const TokenizedPrompt& text_;
    const engine::Labels& labels_;
    const std::vector<std::size_t> offsets_;
    const std::optional<engine::TokenId> unknown_;
    const bool marks_subwords_;
};

}  // namespace

std::vector<Entity> entities_of(const engine::Tokenizer& tokenizer, const TokenizedPrompt& text, std::span<const float> logits,
                                const engine::Labels& labels, Aggregation aggregation) {
    CHECK(text.spans.size() == text.tokens.size() && logits.size() == text.tokens.size() * labels.names.size(),
          "each token has a span and a row of logits");
    const Grouper grouper(tokenizer, text, labels);
    std::vector<Piece> pieces = grouper.pieces(logits);
    std::vector<Entity> entities;
    switch (aggregation) {
        case Aggregation::none: entities = grouper.ungrouped(pieces); break;
        case Aggregation::simple: entities = grouper.grouped(pieces); break;
        case Aggregation::first:
        case Aggregation::average:
        case Aggregation::max: entities = grouper.grouped(Grouper::words(std::move(pieces), aggregation)); break;
    }
    std::erase_if(entities, [](const Entity& entity) { return entity.label == outside; });
    if (text.window) {
        for (Entity& entity : entities) {
            entity.begin += text.window->begin;
            entity.end += text.window->begin;
        }
    }
    return entities;
}

std::vector<Entity> merged(std::vector<Entity> entities) {
    std::ranges::stable_sort(entities, {}, &Entity::begin);
    std::vector<Entity> kept;
    for (Entity& entity : entities) {
        if (kept.empty() || entity.begin >= kept.back().end) {
            kept.push_back(std::move(entity));
            continue;
        }
        const auto length = [](const Entity& one) { return std::pair(one.end - one.begin, one.score); };
        if (length(entity) > length(kept.back())) kept.back() = std::move(entity);
    }
    return kept;
}

std::vector<std::size_t> character_offsets(std::string_view text) {
    std::vector<std::size_t> offsets;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) offsets.push_back(i);
    }
    offsets.push_back(text.size());
    return offsets;
}

}  // namespace lorry::consumer
