// What a gateway runs on, as the settings say: calls over Kafka, and what it follows there. Made by `lorry serve` and `lorry up`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/batches/folder_store.h"
#include "consumer/kafka/batches/batch_owner.h"
#include "consumer/kafka/batches/batch_topics.h"
#include "consumer/kafka/calls/kafka_calls.h"
#include "consumer/kafka/calls/live_gateways.h"
#include "consumer/kafka/calls/repeatable_calls.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "ops/gateway/stored_requests.h"
#include "ops/metrics.h"
#include "ops/serve/callers.h"
#include "ops/settings.h"
#include "schema/store/store.h"

namespace lorry::ops {

// The ledger of `usage_ledger`.
class UsageLedger {
public:
    // Throws UsageError if another process keeps the file.
    UsageLedger(const Settings& settings, const consumer::KafkaConfig& kafka);
    // One thread.
    std::vector<schema::UsageRow> read(const schema::UsageFilter& filter) const { return reader_->usage(filter); }
    consumer::Ledger::Stats stats() const { return ledger_->stats(); }

private:
    std::unique_ptr<consumer::Ledger> ledger_;
    std::optional<schema::Store> reader_;
};

// Files and batches.
class Batches {
public:
    // Throws like KafkaError where a topic is missing or cannot be read, and std::runtime_error for the folder.
    // run: how each batch is carried out. is_alone: as Services::Options.
    Batches(const consumer::KafkaConfig& kafka, const Settings& settings, consumer::BatchRun::Options run,
            consumer::Clock::time_point deadline, bool is_alone);
    // What happens is counted by the metrics, which outlive them.
    StoredRequests::Backends backends(Metrics& metrics);
    consumer::BatchTopics::Stats stats() const { return topics_.stats(); }
    // Throws if they can no longer be kept.
    void check() const;
    // Leaves its batches to the other gateways.
    void close() { owner_.reset(); }

private:
    consumer::FolderStore store_;
    consumer::BatchTopics topics_;
    const std::size_t file_bytes_max_;
    std::optional<consumer::BatchOwner> owner_;
};

// One thread, but for what is handed out.
class Services {
public:
    struct Options {
        const Settings& settings;
        const consumer::KafkaConfig& kafka;
        std::string base_name;
        consumer::Clock::time_point deadline;
        // For calls alone, as somebody waits for each. nullptr: as for all else.
        const consumer::KafkaConfig* kafka_of_calls = nullptr;
        // The adapters that it shows; they outlive it. nullptr: those that are registered in Kafka.
        const consumer::AdapterDirectory* adapters = nullptr;
        // For a broker that keeps little: how many bytes calls may have in a partition before a worker has read them, and how many the
        // lines of a tenant's batches may have in all partitions together. nullopt: as many as they have.
        std::optional<std::size_t> partition_bytes_max = {};
        // The topics and the folder of files were made for this process, so that nobody else can have claimed the folder.
        bool is_alone = false;
    };
    // Returns once all that is followed was read. Throws like KafkaError, and UsageError and std::runtime_error as its parts do.
    explicit Services(const Options& options);
    Services(const Services&) = delete;
    Services& operator=(const Services&) = delete;

    const consumer::AdapterDirectory& adapters() const { return adapters_; }
    consumer::CallBackend& calls() { return repeatable_; }
    consumer::KafkaCalls::Stats stats() const { return calls_.stats(); }
    // nullptr: there are no keys, and anyone may call.
    const Callers* callers() const { return callers_.get(); }
    // Empty: no usage is kept.
    std::function<std::vector<schema::UsageRow>(const schema::UsageFilter&)> usage() const;
    // nullopt: neither files nor batches are kept. The metrics outlive them.
    std::optional<StoredRequests::Backends> stored(Metrics& metrics);
    // How many gateways share the limits of keys.
    std::int64_t gateways() const { return live_ ? live_->count() : gateways_ == 0 ? 1 : gateways_; }
    MetricSources sources() const;

    // Throws if calls can no longer be served. Call it now and then.
    void check();
    // From now on, new calls are unavailable. Any thread.
    void refuse_more() { calls_.refuse_more(); }
    // Leaves batches to other gateways, and waits for the calls that run.
    void drain(std::chrono::milliseconds patience);
    // Afterwards, no call has events.
    void close();

private:
    std::unique_ptr<Callers> callers_;                    // nullptr: anyone may call
    std::unique_ptr<UsageLedger> usage_;                  // nullptr: none is kept
    std::unique_ptr<consumer::AdapterTopic> registered_;  // nullptr: the options name others
    const consumer::AdapterDirectory& adapters_;
    consumer::KafkaCalls calls_;
    consumer::RepeatableCalls repeatable_;
    std::unique_ptr<Batches> batches_;              // nullptr: none are kept
    const std::int64_t gateways_;                   // as the settings say; 0: they are counted
    std::unique_ptr<consumer::LiveGateways> live_;  // nullptr: nobody counts them
};

// Ends the events of calls before the gateway that hears of them, however serving ends.
class ClosingServices {
public:
    explicit ClosingServices(Services& services) : services_(services) {}
    ~ClosingServices() { services_.close(); }
    ClosingServices(const ClosingServices&) = delete;
    ClosingServices& operator=(const ClosingServices&) = delete;

private:
    Services& services_;
};

}  // namespace lorry::ops
