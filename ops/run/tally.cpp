// Adds up jobs, and formats the sums.
#include "ops/run/tally.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr std::size_t models_max = 10'000;
constexpr std::size_t error_kinds_shown = 8;
constexpr std::size_t messages_max = 100;  // per kind
constexpr std::size_t messages_shown = 4;
constexpr std::size_t message_bytes_shown = 200;

std::vector<std::string> row_of(const std::string& name, const ModelTally& tally, double seconds) {
    return {"  " + name,
            show_count(tally.jobs),
            show_count(tally.jobs - tally.failed),
            show_count(tally.failed),
            show_count(tally.usage.prompt_tokens),
            show_count(tally.usage.completion_tokens),
            seconds > 0.0 ? show_count(std::lround(real(tally.tokens()) / seconds)) : "-"};
}

schema::Json json_of(const ModelTally& tally) {
    return schema::Json::object({{"jobs", tally.jobs},
                                 {"ok", tally.jobs - tally.failed},
                                 {"failed", tally.failed},
                                 {"cut", tally.cut},
                                 {"prompt_tokens", tally.usage.prompt_tokens},
                                 {"completion_tokens", tally.usage.completion_tokens},
                                 {"cached_tokens", tally.usage.cached_tokens}});
}

}  // namespace

void Tally::add(const consumer::JobObservation& job) {
    const bool known = models_.size() < models_max || models_.contains(job.run.model);
    const bool failed = job.state != schema::JobState::completed;
    // Empty: the job was refused before its model was read.
    const std::string& model = job.run.model;
    for (ModelTally* tally : {&models_[model.empty() ? "(none)" : known ? model : "(others)"], &total_}) {
        ++tally->jobs;
        tally->failed += failed ? 1 : 0;
        tally->cut += job.cut ? 1 : 0;
        tally->usage.prompt_tokens += job.usage.prompt_tokens;
        tally->usage.completion_tokens += job.usage.completion_tokens;
        tally->usage.cached_tokens += job.usage.cached_tokens;
    }
    if (job.error) add_error(job.error->code, job.error->message);
}

void Tally::add_nameless(schema::ErrorCode code, const std::string& message) {
    for (ModelTally* tally : {&models_["(none)"], &total_}) {
        ++tally->jobs;
        ++tally->failed;
    }
    add_error(code, message);
}

void Tally::add_error(schema::ErrorCode code, const std::string& text) {
    Error& error = errors_[std::string(name_of(code))];
    ++error.count;
    const std::string message = schema::repair_utf8(text.substr(0, message_bytes_shown));
    if (error.messages.size() < messages_max || error.messages.contains(message)) ++error.messages[message];
}

std::string Tally::table(double seconds) const {
    if (models_.empty()) return {};
    std::vector<std::vector<std::string>> rows = {{"  model", "jobs", "ok", "failed", "tokens in", "tokens out", "in + out/s"}};
    for (const auto& [name, tally] : models_) rows.push_back(row_of(name, tally, seconds));
    if (models_.size() > 1) rows.push_back(row_of("all", total_, seconds));
    return show_table(rows, 0b1111110);
}

std::string Tally::errors() const {
    std::vector<std::pair<std::string, const Error*>> sorted;
    for (const auto& [code, error] : errors_) sorted.emplace_back(code, &error);
    std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second->count > b.second->count; });
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), error_kinds_shown); ++i) {
        const auto& [code, error] = sorted[i];
        if (error->messages.size() == 1) {
            text += fmt::format("  {} × {}: {}\n", show_count(error->count), code, error->messages.begin()->first);
            continue;
        }
        text += fmt::format("  {} × {}, such as\n", show_count(error->count), code);
        std::vector<std::pair<std::string, std::int64_t>> messages(error->messages.begin(), error->messages.end());
        std::ranges::stable_sort(messages, [](const auto& a, const auto& b) { return a.second > b.second; });
        messages.resize(std::min(messages.size(), messages_shown));
        for (const auto& [message, count] : messages) {
            text += fmt::format("      {}{}\n", count > 1 ? show_count(count) + " × " : std::string(), message);
        }
    }
    if (sorted.size() > error_kinds_shown) text += fmt::format("  and {} other kinds\n", sorted.size() - error_kinds_shown);
    return text;
}

schema::Json Tally::json(double seconds) const {
    schema::Json summary = json_of(total_);
    summary.set("seconds", seconds);
    schema::Json models = schema::Json::Object();
    for (const auto& [name, tally] : models_) models.set(schema::repair_utf8(name), json_of(tally));
    summary.set("models", std::move(models));
    schema::Json errors = schema::Json::Object();
    for (const auto& [code, error] : errors_) errors.set(code, error.count);
    summary.set("errors", std::move(errors));
    return summary;
}

}  // namespace lorry::ops
