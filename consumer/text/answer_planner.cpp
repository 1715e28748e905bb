// Chooses between thoughts, calls and content before the first token is drawn.
#include "consumer/text/answer_planner.h"

#include <algorithm>

#include "consumer/answer/call_grammar.h"
#include "consumer/answer/harmony_history.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

using engine::TokenId;
using schema::ErrorCode;
using schema::JobError;

// Whether the prompt opens a thought, or closes one. A message that the answer goes on with has begun it.
engine::ThoughtState state_after(const engine::ThoughtMarks& marks, std::string_view prompt, const schema::ChatPrompt& chat) {
    using engine::ThoughtState;
    const std::string_view written = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
    if (marks.harmony) {
        if (chat.continued) return ThoughtState::answering;
        if (written.ends_with(marks.start)) return ThoughtState::thinking;
        return written.ends_with("<|message|>") ? ThoughtState::answering : ThoughtState::undecided;
    }
    if (chat.continued && !chat.continued->empty()) {
        engine::ThoughtReader reader(marks, ThoughtState::undecided);
        reader.push(*chat.continued);
        return reader.state() == ThoughtState::thinking ? ThoughtState::thinking : ThoughtState::answering;
    }
    if (written.ends_with(marks.start)) return ThoughtState::thinking;
    return written.ends_with(marks.end) ? ThoughtState::answering : ThoughtState::undecided;
}

// Of answers with thoughts, and of messages, whatever becomes of their thoughts. nullptr: there are none.
const engine::ThoughtMarks* thought_marks_of(const AnswerPlan& answer) {
    if (answer.form == AnswerForm::harmony) return &harmony_thought_marks();
    return answer.thought == nullptr ? nullptr : &answer.thought->marks;
}

}  // namespace

AnswerPlanner::AnswerPlanner(const TextEncoder& encoder, std::string_view chat_template, std::int64_t vocabulary,
                             std::string_view reasoning_parser, std::string_view tool_parser)
    : encoder_(encoder),
      vocabulary_(vocabulary),
      takes_tools_(chat_template.find("tools") != std::string_view::npos),
      formats_(formats_of(thought_format_of(reasoning_parser, chat_template), call_format_of(tool_parser, chat_template),
                          [this](std::string_view text) { return special_token(text).has_value(); })),
      divides_calls_(formats_.form == AnswerForm::harmony && shows_one_call(chat_template)) {}

std::string AnswerPlanner::messages_of(const schema::ChatPrompt& chat) const {
    return divides_calls_ ? with_one_call_each(chat.messages) : chat.messages;
}

Expected<AnswerPlan, JobError> AnswerPlanner::plan(const schema::Job& job, std::string_view prompt) const {
    const auto& chat = std::get<schema::ChatPrompt>(job.prompt);
    AnswerPlan answer{.form = formats_.form, .thought = formats_.thought, .is_structured = job.structure.has_value()};
    if (const auto* marks = thought_marks_of(answer)) answer.begin = state_after(*marks, prompt, chat);
    if (formats_.thought == nullptr && job.sampling.thinking_token_budget) {
        return unexpected(
            error_at(ErrorCode::unsupported_by_model, "thinking_token_budget",
                     "this model has no thoughts that Lorry knows; leave 'thinking_token_budget' out, or set reasoning_parser"));
    }
    if (auto valid = check_builtin_tools(chat); !valid) return unexpected(valid.error());
    const schema::ToolUse& tools = job.tools;
    if (tools.choice == schema::ToolUse::Choice::none) return answer;
    if (!tools.functions.empty() && tools.choice == schema::ToolUse::Choice::automatic && !takes_tools_) {
        return unexpected(error_at(ErrorCode::unsupported_by_model, "tools",
                                   "this model's chat template has no place for tools, so the model would not see them; leave 'tools' out, "
                                   "or set \"tool_choice\": \"none\""));
    }
    answer.calls = formats_.calls;
    answer.parallel = tools.parallel && !tools.named;
    for (const schema::ToolFunction& function : tools.functions) answer.names.push_back(function.name);
    return answer;
}

Expected<std::optional<schema::Structure>, JobError> AnswerPlanner::structure_of(const schema::Job& job) const {
    if (job.tools.choice != schema::ToolUse::Choice::required) return job.structure;
    auto structure = structure_of_calls(job.tools);
    if (!structure) return unexpected(std::move(structure.error()));
    return std::optional(std::move(*structure));
}

