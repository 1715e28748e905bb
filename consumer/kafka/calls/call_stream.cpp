// Compares chunks with what was sent, part by part.
#include "consumer/kafka/calls/call_stream.h"

#include <utility>
#include <vector>

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr std::int64_t no_choice = -1;  // of chunks without choices: the usage

// A part of a chunk. Text of the same channel goes on; a part of another kind is whole.
struct Part {
    std::string channel;
    std::string text;
    bool is_text = false;
};

struct Parts {
    std::int64_t choice = no_choice;
    std::vector<Part> parts;
};

void add_members(const Json& object, Parts& parts) {
    if (object.as_object() == nullptr) return;
    for (const auto& [name, value] : *object.as_object()) {
        if (name == "index" || name == "logprobs" || name == "delta" || value.is_null()) continue;
        if (const std::string* text = value.as_string(); text != nullptr && (name == "text" || name == "content" || name == "reasoning")) {
            if (!text->empty()) parts.parts.push_back({name, *text, true});
        } else {
            parts.parts.push_back({name, value.dump(), false});
        }
    }
}

bool has_logprobs(const Json& chunk) {
    const Json* logprobs = chunk.find("choices")->as_array()->front().find("logprobs");
    return logprobs != nullptr && !logprobs->is_null();
}

Parts parts_of(const Json& chunk) {
    Parts parts;
    const Json* choices = chunk.find("choices");
    if (choices == nullptr || choices->as_array() == nullptr || choices->as_array()->empty()) {
        parts.parts.push_back({"usage", "", false});  // what the cache held may have changed
        return parts;
    }
    const Json& choice = choices->as_array()->front();
    const Json* index = choice.find("index");
    parts.choice = index == nullptr ? 0 : index->as_integer().value_or(0);
    if (const Json* delta = choice.find("delta")) add_members(*delta, parts);
    add_members(choice, parts);
    if (parts.parts.empty() && has_logprobs(chunk)) parts.parts.push_back({"logprobs", "", false});
    return parts;
}

// The chunk with another text.
Json with_text(Json chunk, const std::string& channel, const std::string& text) {
    Json choice = chunk.find("choices")->as_array()->front();
    if (const Json* delta = choice.find("delta")) {
        Json changed = *delta;
        changed.set(channel, text);
        choice.set("delta", std::move(changed));
    } else {
        choice.set(channel, text);
    }
    chunk.set("choices", Json::array({std::move(choice)}));
    return chunk;
}

}  // namespace

// Advances the place by a part. `rest`: the end of the text, if only that is new.
CallStream::News CallStream::match(Place& place, std::string& sent, const std::string& channel, const std::string& text,
                                   std::string& rest) {
    const bool goes_on = std::exchange(place.channel, channel) == channel;
    // No JSON text has this byte.
    const std::string part = goes_on ? text : '\0' + channel + '\0' + text;
    const std::size_t known = std::min(part.size(), sent.size() - place.matched);
    if (sent.compare(place.matched, known, part, 0, known) != 0) return News::different;
    place.matched += part.size();
    if (known == part.size()) return News::none;
    sent += part.substr(known);
    const std::size_t mark = part.size() - text.size();
    if (known <= mark) return News::all;
    rest = text.substr(known - mark);
    return News::end;
}

std::optional<Json> CallStream::take(std::int64_t attempt, std::int64_t seq, const Json& chunk) {
    Attempt& from = attempts_[attempt];
    if (seq < from.chunks) return std::nullopt;  // chunks are delivered at least once
    if (seq > from.chunks) from.differs = true;  // one is lost
    from.chunks = seq + 1;
    if (from.differs) return std::nullopt;
    const Parts parts = parts_of(chunk);
    Place& place = from.places[parts.choice];
    std::string& sent = sent_[parts.choice];
    std::optional<Json> news;
    for (const Part& part : parts.parts) {
        // A whole part never goes on from the one before.
        if (!part.is_text) place.channel.clear();
        std::string rest;
        switch (match(place, sent, part.channel, part.text, rest)) {
            case News::none: break;
            case News::all:
                if (!news) news = chunk;
                break;
            case News::end:
                // Log-probabilities belong to tokens, and the text may be cut within one.
                if (!part.is_text || has_logprobs(chunk))
                    from.differs = true;
                else
                    news = with_text(news ? *std::move(news) : chunk, part.channel, rest);
                break;
            case News::different: from.differs = true; break;
        }
        if (from.differs) return std::nullopt;
    }
    return news;
}

bool CallStream::has(std::int64_t attempt, std::int64_t chunks) const {
    const auto found = attempts_.find(attempt);
    return chunks == 0 || (found != attempts_.end() && found->second.chunks >= chunks);
}

bool CallStream::differs(std::int64_t attempt) const {
    const auto found = attempts_.find(attempt);
    return found != attempts_.end() && found->second.differs;
}

}  // namespace lorry::consumer
