// Texts to tokens, with the checks that every prompt passes: the vocabulary, and a length that is worth tokenizing. Used by the preparer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "schema/job.h"

namespace lorry::consumer {

schema::JobError error_at(schema::ErrorCode code, std::string_view param, std::string message);

// `field` is the job's field that the text is from, for errors. Constant; all members may run on any thread at the same time.
class TextEncoder {
public:
    // tokenizer outlives the encoder. vocabulary: of the model. context_max: tokens of one sequence.
    TextEncoder(const engine::Tokenizer& tokenizer, std::int64_t vocabulary, std::int64_t context_max)
        : tokenizer_(tokenizer), vocabulary_(vocabulary), context_max_(context_max) {}

    const engine::Tokenizer& tokenizer() const { return tokenizer_; }
    std::int64_t context_max() const { return context_max_; }

    // A text that is far too long for the context is refused without being tokenized.
    Expected<std::vector<engine::TokenId>, schema::JobError> encode(std::string_view text, bool add_special_tokens,
                                                                    std::string_view field) const;
    // One text or two, with special tokens, cut if there is a limit.
    Expected<engine::Encoding, schema::JobError> encode_pair(std::string_view first, std::optional<std::string_view> second,
                                                             const std::optional<engine::EncodeLimit>& limit, std::string_view field) const;
    // A text of any length in windows, at least one, with special tokens.
    Expected<std::vector<engine::Encoding>, schema::JobError> encode_windows(std::string_view text, const engine::WindowLimit& limit,
                                                                             std::string_view field) const;
    // Refuses ids that the model does not have.
    Expected<void, schema::JobError> check_tokens(const std::vector<std::int32_t>& ids, std::string_view field) const;

private:
    Expected<void, schema::JobError> check_bytes(std::size_t bytes, std::string_view field) const;

    const engine::Tokenizer& tokenizer_;
    const std::int64_t vocabulary_;
    const std::int64_t context_max_;
};

}  // namespace lorry::consumer
