// Keeps the SQLite view of jobs and adapters: follows the status and adapters topics on a thread of its own and writes what they say, with
// how far it has read, in one transaction. Started by `lorry worker`; one process per file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "consumer/kafka/config.h"
#include "schema/topics.h"

namespace lorry::consumer {

// A view, never the truth: it may be deleted while nothing runs and is rebuilt from what the topics still hold; so it is when it tells of
// another cluster or of topics that were made anew. While the disk is full, the file locked or the brokers away it tries again.
class Ledger {
public:
    struct Options {
        std::filesystem::path file;
        schema::Topics topics;
        std::int64_t days = 30;  // jobs that ended longer ago are forgotten; 0: never
    };

    // nullptr, and a line in the log, when another process keeps this file. Throws KafkaError when brokers or topics are missing, and
    // std::runtime_error when the file is no ledger.
    static std::unique_ptr<Ledger> start(const KafkaConfig& config, const Options& options);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    // What became of loading an adapter ("ready" or "failed"); written soon. Any thread.
    void set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error);

    struct Stats {
        std::uint64_t applied = 0;  // records
        std::uint64_t refused = 0;  // records that could not be read
        std::int64_t behind = 0;    // records not yet read
        bool failing = false;       // the last reading or writing did not succeed; it is tried again
    };
    // Any thread.
    Stats stats() const;

private:
    struct State;
    explicit Ledger(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
