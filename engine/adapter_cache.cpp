// The engine's thread owns all entries; the loading thread takes requests and leaves results in their order, all under mutex_.
#include "engine/adapter_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace lorry::engine {
namespace {

using Clock = std::chrono::steady_clock;
using LoadResult = Expected<std::unique_ptr<Adapter>, AdapterError>;

constexpr std::size_t queue_max = 64;       // loads asked for, not yet with the loader
constexpr std::size_t loading_max = 4;      // with the loader, or loaded and not yet taken: more than a step's worth of small adapters
constexpr std::size_t failures_max = 4096;  // remembered for their reason and pause

// Loads one adapter after the other. begin() and take() are called by the engine's thread.
class Loader {
public:
    Loader(const Model& model, kernels::Backend& backend) : model_(model), backend_(backend), thread_([this] { run(); }) {}
    ~Loader() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    void begin(AdapterSource source) {
        {
            const std::lock_guard lock(mutex_);
            requests_.push_back(std::move(source));
        }
        changed_.notify_all();
    }
    // The next result, in the order of begin(), if it is there.
    std::optional<LoadResult> take() {
        const std::lock_guard lock(mutex_);
        if (results_.empty()) return std::nullopt;
        LoadResult next = std::move(results_.front());
        results_.pop_front();
        return next;
    }
    // Until there is a result; where results cannot be taken at the moment, until there is one more.
    void wait(std::chrono::milliseconds timeout, bool can_take) {
        std::unique_lock lock(mutex_);
        const std::size_t known = can_take ? 0 : results_.size();
        changed_.wait_for(lock, timeout, [&] { return results_.size() > known; });
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
            if (stopping_) return;
            const AdapterSource source = std::move(requests_.front());
            requests_.pop_front();
            lock.unlock();
            LoadResult loaded = load(source);
            lock.lock();
            results_.push_back(std::move(loaded));
            changed_.notify_all();
        }
    }
    // A device without memory for it fails this adapter's jobs, nothing else.
    LoadResult load(const AdapterSource& source) const {
        try {
            return Adapter::load(source.folder, source.hash, model_, backend_);
        } catch (const std::bad_alloc&) {
            return unexpected(AdapterError{fmt::format("{}: not enough memory to load the adapter", source.folder.string()), true});
        } catch (const std::exception& error) {
            return unexpected(AdapterError{fmt::format("{}: {}", source.folder.string(), error.what()), true});
        }
    }

    const Model& model_;
    kernels::Backend& backend_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<AdapterSource> requests_;  // guarded by mutex_
    std::deque<LoadResult> results_;      // guarded by mutex_
    bool stopping_ = false;               // guarded by mutex_
    std::thread thread_;                  // last: it uses all of the above
};

struct Resident {
    std::unique_ptr<Adapter> adapter;
    std::int64_t pins = 0;
    std::uint64_t last_use = 0;
    std::optional<Clock::time_point> keep_until;  // until its first pin
};

struct Failure {
    std::string reason;
    int attempts = 0;
    bool is_final = false;  // else it is only tried again
    std::chrono::milliseconds pause{};
    Clock::time_point retry_at;
};

}  // namespace

struct AdapterCache::Implementation {
    Implementation(const Model& model, kernels::Backend& backend, const Options& wanted) : options(wanted), loader(model, backend) {}

    bool take_result();
    void find_place();
    bool evict_one();
    void fail(const std::string& hash, AdapterError error);
    bool is_asked_for(std::string_view hash) const {
        const auto is_it = [&](const AdapterSource& source) { return source.hash == hash; };
        return std::ranges::any_of(loading, is_it) || std::ranges::any_of(queue, is_it);
    }

    const Options options;
    std::map<std::string, Resident, std::less<>> residents;
    std::map<std::string, Failure, std::less<>> failures;
    std::deque<AdapterSource> queue;
    std::deque<AdapterSource> loading;  // with the loader; the first of them also while it is loaded and without a place
    std::unique_ptr<Adapter> homeless;  // loaded, but the others are in use
    std::uint64_t uses = 0;             // orders residents by last use
    Stats stats;
    Loader loader;  // last: its thread ends before the rest goes
};

// False when there is none.
bool AdapterCache::Implementation::take_result() {
    std::optional<LoadResult> result = loader.take();
    if (!result) return false;
    CHECK(!loading.empty() && homeless == nullptr, "a result answers the oldest request");
    if (!*result) {
        fail(loading.front().hash, std::move(result->error()));
        loading.pop_front();
        return true;
    }
    const std::size_t bytes = (**result)->bytes();
    if (bytes > options.budget_bytes) {
        fail(loading.front().hash, {fmt::format("the adapter takes {} bytes, but all adapters together may take {}; raise that budget",
                                                bytes, options.budget_bytes)});
        loading.pop_front();
        return true;
    }
    homeless = std::move(**result);
    return true;
}

