// Divides messages with several calls.
#include "consumer/answer/harmony_history.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schema/json.h"

namespace lorry::consumer {
namespace {

using schema::Json;

// In the order in which templates are given them (engine/text/chat_template.h).
constexpr std::array<std::string_view, 3> reasoning_names = {"reasoning_content", "thinking", "reasoning"};

std::string text_of_content(const Json& message) {
    const Json* content = message.find("content");
    if (content == nullptr) return {};
    if (const auto* text = content->as_string()) return *text;
    std::string joined;
    if (const auto* parts = content->as_array()) {
        for (const Json& part : *parts) joined += (joined.empty() ? "" : "\n") + *part.find("text")->as_string();
    }
    return joined;
}

std::string reasoning_of(const Json& message) {
    for (const std::string_view name : reasoning_names) {
        const Json* value = message.find(name);
        if (value != nullptr && value->is_string()) return *value->as_string();
    }
    return {};
}

// Without what a message says, beside its calls.
Json wordless(const Json& message) {
    Json left = Json(Json::Object());
    for (const auto& [name, value] : *message.as_object()) {
        if (name != "content" && std::ranges::find(reasoning_names, name) == reasoning_names.end()) left.set(name, value);
    }
    return left;
}

Json with_content_as_reasoning(const Json& message) {
    const std::string content = text_of_content(message);
    const std::string reasoning = reasoning_of(message);
    if (content.empty() || reasoning.empty()) return message;
    Json joined = wordless(message);
    joined.set("reasoning", reasoning + "\n" + content);
    return joined;
}

bool has_role(const Json& message, std::string_view role) { return *message.find("role")->as_string() == role; }

// The id's text; empty: there is none.
std::string_view id_in(const Json& object, std::string_view name) {
    const Json* id = object.find(name);
    return id != nullptr && id->is_string() ? std::string_view(*id->as_string()) : std::string_view();
}

// Results belong to calls by their ids, those without one by their places. Takes out those of one call, in order.
class Results {
public:
    explicit Results(std::vector<Json> results) : results_(std::move(results)) {
        for (std::size_t place = 0; place < results_.size(); ++place) {
            if (const auto id = id_in(results_[place], "tool_call_id"); !id.empty()) by_id_[std::string(id)].push_back(place);
        }
    }
    void take_of(const Json& call, std::size_t place, Json::Array& out) {
        std::vector<std::size_t> places;
        if (const auto found = by_id_.find(std::string(id_in(call, "id"))); found != by_id_.end()) places = std::move(found->second);
        if (place < results_.size() && !results_[place].is_null() && id_in(results_[place], "tool_call_id").empty())
            places.insert(std::ranges::lower_bound(places, place), place);
        for (const std::size_t taken : places) {
            if (!results_[taken].is_null()) out.push_back(std::exchange(results_[taken], Json()));
        }
    }
    void take_rest(Json::Array& out) {
        for (Json& result : results_) {
            if (!result.is_null()) out.push_back(std::move(result));
        }
    }

private:
    std::vector<Json> results_;
    std::unordered_map<std::string, std::vector<std::size_t>> by_id_;
};

// results: of the message's calls, and perhaps others, which come last. Only the first message has what else the message says.
void add_divided(const Json& message, std::vector<Json> tools, Json::Array& out) {
    Results results(std::move(tools));
    const Json::Array& calls = *message.find("tool_calls")->as_array();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        Json one = i == 0 ? message : Json::object({{"role", "assistant"}});
        one.set("tool_calls", Json::array({calls[i]}));
        out.push_back(std::move(one));
        results.take_of(calls[i], i, out);
    }
    results.take_rest(out);
}

}  // namespace

bool shows_one_call(std::string_view chat_template) { return chat_template.find("tool_calls[0]") != std::string_view::npos; }

std::string with_one_call_each(const std::string& messages) {
    const auto read = Json::parse(messages);
    // Arguments of calls, which were texts, may be nested more deeply here than a text may be.
    if (!read) return messages;
    const Json::Array& list = *read->as_array();
    Json::Array out;
    for (auto next = list.begin(); next != list.end();) {
        const Json message = *next++;
        const Json* calls = message.find("tool_calls");
        if (!has_role(message, "assistant") || calls == nullptr || !calls->is_array() || calls->as_array()->empty()) {
            out.push_back(message);
            continue;
        }
        const auto end = std::find_if_not(next, list.end(), [](const Json& one) { return has_role(one, "tool"); });
        add_divided(with_content_as_reasoning(message), {next, end}, out);
        next = end;
    }
    return Json(std::move(out)).dump();
}

}  // namespace lorry::consumer
