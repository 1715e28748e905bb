// Calls that workers run: they are sent to the calls topic, and answered with what comes back in the results and chunks topics. Made by
// `lorry serve` and `lorry up`. Keeps nothing: many of these run side by side, and each takes only the results of its own calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "consumer/call_backend.h"
#include "consumer/kafka/config.h"
#include "schema/topics.h"

namespace lorry::consumer {

class KafkaCalls final : public CallBackend {
public:
    struct Options {
        schema::Topics topics;
        std::size_t calls_max = 4096;                       // that wait or run; more are refused as full
        std::size_t call_bytes_max = std::size_t{1} << 20;  // of a body
        // Of calls in a partition of which nothing has come back: more are refused as full. For brokers that keep no more; nullopt: any.
        std::optional<std::size_t> partition_bytes_max;
        std::optional<std::chrono::milliseconds> call_timeout;  // afterwards no client waits for a call, and no worker begins it
        std::chrono::milliseconds send_timeout{10'000};         // for brokers to take a call; then it ends as unavailable
    };

    // Throws KafkaError when the brokers do not answer by deadline_start, a topic is missing, or a right. Brokers that go away later make
    // calls unavailable until they come back; it fails only if that takes longer than deadline_later.
    KafkaCalls(const KafkaConfig& config, Options options);
    ~KafkaCalls() override;

    std::optional<CallRefusal> submit(Call call, CallListener& listener) override;
    // Takes no more calls: they are unavailable. Those that are open go on.
    void refuse_more();
    // Also stops its job, wherever that is. Workers then end it, and its result is not read.
    void cancel(const std::string& id) override;

    // Takes no more calls and waits until all have ended, for `patience` at most. Then cancels those that are left and ends them as
    // unavailable. Afterwards there are no more events. Call it before listeners end; cancel() has no effect any more.
    void close(std::chrono::milliseconds patience);

    struct Stats {
        std::size_t open = 0;         // calls that wait or run
        std::uint64_t sent = 0;       // calls that were given to the brokers
        std::uint64_t refused = 0;    // as full or unavailable
        std::uint64_t unsent = 0;     // that the brokers did not take in time
        std::uint64_t cancelled = 0;  // whose client went away or waited for too long
        std::uint64_t restarted = 0;  // streams that another attempt went on with
        std::uint64_t broken = 0;     // streams that no attempt could go on with
        bool is_away = false;         // no broker can be reached
    };
    Stats stats() const;
    // Why nothing can come back any more, such as a right that was taken away; nullopt: all is well. The process should end then.
    std::optional<std::string> failure() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
