// Two threads: one writes what changes, the other reads results again. A follower fills the table.
#include "consumer/kafka/calls/repeatable_calls.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/calls/call_end.h"
#include "consumer/kafka/calls/live_gateways.h"
#include "consumer/kafka/calls/repeat_table.h"
#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"
#include "consumer/kafka/producer.h"
#include "consumer/kafka/reader.h"
#include "consumer/log.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::milliseconds report_turn{100};
constexpr std::chrono::milliseconds records_patience{5'000};  // at the end

schema::Timestamp time_now() { return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

// A run's id is its call's, followed by something that nobody can guess.
constexpr char run_separator = '-';
std::string_view call_of_run(std::string_view run) { return run.substr(0, run.rfind(run_separator)); }

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
          follower(config, options.topic, TopicFollower::each([this](const schema::JobRecord& record) { apply(record); })) {
        producer.connection().required_partition_count(options.topic);
    }

    void on_chunk(const std::string& run, std::string chunk) override;
    void on_end(const std::string& run, CallEnd end) override;
    void apply(const schema::JobRecord& record);
    void write(const std::string& id, const std::string& value);

    // A call whose repeat waits for its result.
    struct Fetch {
        std::string id;
        Repeat repeat;
        CallListener* listener = nullptr;
        Clock::time_point deadline;
    };
    void serve_fetches(const std::stop_token& stop);
    // nullopt: the result is no longer there.
    std::optional<CallEnd> read_again(const Fetch& fetch, const std::stop_token& stop);
    std::optional<CallEnd> try_read_again(const Fetch& fetch, const std::stop_token& stop);
    bool is_fetch_wanted();

    struct Running {
        CallListener& listener;
        Repeat repeat;
    };
    // With mutex held.
    Running* find_run(const std::string& run);
    const Repeat* find(const std::string& id, schema::Timestamp now) const;
    void set(const std::string& id, const Repeat& repeat);
    void set_gone(const std::string& id, Repeat repeat);
    std::optional<CallRefusal> repeat_call(const std::string& id, const Repeat& known, CallListener& listener);
    std::string next_run(const std::string& id);

    const KafkaConfig config;
    const Options options;
    CallBackend& calls;

    std::mutex mutex;
    // Guarded by mutex. It is held while listeners are called, so that a call that was cancelled has no events; never while `calls` is,
    // which holds a mutex of its own when it calls back.
    RepeatTable table;
    std::unordered_map<std::string, Running> running;  // here, by the call's id
    std::random_device random;
    std::deque<Fetch> fetches;
    std::optional<Fetch> fetching;  // nullopt also once it was cancelled
    std::condition_variable_any has_fetches;

    KafkaProducer producer;  // the writer's
    TopicFollower follower;
    TaskThread writer{[this] { producer.poll(std::chrono::milliseconds(0)); }};
    std::jthread fetcher{[this](const std::stop_token& stop) { serve_fetches(stop); }};
};

void RepeatableCalls::State::apply(const schema::JobRecord& record) {
    if (!record.key || !record.value || record.key->starts_with(LiveGateways::key_begin)) return;
    const auto repeat = parse_repeat(*record.value);
    if (!repeat) return warn_of(record, repeat.error());
    if (call_of_run(repeat->run) != *record.key)
        return warn_of(record, fmt::format("the run {} is none of call {}", repeat->run, *record.key));
    const std::lock_guard lock(mutex);
    // Of a call that runs here, earlier runs may still be read.
    if (!running.contains(*record.key)) table.set(*record.key, *repeat);
}

RepeatableCalls::State::Running* RepeatableCalls::State::find_run(const std::string& run) {
    const auto call = running.find(std::string(call_of_run(run)));
    return call != running.end() && call->second.repeat.run == run ? &call->second : nullptr;
}

const Repeat* RepeatableCalls::State::find(const std::string& id, schema::Timestamp now) const {
    const auto call = running.find(id);
    return call != running.end() ? &call->second.repeat : table.find(id, now);
}

void RepeatableCalls::State::set(const std::string& id, const Repeat& repeat) {
    table.set(id, repeat);
    writer.add([this, id, value = encode_repeat(repeat)] { write(id, value); });
}

void RepeatableCalls::State::set_gone(const std::string& id, Repeat repeat) {
    repeat.state = Repeat::State::gone;
    repeat.result.reset();
    set(id, repeat);
}

void RepeatableCalls::State::write(const std::string& id, const std::string& value) {
    const auto sent =
        producer.send({.topic = options.topic, .partition = std::nullopt, .key = id, .value = value, .headers = {}, .tag = 0});
    if (!sent) log_warning("{}: {} was not taken: {}", options.topic, id, rd_kafka_err2str(sent.error()));
}

void RepeatableCalls::State::on_chunk(const std::string& run, std::string chunk) {
    const std::lock_guard lock(mutex);
    if (const Running* call = find_run(run)) call->listener.on_chunk(std::string(call_of_run(run)), std::move(chunk));
}

// A result is kept; what failed may run again. What comes for an earlier run of the call is nobody's.
void RepeatableCalls::State::on_end(const std::string& run, CallEnd end) {
    const std::lock_guard lock(mutex);
    const Running* call = find_run(run);
    if (call == nullptr) return;
    const std::string id(call_of_run(run));
    Running ended = *call;
    running.erase(id);
    const auto* result = std::get_if<CallResult>(&end);
    if (result != nullptr && result->status == 200 && result->place) {
        ended.repeat.state = Repeat::State::ended;
        ended.repeat.result = result->place;
        set(id, ended.repeat);
    } else {
        set_gone(id, std::move(ended.repeat));
    }
    ended.listener.on_end(id, std::move(end));
}

void RepeatableCalls::State::serve_fetches(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (has_fetches.wait(lock, stop, [&] { return !fetches.empty(); }) && !stop.stop_requested()) {
        const Fetch fetch = fetching.emplace(std::move(fetches.front()));
        fetches.pop_front();
        lock.unlock();
        auto end = try_read_again(fetch, stop);
        lock.lock();
        if (stop.stop_requested()) return;
        const Repeat* known = table.find(fetch.id, time_now());
        if (!end && known != nullptr && known->run == fetch.repeat.run) set_gone(fetch.id, fetch.repeat);
        if (std::exchange(fetching, std::nullopt)) fetch.listener->on_end(fetch.id, end ? *std::move(end) : call_unavailable);
    }
}

bool RepeatableCalls::State::is_fetch_wanted() {
    const std::lock_guard lock(mutex);
    return fetching.has_value();
}

std::optional<CallEnd> RepeatableCalls::State::try_read_again(const Fetch& fetch, const std::stop_token& stop) {
    try {
        return read_again(fetch, stop);
    } catch (const std::exception& error) {
        log_warning("the result of {} cannot be read again: {}", fetch.id, error.what());
        return call_unavailable;
    }
}

std::optional<CallEnd> RepeatableCalls::State::read_again(const Fetch& fetch, const std::stop_token& stop) {
    if (Clock::now() >= fetch.deadline) return call_unavailable;
    const schema::Source& place = *fetch.repeat.result;
    RecordReader reader(
        config, {.positions = {{.topic = place.topic, .partition = place.partition, .next = place.offset}}, .positions_only = true});
    while (Clock::now() < fetch.deadline && !stop.stop_requested() && is_fetch_wanted()) {
        for (const schema::JobRecord& record : reader.poll(report_turn, 1)) {
            if (record.source == place && record.key == fetch.repeat.run) return call_end_of(record);
            return std::nullopt;  // retention has deleted it, or the topic was made anew
        }
        if (reader.positions().front().next > place.offset) return std::nullopt;  // and nothing has come after it
    }
    return call_unavailable;
}

// Ends with the result, once it is read.
std::optional<CallRefusal> RepeatableCalls::State::repeat_call(const std::string& id, const Repeat& known, CallListener& listener) {
    if (known.state == Repeat::State::running) return CallRefusal{.kind = CallRefusal::Kind::running};
    if (fetches.size() >= options.fetches_max) return CallRefusal{};
    fetches.push_back({.id = id, .repeat = known, .listener = &listener, .deadline = Clock::now() + options.fetch_timeout});
    has_fetches.notify_one();
    return std::nullopt;
}

std::string RepeatableCalls::State::next_run(const std::string& id) {
    return fmt::format("{}{}{:08x}{:08x}{:08x}{:08x}", id, run_separator, random(), random(), random(), random());
}

RepeatableCalls::RepeatableCalls(const KafkaConfig& config, Options options, CallBackend& calls)
    : state_(std::make_unique<State>(config, std::move(options), calls)) {}

RepeatableCalls::~RepeatableCalls() = default;

void RepeatableCalls::wait_until_read(Clock::time_point deadline) { state_->follower.wait_until_read(deadline); }

void RepeatableCalls::check() const {
    state_->follower.check();
    state_->writer.check();
}

void RepeatableCalls::close() {
    state_->fetcher = {};
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
    Repeat repeat{.content = schema::sha256_of(call.url + '\n' + call.body)};
    const auto now = time_now();
    {
        const std::lock_guard lock(state.mutex);
        if (const Repeat* known = state.find(id, now)) {
            if (known->content != repeat.content) return CallRefusal{.kind = CallRefusal::Kind::other_content};
            return state.repeat_call(id, *known, listener);
        }
        repeat.begun = state.table.next_begin(id, now);
        repeat.run = state.next_run(id);
        state.running.emplace(id, State::Running{.listener = listener, .repeat = repeat});
        state.set(id, repeat);
    }
    call.id = repeat.run;
    const auto refused = state.calls.submit(std::move(call), state);
    if (!refused) return std::nullopt;
    const std::lock_guard lock(state.mutex);
    if (state.find_run(repeat.run) == nullptr) return refused;
    state.running.erase(id);
    state.set_gone(id, std::move(repeat));
    return refused;
}

void RepeatableCalls::cancel(const std::string& id) {
    State& state = *state_;
    std::string run = id;  // of a call that cannot be repeated
    {
        const std::lock_guard lock(state.mutex);
        std::erase_if(state.fetches, [&](const State::Fetch& fetch) { return fetch.id == id; });
        if (state.fetching && state.fetching->id == id) state.fetching.reset();
        if (const auto call = state.running.find(id); call != state.running.end()) {
            Repeat gone = call->second.repeat;
            run = gone.run;
            state.running.erase(call);
            state.set_gone(id, std::move(gone));
        }
    }
    state.calls.cancel(run);
}

}  // namespace lorry::consumer
