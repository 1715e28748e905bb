// The adapter cache: loading on its own thread, the byte budget, pins, and failures.
#include "engine/adapter_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/model/model.h"
#include "tests/support/golden_model.h"
#include "tests/support/temp_folder.h"

namespace lorry {
namespace {

using engine::AdapterCache;
using engine::AdapterSource;
using State = AdapterCache::State;
using std::chrono::milliseconds;

class AdapterCacheTest : public testing::Test {
protected:
    AdapterSource source(const std::string& name, const std::string& kind = "adapters") const {
        const auto folder = tests::golden_folder() / kind / name;
        const auto info = engine::inspect_adapter(folder, model_->config());
        return {info ? info->hash : "hash of " + name, folder};
    }
    std::size_t packed_bytes(const std::string& name) const {
        return (*engine::AdapterFiles::read(tests::golden_folder() / "adapters" / name, "", *model_))->slot_bytes(*backend_);
    }
    // Polls until the adapter is no longer loading.
    static State settle(AdapterCache& cache, const AdapterSource& adapter) {
        for (int i = 0; i < 1000 && cache.state(adapter.hash) == State::loading; ++i) {
            cache.wait(milliseconds(10));
            cache.poll();
        }
        return cache.state(adapter.hash);
    }
    static State load(AdapterCache& cache, const AdapterSource& adapter) {
        cache.prefetch(adapter);
        return settle(cache, adapter);
    }

    // A KV cache of one block, followed by `bytes` bytes for adapters.
    struct Memory {
        std::unique_ptr<kernels::KvCache> kv;
        engine::BlockPool blocks;
    };
    struct Cache : Memory, AdapterCache {
        Cache(Memory memory, const engine::Model& model, kernels::Backend& backend, const Options& options)
            : Memory(std::move(memory)), AdapterCache(model, backend, *kv, Memory::blocks, options) {}
    };
    Cache cache_of(std::size_t bytes, const AdapterCache::Options& options = {}) const {
        return {{.kv = backend_->make_kv_cache(model_->kv_shape(), 1, bytes), .blocks = {1, backend_->block_size()}},
                *model_,
                *backend_,
                options};
    }

