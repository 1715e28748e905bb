// Regular expressions of adapter configs, with the meaning of Python's re.fullmatch. Adapter files are not trusted, so matching time is
// bounded: by pattern length times text length, or by the square of that product with lookaround, and by a number of steps for all matches
// of an adapter together. Called by adapter_config.cpp.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::engine {

// The steps that matches of one adapter's patterns may still take. A step is a state that is entered, or 64 states that are made ready; on
// a slow machine they take a quarter of a second.
struct MatchSteps {
    std::int64_t left = 50'000'000;
    bool are_used_up() const { return left < 0; }
};

// Supported: characters, ".", sets, \d \w \s and their opposites, groups, also named, "|", * + ? {m,n} (also lazy), ^ $ \A \Z \b \B,
// lookahead and lookbehind, and the flags (?i) and (?s). compile() refuses backreferences, conditional groups, other flags, possessive
// quantifiers, atomic groups and nested lookaround; the error names the reason.
class Pattern {
public:
    static Expected<Pattern, std::string> compile(std::string_view text);
    std::size_t size() const { return program_.size(); }  // in instructions
    // The whole text. False if the steps are used up.
    bool matches(std::string_view text, MatchSteps& steps) const;
    // As PEFT's (.*\.)?(PATTERN)$: the whole text, or the whole text after some dot. False if the steps are used up.
    bool matches_tail(std::string_view text, MatchSteps& steps) const;

private:
    friend class PatternParser;
    enum class Op : std::uint8_t {
        set,
        fork,
        jump,
        line_begin,
        line_end,
        word_boundary,
        no_word_boundary,
        ahead,
        not_ahead,
        behind,
        not_behind,
        accept
    };
    struct Instruction {
        Op op = Op::accept;
        std::size_t first = 0;   // set: index in sets_; fork, jump: target; lookaround: begin of its own program
        std::size_t second = 0;  // fork: the other target; lookaround: the instruction after it
        std::size_t width = 0;   // lookbehind: its fixed width in characters
    };
    using Set = std::bitset<256>;

    struct State {
        std::size_t instruction;
        std::size_t position;
    };
    bool run(std::vector<State> open, std::string_view text, bool to_the_end, MatchSteps& steps) const;

    std::vector<Instruction> program_;
    std::vector<Set> sets_;
};

}  // namespace lorry::engine
