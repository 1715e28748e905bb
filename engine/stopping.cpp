// Searches for stop texts in a growing text.
#include "engine/stopping.h"

#include <algorithm>

namespace lorry::engine {

bool StopMatcher::push(std::string_view piece, bool armed) {
    const std::size_t before = text_.size();
    text_ += piece;
    if (!armed) {
        searchable_ = text_.size();
        return false;
    }
    // The earliest match wins; among those that start together, the first in the request's order.
    std::size_t first = std::string::npos;
    std::size_t length = 0;
    for (const std::string& stop : stops_) {
        const std::size_t overlap = stop.size() - 1;  // a match may begin in text that was pushed before
        const std::size_t from = std::max(searchable_, before > overlap ? before - overlap : 0);
        const std::size_t found = text_.find(stop, from);
        if (found < first) {
            first = found;
            length = stop.size();
        }
    }
    if (first == std::string::npos) return false;
    text_.resize(include_ ? first + length : first);
    return true;
}

std::string StopMatcher::take_certain(bool final) {
    std::size_t end = text_.size();
    if (!final) {
        // Hold back the longest tail that begins a stop text.
        for (const std::string& stop : stops_) {
            const std::size_t longest = std::min(stop.size() - 1, text_.size() - std::min(text_.size(), std::max(taken_, searchable_)));
            for (std::size_t tail = longest; tail > 0; --tail) {
                if (std::string_view(text_).ends_with(std::string_view(stop).substr(0, tail))) {
                    end = std::min(end, text_.size() - tail);
                    break;
                }
            }
        }
    }
    std::string certain = text_.substr(taken_, end - taken_);
    taken_ = end;
    return certain;
}

}  // namespace lorry::engine