    std::unique_ptr<kernels::Backend> backend_ = tests::float32_backend();
    std::unique_ptr<engine::Model> model_ =
        engine::Model::load(tests::golden_folder() / "checkpoints" / "llama-gqa-linear", *backend_, tests::StepDriver::rows_max, 64);
};

TEST_F(AdapterCacheTest, AnAdapterIsAbsentThenLoadingThenReady) {
    Cache cache = cache_of(std::size_t{1} << 30U);
    const AdapterSource plain = source("plain");
    EXPECT_EQ(cache.state(plain.hash), State::absent);
    EXPECT_EQ(cache.pin(plain.hash), nullptr);
    cache.prefetch(plain);
    EXPECT_EQ(cache.state(plain.hash), State::loading);
    EXPECT_EQ(settle(cache, plain), State::ready);
    const engine::Adapter* adapter = cache.pin(plain.hash);
    ASSERT_NE(adapter, nullptr);
    EXPECT_EQ(adapter->info().hash, plain.hash);
    EXPECT_EQ(cache.stats().resident_bytes, packed_bytes("plain"));
    EXPECT_EQ(cache.stats().loads, 1U);
    cache.unpin(plain.hash);
}

TEST_F(AdapterCacheTest, TheLeastRecentlyUsedAdapterMakesRoom) {
    Cache cache = cache_of(packed_bytes("plain") + packed_bytes("regex") + packed_bytes("patterns") - kernels::slot_alignment,
                           {.unpinned_grace = milliseconds(0)});
    const AdapterSource plain = source("plain");
    const AdapterSource regex = source("regex");
    const AdapterSource patterns = source("patterns");
    EXPECT_EQ(load(cache, plain), State::ready);
    EXPECT_EQ(load(cache, regex), State::ready);
    cache.pin(plain.hash);  // now regex is the older one
    cache.unpin(plain.hash);
    EXPECT_EQ(load(cache, patterns), State::ready);
    EXPECT_EQ(cache.state(regex.hash), State::absent);
    EXPECT_EQ(cache.state(plain.hash), State::ready);
    EXPECT_EQ(cache.stats().evictions, 1U);
    EXPECT_EQ(cache.stats().resident_bytes, packed_bytes("plain") + packed_bytes("patterns"));
}

// Pins: during a long step the loading thread must load more than one adapter.
TEST_F(AdapterCacheTest, SeveralAdaptersAreReadAndPackedBetweenTwoPolls) {
    const std::vector<AdapterSource> sources = {source("plain"), source("regex"), source("patterns")};
    std::ptrdiff_t ready = 0;
    for (milliseconds step{20}; ready < 3 && step < milliseconds(5000); step *= 2) {
        Cache cache = cache_of(std::size_t{1} << 30U);
        for (const AdapterSource& adapter : sources) cache.prefetch(adapter);
        for (int poll = 0; poll < 2; ++poll) {  // the first assigns slots to adapters that were read, the second finds them packed
            std::this_thread::sleep_for(step);
            cache.poll();
        }
        ready = std::ranges::count_if(sources, [&](const AdapterSource& adapter) { return cache.state(adapter.hash) == State::ready; });
    }
    EXPECT_EQ(ready, 3);
}

// Pins: a running request's adapter is never freed, even if another one waits.
TEST_F(AdapterCacheTest, APinnedAdapterStaysAndTheNextOneWaitsForIt) {
    Cache cache = cache_of(std::max(packed_bytes("plain"), packed_bytes("patterns")));
    const AdapterSource plain = source("plain");
    const AdapterSource patterns = source("patterns");
    EXPECT_EQ(load(cache, plain), State::ready);
    cache.pin(plain.hash);
    cache.pin(plain.hash);
    cache.prefetch(patterns);
    for (int i = 0; i < 20; ++i) {
        cache.wait(milliseconds(10));
        cache.poll();
    }
    EXPECT_EQ(cache.state(patterns.hash), State::loading);
    cache.unpin(plain.hash);
    cache.poll();
    EXPECT_EQ(cache.state(plain.hash), State::ready);
    cache.unpin(plain.hash);
    EXPECT_EQ(settle(cache, patterns), State::ready);
    EXPECT_EQ(cache.state(plain.hash), State::absent);
}

// Pins: two adapters that do not fit together must not evict each other forever before either runs.
TEST_F(AdapterCacheTest, ALoadedAdapterIsKeptUntilItsFirstPin) {
    Cache cache = cache_of(std::max(packed_bytes("plain"), packed_bytes("patterns")));
    const AdapterSource plain = source("plain");
    const AdapterSource patterns = source("patterns");
    EXPECT_EQ(load(cache, plain), State::ready);
    cache.prefetch(patterns);
    cache.wait(milliseconds(200));
    cache.poll();
    EXPECT_EQ(cache.state(plain.hash), State::ready);
    cache.pin(plain.hash);
    cache.unpin(plain.hash);
    EXPECT_EQ(settle(cache, patterns), State::ready);
}

// Pins: an adapter that no request wants any more must not block the loader while the other adapters are in use.
TEST_F(AdapterCacheTest, AnAdapterWithoutRoomSaysSoAndCanBeGivenUp) {
    Cache cache =
        cache_of(packed_bytes("plain") + std::min(packed_bytes("patterns"), packed_bytes("rank12-rslora")) - kernels::slot_alignment);
    const AdapterSource plain = source("plain");
    const AdapterSource patterns = source("patterns");
    const AdapterSource next = source("rank12-rslora");
    EXPECT_EQ(load(cache, plain), State::ready);
    cache.pin(plain.hash);
    EXPECT_EQ(cache.needs_room(), std::nullopt);
    cache.prefetch(patterns);
    cache.prefetch(next);
    for (int i = 0; i < 1000 && !cache.needs_room(); ++i) {
        cache.wait(milliseconds(10));
        cache.poll();
    }
    EXPECT_EQ(cache.needs_room(), patterns.hash);
    cache.give_up_room();
    EXPECT_EQ(cache.needs_room(), std::nullopt);
    EXPECT_EQ(cache.state(patterns.hash), State::absent);
    EXPECT_EQ(cache.stats().loads, 1U);
    cache.unpin(plain.hash);
    EXPECT_EQ(settle(cache, next), State::ready) << "the next adapter is loaded";
    EXPECT_EQ(cache.state(plain.hash), State::absent);
}

TEST_F(AdapterCacheTest, AnAdapterLargerThanTheBudgetFailsWithBothSizes) {
    Cache cache = cache_of(packed_bytes("plain") - kernels::slot_alignment);
    const AdapterSource plain = source("plain");
    EXPECT_EQ(load(cache, plain), State::failed);
    EXPECT_THAT(cache.failure(plain.hash),
                testing::AllOf(testing::HasSubstr(std::to_string(packed_bytes("plain"))),
                               testing::HasSubstr(std::to_string(packed_bytes("plain") - kernels::slot_alignment))));
    EXPECT_EQ(cache.stats().resident_bytes, 0U);
}

TEST_F(AdapterCacheTest, ABrokenAdapterFailsWithTheReasonAndIsTriedAgainAfterAGrowingPause) {
    Cache cache = cache_of(1 << 20, {.retry_after = milliseconds(100), .retry_after_max = milliseconds(200)});
    // Registered by an earlier version, which did not look for NaN.
    AdapterSource broken = source("not-a-number", "refused_adapters");
    broken.hash = "ef1fc90cf350322fcc90940878ddafb9";
    const AdapterSource plain = source("plain");
    EXPECT_EQ(load(cache, broken), State::failed);
    EXPECT_THAT(cache.failure(broken.hash), testing::HasSubstr("q_proj"));
    cache.prefetch(broken);
    EXPECT_EQ(cache.state(broken.hash), State::failed) << "the pause is not over";
    EXPECT_EQ(load(cache, plain), State::ready) << "other adapters still load";

    const auto pause = [&] {
        const auto begin = std::chrono::steady_clock::now();
        while (cache.state(broken.hash) == State::failed) cache.wait(milliseconds(5));
        return std::chrono::steady_clock::now() - begin;
    };
    pause();
    EXPECT_EQ(cache.state(broken.hash), State::absent);
    EXPECT_EQ(load(cache, broken), State::failed);
    EXPECT_GT(pause(), milliseconds(150)) << "the second pause is longer";
    EXPECT_EQ(cache.stats().failures, 2U);
}

// A folder that is still being copied when its first job arrives.
TEST_F(AdapterCacheTest, AFolderThatIsHalfCopiedIsReadAgainUntilItIsWhole) {
    const tests::TempFolder copies;
    const AdapterSource plain = source("plain");
    const AdapterSource half{plain.hash, copies / "plain"};
    std::filesystem::copy(plain.folder, half.folder);
    const auto weights = half.folder / "adapter_model.safetensors";
    std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
    Cache cache = cache_of(1 << 30, {.attempts_max = 1'000'000, .reread_after = milliseconds(1)});
    EXPECT_NE(load(cache, half), State::failed);
    std::filesystem::copy(plain.folder, half.folder,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    for (int i = 0; i < 1000 && cache.state(half.hash) != State::ready; ++i) {
        cache.prefetch(half);
        cache.wait(milliseconds(10));
        cache.poll();
    }
    EXPECT_EQ(cache.state(half.hash), State::ready);
    EXPECT_EQ(cache.stats().failures, 0U);
}

TEST_F(AdapterCacheTest, AnAdapterThatStaysUnreadableFailsAndSaysHowOftenItWasTried) {
    Cache cache = cache_of(1 << 30, {.attempts_max = 3, .reread_after = milliseconds(1)});
    const AdapterSource missing{"hash", "/nonexistent/adapter"};
    for (int i = 0; i < 1000 && cache.state(missing.hash) != State::failed; ++i) {
        cache.prefetch(missing);
        cache.wait(milliseconds(10));
        cache.poll();
    }
    EXPECT_EQ(cache.state(missing.hash), State::failed);
    EXPECT_THAT(cache.failure(missing.hash), testing::HasSubstr("/nonexistent/adapter"));
    EXPECT_THAT(cache.failure(missing.hash), testing::HasSubstr("tried 3 times"));
    EXPECT_EQ(cache.stats().failures, 1U);
}

TEST_F(AdapterCacheTest, ACacheMayGoWhileItLoads) {
    const AdapterSource plain = source("plain");
    const AdapterSource patterns = source("patterns");
    for (int i = 0; i < 20; ++i) {
        Cache cache = cache_of(std::size_t{1} << 30U);
        cache.prefetch(plain);
        cache.prefetch(patterns);
        if (i % 2 == 0) cache.poll();
    }
}

// Pins: packing on the loading thread and computing on the engine's do not disturb each other (run with TSan, too).
TEST_F(AdapterCacheTest, LoadingGoesOnBesideARunningBatchAndChangesNothingThere) {
    Cache cache = cache_of(packed_bytes("lm-head"), {.unpinned_grace = milliseconds(0)});
    const tests::Golden golden = tests::read_golden(tests::golden_folder() / "checkpoints" / "llama-gqa-linear");
    const std::vector<AdapterSource> sources = {source("plain"), source("regex"), source("layers-list"), source("lm-head")};
    tests::StepDriver driver(*model_, *backend_);
    for (std::size_t i = 0; i < 12; ++i) {
        cache.prefetch(sources[i % sources.size()]);
        tests::Sequence sequence = driver.begin(golden.cases[0].prompt);
        driver.generate({&sequence}, 64);
        EXPECT_THAT(std::span(sequence.tokens).subspan(golden.cases[0].prompt.size()), testing::ElementsAreArray(golden.cases[0].greedy));
        settle(cache, sources[i % sources.size()]);
    }
    EXPECT_GT(cache.stats().loads, sources.size()) << "some were evicted and loaded again";
}

}  // namespace
}  // namespace lorry
