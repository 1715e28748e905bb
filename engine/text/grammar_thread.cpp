// The queues of orders and the thread that works on them.
#include "engine/text/grammar_thread.h"

#include <algorithm>
#include <utility>

namespace lorry::engine {

GrammarThread::~GrammarThread() {
    {
        const std::lock_guard lock(mutex_);
        is_closed_ = true;
        has_orders_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
}

GrammarThread::Ordered GrammarThread::order(std::shared_ptr<const GrammarCompiler> compiler, schema::Structure structure, bool urgent) {
    const std::lock_guard lock(mutex_);
    std::deque<Order>& orders = orders_[urgent ? 0 : 1];
    std::erase_if(orders, [](const Order& one) { return one.grammar.use_count() == 1; });
    if (orders.size() >= waiting_max_) return nullptr;
    std::promise<GrammarCompiler::Result> result;
    auto grammar = std::make_shared<const OrderedGrammar>(OrderedGrammar{std::move(structure), result.get_future().share()});
    orders.push_back({.compiler = std::move(compiler), .grammar = grammar, .result = std::move(result)});
    has_orders_.notify_one();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    return grammar;
}

void GrammarThread::run() {
    for (;;) {
        std::unique_lock lock(mutex_);
        const auto with_orders = [&] { return std::ranges::find_if(orders_, [](const auto& orders) { return !orders.empty(); }); };
        has_orders_.wait(lock, [&] { return is_closed_ || with_orders() != orders_.end(); });
        if (is_closed_) return;
        std::deque<Order>& orders = *with_orders();
        Order next = std::move(orders.front());
        orders.pop_front();
        lock.unlock();
        compile(std::move(next));
    }
}

void GrammarThread::compile(Order order) {
    if (order.grammar.use_count() == 1) return;
    try {
        const auto begin = std::chrono::steady_clock::now();
        auto result = order.compiler->compile(order.grammar->structure);
        if (watch_) watch_(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin));
        order.result.set_value(std::move(result));
    } catch (...) {
        order.result.set_exception(std::current_exception());
    }
}

}  // namespace lorry::engine
