// An AdapterDirectory that follows the adapters topic. Made by the worker; the intake resolves model names with it. Reading a registration
// touches no file, so ten thousand of them do not delay a start; a folder is looked up when the first job asks for it.
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
        std::filesystem::path adapters_root;  // empty: no registered adapter can be used
        // Names of the base model ("base" and its name). No adapter may use them.
        std::vector<std::string> base_names;
        // A job for an unknown name waits until the topic was read up to its arrival, and at least this long, because the registration may
        // be on its way. Later jobs for the same name share the wait of the first if they arrive no more than this apart.
        std::chrono::milliseconds grace{10'000};
    };
    struct Counters {
        std::uint64_t registered = 0;  // registrations accepted
        std::uint64_t removed = 0;
        std::uint64_t refused = 0;    // records that are not registrations, or whose path leaves adapters_root
        std::size_t known = 0;        // names registered now
        std::uint64_t looked_up = 0;  // folders looked up
    };

    // Starts reading. Throws KafkaError when the brokers do not answer or the topic does not exist.
    AdapterTopic(const KafkaConfig& config, Options options);
    ~AdapterTopic() override;

    // Call before admitting jobs. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);
    // Throws the exception that ended the follower, if any.
    void check() const;

    ModelName resolve(std::string_view model, Clock::time_point polled) const override;
    std::vector<std::string> names() const override;
    Counters counters() const;

private:
    struct Adapter {
        std::string hash;
        std::filesystem::path path;    // as registered, relative to adapters_root
        std::filesystem::path folder;  // empty until the first job asks
        std::optional<AdapterHead> head;
        std::string text_hash;
        std::optional<std::int64_t> vocabulary;

        ModelName in(const std::filesystem::path& place) const;
    };
    void apply(const schema::JobRecord& record);
    bool take(const schema::JobRecord& record);
    Adapter* find(std::string_view model) const;                              // with mutex_ held
    bool has_waited(std::string_view model, Clock::time_point polled) const;  // with mutex_ held
    ModelName look_up(std::string_view model, const Adapter& adapter) const;

    const Options options_;
    mutable std::mutex mutex_;
    // Guarded by mutex_. The registrations of each name by hash, including replaced ones: jobs may pin them.
    struct Name {
        std::string current;  // hash
        std::map<std::string, Adapter, std::less<>> by_hash;
    };
    mutable std::map<std::string, Name, std::less<>> names_;
    // Unknown names that jobs have asked for since the topic last mentioned them.
    struct Asked {
        Clock::time_point first;
        Clock::time_point last;
    };
    mutable std::map<std::string, Asked, std::less<>> asked_;
    mutable Counters counters_;
    std::unique_ptr<TopicFollower> follower_;  // last: its thread calls apply
};

// The folder of a registration; nullopt if the path leaves the root (through .., an absolute path or a symbolic link).
std::optional<std::filesystem::path> folder_below(const std::filesystem::path& root, const std::filesystem::path& path);

}  // namespace lorry::consumer
