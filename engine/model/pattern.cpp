// A recursive parser emits a small program. The matcher follows all paths through it, and enters each (instruction, position) at most once.
#include "engine/model/pattern.h"

#include <fmt/format.h>

#include <optional>

namespace lorry::engine {
namespace {

constexpr std::size_t program_max = 5000;  // instructions, counted repetitions unrolled
constexpr int depth_max = 50;              // groups within groups
constexpr int repeats_max = 1000;
constexpr std::string_view meta = "\\.[](){}*+?|^$";

constexpr bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

// One per compile(). Each parse function emits its part of the program. The first error is kept.
class PatternParser {
public:
    explicit PatternParser(std::string_view text) : text_(text) {}

    Expected<Pattern, std::string> parse() {
        flags();
        alternatives(0);
        if (at_ < text_.size()) fail("an opening parenthesis is missing");
        emit({Pattern::Op::accept});
        if (!error_.empty()) return unexpected(fmt::format("{} (at character {})", error_, error_at_));
        return std::move(pattern_);
    }

private:
    using Op = Pattern::Op;
    using Set = Pattern::Set;

    std::size_t size() const { return pattern_.program_.size(); }
    Pattern::Instruction& at(std::size_t index) { return pattern_.program_[index]; }
    bool more() const { return error_.empty() && at_ < text_.size(); }
    bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
    bool take(std::string_view what) {
        if (!next_is(what)) return false;
        at_ += what.size();
        return true;
    }
    void fail(std::string why) {
        if (error_.empty()) {
            error_ = std::move(why);
            error_at_ = at_;
        }
    }
    std::size_t emit(Pattern::Instruction instruction) {
        if (size() >= program_max)
            fail(fmt::format("the pattern is too large: it needs more than {} instructions", program_max));
        else
            pattern_.program_.push_back(instruction);
        return size() - 1;
    }
    // Inserts a fork before instruction `begin`; the instructions from there on move up by one.
    void insert_fork(std::size_t begin) {
        emit({});
        if (!error_.empty()) return;
        auto& program = pattern_.program_;
        for (std::size_t i = size() - 1; i > begin; --i) {
            program[i] = program[i - 1];
            shift_targets(program[i], begin, 1);
        }
        program[begin] = {Op::fork, begin + 1, 0};
    }
    static void shift_targets(Pattern::Instruction& instruction, std::size_t from, std::size_t by) {
        if (instruction.op == Op::set) return;
        if (instruction.first >= from) instruction.first += by;
        if (instruction.second >= from) instruction.second += by;
    }

    void alternatives(int depth) {
        if (depth > depth_max) return fail(fmt::format("groups are nested more than {} deep", depth_max));
        std::vector<std::size_t> jumps;  // each from the end of an alternative to the end of the last one
        while (true) {
            const std::size_t begin = size();
            sequence(depth);
            if (!more() || !take("|")) break;
            insert_fork(begin);
            jumps.push_back(emit({Op::jump}));
            if (!error_.empty()) return;
            at(begin).second = size();
        }
        for (const std::size_t jump : jumps) at(jump).first = size();
    }

    void sequence(int depth) {
        while (more() && !next_is("|") && !next_is(")")) repeated(depth);
    }

    void repeated(int depth) {
        const std::size_t begin = size();
        atom(depth);
        const std::size_t end = size();
        if (!more()) return;
        std::size_t lowest = 1;
        std::optional<std::size_t> highest = 1;
        if (take("*"))
            lowest = 0, highest.reset();
        else if (take("+"))
            highest.reset();
        else if (take("?"))
            lowest = 0;
        else if (next_is("{"))
            count(lowest, highest);
        else
            return;
        take("?");  // lazy repetition matches the same texts
        if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) return fail("repetition of a repetition is not supported");
        repeat(begin, end, lowest, highest);
    }

