// The embedded broker: librdkafka's mock cluster, for trying Lorry out and for tests. It stores nothing permanently (and even while it runs
// keeps only 5 MiB or 100,000 batches per partition, then drops the oldest), has no transactions that readers could trust, and listens on
// 127.0.0.1 only. Workers recognize it by its cluster id. Started by `lorry broker`,
// `lorry up` and tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lorry::consumer {

class EmbeddedBroker {
public:
    struct Topic {
        std::string name;
        std::int32_t partitions = 1;
    };
    struct Options {
        std::vector<Topic> topics;
        int brokers = 1;
        // Port on 127.0.0.1, for a single broker; nullopt: any free port.
        std::optional<std::uint16_t> port = {};
        // How long a new group waits for more members.
        std::chrono::milliseconds rebalance_delay{50};
    };

    // Throws KafkaError if it cannot be started.
    explicit EmbeddedBroker(const Options& options);
    ~EmbeddedBroker();
    EmbeddedBroker(const EmbeddedBroker&) = delete;
    EmbeddedBroker& operator=(const EmbeddedBroker&) = delete;

    // host:port of each broker, separated by commas.
    std::string address() const;
    // The warning that `lorry broker` prints.
    static const char* caveat();

    // For tests: the next requests of that kind fail with these codes, one each (numbers of the Kafka protocol).
    void fail_requests(std::int16_t api_key, const std::vector<int>& error_codes);
    // Cancels the failures that have not happened yet.
    void fail_no_more(std::int16_t api_key);
    // Delays the answer to the next request of that kind.
    void delay_answer(std::int16_t api_key, std::chrono::milliseconds delay);
    // Starts counting requests; requests() returns how many of that kind have arrived since.
    void count_requests();
    std::size_t requests(std::int16_t api_key) const;
    // Sets the error that requests about the topic get; 0: none.
    void set_topic_error(const std::string& topic, int error_code);
    // Takes all brokers off the network or brings them back; topics and offsets are kept.
    void set_down(bool down);
    // Simulates retention: deletes the records below this offset.
    void delete_records(const std::string& topic, std::int32_t partition, std::int64_t below);

private:
    void listen_on(std::uint16_t port);

    struct Handle;
    std::unique_ptr<Handle> handle_;
};

}  // namespace lorry::consumer
