// Two threads: one writes what changes, the other reads results again. A follower fills the table.
#include "consumer/kafka/calls/repeatable_calls.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "consumer/kafka/calls/call_end.h"
#include "consumer/kafka/calls/repeat_table.h"
#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/producer.h"
#include "consumer/kafka/reader.h"
#include "consumer/log.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds report_turn{100};
constexpr std::chrono::milliseconds records_patience{5'000};  // at the end

schema::Timestamp time_now() { return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

// Does tasks one after the other on a thread of its own.
class TaskThread {
public:
    // `idle` is called when there is nothing else to do.
    explicit TaskThread(std::function<void()> idle) : idle_(std::move(idle)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

    void add(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        has_tasks_.notify_one();
    }
    // Waits for the task that runs. Afterwards no task runs; returns those that are left.
    std::deque<std::function<void()>> end() {
        thread_ = {};
        const std::lock_guard lock(mutex_);
        return std::exchange(tasks_, {});
    }
    void check() const {
        const std::lock_guard lock(mutex_);
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    void run(const std::stop_token& stop) {
        try {
            while (!stop.stop_requested()) {
                std::unique_lock lock(mutex_);
                has_tasks_.wait_for(lock, stop, report_turn, [&] { return !tasks_.empty(); });
                if (tasks_.empty()) {
                    lock.unlock();
                    idle_();
                    continue;
                }
                const auto task = std::move(tasks_.front());
                tasks_.pop_front();
                lock.unlock();
                task();
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
        }
    }

    const std::function<void()> idle_;
    mutable std::mutex mutex_;
    std::condition_variable_any has_tasks_;
    std::deque<std::function<void()>> tasks_;  // guarded by mutex_
    std::exception_ptr failure_;               // guarded by mutex_
    std::jthread thread_;
};

}  // namespace

struct RepeatableCalls::State final : CallListener {
    State(const KafkaConfig& the_config, Options the_options, CallBackend& the_calls)
        : config(the_config),
          options(std::move(the_options)),
          calls(the_calls),
          table(options.running_for),
          producer(config, {.limits = {}}),
          follower(config, options.topic, [this](const schema::JobRecord& record) { apply(record); }) {
        producer.connection().required_partition_count(options.topic);
    }

    void on_chunk(const std::string& id, std::string chunk) override;
    void on_end(const std::string& id, CallEnd end) override;
    void apply(const schema::JobRecord& record);
    void set(const std::string& id, const Repeat& repeat);
    void write(const std::string& id, const std::string& value);
    CallEnd fetch(const std::string& id, const schema::Source& place) const;
    void replay(const std::string& id, const Repeat& repeat, CallListener& listener);

    const KafkaConfig config;
    const Options options;
    CallBackend& calls;

    std::mutex mutex;
    // Guarded by mutex. Never held while `calls` is called, which holds a mutex of its own when it calls back.
    RepeatTable table;
    struct Running {
        CallListener& listener;
        Repeat repeat;
    };
    std::unordered_map<std::string, Running> running;  // here

    KafkaProducer producer;  // the writer's
    TopicFollower follower;
    TaskThread writer{[this] { producer.poll(std::chrono::milliseconds(0)); }};
    TaskThread fetcher{[] {}};
};

void RepeatableCalls::State::apply(const schema::JobRecord& record) {
    if (!record.key || !record.value) return;
    const auto repeat = parse_repeat(*record.value);
    if (!repeat) {
        log_warning("{} [{}] offset {}: {}", record.source.topic, record.source.partition, record.source.offset, repeat.error());
        return;
    }
    const std::lock_guard lock(mutex);
    table.set(*record.key, *repeat);
}

// With mutex held.
void RepeatableCalls::State::set(const std::string& id, const Repeat& repeat) {
    table.set(id, repeat);
    writer.add([this, id, value = encode_repeat(repeat)] { write(id, value); });
}

void RepeatableCalls::State::write(const std::string& id, const std::string& value) {
    const auto sent =
        producer.send({.topic = options.topic, .partition = std::nullopt, .key = id, .value = value, .headers = {}, .tag = 0});
    if (!sent) log_warning("{}: {} was not taken: {}", options.topic, id, rd_kafka_err2str(sent.error()));
}

void RepeatableCalls::State::on_chunk(const std::string& id, std::string chunk) {
    CallListener* listener = nullptr;
    {
        const std::lock_guard lock(mutex);
        if (const auto call = running.find(id); call != running.end()) listener = &call->second.listener;
    }
    if (listener != nullptr) listener->on_chunk(id, std::move(chunk));
}

// A result is kept; what failed may run again.
void RepeatableCalls::State::on_end(const std::string& id, CallEnd end) {
    std::optional<Running> ended;
    {
        const std::lock_guard lock(mutex);
        const auto call = running.find(id);
        if (call == running.end()) return;
        ended.emplace(call->second);
        running.erase(call);
        const auto* result = std::get_if<CallResult>(&end);
        const bool is_kept = result != nullptr && result->status == 200 && result->place;
        ended->repeat.state = is_kept ? Repeat::State::ended : Repeat::State::gone;
        if (is_kept) ended->repeat.result = result->place;
        set(id, ended->repeat);
    }
    ended->listener.on_end(id, std::move(end));
}

CallEnd RepeatableCalls::State::fetch(const std::string& id, const schema::Source& place) const {
    RecordReader reader(
        config, {.positions = {{.topic = place.topic, .partition = place.partition, .next = place.offset}}, .positions_only = true});
    const auto deadline = Clock::now() + options.fetch_timeout;
    while (Clock::now() < deadline) {
        for (const schema::JobRecord& record : reader.poll(report_turn, 1)) {
            if (record.source == place && record.key == id) return call_end_of(record);
            return call_unavailable;  // retention has deleted it
        }
    }
    return call_unavailable;
}

void RepeatableCalls::State::replay(const std::string& id, const Repeat& repeat, CallListener& listener) {
    CallEnd end = call_unavailable;
    try {
        end = fetch(id, *repeat.result);
    } catch (const std::exception& error) {
        log_warning("the result of {} cannot be read again: {}", id, error.what());
    }
    if (!std::holds_alternative<CallResult>(end)) {
        Repeat gone = repeat;
        gone.state = Repeat::State::gone;
        gone.result.reset();
        const std::lock_guard lock(mutex);
        set(id, gone);
    }
    listener.on_end(id, std::move(end));
}

RepeatableCalls::RepeatableCalls(const KafkaConfig& config, Options options, CallBackend& calls)
    : state_(std::make_unique<State>(config, std::move(options), calls)) {}

RepeatableCalls::~RepeatableCalls() = default;

void RepeatableCalls::wait_until_read(Clock::time_point deadline) { state_->follower.wait_until_read(deadline); }

void RepeatableCalls::check() const {
    state_->follower.check();
    state_->writer.check();
    state_->fetcher.check();
}

void RepeatableCalls::close() {
    state_->fetcher.end();
    try {
        for (const auto& task : state_->writer.end()) task();
    } catch (const std::exception& error) {
        log_warning("{}: records of calls are not written: {}", state_->options.topic, error.what());
    }
    rd_kafka_flush(state_->producer.connection().handle(), static_cast<int>(records_patience.count()));
}

std::optional<CallRefusal> RepeatableCalls::submit(Call call, CallListener& listener) {
    State& state = *state_;
    if (!call.repeatable) return state.calls.submit(std::move(call), listener);
    const std::string id = call.id;
    Repeat repeat{.content = schema::sha256_of(call.url + '\n' + call.body), .begun = time_now()};
    {
        const std::lock_guard lock(state.mutex);
        if (const Repeat* known = state.table.find(id, repeat.begun)) {
            if (known->content != repeat.content) return CallRefusal{.kind = CallRefusal::Kind::other_content};
            if (known->state == Repeat::State::running) return CallRefusal{.kind = CallRefusal::Kind::running};
            state.fetcher.add([&state, id, found = *known, &listener] { state.replay(id, found, listener); });
            return std::nullopt;
        }
        state.running.emplace(id, State::Running{.listener = listener, .repeat = repeat});
        state.set(id, repeat);
    }
    const auto refused = state.calls.submit(std::move(call), state);
    if (!refused) return std::nullopt;
    const std::lock_guard lock(state.mutex);
    state.running.erase(id);
    repeat.state = Repeat::State::gone;
    state.set(id, repeat);
    return refused;
}

void RepeatableCalls::cancel(const std::string& id) {
    State& state = *state_;
    state.calls.cancel(id);
    const std::lock_guard lock(state.mutex);
    const auto call = state.running.find(id);
    if (call == state.running.end()) return;
    Repeat gone = call->second.repeat;
    state.running.erase(call);
    gone.state = Repeat::State::gone;
    state.set(id, gone);
}

}  // namespace lorry::consumer
