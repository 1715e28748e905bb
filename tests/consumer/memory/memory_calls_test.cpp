// Calls through a pipeline in the same process: chunks and ends, cancels, limits, and the end of the process.
#include "consumer/memory/memory_calls.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using namespace std::chrono_literals;

// Collects the events of calls, as texts.
class Listener final : public CallListener {
public:
    void on_chunk(const std::string& id, std::string chunk) override {
        const std::lock_guard lock(mutex_);
        chunks_[id].push_back(std::move(chunk));
        changed_.notify_all();
    }
    void on_end(const std::string& id, CallEnd end) override {
        const std::lock_guard lock(mutex_);
        const bool is_first = ends_.emplace(id, std::move(end)).second;
        EXPECT_TRUE(is_first) << id << " ended twice";
        changed_.notify_all();
    }
    CallEnd end_of(const std::string& id) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_.contains(id); });
        return ends_.at(id);
    }
    // "200", "503 unavailable" …
    std::string ending_of(const std::string& id) {
        const CallEnd end = end_of(id);
        if (const auto* result = std::get_if<CallResult>(&end)) return std::to_string(result->status);
        if (const auto* failure = std::get_if<schema::BatchFailure>(&end)) return std::string(name_of(schema::code_of(*failure)));
        return std::get<CallRefusal>(end).kind == CallRefusal::Kind::full ? "full" : "unavailable";
    }
    std::vector<std::string> chunks_of(const std::string& id, std::size_t least) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return chunks_[id].size() >= least; });
        return chunks_[id];
    }
    bool has_ended(const std::string& id) {
        const std::lock_guard lock(mutex_);
        return ends_.contains(id);
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::map<std::string, std::vector<std::string>> chunks_;
    std::map<std::string, CallEnd> ends_;
};

Call call_of(const std::string& id, const std::string& more = "", const std::string& url = "/v1/completions") {
    return {.id = id, .url = url, .body = R"({"model":"base","prompt":[1,2,3,4,5])" + more + "}", .tenant = {}};
}

struct MemoryCallsTest : testing::Test {
    ~MemoryCallsTest() override {
        if (running.joinable()) stop();
    }
    void start() {
        rig.start();  // its engine and preparer; its pipeline with fakes does not run
        pipeline = std::make_unique<Pipeline>(PipelineParts{.source = calls,
                                                            .sink = calls,
                                                            .adapters = rig.directory,
                                                            .cancels = calls,
                                                            .preparer = *rig.preparer,
                                                            .engine = *rig.engine,
                                                            .reply = rig.reply,
                                                            .observer = rig.observer},
                                              rig.options);
        running = std::thread([this] { pipeline->run(); });
    }
    // So that a call is still running when the test looks.
    void run_slowly() {
        rig.observer.at_step = [](const engine::EngineStats&) { std::this_thread::sleep_for(10ms); };
    }
    void stop() {
        pipeline->request_stop();
        running.join();
    }

    Listener listener;
    MemoryCalls calls{{.calls = 3, .waiting_bytes = 1000}};
    tests::PipelineRig rig;
    std::unique_ptr<Pipeline> pipeline;
    std::thread running;
};

// They are objects by themselves. The record that holds one is nested more deeply than JSON may be, or is none.
TEST_F(MemoryCallsTest, RefusesBodiesOfWhichNoRecordCanBeMade) {
    std::string deep;
    for (int i = 0; i < 99; ++i) deep += "[";
    for (int i = 0; i < 99; ++i) deep += "]";
    start();
    for (const std::string& body : {"{\"a\":" + deep + "}", std::string("\xEF\xBB\xBF{}"), std::string("{}\0x", 4)}) {
        EXPECT_FALSE(calls.submit({.id = body, .url = "/v1/completions", .body = body, .tenant = {}}, listener));
        EXPECT_EQ(listener.ending_of(body), "400");
    }
}

