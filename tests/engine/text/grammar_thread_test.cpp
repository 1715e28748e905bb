// Orders of grammars: which come first, how many may wait, and what becomes of those that nobody wants any longer.
#include "engine/text/grammar_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/gpt2_tokenizer.h"

namespace lorry::engine {
namespace {

schema::Structure regex(const std::string& text) { return {.kind = schema::Structure::Kind::regex, .text = text}; }

struct ThreadRig {
    // The thread stops after its first compilation until it is let go.
    std::promise<void> started;
    std::promise<void> gate;
    bool is_first = true;
    std::vector<std::uint64_t> compiled;  // how many compilations there were, after each
    GrammarCache cache;
    const std::shared_ptr<const GrammarCompiler> compiler =
        std::make_shared<const GrammarCompiler>(tests::gpt2_tokenizer(), 480, std::vector<TokenId>{93}, &cache);
    std::optional<GrammarThread> thread{std::in_place, 3, [this](std::chrono::microseconds) {
                                            compiled.push_back(cache.stats().compilations);
                                            if (!std::exchange(is_first, false)) return;
                                            started.set_value();
                                            gate.get_future().wait();
                                        }};

    GrammarThread::Ordered order(schema::Structure structure, bool urgent) { return thread->order(compiler, std::move(structure), urgent); }
};

TEST(GrammarThread, CompilesUrgentOnesFirstAndDropsWhatNobodyWaitsFor) {
    ThreadRig rig;
    const auto first = rig.order(regex("a"), false);
    rig.started.get_future().wait();
    auto dropped = rig.order(regex("b"), false);
    const auto second = rig.order(regex("c"), false);
    const auto third = rig.order(regex("("), false);
    EXPECT_EQ(rig.order(regex("d"), false), nullptr) << "three wait";
    dropped.reset();
    const auto fourth = rig.order(regex("a"), false);
    ASSERT_NE(fourth, nullptr) << "one of them was dropped";
    const auto urgent = rig.order(regex("e"), true);
    EXPECT_FALSE(first->is_compiled());
    EXPECT_FALSE(rig.compiler->find(regex("c")).valid());
    rig.gate.set_value();
    EXPECT_TRUE(urgent->result.get());
    EXPECT_FALSE(third->result.get()) << "an error";
    EXPECT_EQ(fourth->result.get(), first->result.get()) << "it was kept";
    rig.thread.reset();
    EXPECT_EQ(rig.compiled, (std::vector<std::uint64_t>{1, 2, 3, 4, 4}));
    EXPECT_EQ(rig.compiler->find(regex("c")).get(), second->result.get());
    EXPECT_FALSE(rig.compiler->find(regex("b")).valid());
}

TEST(GrammarThread, EndsWithoutCompilingWhatWaits) {
    ThreadRig rig;
    const auto first = rig.order(regex("a"), false);
    rig.started.get_future().wait();
    const auto second = rig.order(regex("b"), false);
    std::thread ending([&] { rig.thread.reset(); });
    rig.gate.set_value();
    ending.join();
    EXPECT_TRUE(first->result.get());
    EXPECT_LE(rig.cache.stats().compilations, 2U);
}

}  // namespace
}  // namespace lorry::engine
