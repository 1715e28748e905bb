// Encodes records of the repeats topic, and decides which state of a call counts.
#include "consumer/kafka/calls/repeat_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "schema/record_members.h"

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr std::array states = {std::pair(Repeat::State::running, "running"), std::pair(Repeat::State::ended, "ended"),
                               std::pair(Repeat::State::gone, "gone")};

}  // namespace

std::string encode_repeat(const Repeat& repeat) {
    const auto state = std::ranges::find(states, repeat.state, [](const auto& row) { return row.first; });
    Json object = Json::object({{"state", state->second},
                                {"begun_at", schema::milliseconds(repeat.begun)},
                                {"sha256", schema::to_hex(repeat.content)},
                                {"run", repeat.run}});
    if (repeat.result) {
        object.set("topic", repeat.result->topic);
        object.set("partition", repeat.result->partition);
        object.set("offset", repeat.result->offset);
    }
    return object.dump();
}

Expected<Repeat, std::string> parse_repeat(std::string_view value) {
    const auto object = schema::parse_object(value, "repeatable call's record");
    if (!object) return unexpected(object.error());
    schema::MemberReader reader(*object);
    Repeat repeat;
    const std::string word = reader.required_text("state");
    const auto state = std::ranges::find(states, word, [](const auto& row) { return std::string_view(row.second); });
    if (state == states.end())
        reader.fail("field 'state' is not running, ended or gone");
    else
        repeat.state = state->first;
    const auto content = schema::sha256_from_hex(reader.required_text("sha256"));
    if (!content) reader.fail("field 'sha256' is no hash");
    repeat.content = content.value_or(schema::Sha256{});
    repeat.begun = reader.time("begun_at").value_or(schema::Timestamp{});
    repeat.run = reader.required_text("run");
    if (repeat.state == Repeat::State::ended) {
        repeat.result = schema::Source{
            .topic = reader.required_text("topic"), .partition = reader.partition("partition"), .offset = reader.count("offset")};
    }
    if (!reader.error().empty()) return unexpected(fmt::format("the repeatable call's record is refused: {}", reader.error()));
    return repeat;
}

void RepeatTable::set(const std::string& id, const Repeat& repeat) {
    if (const auto place = repeats_.find(id); place != repeats_.end()) {
        const Repeat& known = place->second;
        const bool is_begin = known.run == repeat.run && known.begun == repeat.begun && repeat.state == Repeat::State::running;
        // What is gone may be followed by a run that seems to be older: of a gateway whose clock is slow, and which did not know it.
        const bool is_older = known.state != Repeat::State::gone && repeat.begun < known.begun;
        if (is_begin || is_older) return;
    }
    repeats_.insert_or_assign(id, repeat);
    if (repeats_.size() >= forget_at_) forget(repeat.begun);
}

void RepeatTable::forget(schema::Timestamp now) {
    const bool is_full = repeats_.size() >= entries_max_;
    std::erase_if(repeats_, [&](const auto& entry) { return entry.second.begun + kept < now; });
    // With room for many more, so that this is seldom done.
    const std::size_t left = entries_max_ - std::max<std::size_t>(1, entries_max_ / 64);
    if (is_full && repeats_.size() > left) {
        std::erase_if(repeats_, [](const auto& entry) { return entry.second.state == Repeat::State::gone; });
        if (repeats_.size() > left) forget_oldest(repeats_.size() - left);
    }
    forget_at_ = std::min(entries_max_, std::max<std::size_t>(1'000, 2 * repeats_.size()));
}

void RepeatTable::forget_oldest(std::size_t count) {
    using Entry = decltype(repeats_)::const_iterator;
    std::vector<Entry> entries;
    entries.reserve(repeats_.size());
    for (auto entry = repeats_.cbegin(); entry != repeats_.cend(); ++entry) entries.push_back(entry);
    const auto end = entries.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(entries.begin(), end, entries.end(), [](Entry a, Entry b) { return a->second.begun < b->second.begun; });
    for (auto entry = entries.begin(); entry != end; ++entry) repeats_.erase(*entry);
}

const Repeat* RepeatTable::find(const std::string& id, schema::Timestamp now) const {
    const auto place = repeats_.find(id);
    if (place == repeats_.end()) return nullptr;
    const Repeat& repeat = place->second;
    const auto age = now - repeat.begun;
    if (repeat.state == Repeat::State::gone || age > kept) return nullptr;
    return repeat.state == Repeat::State::running && age > running_for_ ? nullptr : &repeat;
}

schema::Timestamp RepeatTable::next_begin(const std::string& id, schema::Timestamp now) const {
    const auto place = repeats_.find(id);
    return place == repeats_.end() ? now : std::max(now, place->second.begun + std::chrono::milliseconds(1));
}

}  // namespace lorry::consumer
