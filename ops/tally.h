// Jobs counted per model as they end: the figures of `lorry run`'s progress and summary. Memory is bounded whatever names jobs ask for.
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "consumer/observer.h"
#include "schema/json.h"

namespace lorry::ops {

struct ModelTally {
    std::int64_t jobs = 0;
    std::int64_t failed = 0;
    schema::Usage usage;
};

class Tally {
public:
    void add(const consumer::JobObservation& job);
    void add_nameless(const std::string& reason);

    const ModelTally& total() const { return total_; }
    // A line per model and one for all; then the kinds of errors, most frequent first.
    std::string table(double seconds) const;
    std::string errors() const;
    schema::Json json(double seconds) const;

private:
    struct Error {
        std::int64_t count = 0;
        std::string first;  // message
    };
    void add_error(const std::string& text);

    std::map<std::string, ModelTally> models_;
    std::map<std::string, Error> errors_;  // by code
    ModelTally total_;
};

}  // namespace lorry::ops
