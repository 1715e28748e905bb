// Compares what chunks say with what was sent.
#include "consumer/kafka/calls/call_stream.h"

#include <utility>

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr std::int64_t no_choice = -1;  // of chunks without choices: the usage

// What a chunk says: each has one part, in one choice. Text of the same channel goes on; a part of another kind is whole.
struct Part {
    std::int64_t choice = no_choice;
    std::string channel;
    std::string text;
    bool is_text = false;
};

// Adds the members that say something to what a part has. More than one make a whole part.
void add_members(const Json& object, Part& part) {
    if (object.as_object() == nullptr) return;
    for (const auto& [name, value] : *object.as_object()) {
        if (name == "index" || name == "logprobs" || name == "delta" || value.is_null()) continue;
        const bool is_text = value.as_string() != nullptr && (name == "text" || name == "content" || name == "reasoning");
        if (is_text && value.as_string()->empty()) continue;
        part.is_text = is_text && part.channel.empty();
        part.channel += name;
        part.text += is_text ? *value.as_string() : value.dump();
    }
}

bool has_logprobs(const Json& chunk) {
    const Json* logprobs = chunk.find("choices")->as_array()->front().find("logprobs");
    return logprobs != nullptr && !logprobs->is_null();
}

// nullopt: the chunk says nothing.
std::optional<Part> part_of(const Json& chunk) {
    const Json* choices = chunk.find("choices");
    if (choices == nullptr || choices->as_array() == nullptr || choices->as_array()->empty())
        return Part{.channel = "usage", .text = ""};  // what the cache held may have changed
    const Json& choice = choices->as_array()->front();
    const Json* index = choice.find("index");
    Part part{.choice = index == nullptr ? 0 : index->as_integer().value_or(0), .channel = "", .text = ""};
    if (const Json* delta = choice.find("delta")) add_members(*delta, part);
    add_members(choice, part);
    if (part.channel.empty() && has_logprobs(chunk)) part.channel = "logprobs";
    return part.channel.empty() ? std::nullopt : std::optional(std::move(part));
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
    const std::optional<Part> part = part_of(chunk);
    if (!part) return std::nullopt;
    Place& place = from.places[part->choice];
    // A whole part never goes on from the one before.
    if (!part->is_text) place.channel.clear();
    std::string rest;
    switch (match(place, sent_[part->choice], part->channel, part->text, rest)) {
        case News::none: return std::nullopt;
        case News::all: return chunk;
        case News::end:
            // Log-probabilities belong to tokens, and the text may be cut within one.
            if (part->is_text && !has_logprobs(chunk)) return with_text(chunk, part->channel, rest);
            break;
        case News::different: break;
    }
    from.differs = true;
    return std::nullopt;
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
