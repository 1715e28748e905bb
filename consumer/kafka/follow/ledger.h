// Keeps the SQLite view of jobs, usage and adapters. Follows the status and adapters topics on a thread of its own and writes their
// contents, together with its read positions, in one transaction. Started by `lorry worker` and `lorry serve`; one process per file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "consumer/kafka/config.h"
#include "schema/topics.h"

namespace lorry::consumer {

// The file is a view, never the source of truth: it may be deleted while nothing runs and is rebuilt from what the topics still hold. Only
// the usage of days that the topics no longer hold is nowhere else. It is also rebuilt, except for usage, when it describes another cluster
// or topics that were recreated. While the disk is full, the file locked or the brokers away, it keeps retrying.
class Ledger {
public:
    struct Options {
        std::filesystem::path file;
        schema::Topics topics;
        std::int64_t days = 30;  // jobs that ended longer ago are deleted, their usage is not; 0: never
    };

    // Returns nullptr, and logs it, when another process keeps this file. Throws KafkaError when brokers or topics are missing, and
    // std::runtime_error when the file is not a ledger.
    static std::unique_ptr<Ledger> start(const KafkaConfig& config, const Options& options);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    // Records the result of loading an adapter ("ready" or "failed"); written soon. Any thread.
    void set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error);

    struct Stats {
        std::uint64_t applied = 0;  // records
        std::uint64_t refused = 0;  // records that could not be read
        std::int64_t behind = 0;    // records not yet read
        bool failing = false;       // the last read or write failed and is being retried
    };
    // Any thread.
    Stats stats() const;

private:
    struct State;
    explicit Ledger(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
