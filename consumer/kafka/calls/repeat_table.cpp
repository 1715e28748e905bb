// Encodes records of the repeats topic, and decides which state of a call counts.
#include "consumer/kafka/calls/repeat_table.h"

#include <algorithm>
#include <array>

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
    Json object = Json::object(
        {{"state", state->second}, {"begun_at", schema::milliseconds(repeat.begun)}, {"sha256", schema::to_hex(repeat.content)}});
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
    if (repeat.state == Repeat::State::ended) {
        repeat.result = schema::Source{
            .topic = reader.required_text("topic"), .partition = reader.partition("partition"), .offset = reader.count("offset")};
    }
    if (!reader.error().empty()) return unexpected(fmt::format("the repeatable call's record is refused: {}", reader.error()));
    return repeat;
}

void RepeatTable::set(const std::string& id, const Repeat& repeat) {
    const auto place = repeats_.find(id);
    const bool is_late = place != repeats_.end() && place->second.begun == repeat.begun && repeat.state == Repeat::State::running;
    if (is_late) return;
    repeats_.insert_or_assign(id, repeat);
    if (repeats_.size() < forget_at_) return;
    std::erase_if(repeats_, [&](const auto& entry) { return entry.second.begun + kept < repeat.begun; });
    forget_at_ = std::max<std::size_t>(1'000, 2 * repeats_.size());
}

const Repeat* RepeatTable::find(const std::string& id, schema::Timestamp now) const {
    const auto place = repeats_.find(id);
    if (place == repeats_.end()) return nullptr;
    const Repeat& repeat = place->second;
    const auto age = now - repeat.begun;
    if (repeat.state == Repeat::State::gone || age > kept) return nullptr;
    return repeat.state == Repeat::State::running && age > running_for_ ? nullptr : &repeat;
}

}  // namespace lorry::consumer
