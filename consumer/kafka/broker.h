// The embedded broker: librdkafka's mock cluster, for trying Lorry out and for tests. It keeps nothing (not even while it runs: 5 MiB or
// 100,000 batches per partition, then the oldest vanish), knows no transactions that readers could trust, and answers on 127.0.0.1 only.
// Workers recognize it by its cluster id. Started by `lorry broker` and the tests.
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
        // Of 127.0.0.1, with one broker; nullopt: any that is free.
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
    // What `lorry broker` says of it.
    static const char* caveat();

    // For tests: the next requests of that kind fail with these codes, one each (numbers of the Kafka protocol).
    void fail_requests(std::int16_t api_key, const std::vector<int>& error_codes);
    // Those that were to fail and have not come yet do not fail any more.
    void fail_no_more(std::int16_t api_key);
    // The next request of that kind is answered so much later.
    void delay_answer(std::int16_t api_key, std::chrono::milliseconds delay);
    // From now on requests are counted: how many of that kind have come since.
    void count_requests();
    std::size_t requests(std::int16_t api_key) const;
    // What is said of the topic to whoever asks for it; 0: that it is there.
    void set_topic_error(const std::string& topic, int error_code);
    // Takes all brokers off the network or brings them back; topics and offsets stay.
    void set_down(bool down);
    // Retention: deletes the records below this offset.
    void delete_records(const std::string& topic, std::int32_t partition, std::int64_t below);

private:
    void listen_on(std::uint16_t port);

    struct Handle;
    std::unique_ptr<Handle> handle_;
};

}  // namespace lorry::consumer
