// What a model's format of answers means for a chat: how its answers are read, and what the engine must know of them. Used by preparer.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/answer/answer_plan.h"
#include "consumer/text/text_encoder.h"
#include "engine/request.h"
#include "schema/job.h"

namespace lorry::consumer {

// Constant; any thread.
class AnswerPlanner {
public:
    // chat_template: the text of the model's; empty: it has none. The parsers are settings, names as formats.h has them. vocabulary: of the
    // model. encoder outlives the planner.
    AnswerPlanner(const TextEncoder& encoder, std::string_view chat_template, std::int64_t vocabulary, std::string_view reasoning_parser,
                  std::string_view tool_parser);

    // A chat's messages (JSON) as the template takes them.
    std::string messages_of(const schema::ChatPrompt& chat) const;

    // What each answer of a job must match; nullopt: anything.
    Expected<std::optional<schema::Structure>, schema::JobError> structure_of(const schema::Job& job) const;

    // How the answers of a chat are read. prompt: of the chat, as it was rendered.
    Expected<AnswerPlan, schema::JobError> plan(const schema::Job& job, std::string_view prompt) const;

    // answer: of the job. nullopt: answers have no thoughts.
    std::optional<engine::Thinking> thinking_of(const schema::Job& job, const AnswerPlan& answer) const;
    // Whether what may be drawn depends on a thought, beside the grammar.
    static bool depends_on_thought(const schema::Job& job, const AnswerPlan& answer, bool has_grammar);
    std::vector<engine::ShownToken> shown_tokens_of(const AnswerPlan& answer) const;
    // That end an answer whatever the model's files say.
    std::vector<engine::TokenId> end_tokens_of(const AnswerPlan& answer) const;

private:
    // Of an answer that must call a function.
    Expected<schema::Structure, schema::JobError> structure_of_calls(const schema::ToolUse& tools) const;
    Expected<void, schema::JobError> check_builtin_tools(const schema::ChatPrompt& chat) const;
    std::optional<engine::TokenId> special_token(std::string_view text) const;

    const TextEncoder& encoder_;
    const std::int64_t vocabulary_;
    const bool takes_tools_;  // the template has a place for them
    const AnswerFormats formats_;
    const bool divides_calls_;  // as shows_one_call() says
};

}  // namespace lorry::consumer
