// How models write thoughts and tool calls: one row per format. The chat template of a model says which is its own, or a setting
// (reasoning_parser, tool_parser) does. Used by answer_reader.h, call_grammar.h and the preparer. Constant; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/text/thought.h"

namespace lorry::consumer {

// May stand between the parts of calls, and around them.
inline constexpr std::string_view answer_space = " \t\r\n";

struct ThoughtFormat {
    std::string_view name;  // of the setting
    engine::ThoughtMarks marks;
    std::string_view in_template = marks.end;
};

// What follows a mark that begins calls.
enum class CallBody : std::uint8_t {
    object,   // {"name": …, "arguments": {…}}
    objects,  // several of them with semicolons between
    array,    // a JSON array of them
    named,    // the name, [ARGS] or nothing, and the object of the arguments
    python,   // [name(argument=value, …), …]
};

// How an answer is written.
enum class AnswerForm : std::uint8_t {
    text,     // with marks for what is no content
    harmony,  // messages (engine/text/harmony.h)
};

struct CallMark {
    std::string_view start;
    CallBody body;
    std::string_view end = "";     // may be missing where the text ends
    bool begins_answer = false;    // it is a mark only at the beginning of an answer
    bool is_part_of_body = false;  // the body begins with the mark
};

// The text of calls that a grammar demands: before, call (between, call)*, after. A call: begin, name, middle, arguments, end.
struct CallText {
    std::string_view before = "";
    std::string_view call_begin = "";
    std::string_view call_middle;
    std::string_view call_end = "";
    std::string_view between = "";
    std::string_view after = "";
    bool python = false;  // the arguments are name=value, with JSON values
    bool once = false;    // an answer has one call
};

struct CallFormat {
    std::string_view name;  // of the setting
    std::string_view in_template;
    std::string_view not_in_template = "";     // of another format that has in_template, too
    std::span<const CallMark> marks;           // in the order in which they are tried; harmony: none
    std::span<const std::string_view> tokens;  // texts that may be special tokens of the model
    std::string_view opening = "";             // comes before `text`, harmony: the beginning of a call's header
    CallText text;
    std::string_view id_prefix = "call_";
    std::size_t id_digits = 24;
};

std::span<const ThoughtFormat> thought_formats();
std::span<const CallFormat> call_formats();

// The formats of a model; nullptr: it has none that is known. `setting` is a row's name, "auto" for what the template's text says, or
// "none". Unknown names are a broken invariant: settings are checked before.
const ThoughtFormat* thought_format_of(std::string_view setting, std::string_view template_text);
const CallFormat* call_format_of(std::string_view setting, std::string_view template_text);

// Both formats of one model. A model that writes messages writes its thoughts and its calls as messages: of a pair of which one is harmony,
// the other is harmony or none.
struct AnswerFormats {
    const ThoughtFormat* thought = nullptr;
    const CallFormat* calls = nullptr;
    AnswerForm form = AnswerForm::text;
};
// is_special: whether a text is a special token of the model. The marks of messages must be: where they are not, there is no harmony.
AnswerFormats formats_of(const ThoughtFormat* thought, const CallFormat* calls, const std::function<bool(std::string_view)>& is_special);

// The marks of AnswerForm::harmony.
const engine::ThoughtMarks& harmony_thought_marks();

}  // namespace lorry::consumer
