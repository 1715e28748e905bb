// The compiled grammars that were requested last. Used by grammar.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "schema/check.h"

namespace lorry::engine {

class Grammar;

// Keeps grammars, and the errors of structures that cannot be compiled: most jobs of a batch request the same one. Compilers may share one,
// so that a model and all its adapters with tokenizers of their own have one budget. Any number of threads, which compile at the same time;
// equal ones are compiled once.
class GrammarCache {
public:
    using Shared = std::shared_ptr<const Grammar>;
    using Result = Expected<Shared, std::string>;
    using Pending = std::shared_future<Result>;
    struct Compiled {
        Result result;
        bool is_final = false;  // another attempt would end in the same way
    };

    // bytes_max: of all that is kept, with its keys.
    explicit GrammarCache(std::size_t bytes_max = std::size_t{64} << 20) : bytes_max_(bytes_max) {}
    GrammarCache(const GrammarCache&) = delete;
    GrammarCache& operator=(const GrammarCache&) = delete;

    // What is kept for the key; else what another thread is compiling for it; else what compile() returns, which is kept if it is final.
    Result get(std::string key, const std::function<Compiled()>& compile);
    // What get() would return at once. Not valid: it would compile, or wait for another thread.
    Pending find(const std::string& key);
    // Drops all whose keys begin so. Nobody may be compiling one of them.
    void drop(std::string_view prefix);

    struct Stats {
        std::uint64_t compilations = 0;  // so far, with those that failed
        std::size_t kept = 0;            // grammars and errors
        std::size_t kept_bytes = 0;
    };
    Stats stats() const;

private:
    struct Kept {
        std::string key;
        Pending result;
        std::optional<std::size_t> bytes = {};  // nullopt: it is being compiled
    };
    using Place = std::list<Kept>::iterator;

    void settle(Place kept, const Compiled& compiled);
    Place forget(Place kept);

    const std::size_t bytes_max_;
    mutable std::mutex mutex_;  // guards all below
    std::list<Kept> kept_;      // the one that was asked for last comes first
    std::unordered_map<std::string_view, Place> places_;
    std::size_t kept_bytes_ = 0;
    std::uint64_t compilations_ = 0;
};

}  // namespace lorry::engine
