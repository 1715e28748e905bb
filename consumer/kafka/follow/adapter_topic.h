// Which adapters there are, as the adapters topic says: an AdapterDirectory that follows it. Constructed by the worker, asked by intake.
// Reading a registration touches no file: ten thousand of them do not delay a start. A folder is looked up when its first job asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "consumer/kafka/config.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class TopicFollower;

class AdapterTopic : public AdapterDirectory {
public:
    struct Options {
        std::string topic;
        std::filesystem::path adapters_root;
        // The base model answers to these ("base" and its name); no adapter takes them.
        std::vector<std::string> base_names;
        // An unknown name waits this long beyond the topic's end: its registration may be on the way. Jobs that ask for it no longer than
        // this after one another wait with the first of them.
        std::chrono::milliseconds grace{10'000};
    };
    struct Counters {
        std::uint64_t registered = 0;  // records taken
        std::uint64_t removed = 0;
        std::uint64_t refused = 0;    // records that are no registration, or whose path leaves adapters_root
        std::size_t known = 0;        // names now
        std::uint64_t looked_up = 0;  // folders
    };

    // Starts reading. Throws KafkaError when the brokers do not answer or the topic does not exist.
    AdapterTopic(const KafkaConfig& config, Options options);
    ~AdapterTopic() override;

    // Jobs are admitted only afterwards. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);

    ModelName resolve(std::string_view model, Clock::time_point polled) const override;
    std::vector<std::string> names() const override;
    Counters counters() const;

private:
    struct Adapter {
        std::string hash;
        std::filesystem::path path;    // as registered, below adapters_root
        std::filesystem::path folder;  // empty before the first job asks
    };
    void apply(const schema::JobRecord& record);
    bool take(const schema::JobRecord& record);
    Adapter* find(std::string_view model) const;                              // with mutex_ held
    bool has_waited(std::string_view model, Clock::time_point polled) const;  // with mutex_ held
    ModelName look_up(std::string_view model, const Adapter& adapter) const;

    const Options options_;
    mutable std::mutex mutex_;
    // Guarded by mutex_. Under each name its registrations by hash, those that a later one replaced included: jobs may pin them.
    struct Name {
        std::string current;  // hash
        std::map<std::string, Adapter, std::less<>> by_hash;
    };
    mutable std::map<std::string, Name, std::less<>> names_;
    // Names that jobs have asked for in vain since the topic last told of them.
    struct Asked {
        Clock::time_point first;
        Clock::time_point last;
    };
    mutable std::map<std::string, Asked, std::less<>> asked_;
    mutable Counters counters_;
    std::unique_ptr<TopicFollower> follower_;  // last: its thread calls apply
};

// The folder of a registration, or nullopt when the path leaves the root (by .., an absolute path or a symbolic link).
std::optional<std::filesystem::path> folder_below(const std::filesystem::path& root, const std::filesystem::path& path);

}  // namespace lorry::consumer
