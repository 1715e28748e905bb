// How long steps wait for masks, which say what the grammars and bad words of their sequences allow to be drawn next. A grammar whose masks
// take long holds back its own rows, not its neighbours'. Used by engine.cpp and batch.cpp. Times decide when a token is drawn, never
// which.
#pragma once

#include <optional>

namespace lorry::engine {

// For how long a step waits, on average.
struct MaskPatience {
    double step_share = 0.2;      // of the last step's time, but
    double seconds_least = 5e-3;  // as masks of large vocabularies take some tenths of a millisecond each
};

class MaskTime {
public:
    // nullopt: steps wait for all masks.
    explicit MaskTime(const std::optional<MaskPatience>& patience) : patience_(patience) {}

    void step_took(double seconds) { step_seconds_ = seconds; }
    // Before the masks of a step; the longest of them is expected to take this many seconds. The time that earlier steps left over is saved
    // for it.
    void begin(double longest);
    // Whether a step that has waited for `waited` seconds also waits for a mask that is expected to take `expected`. Any thread.
    bool affords(double waited, double expected) const;
    // After the step has waited for this many seconds.
    void end(double waited);

private:
    const std::optional<MaskPatience> patience_;
    double step_seconds_ = 0.0;
    double left_ = 0.0;
};

}  // namespace lorry::engine
