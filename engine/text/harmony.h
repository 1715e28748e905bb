// Reads the messages of GPT-OSS's format "harmony" (https://cookbook.openai.com/articles/openai-harmony) from an answer that arrives in
// pieces. A message is a header and a body: <|start|>assistant<|channel|>analysis<|message|>…<|end|>. The prompt ends after the first
// "<|start|>assistant". thought.h asks it for thoughts; consumer/answer/harmony_answer.h makes results of the messages.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/thought_state.h"

namespace lorry::engine {

// The special tokens of the format, as prompts spell them.
inline constexpr std::array<std::string_view, 7> harmony_marks = {"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                                                  "<|constrain|>", "<|return|>", "<|call|>"};
// How a mark stands in the text of an answer: after a character that Unicode reserves for use within a program. So a text that only spells
// a mark, as an explanation of the format does, is not a mark.
std::string harmony_text_of(std::string_view mark);

// Some text of one message.
struct HarmonyPart {
    bool is_thought = false;    // the message is in the channel "analysis"
    std::string function = {};  // that it calls, without "functions."; empty: none
    std::string text = {};      // without marks; may be empty
    bool begins = false;        // the message begins with this part
    bool ends = false;          // and ends with this one
};

// Any text can be read. In a header, only the channel and a recipient "to=functions.NAME" count, in any order and among any other words.
// Text without a header is content. A header whose message never begins is left out, unless it has words of its own, which are the message
// then. One thread at a time.
class HarmonyReader {
public:
    // begin: undecided if the prompt ends in a header, otherwise the kind of the message that it has begun.
    explicit HarmonyReader(ThoughtState begin);

    // Text that became certain.
    std::vector<HarmonyPart> push(std::string_view text);
    // The text has ended: returns what was held back.
    std::vector<HarmonyPart> finish();
    // undecided: in a header; thinking: in a message that is a thought.
    ThoughtState state() const;

private:
    struct Header {
        bool has_role = false;  // it came after <|start|>
        std::string role;       // the text before any mark, with the role if it has one
        bool has_channel = false;
        std::string channel;  // the text after <|channel|>
        bool has_type = false;
    };
    void read(bool final);
    std::size_t read_mark(std::string_view text, bool final);
    void take_mark(std::string_view mark);
    void take_text(std::string_view text);
    void begin_header(bool has_role);
    void begin_message();
    void end_message();
    void add(std::string_view text, bool ends);
    // The header's text that comes after its first word, or all of it if it has no role and no channel.
    std::string_view words_after_name() const;
    std::string_view recipient() const;

    std::string held_;  // not read yet: what may be the beginning of a mark
    bool in_message_ = false;
    Header header_;        // not in_message_
    HarmonyPart message_;  // in_message_: what its parts have in common; `begins` until the first was added
    std::vector<HarmonyPart> parts_;
};

}  // namespace lorry::engine
