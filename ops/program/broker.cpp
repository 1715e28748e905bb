// `lorry broker`: the embedded broker, for trying out.
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <mutex>

#include <fmt/format.h>

#include "consumer/kafka/broker.h"
#include "ops/command.h"
#include "ops/kafka_settings.h"
#include "ops/paths.h"
#include "ops/signals.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

class BrokerCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--port", port_, "the port on 127.0.0.1 (default: any free one)")->type_name("PORT")->check(CLI::Range(1, 65535));
        app.add_option("--address-file", address_file_, "write the address to this file once the broker answers")->type_name("FILE");
        app.add_option("--prefix", topics_.prefix, "the prefix of the topics")->type_name("NAME")->capture_default_str();
        app.add_option("--partitions", partitions_, "partitions of the topics jobs, calls, results, chunks and status")
            ->type_name("N")
            ->check(CLI::Range(1, 1000))
            ->capture_default_str();
        app.add_option("--stop-after", stop_after_, "stop after this time (default: run until Ctrl-C)")->type_name("TIME");
    }

    ExitCode run() override {
        SignalWatcher signals;
        std::optional<std::chrono::milliseconds> time;
        if (!stop_after_.empty()) {
            time = parse_duration(stop_after_);
            if (!time) throw UsageError(fmt::format("--stop-after is '{}'; allowed is a time such as 20min", stop_after_));
        }
        consumer::EmbeddedBroker::Options options;
        for (const schema::TopicSpec& spec : schema::topic_specs(topics_, {.partitions = partitions_})) {
            options.topics.push_back({.name = spec.name, .partitions = spec.partitions});
        }
        if (port_ > 0) options.port = static_cast<std::uint16_t>(port_);
        const SignalWatcher::Armed armed(signals, [this] {
            const std::lock_guard lock(mutex_);
            stop_ = true;
            changed_.notify_all();
        });
        const consumer::EmbeddedBroker broker(options);
        // The file appears with the whole address in it, for those that wait for it.
        if (!address_file_.empty()) write_text(address_file_, broker.address() + "\n");
        std::cout << broker.address() << '\n' << std::flush;
        std::cerr << consumer::EmbeddedBroker::caveat() << '\n'
                  << fmt::format(
                         "topics {}.jobs, .calls, .results, .chunks, .status, .dlq, .adapters, .control, .keys, .repeats; Ctrl-C ends it\n",
                         topics_.prefix);
        wait(time);
        if (!address_file_.empty()) std::filesystem::remove(address_file_);
        return ExitCode::done;
    }

private:
    void wait(std::optional<std::chrono::milliseconds> time) {
        std::unique_lock lock(mutex_);
        if (time) {
            changed_.wait_for(lock, *time, [this] { return stop_; });
        } else {
            changed_.wait(lock, [this] { return stop_; });
        }
    }

    schema::Topics topics_;
    int port_ = 0;  // 0: not given
    int partitions_ = 12;
    std::string address_file_;
    std::string stop_after_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Command> make_broker_command() { return std::make_unique<BrokerCommand>(); }

}  // namespace lorry::ops
