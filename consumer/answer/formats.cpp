// The tables of formats. Their texts are those of the models' own chat templates.
#include "consumer/answer/formats.h"

#include <algorithm>

#include "schema/check.h"

namespace lorry::consumer {
namespace {

constexpr ThoughtFormat thoughts[] = {
    {"think", {"<think>", "</think>"}},
    {"mistral", {"[THINK]", "[/THINK]"}},
    {"seed_oss", {"<seed:think>", "</seed:think>"}},
    {"granite", {"Here is my thought process:", "Here is my response:"}},
    {"harmony",
     {.start = "<|channel|>analysis<|message|>",
      .end = "<|end|>",
      .harmony = true,
      .next = "<|start|>assistant",
      .answer = "<|channel|>final<|message|>"},
     "<|channel|>analysis<|message|>"},
};

constexpr CallMark hermes_marks[] = {{"<tool_call>", CallBody::object, "</tool_call>"}};
constexpr std::string_view hermes_tokens[] = {"<tool_call>", "</tool_call>"};

constexpr CallMark llama_marks[] = {{"<|python_tag|>", CallBody::objects}, {"{", CallBody::objects, "", true, true}};
constexpr std::string_view llama_tokens[] = {"<|python_tag|>"};

constexpr CallMark python_marks[] = {{"<|python_start|>", CallBody::python, "<|python_end|>"},
                                     {"<|python_tag|>", CallBody::python},
                                     {"[", CallBody::python, "", true, true}};
constexpr std::string_view python_tokens[] = {"<|python_start|>", "<|python_end|>", "<|python_tag|>"};

constexpr CallMark mistral_marks[] = {{"[TOOL_CALLS]", CallBody::array}, {"[TOOL_CALLS]", CallBody::named}};
constexpr std::string_view mistral_tokens[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};

constexpr CallMark phi_marks[] = {{"functools", CallBody::array}, {"<|tool_call|>", CallBody::array, "<|/tool_call|>"}};
constexpr std::string_view phi_tokens[] = {"<|tool_call|>", "<|/tool_call|>"};

// clang-format off
constexpr CallFormat calls[] = {
    {.name = "hermes", .in_template = "<tool_call>", .not_in_template = "<function=", .marks = hermes_marks, .tokens = hermes_tokens,
     .text = {.call_begin = "<tool_call>\n{\"name\": \"", .call_middle = "\", \"arguments\": ", .call_end = "}\n</tool_call>",
              .between = "\n"}},
    {.name = "mistral_args", .in_template = "[ARGS]", .marks = mistral_marks, .tokens = mistral_tokens,
     .text = {.call_begin = "[TOOL_CALLS]", .call_middle = "[ARGS]"}, .id_prefix = "", .id_digits = 9},
    {.name = "mistral", .in_template = "[TOOL_CALLS]", .marks = mistral_marks, .tokens = mistral_tokens,
     .text = {.before = "[TOOL_CALLS][", .call_begin = "{\"name\": \"", .call_middle = "\", \"arguments\": ", .call_end = "}",
              .between = ", ", .after = "]"}, .id_prefix = "", .id_digits = 9},
    {.name = "phi4_mini_json", .in_template = "<|tool|>", .marks = phi_marks, .tokens = phi_tokens,
     .text = {.before = "functools[", .call_begin = "{\"name\": \"", .call_middle = "\", \"arguments\": ", .call_end = "}",
              .between = ", ", .after = "]"}},
    {.name = "pythonic", .in_template = "func_name1(", .marks = python_marks, .tokens = python_tokens,
     .text = {.before = "[", .call_middle = "(", .call_end = ")", .between = ", ", .after = "]", .python = true}},
    {.name = "llama3_json", .in_template = "\"parameters\": dictionary of argument name", .marks = llama_marks, .tokens = llama_tokens,
     .text = {.call_begin = "{\"name\": \"", .call_middle = "\", \"parameters\": ", .call_end = "}", .between = "; "}},
    {.name = "harmony", .in_template = "<|channel|>commentary", .marks = {}, .tokens = engine::harmony_marks,
     .opening = "<|channel|>commentary",
     .text = {.call_begin = " to=functions.", .call_middle = " <|constrain|>json<|message|>", .once = true}},
};
// clang-format on

constexpr std::string_view harmony_name = "harmony";

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Of the table's rows, the one that the setting names, or the first that belongs to the template.
template <typename Row, typename Belongs>
const Row* chosen(std::span<const Row> rows, std::string_view setting, Belongs belongs) {
    if (setting == "none") return nullptr;
    const auto found = setting == "auto" ? std::ranges::find_if(rows, belongs) : std::ranges::find(rows, setting, &Row::name);
    CHECK(setting == "auto" || found != rows.end(), "a setting names a format of the table");
    return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::span<const ThoughtFormat> thought_formats() { return thoughts; }
std::span<const CallFormat> call_formats() { return calls; }

const ThoughtFormat* thought_format_of(std::string_view setting, std::string_view template_text) {
    return chosen(thought_formats(), setting, [&](const ThoughtFormat& row) { return has(template_text, row.in_template); });
}

const CallFormat* call_format_of(std::string_view setting, std::string_view template_text) {
    return chosen(call_formats(), setting, [&](const CallFormat& row) {
        return has(template_text, row.in_template) && (row.not_in_template.empty() || !has(template_text, row.not_in_template));
    });
}

AnswerFormats formats_of(const ThoughtFormat* thought, const CallFormat* calls, const std::function<bool(std::string_view)>& is_special) {
    const auto is_harmony = [](const auto* format) { return format != nullptr && format->name == harmony_name; };
    if (!is_harmony(thought) && !is_harmony(calls)) return {.thought = thought, .calls = calls};
    if (!std::ranges::all_of(engine::harmony_marks, is_special))
        return {.thought = is_harmony(thought) ? nullptr : thought, .calls = is_harmony(calls) ? nullptr : calls};
    return {.thought = is_harmony(thought) ? thought : nullptr, .calls = is_harmony(calls) ? calls : nullptr, .form = AnswerForm::harmony};
}

const engine::ThoughtMarks& harmony_thought_marks() { return std::ranges::find(thoughts, harmony_name, &ThoughtFormat::name)->marks; }

}  // namespace lorry::consumer
