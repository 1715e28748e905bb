// Learns what rows add to the time of a step that decodes, so that drafts are made only where they pay. Used by engine.cpp, on its thread.
// Times decide how much is drafted, never what an answer is.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace lorry::engine {

class StepCost {
public:
    using Time = std::chrono::steady_clock::time_point;
    struct Step {
        std::int64_t rows = 0;
        bool decodes = false;  // all rows have logits; times of other steps do not count
        Time begun;
    };
    void launched(const Step& step);
    // The oldest step that was launched is done. Returns how many seconds it took: since its launch or, if it was queued, since the one
    // before it was read.
    double read(Time now);
    // The chance of being right from which a guess pays: the time that its row takes, and what it takes besides (guess_seconds), over the
    // time that a token takes while this many sequences are decoded. Above 1: none pays. A row takes 1 / 16 of a step's fixed part until
    // steps of several sizes were seen.
    double chance_least(std::int64_t sequences, double guess_seconds = 0.0) const;

private:
    // What steps take; nullopt until one was seen.
    struct Line {
        double fixed = 0.0;
        double per_row = 0.0;
    };
    std::optional<Line> fit() const;
    void add(std::int64_t rows, double seconds);

    // Steps of 2^i to 2^(i + 1) - 1 rows, the latest ones first of all.
    struct Steps {
        double rows = 0.0;  // 0: none yet
        double seconds = 0.0;
    };
    std::array<Steps, 16> sizes_{};
    std::deque<Step> queued_;
    Time last_read_;
};

}  // namespace lorry::engine