void AdapterCache::Implementation::find_place() {
    if (homeless == nullptr) return;
    while (stats.resident_bytes + homeless->bytes() > options.budget_bytes) {
        if (!evict_one()) return;
    }
    stats.resident_bytes += homeless->bytes();
    ++stats.loads;
    failures.erase(loading.front().hash);
    residents[loading.front().hash] = {
        .adapter = std::move(homeless), .pins = 0, .last_use = ++uses, .keep_until = Clock::now() + options.unpinned_grace};
    loading.pop_front();
}

// The least recently used of those that nobody uses or is about to use; false if there is none.
bool AdapterCache::Implementation::evict_one() {
    const auto now = Clock::now();
    auto oldest = residents.end();
    for (auto it = residents.begin(); it != residents.end(); ++it) {
        const Resident& resident = it->second;
        if (resident.pins > 0 || (resident.keep_until && now < *resident.keep_until)) continue;
        if (oldest == residents.end() || resident.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == residents.end()) return false;
    stats.resident_bytes -= oldest->second.adapter->bytes();
    ++stats.evictions;
    residents.erase(oldest);
    return true;
}

void AdapterCache::Implementation::fail(const std::string& hash, AdapterError error) {
    if (failures.size() >= failures_max && !failures.contains(hash)) {
        failures.erase(std::min_element(failures.begin(), failures.end(),
                                        [](const auto& a, const auto& b) { return a.second.retry_at < b.second.retry_at; }));
    }
    Failure& failure = failures[hash];
    ++failure.attempts;
    failure.is_final = !error.may_pass || failure.attempts >= options.attempts_max;
    const auto pause_first = failure.is_final ? options.retry_after : options.reread_after;
    failure.pause = failure.pause.count() == 0 ? pause_first : std::min(2 * failure.pause, options.retry_after_max);
    failure.retry_at = Clock::now() + failure.pause;
    failure.reason = failure.attempts > 1 ? fmt::format("{} (tried {} times)", error.reason, failure.attempts) : std::move(error.reason);
    if (failure.is_final) ++stats.failures;
}

AdapterCache::AdapterCache(const Model& model, kernels::Backend& backend, std::size_t budget_bytes)
    : AdapterCache(model, backend, Options{.budget_bytes = budget_bytes}) {}

AdapterCache::AdapterCache(const Model& model, kernels::Backend& backend, const Options& options)
    : implementation_(std::make_unique<Implementation>(model, backend, options)) {
    backend.reserve_adapters(options.budget_bytes);
}

AdapterCache::~AdapterCache() = default;

void AdapterCache::poll() {
    Implementation& my = *implementation_;
    my.find_place();
    while (my.homeless == nullptr && my.take_result()) my.find_place();
    for (; my.loading.size() < loading_max && !my.queue.empty(); my.queue.pop_front()) {
        my.loader.begin(my.queue.front());
        my.loading.push_back(std::move(my.queue.front()));
    }
}

void AdapterCache::prefetch(const AdapterSource& source) {
    Implementation& my = *implementation_;
    if (state(source.hash) != State::absent || my.queue.size() >= queue_max) return;
    my.queue.push_back(source);
    poll();
}

AdapterCache::State AdapterCache::state(std::string_view hash) const {
    const Implementation& my = *implementation_;
    if (my.residents.contains(hash)) return State::ready;
    if (my.is_asked_for(hash)) return State::loading;
    const auto failure = my.failures.find(hash);
    if (failure == my.failures.end() || Clock::now() >= failure->second.retry_at) return State::absent;
    return failure->second.is_final ? State::failed : State::retrying;
}

std::optional<std::string_view> AdapterCache::needs_room() const {
    const Implementation& my = *implementation_;
    return my.homeless != nullptr ? std::optional<std::string_view>(my.loading.front().hash) : std::nullopt;
}

void AdapterCache::give_up_room() {
    Implementation& my = *implementation_;
    CHECK(my.homeless != nullptr, "only a loaded adapter without room is given up");
    my.homeless.reset();
    my.loading.pop_front();
}

std::string AdapterCache::failure(std::string_view hash) const {
    const auto failure = implementation_->failures.find(hash);
    return failure != implementation_->failures.end() ? failure->second.reason : "";
}

const Adapter* AdapterCache::pin(std::string_view hash) {
    const auto found = implementation_->residents.find(hash);
    if (found == implementation_->residents.end()) return nullptr;
    Resident& resident = found->second;
    ++resident.pins;
    resident.last_use = ++implementation_->uses;
    resident.keep_until.reset();
    return resident.adapter.get();
}

void AdapterCache::unpin(std::string_view hash) {
    const auto found = implementation_->residents.find(hash);
    CHECK(found != implementation_->residents.end() && found->second.pins > 0, "unpin follows pin");
    --found->second.pins;
    found->second.last_use = ++implementation_->uses;
}

void AdapterCache::wait(std::chrono::milliseconds timeout) { implementation_->loader.wait(timeout, implementation_->homeless == nullptr); }

AdapterCache::Stats AdapterCache::stats() const {
    Stats stats = implementation_->stats;
    stats.resident = implementation_->residents.size();
    stats.budget_bytes = implementation_->options.budget_bytes;
    return stats;
}

}  // namespace lorry::engine
