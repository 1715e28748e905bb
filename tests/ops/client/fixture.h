// Used by the tests of the client commands: an embedded broker with Lorry's topics, the commands as users call them, and records as a
// worker publishes them.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "consumer/kafka/broker.h"
#include "consumer/kafka/client.h"
#include "consumer/kafka/reader.h"
#include "ops/command.h"
#include "schema/codec.h"
#include "schema/topics.h"

namespace lorry::ops {

using namespace std::chrono_literals;

// The exit code and the outputs of a call.
struct Call {
    int code = 0;
    std::string out;
    std::string err;
};

// Runs `lorry ARGUMENTS` in this process.
inline Call call(std::vector<std::string> arguments) {
    std::ostringstream out;
    std::ostringstream err;
    auto* const out_before = std::cout.rdbuf(out.rdbuf());
    auto* const err_before = std::cerr.rdbuf(err.rdbuf());
    std::vector<const char*> argv = {"lorry"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    const int code = run_program(static_cast<int>(argv.size()), argv.data());
    std::cout.rdbuf(out_before);
    std::cerr.rdbuf(err_before);
    return {.code = code, .out = out.str(), .err = err.str()};
}

inline std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

inline std::string job_line(const std::string& custom_id, const std::string& model = "base") {
    return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"model":"{}","prompt":"Once"}}}})", custom_id,
                       model);
}

inline std::string result_line(const std::string& id, const std::string& custom_id, int status = 200) {
    const char* body = status == 200 ? R"({"choices":[{"index":0,"text":"upon a time","finish_reason":"stop"}]})"
                                     : R"({"error":{"message":"no such model","code":"model_not_found"}})";
    return fmt::format(R"({{"id":"{}","custom_id":"{}","response":{{"status_code":{},"request_id":"{}","body":{}}},"error":null}})", id,
                       custom_id, status, id, body);
}

class ClientTest : public ::testing::Test {
protected:
    ClientTest() { std::filesystem::create_directories(folder); }
    ~ClientTest() override { std::filesystem::remove_all(folder); }

    static consumer::EmbeddedBroker::Options broker_options() {
        consumer::EmbeddedBroker::Options options;
        for (const auto& spec : schema::topic_specs({}, {.partitions = 3})) options.topics.push_back({spec.name, spec.partitions});
        return options;
    }

    std::string file(const std::string& name) const { return (folder / name).string(); }
    std::string write(const std::string& name, const std::vector<std::string>& lines) const {
        std::ofstream out(file(name), std::ios::binary);
        for (const std::string& line : lines) out << line << '\n';
        return file(name);
    }
    static std::string text_of(const std::string& name) {
        std::ifstream in(name, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    // `lorry ARGUMENTS --brokers …`
    Call lorry(std::vector<std::string> arguments) const {
        arguments.insert(arguments.end(), {"--brokers", broker.address(), "--deadline-start", "15s"});
        return call(std::move(arguments));
    }

    std::vector<schema::JobRecord> records(const std::string& topic) const {
        consumer::RecordReader reader(config, {.topics = {topic}});
        std::vector<schema::JobRecord> all;
        consumer::CatchUp catch_up(reader);
        const auto deadline = std::chrono::steady_clock::now() + 20s;
        while (std::chrono::steady_clock::now() < deadline) {
            for (auto& record : reader.poll(50ms, 1000)) all.push_back(std::move(record));
            if (catch_up.is_done()) return all;
        }
        ADD_FAILURE() << topic << " was not read to its end";
        return all;
    }

    // Writes what a worker would write, with the key that it would use.
    void publish(const std::string& topic, const std::string& key, const std::vector<std::string>& values,
                 const std::string& batch_id = {}) const {
        consumer::JobProducer producer(config, {.topic = topic, .batch_id = batch_id});
        for (const std::string& value : values) producer.submit(value, key, 1);
        producer.finish();
        ASSERT_EQ(producer.counts().delivered, values.size());
    }

    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() /
        fmt::format("lorry-{}-{}", getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    consumer::EmbeddedBroker broker{broker_options()};
    schema::Topics topics;
    consumer::KafkaConfig config{.brokers = broker.address(), .passthrough = {}, .deadline_start = 15s, .deadline_later = 20s};
};

}  // namespace lorry::ops