    // Replaces the program [begin, end) of an atom by `lowest` copies of it, followed by optional copies up to `highest` (nullopt: any
    // number).
    void repeat(std::size_t begin, std::size_t end, std::size_t lowest, std::optional<std::size_t> highest) {
        const std::vector<Pattern::Instruction> body(pattern_.program_.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     pattern_.program_.begin() + static_cast<std::ptrdiff_t>(end));
        pattern_.program_.resize(begin);
        const auto copy = [&] {
            const std::size_t by = size() - begin;
            for (Pattern::Instruction instruction : body) {
                shift_targets(instruction, begin, by);
                emit(instruction);
            }
        };
        for (std::size_t i = 0; i < lowest && error_.empty(); ++i) copy();
        if (!highest) {
            const std::size_t fork = emit({Op::fork, size() + 1});
            copy();
            emit({Op::jump, fork});
            if (error_.empty()) at(fork).second = size();
            return;
        }
        for (std::size_t i = lowest; i < *highest && error_.empty(); ++i) {
            const std::size_t fork = emit({Op::fork, size() + 1});
            copy();
            if (error_.empty()) at(fork).second = size();
        }
    }

    // {3} {3,} {,5} {3,5}
    void count(std::size_t& lowest, std::optional<std::size_t>& highest) {
        take("{");
        const auto low = number();
        lowest = low.value_or(0);
        highest = lowest;
        if (take(",")) {
            highest = number();
        } else if (!low) {
            fail("{} must contain a number");
        }
        if (!take("}")) fail("a closing } is missing");
        if (lowest > repeats_max || highest.value_or(0) > repeats_max)
            fail(fmt::format("more than {} repetitions are not supported", repeats_max));
        if (highest && *highest < lowest) fail("the numbers in {} are in the wrong order");
    }
    std::optional<std::size_t> number() {
        std::optional<std::size_t> value;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value.value_or(0) <= repeats_max) {
            value = value.value_or(0) * 10 + static_cast<std::size_t>(text_[at_++] - '0');
        }
        return value;
    }

