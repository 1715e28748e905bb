// Applies registrations and tombstones of the adapters topic, and resolves a job's model name.
#include "consumer/kafka/follow/adapter_topic.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

constexpr std::size_t names_waiting_max = 1'000;  // unknown names that are waited for at a time; jobs for others do not wait

// nullopt: none that this version knows.
std::optional<AdapterHead> head_of(const std::optional<schema::RegisteredHead>& head) {
    for (const auto task : {engine::PoolingTask::classify, engine::PoolingTask::token_classify}) {
        if (head && head->task == name_of(task)) return AdapterHead{.task = task, .labels = head->labels};
    }
    return std::nullopt;
}

// Whether the text of a relative path stays below its root.
bool is_below(const std::filesystem::path& path) {
    const auto normal = path.lexically_normal();
    return !path.empty() && !path.is_absolute() && normal != "." && *normal.begin() != "..";
}

}  // namespace

std::optional<std::filesystem::path> folder_below(const std::filesystem::path& root, const std::filesystem::path& path) {
    if (!is_below(path)) return std::nullopt;
    std::error_code error;
    // Weakly: the folder may not exist (yet); symbolic links in the existing part are followed.
    const auto base = std::filesystem::weakly_canonical(root, error);
    if (error) return std::nullopt;
    auto folder = std::filesystem::weakly_canonical(root / path, error);
    if (error) return std::nullopt;
    const auto [base_end, folder_at] = std::mismatch(base.begin(), base.end(), folder.begin(), folder.end());
    if (base_end != base.end() || folder_at == folder.end()) return std::nullopt;
    return folder;
}

AdapterTopic::AdapterTopic(const KafkaConfig& config, Options options) : options_(std::move(options)) {
    follower_ = std::make_unique<TopicFollower>(config, options_.topic,
                                                TopicFollower::each([this](const schema::JobRecord& record) { apply(record); }));
}

AdapterTopic::~AdapterTopic() = default;

void AdapterTopic::wait_until_read(Clock::time_point deadline) { follower_->wait_until_read(deadline); }

void AdapterTopic::check() const { follower_->check(); }

void AdapterTopic::apply(const schema::JobRecord& record) {
    const std::scoped_lock lock(mutex_);
    if (!take(record)) ++counters_.refused;
    counters_.known = names_.size();
}

bool AdapterTopic::take(const schema::JobRecord& record) {
    const auto complain = [&](std::string_view why) {
        warn_of(record, fmt::format("not a registration: {}", why));
        return false;
    };
    if (!record.key) return complain("it has no key; the key is the adapter's name");
    asked_.erase(*record.key);
    if (!record.value) {
        counters_.removed += names_.erase(*record.key);
        return true;
    }
    const auto parsed = schema::parse_adapter(*record.value);
    if (!parsed) return complain(parsed.error());
    if (parsed->name != *record.key) return complain("its name differs from its key");
    if (std::find(options_.base_names.begin(), options_.base_names.end(), parsed->name) != options_.base_names.end()) {
        return complain("the name is reserved for the base model");
    }
    if (!is_below(parsed->path)) return complain("its path '" + parsed->path + "' leaves adapters_root; register a path relative to it");
    Name& name = names_[parsed->name];
    name.current = parsed->hash;
    name.by_hash[parsed->hash] = {.hash = parsed->hash,
                                  .path = parsed->path,
                                  .folder = {},
                                  .head = head_of(parsed->head),
                                  .text_hash = parsed->text,
                                  .vocabulary = parsed->vocabulary};
    ++counters_.registered;
    return true;
}

ModelName AdapterTopic::Adapter::in(const std::filesystem::path& place) const {
    return {.kind = ModelName::Kind::adapter,
            .hash = hash,
            .folder = place,
            .refusal = {},
            .text_hash = text_hash,
            .head = head,
            .vocabulary = vocabulary};
}

AdapterTopic::Adapter* AdapterTopic::find(std::string_view model) const {
    if (const auto name = names_.find(model); name != names_.end()) return &name->second.by_hash.at(name->second.current);
    const std::size_t at = model.rfind('@');
    if (at == std::string_view::npos) return nullptr;
    const auto name = names_.find(model.substr(0, at));
    if (name == names_.end()) return nullptr;
    const auto pinned = name->second.by_hash.find(model.substr(at + 1));
    return pinned == name->second.by_hash.end() ? nullptr : &pinned->second;
}

// Per name: otherwise thousands of jobs for a mistyped name would wait one after another and delay the jobs after them. In total, too:
// otherwise a stranger could make as many names wait as there is memory.
bool AdapterTopic::has_waited(std::string_view model, Clock::time_point polled) const {
    const std::string_view name = model.substr(0, model.rfind('@'));
    const auto now = Clock::now();
    auto asked = asked_.find(name);
    if (asked == asked_.end()) {
        if (asked_.size() >= names_waiting_max) {
            std::erase_if(asked_, [&](const auto& other) { return now - other.second.last > options_.grace; });
        }
        if (asked_.size() >= names_waiting_max) return true;
        asked = asked_.emplace(name, Asked{.first = polled, .last = now}).first;
    }
    auto& [first, last] = asked->second;
    if (now - last > options_.grace) first = polled;
    last = now;
    return now >= std::min(first, polled) + options_.grace;
}

ModelName AdapterTopic::resolve(std::string_view model, Clock::time_point polled) const {
    if (std::find(options_.base_names.begin(), options_.base_names.end(), model) != options_.base_names.end()) {
        return {.kind = ModelName::Kind::base, .hash = {}, .folder = {}};
    }
    // Checked before the names are searched: what was read by then is among them.
    const bool read = follower_->has_read_as_of(polled);
    std::optional<Adapter> fresh;
    {
        const std::scoped_lock lock(mutex_);
        const Adapter* adapter = find(model);
        if (adapter == nullptr) {
            const bool is_unknown = has_waited(model, polled) && read;
            return {.kind = is_unknown ? ModelName::Kind::unknown : ModelName::Kind::not_yet, .hash = {}, .folder = {}};
        }
        if (!adapter->folder.empty()) return adapter->in(adapter->folder);
        fresh = *adapter;
    }
    return look_up(model, *fresh);
}

// Runs without mutex_: a network file system may be slow, and the topic is followed meanwhile.
ModelName AdapterTopic::look_up(std::string_view model, const Adapter& adapter) const {
    if (options_.adapters_root.empty()) {
        return {.kind = ModelName::Kind::refused,
                .hash = {},
                .folder = {},
                .refusal = "this worker was started without --adapters, the folder that registered paths are relative to"};
    }
    const auto folder = folder_below(options_.adapters_root, adapter.path);
    const std::scoped_lock lock(mutex_);
    ++counters_.looked_up;
    if (!folder) {
        return {.kind = ModelName::Kind::refused,
                .hash = {},
                .folder = {},
                .refusal = "the adapter's registered path '" + adapter.path.string() +
                           "' leaves adapters_root through a symbolic link; register a path that stays in it"};
    }
    Adapter* const known = find(model);
    if (known != nullptr && known->hash == adapter.hash && known->path == adapter.path) known->folder = *folder;
    return adapter.in(*folder);
}

std::vector<std::string> AdapterTopic::names() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::string> list;
    for (const auto& [name, registrations] : names_) list.push_back(name);
    return list;
}

AdapterTopic::Counters AdapterTopic::counters() const {
    const std::scoped_lock lock(mutex_);
    return counters_;
}

}  // namespace lorry::consumer
