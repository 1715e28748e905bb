// Compiles grammars on a thread of its own. Used by consumer/pipeline.cpp, whose intake thread would read no job while it compiled a
// grammar.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/text/grammar.h"

namespace lorry::engine {

// What answers must match, and its grammar once that is compiled.
struct OrderedGrammar {
    schema::Structure structure;
    GrammarCompiler::Pending result;

    bool is_compiled() const { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

// In order, urgent ones first. One thread, because a grammar may take a second of a CPU that the engine's steps need as well, while the
// jobs that wait for it hold up no others. It starts with the first order.
class GrammarThread {
public:
    using Watch = std::function<void(std::chrono::microseconds took)>;

    // waiting_max: orders of each kind that nobody has dropped. watch: called on the thread after each compilation, before its result is
    // there; may be empty.
    GrammarThread(std::size_t waiting_max, Watch watch) : waiting_max_(waiting_max), watch_(std::move(watch)) {}
    // Waits for the compilation that runs. The others have no result.
    ~GrammarThread();
    GrammarThread(const GrammarThread&) = delete;
    GrammarThread& operator=(const GrammarThread&) = delete;

    using Ordered = std::shared_ptr<const OrderedGrammar>;
    // Null: as many wait as may. With the last copy of what is returned, an order that waits is dropped. One thread at a time.
    Ordered order(std::shared_ptr<const GrammarCompiler> compiler, schema::Structure structure, bool urgent);

private:
    struct Order {
        std::shared_ptr<const GrammarCompiler> compiler;
        // Nobody waits for it if this is its only owner.
        Ordered grammar;
        std::promise<GrammarCompiler::Result> result;
    };
    void run();
    void compile(Order order);

    const std::size_t waiting_max_;
    const Watch watch_;

    std::mutex mutex_;
    std::condition_variable has_orders_;
    // Guarded by mutex_.
    std::array<std::deque<Order>, 2> orders_;  // urgent ones, others
    bool is_closed_ = false;

    std::thread thread_;  // last: it uses all of the above
};

}  // namespace lorry::engine