    void atom(int depth) {
        if (take("(")) return group(depth);
        if (take("^") || take("\\A")) return void(emit({Op::line_begin}));
        if (take("$") || take("\\Z")) return void(emit({Op::line_end}));
        if (take("\\b")) return void(emit({Op::word_boundary}));
        if (take("\\B")) return void(emit({Op::no_word_boundary}));
        if (take(".")) {
            Set all;
            all.set();
            if (!dot_takes_all_) all.reset('\n');
            return emit_set(all);
        }
        if (take("[")) return emit_set(set());
        if (take("\\")) return emit_set(escaped());
        if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) return fail("there is nothing to repeat");
        Set single;
        single.set(static_cast<unsigned char>(text_[at_++]));
        emit_set(folded(single));
    }
    void emit_set(const Set& set) {
        emit({Op::set, pattern_.sets_.size()});
        pattern_.sets_.push_back(set);
    }
    // The set, with the other case of its letters if the pattern ignores case.
    Set folded(Set set) const {
        for (unsigned c = 'a'; ignores_case_ && c <= 'z'; ++c) {
            const unsigned capital = c - 'a' + 'A';
            if (set.test(c) || set.test(capital)) set.set(c).set(capital);
        }
        return set;
    }

    // (?is) at the start of the pattern. (?a), (?m), (?u) change nothing for names of modules, which are ASCII without line ends.
    void flags() {
        const std::size_t end = text_.find(')');
        if (!next_is("(?") || end == text_.npos || end == 2 || text_.substr(2, end - 2).find_first_not_of("aimsu") != text_.npos) return;
        ignores_case_ = text_.substr(2, end - 2).find('i') != text_.npos;
        dot_takes_all_ = text_.substr(2, end - 2).find('s') != text_.npos;
        at_ = end + 1;
    }

    void group(int depth) {
        if (take("?=")) {
            lookaround(Op::ahead, depth);
        } else if (take("?!")) {
            lookaround(Op::not_ahead, depth);
        } else if (take("?<=")) {
            lookaround(Op::behind, depth);
        } else if (take("?<!")) {
            lookaround(Op::not_behind, depth);
        } else if (take("?P<")) {
            while (more() && is_word(text_[at_])) ++at_;
            if (!take(">")) return fail("the name of a group must end with >");
            alternatives(depth + 1);
        } else if (!take("?:") && next_is("?")) {
            return fail("this (? group is not supported; supported are (?:...), (?P<name>...), lookahead and lookbehind");
        } else {
            alternatives(depth + 1);
        }
        if (!take(")")) fail("a closing parenthesis is missing");
    }
    void lookaround(Op op, int depth) {
        // Nested, it would take time exponential in the depth of the nesting.
        if (in_lookaround_) return fail("nested lookaround is not supported");
        in_lookaround_ = true;
        const std::size_t look = emit({op, size() + 1});
        alternatives(depth + 1);
        in_lookaround_ = false;
        emit({Op::accept});
        if (!error_.empty()) return;
        at(look).second = size();
        if (op != Op::behind && op != Op::not_behind) return;
        const auto width = width_of(look + 1);
        if (!width) return fail("lookbehind requires a fixed width");
        at(look).width = *width;
    }
    // The number of characters on every path from this instruction to `accept`; nullopt if paths differ.
    std::optional<std::size_t> width_of(std::size_t begin) const {
        const auto& program = pattern_.program_;
        std::vector<std::optional<std::size_t>> widths(program.size());
        std::vector<std::pair<std::size_t, std::size_t>> open = {{begin, 0}};
        std::optional<std::size_t> width;
        while (!open.empty()) {
            const auto [index, before] = open.back();
            open.pop_back();
            if (widths[index]) {
                if (*widths[index] != before) return std::nullopt;
                continue;
            }
            widths[index] = before;
            const Pattern::Instruction& instruction = program[index];
            if (instruction.op == Op::accept) {
                width = before;
            } else if (instruction.op == Op::fork || instruction.op == Op::jump) {
                open.emplace_back(instruction.first, before);
                if (instruction.op == Op::fork) open.emplace_back(instruction.second, before);
            } else {
                open.emplace_back(index + 1, before + (instruction.op == Op::set ? 1 : 0));
            }
        }
        return width;
    }

    // The set of characters that the escape after a backslash stands for.
    Set escaped() {
        Set set;
        if (at_ == text_.size()) {
            fail("the pattern ends with a backslash");
            return set;
        }
        const char c = text_[at_++];
        const auto range = [&](char from, char to) {
            for (char i = from; i <= to; ++i) set.set(static_cast<unsigned char>(i));
        };
        switch (c) {
            case 'd':
            case 'D': range('0', '9'); break;
            case 'w':
            case 'W': range('0', '9'), range('a', 'z'), range('A', 'Z'), set.set('_'); break;
            case 's':
            case 'S':
                for (const char space : {' ', '\t', '\n', '\r', '\f', '\v'}) set.set(static_cast<unsigned char>(space));
                break;
            case 'n': set.set('\n'); break;
            case 't': set.set('\t'); break;
            default:
                if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
                    fail(fmt::format("\\{} is not supported", c));
                set.set(static_cast<unsigned char>(c));
        }
        return c == 'D' || c == 'W' || c == 'S' ? ~set : set;
    }

    // [abc], [a-z], [^abc]; the opening bracket was already taken.
    Set set() {
        Set set;
        const bool negated = take("^");
        bool first = true;
        while (more() && (first || !next_is("]"))) {
            first = false;
            const bool escape = take("\\");
            const Set low = escape ? escaped() : Set().set(static_cast<unsigned char>(text_[at_++]));
            const auto from = static_cast<unsigned char>(text_[at_ - 1]);
            set |= low;
            if (low.count() != 1 || !next_is("-") || text_.substr(at_).starts_with("-]") || at_ + 1 >= text_.size()) continue;
            take("-");
            const bool escape_high = take("\\");
            if (at_ == text_.size()) break;
            const auto to = static_cast<unsigned char>(text_[at_++]);
            if (escape_high && meta.find(static_cast<char>(to)) == meta.npos) fail("this range is not supported");
            if (to < from) fail("this range is in the wrong order");
            for (unsigned c = from; c <= to; ++c) set.set(c);
        }
        if (!take("]")) fail("a closing ] is missing");
        return negated ? ~folded(set) : folded(set);
    }

    std::string_view text_;
    std::size_t at_ = 0;
    Pattern pattern_;
    std::string error_;
    std::size_t error_at_ = 0;
    bool in_lookaround_ = false;
    bool ignores_case_ = false;
    bool dot_takes_all_ = false;
};

