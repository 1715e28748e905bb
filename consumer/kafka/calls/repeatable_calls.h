// Calls that may be repeated: with an Idempotency-Key, a call runs once, and a caller that sends it again, to any gateway, gets its result
// or the answer that it still runs. Wraps another CallBackend, which runs the calls. Made by `lorry serve` and `lorry up`.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "consumer/call_backend.h"
#include "consumer/kafka/config.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// Which calls ran is in the repeats topic, which all gateways follow. Two copies that come to two gateways within the moment that a record
// takes between them both run. Each run is a call with an id of its own, so that what comes late for one never ends another.
class RepeatableCalls final : public CallBackend {
public:
    struct Options {
        std::string topic;
        std::chrono::milliseconds running_for{};          // as long as a call may run
        std::chrono::milliseconds fetch_timeout{10'000};  // for reading a result again; then the repeat ends as unavailable
        std::size_t fetches_max = 256;                    // results that wait to be read again; more repeats are refused as full
    };

    // Throws KafkaError when the brokers do not answer or the topic does not exist. `calls` outlives it, and ends its events before.
    RepeatableCalls(const KafkaConfig& config, Options options, CallBackend& calls);
    ~RepeatableCalls() override;

    // Call before serving: until then, repeats run again. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);
    // Throws what ended one of its threads, if anything. Call it now and then.
    void check() const;

    // Ends the events of repeats, once `calls` has ended those of its calls. Nothing is submitted afterwards that would be answered.
    void close();

    std::optional<CallRefusal> submit(Call call, CallListener& listener) override;
    void cancel(const std::string& id) override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