// Templates of harmony offer the model tools that an engine runs itself.
Expected<void, JobError> AnswerPlanner::check_builtin_tools(const schema::ChatPrompt& chat) const {
    if (formats_.form != AnswerForm::harmony || chat.template_options.empty()) return {};
    const auto options = schema::Json::parse(chat.template_options);
    CHECK(options, "the codec wrote the options");
    const schema::Json* tools = options->find("builtin_tools");
    if (tools == nullptr || tools->is_null() || (tools->is_array() && tools->as_array()->empty())) return {};
    return unexpected(error_at(ErrorCode::unsupported_by_model, "chat_template_kwargs",
                               "field 'chat_template_kwargs.builtin_tools' offers tools that Lorry does not run; leave it out, or describe "
                               "your own functions in 'tools'"));
}

Expected<schema::Structure, JobError> AnswerPlanner::structure_of_calls(const schema::ToolUse& tools) const {
    if (formats_.calls == nullptr) {
        return unexpected(error_at(ErrorCode::unsupported_by_model, "tool_choice",
                                   "this model's chat template shows no format of calls that Lorry knows, so calls cannot be demanded; " +
                                       std::string(takes_tools_ ? "use \"auto\", or set tool_parser" : "use another model")));
    }
    auto structure = call_structure(*formats_.calls, tools, [this](std::string_view text) { return special_token(text); });
    if (!structure)
        return unexpected(error_at(ErrorCode::invalid_structure, "tools", "field 'tools' cannot be used: " + structure.error()));
    return std::move(*structure);
}

std::optional<TokenId> AnswerPlanner::special_token(std::string_view text) const {
    const engine::Tokenizer& tokenizer = encoder_.tokenizer();
    const auto token = tokenizer.find(text);
    return token && tokenizer.is_special(*token) && *token < vocabulary_ ? token : std::nullopt;
}

std::optional<engine::Thinking> AnswerPlanner::thinking_of(const schema::Job& job, const AnswerPlan& answer) const {
    const engine::ThoughtMarks* marks = thought_marks_of(answer);
    if (marks == nullptr) return std::nullopt;
    const auto tokens_of = [this](std::string_view text) {
        auto tokens = encoder_.encode(text, false, "messages");
        return tokens ? std::move(*tokens) : std::vector<TokenId>();
    };
    const bool must_call = answer.calls != nullptr && job.tools.choice == schema::ToolUse::Choice::required;
    engine::Thinking thinking{.marks = marks,
                              .begin = answer.begin,
                              .start_tokens = tokens_of(marks->start),
                              .end_tokens = tokens_of(marks->end),
                              .next_tokens = tokens_of(marks->next),
                              .answer_tokens = tokens_of(must_call ? answer.calls->opening : marks->answer),
                              .budget = job.sampling.thinking_token_budget};
    const bool can_start = std::ranges::all_of(thinking.start_tokens, [this](TokenId token) { return token < vocabulary_; });
    if (!can_start) thinking.start_tokens.clear();
    return thinking;
}

bool AnswerPlanner::depends_on_thought(const schema::Job& job, const AnswerPlan& answer, bool has_grammar) {
    const engine::ThoughtMarks* marks = thought_marks_of(answer);
    return marks != nullptr && (has_grammar || (marks->harmony && job.sampling.thinking_token_budget));
}

std::vector<engine::ShownToken> AnswerPlanner::shown_tokens_of(const AnswerPlan& answer) const {
    std::vector<engine::ShownToken> shown;
    const auto show = [&](std::string_view mark) {
        const auto token = special_token(mark);
        if (!token) return;
        shown.push_back({.token = *token, .text = answer.form == AnswerForm::harmony ? engine::harmony_text_of(mark) : std::string(mark)});
    };
    if (answer.form == AnswerForm::harmony) {
        std::ranges::for_each(engine::harmony_marks, show);
        return shown;
    }
    if (answer.thought != nullptr) {
        show(answer.thought->marks.start);
        show(answer.thought->marks.end);
    }
    if (answer.calls != nullptr) std::ranges::for_each(answer.calls->tokens, show);
    return shown;
}

// Checkpoints exist whose files name only one of them. A model that goes on after its call invents the result.
std::vector<TokenId> AnswerPlanner::end_tokens_of(const AnswerPlan& answer) const {
    std::vector<TokenId> tokens;
    if (answer.form != AnswerForm::harmony) return tokens;
    for (const std::string_view mark : {"<|return|>", "<|call|>"}) tokens.push_back(special_token(mark).value());
    return tokens;
}

}  // namespace lorry::consumer
