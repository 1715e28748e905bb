// A pipeline with fakes of its seams, for tests in tests/consumer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "consumer/pipeline.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::tests {

// Calls a test's functions on the observer's threads.
struct Watcher : consumer::Observer {
    std::function<void(const engine::EngineStats&)> at_step;
    std::function<void()> at_compiled;
    std::function<void(const consumer::JobObservation&)> at_finish;
    std::function<void(const consumer::PipelineGauges&)> at_gauges;
    std::function<void(const std::optional<consumer::OldestJob>&)> at_oldest;
    void on_step(const engine::EngineStats& stats) override {
        if (at_step) at_step(stats);
    }
    void on_compiled(std::chrono::microseconds) override {
        if (at_compiled) at_compiled();
    }
    void on_finished(const consumer::JobObservation& job) override {
        if (at_finish) at_finish(job);
    }
    void on_gauges(const consumer::PipelineGauges& gauges) override {
        if (at_gauges) at_gauges(gauges);
    }
    void on_oldest(const std::optional<consumer::OldestJob>& job) override {
        if (at_oldest) at_oldest(job);
    }
};

inline const consumer::PartitionEpoch partition{.topic = "jobs", .partition = 0, .epoch = 1};

// A pipeline over the hash model, whose parts a test changes before start().
struct PipelineRig {
    PipelineRig() {
        engine_options.kv_bytes = 400 * hash_block_size;
        options.worker = "worker-1";
        options.commit_interval = std::chrono::milliseconds(5);
        options.parse.bytes_max = 1 << 20;
        model = make_hash_model(200, engine_options.step_rows_max, engine_options.sample_rows_max());
        config = model->config();
    }
    void start() {
        engine = std::make_unique<engine::Engine>(*model, *backend, gpt2_tokenizer(), engine_options);
        preparer = std::make_unique<consumer::Preparer>(
            gpt2_tokenizer(), std::nullopt, config,
            consumer::PreparerOptions{.context_max = engine->context_max(), .whole_max = {}, .share_prefixes = share_prefixes});
        pipeline = std::make_unique<consumer::Pipeline>(consumer::PipelineParts{.source = source,
                                                                                .sink = sink,
                                                                                .adapters = *adapters,
                                                                                .cancels = cancels,
                                                                                .preparer = *preparer,
                                                                                .engine = *engine,
                                                                                .reply = reply,
                                                                                .observer = observer},
                                                        options);
    }
    void run() {
        start();
        pipeline->run();
    }

    engine::EngineOptions engine_options;
    consumer::PipelineOptions options;
    bool share_prefixes = false;
    std::unique_ptr<kernels::Backend> backend = make_hash_backend();
    std::unique_ptr<engine::Model> model;
    engine::ModelConfig config;  // as jobs are prepared for
    FakeSource source;
    FakeSink sink;
    FakeDirectory directory;
    const consumer::AdapterDirectory* adapters = &directory;
    FakeCancels cancels;
    consumer::ReplyContext reply{.tokenizer = gpt2_tokenizer(), .base_name = "tiny", .system_fingerprint = "fp_test"};
    Watcher observer;
    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<consumer::Preparer> preparer;
    std::unique_ptr<consumer::Pipeline> pipeline;
};

// A completion job over token ids; `more` are further body members, each with a leading comma.
inline std::string job(const std::string& id, const std::string& more = "", const std::string& model = "base") {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"model":")" + model +
           R"(","prompt":[1,2,3,4,5])" + more + "}}";
}

// How a job ended: "200", "400 unknown_field", "batch_expired" …
inline std::string ending(const schema::Completion& completion) {
    if (completion.failure) return std::string(name_of(schema::code_of(*completion.failure)));
    std::string text = std::to_string(completion.status_code);
    if (const auto* error = completion.body.find("error")) text += " " + *error->find("code")->as_string();
    return text;
}

}  // namespace lorry::tests
