// The prompt in which a model that answers "yes" or "no" reads a query and a document: its chat template, with messages of the roles
// `query` and `document`, as sentence-transformers and vLLM do. Used by the preparer and by `lorry check-model`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/model/model_config.h"
#include "engine/text/chat_template.h"
#include "schema/job.h"

namespace lorry::consumer {

struct PairTexts {
    std::string_view query;
    std::string_view document;
    std::optional<std::string> instruction = {};  // what makes a document relevant; nullopt: the model's own
};

// Constant; render() may run on any thread at the same time.
class PairTemplate {
public:
    // Tries the template out. chat_template outlives it; absent: the model has none.
    PairTemplate(const std::optional<engine::ChatTemplate>& chat_template, const engine::TokenScore& score);

    // The prompt, to be encoded without adding special tokens. Refuses all pairs if the template does not show both texts.
    Expected<std::string, schema::JobError> render(const PairTexts& pair) const;

private:
    Expected<std::string, std::string> text_of(const PairTexts& pair) const;

    const std::optional<engine::ChatTemplate>& chat_template_;
    const engine::TokenScore score_;
    std::string obstacle_;            // why no pair can be rendered; empty: it can
    bool shows_instruction_ = false;  // as a system message
};

}  // namespace lorry::consumer