TEST_F(MemoryCallsTest, RunsCallsThatCameBeforeAndAfterTheStart) {
    EXPECT_FALSE(calls.submit(call_of("early"), listener));
    start();
    EXPECT_EQ(listener.ending_of("early"), "200");
    EXPECT_FALSE(calls.submit(call_of("late", R"(,"unheard_of":1)"), listener));
    EXPECT_EQ(listener.ending_of("late"), "400");
    EXPECT_FALSE(calls.submit(call_of("tenant"), listener));
    EXPECT_EQ(listener.ending_of("tenant"), "200");
}

TEST_F(MemoryCallsTest, StreamsChunksBeforeTheEnd) {
    start();
    EXPECT_FALSE(calls.submit(call_of("a", R"(,"max_tokens":3,"ignore_eos":true,"stream":true)"), listener));
    EXPECT_EQ(listener.ending_of("a"), "200");
    const std::vector<std::string> chunks = listener.chunks_of("a", 1);
    EXPECT_THAT(chunks, testing::Each(testing::HasSubstr(R"("object":"text_completion")")));
    EXPECT_THAT(chunks.back(), testing::HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(MemoryCallsTest, DropsWhatIsCancelled) {
    EXPECT_FALSE(calls.submit(call_of("waits"), listener));
    calls.cancel("waits");
    calls.cancel("nobody");
    run_slowly();
    start();
    EXPECT_FALSE(calls.submit(call_of("runs", R"(,"max_tokens":150,"ignore_eos":true,"stream":true)"), listener));
    listener.chunks_of("runs", 1);
    calls.cancel("runs");
    // Its place is free soon after.
    EXPECT_FALSE(calls.submit(call_of("next"), listener));
    EXPECT_EQ(listener.ending_of("next"), "200");
    stop();
    EXPECT_FALSE(listener.has_ended("waits"));
    EXPECT_FALSE(listener.has_ended("runs"));
}

TEST_F(MemoryCallsTest, RefusesMoreThanItsLimits) {
    EXPECT_FALSE(calls.submit(call_of("a"), listener));
    const auto large = calls.submit(call_of("b", R"(,"user":")" + std::string(1000, 'x') + "\""), listener);
    ASSERT_TRUE(large);
    EXPECT_EQ(large->kind, CallRefusal::Kind::full);
    EXPECT_FALSE(calls.submit(call_of("c"), listener));
    EXPECT_FALSE(calls.submit(call_of("d"), listener));
    ASSERT_TRUE(calls.submit(call_of("e"), listener));
    EXPECT_EQ(calls.backlog(), 3);
    start();
    EXPECT_EQ(listener.ending_of("d"), "200");
    EXPECT_FALSE(calls.submit(call_of("f"), listener));
}

// While what runs has its time to end, new calls waited and were told at the end.
TEST_F(MemoryCallsTest, RefusesNewCallsAtOnceWhileThoseItHasGoOn) {
    EXPECT_FALSE(calls.submit(call_of("before"), listener));
    calls.refuse_more();
    const auto refused = calls.submit(call_of("after"), listener);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, CallRefusal::Kind::unavailable);
    start();
    EXPECT_EQ(listener.ending_of("before"), "200");
}

// Nothing is kept, so every caller is told at the end.
TEST_F(MemoryCallsTest, EndsWhatIsLeftWhenItStops) {
    rig.options.drain_timeout = 50ms;
    rig.options.in_flight_max = 1;
    run_slowly();
    start();
    EXPECT_FALSE(calls.submit(call_of("runs", R"(,"max_tokens":150,"ignore_eos":true,"stream":true)"), listener));
    EXPECT_FALSE(calls.submit(call_of("waits"), listener));
    listener.chunks_of("runs", 1);
    stop();
    EXPECT_EQ(listener.ending_of("runs"), "unavailable");
    EXPECT_EQ(listener.ending_of("waits"), "unavailable");
    const auto refused = calls.submit(call_of("after"), listener);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, CallRefusal::Kind::unavailable);
}

}  // namespace
}  // namespace lorry::consumer