Expected<Pattern, std::string> Pattern::compile(std::string_view text) { return PatternParser(text).parse(); }

bool Pattern::matches(std::string_view text, MatchSteps& steps) const { return run({{0, 0}}, text, true, steps); }

bool Pattern::matches_tail(std::string_view text, MatchSteps& steps) const {
    std::vector<State> starts = {{0, 0}};
    for (std::size_t dot = text.find('.'); dot != text.npos; dot = text.find('.', dot + 1)) starts.push_back({0, dot + 1});
    return run(std::move(starts), text, true, steps);
}

// True if some path from one of the states accepts. to_the_end: only at the end of the text.
bool Pattern::run(std::vector<State> open, std::string_view text, bool to_the_end, MatchSteps& steps) const {
    const std::size_t states = program_.size() * (text.size() + 1);
    steps.left -= static_cast<std::int64_t>(states / 64);
    if (steps.are_used_up()) return false;
    std::vector<bool> entered(states);
    const auto enter = [&](std::size_t instruction, std::size_t at) { open.push_back({instruction, at}); };
    while (!open.empty()) {
        if (--steps.left < 0) return false;
        const State state = open.back();
        open.pop_back();
        const std::size_t key = state.instruction * (text.size() + 1) + state.position;
        if (entered[key]) continue;
        entered[key] = true;
        const Instruction& instruction = program_[state.instruction];
        const std::size_t next = state.instruction + 1;
        switch (instruction.op) {
            case Op::set:
                if (state.position < text.size() && sets_[instruction.first].test(static_cast<unsigned char>(text[state.position]))) {
                    enter(next, state.position + 1);
                }
                break;
            case Op::fork:
                enter(instruction.second, state.position);
                enter(instruction.first, state.position);
                break;
            case Op::jump: enter(instruction.first, state.position); break;
            case Op::line_begin:
                if (state.position == 0) enter(next, state.position);
                break;
            case Op::line_end:
                if (state.position == text.size()) enter(next, state.position);
                break;
            case Op::word_boundary:
            case Op::no_word_boundary: {
                const bool before = state.position > 0 && is_word(text[state.position - 1]);
                const bool after = state.position < text.size() && is_word(text[state.position]);
                if ((before != after) == (instruction.op == Op::word_boundary)) enter(next, state.position);
                break;
            }
            case Op::ahead:
            case Op::not_ahead:
                if (run({{instruction.first, state.position}}, text, false, steps) == (instruction.op == Op::ahead))
                    enter(instruction.second, state.position);
                break;
            case Op::behind:
            case Op::not_behind: {
                const bool fits = state.position >= instruction.width;
                const bool found = fits && run({{instruction.first, state.position - instruction.width}}, text, false, steps);
                if (found == (instruction.op == Op::behind)) enter(instruction.second, state.position);
                break;
            }
            case Op::accept:
                if (!to_the_end || state.position == text.size()) return true;
                break;
        }
    }
    return false;
}

}  // namespace lorry::engine
