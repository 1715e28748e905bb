// Keeps compiled grammars within their budget.
#include "engine/text/grammar_cache.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "engine/text/grammar.h"

namespace lorry::engine {

GrammarCache::Result GrammarCache::get(std::string key, const std::function<Compiled()>& compile) {
    std::promise<Result> promise;
    std::unique_lock lock(mutex_);
    if (const auto place = places_.find(key); place != places_.end()) {
        kept_.splice(kept_.begin(), kept_, place->second);
        const Pending result = place->second->result;
        lock.unlock();
        return result.get();
    }
    kept_.push_front({.key = std::move(key), .result = promise.get_future().share()});
    const Place kept = kept_.begin();
    places_.emplace(kept->key, kept);
    ++compilations_;
    lock.unlock();
    Compiled compiled;
    try {
        compiled = compile();
        promise.set_value(compiled.result);
    } catch (...) {
        settle(kept, {});
        promise.set_exception(std::current_exception());
        throw;
    }
    settle(kept, compiled);
    return std::move(compiled.result);
}

GrammarCache::Pending GrammarCache::find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(key);
    if (place == places_.end() || place->second->result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    kept_.splice(kept_.begin(), kept_, place->second);
    return place->second->result;
}

void GrammarCache::drop(std::string_view prefix) {
    const std::lock_guard lock(mutex_);
    for (Place place = kept_.begin(); place != kept_.end();) {
        place = place->key.starts_with(prefix) ? forget(place) : std::next(place);
    }
}

GrammarCache::Stats GrammarCache::stats() const {
    const std::lock_guard lock(mutex_);
    return {.compilations = compilations_, .kept = kept_.size(), .kept_bytes = kept_bytes_};
}

// Keeps what was compiled, if it will be the same another time, and forgets what was asked for longest ago.
void GrammarCache::settle(Place kept, const Compiled& compiled) {
    const std::lock_guard lock(mutex_);
    if (!compiled.is_final) {
        forget(kept);
        return;
    }
    kept->bytes = kept->key.size() + sizeof(Kept) + (compiled.result ? (*compiled.result)->size().bytes : compiled.result.error().size());
    kept_bytes_ += *kept->bytes;
    for (auto place = kept_.end(); kept_bytes_ > bytes_max_ && place != kept_.begin();) {
        const auto oldest = std::prev(place);
        place = oldest->bytes ? forget(oldest) : oldest;
    }
}

// Returns the place after it.
GrammarCache::Place GrammarCache::forget(Place kept) {
    kept_bytes_ -= kept->bytes.value_or(0);
    places_.erase(kept->key);
    return kept_.erase(kept);
}

}  // namespace lorry::engine
