// Divides a chat's answer into reasoning, content and tool calls, as its text arrives. A result and the chunks of a stream are made
// by the same reader, so that they agree. Used by reply.h. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/answer/answer_plan.h"
#include "consumer/answer/call_parser.h"
#include "consumer/answer/formats.h"
#include "consumer/answer/harmony_answer.h"
#include "engine/text/thought.h"

namespace lorry::consumer {

class AnswerReader {
public:
    // The plan outlives the reader.
    explicit AnswerReader(const AnswerPlan& plan);

    // What became certain. Nothing is lost: what does not parse is content, but for white space around calls and thoughts.
    using Parts = AnswerParts;
    Parts push(std::string_view text);
    // The answer has ended: returns what was held back. was_cut: by a limit.
    Parts finish(bool was_cut = false);

private:
    struct FoundMark {
        std::size_t mark = 0;   // an index of the format's marks
        std::size_t place = 0;  // in rest()
    };
    void read(std::string text, bool final, Parts& parts);
    std::optional<FoundMark> find_mark() const;
    std::string_view rest() const { return std::string_view(text_).substr(begin_); }
    // False: there is nothing more to be read for now.
    bool read_text(bool final, Parts& parts);
    bool read_calls(bool final, Parts& parts);
    void add_content(std::string_view text, Parts& parts);
    bool looks_for_calls() const { return plan_.calls != nullptr && (plan_.parallel || calls_ == 0); }

    const AnswerPlan& plan_;
    std::optional<HarmonyAnswer> messages_;  // of AnswerForm::harmony, which needs nothing of what follows
    std::optional<engine::ThoughtReader> thought_;
    std::string text_;                 // of the answer; from begin_ on, it was not returned yet
    std::size_t begin_ = 0;            // 0 between the calls of push
    std::optional<std::size_t> mark_;  // that the rest begins with, an index of the format's marks
    std::size_t next_attempt_ = 0;     // the rest's size at which it is parsed again, so that long calls cost little
    std::string space_;                // white space that is returned if content follows
    bool has_content_ = false;
    std::size_t calls_ = 0;
};

// The id of a call: the same whenever the job runs. body_id: of the result.
std::string call_id(const CallFormat& format, std::string_view body_id, std::int32_t choice, std::size_t call);

}  // namespace lorry::consumer
