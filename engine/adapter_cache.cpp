// The engine's thread owns all entries. The loading thread takes requests and returns results in the same order; both queues are guarded by
// mutex_.
#include "engine/adapter_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/adapter_folder.h"
#include "engine/model/model.h"
#include "engine/slot_choice.h"

namespace lorry::engine {
namespace {

using Clock = std::chrono::steady_clock;

// An adapter's files, and the bytes that its slot needs.
struct ReadAdapter {
    AdapterSource source;
    std::unique_ptr<AdapterFiles> files;
    std::size_t bytes = 0;
};
using ReadResult = Expected<ReadAdapter, AdapterError>;
using PackResult = Expected<std::unique_ptr<Adapter>, AdapterError>;

constexpr std::size_t queue_max = 64;       // requested loads that the loader does not have yet
constexpr std::size_t reading_max = 4;      // with the loader, or read and without a slot: more small adapters than load during a step
constexpr std::size_t failures_max = 4096;  // kept for their reason and pause

// Reads and packs one adapter after another. run() is its thread; the engine's thread calls the public members.
class Loader {
public:
    Loader(const Model& model, kernels::Backend& backend, const ModelTexts* texts)
        : model_(model), backend_(backend), texts_(texts), thread_([this] { run(); }) {}
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

    void read(AdapterSource source) { put(to_read_, std::move(source)); }
    // `slot` is where `files` are packed to; it outlives the packing.
    void pack(ReadAdapter files, kernels::Slot& slot) { put(to_pack_, {std::move(files), &slot}); }
    // The next result, in the order of read() or pack(); nullopt: none is ready.
    std::optional<ReadResult> take_read() { return take(read_); }
    std::optional<PackResult> take_packed() { return take(packed_); }
    // Waits for a result. can_take_read = false: the adapters read so far have no slot yet, so wait for another one.
    void wait(std::chrono::milliseconds timeout, bool can_take_read) {
        std::unique_lock lock(mutex_);
        const std::size_t known = can_take_read ? 0 : read_.size();
        changed_.wait_for(lock, timeout, [&] { return !packed_.empty() || read_.size() > known; });
    }

private:
    struct Packing {
        ReadAdapter files;
        kernels::Slot* slot = nullptr;
    };
    template <class T>
    void put(std::deque<T>& queue, T entry) {
        {
            const std::lock_guard lock(mutex_);
            queue.push_back(std::move(entry));
        }
        changed_.notify_all();
    }
    template <class T>
    std::optional<T> take(std::deque<T>& queue) {
        const std::lock_guard lock(mutex_);
        if (queue.empty()) return std::nullopt;
        std::optional<T> first(std::move(queue.front()));
        queue.pop_front();
        return first;
    }

    void run() {
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return stopping_ || !to_pack_.empty() || !to_read_.empty(); });
                if (stopping_) return;
            }
            if (const auto next = take(to_pack_)) {
                put(packed_, pack_now(*next));
            } else if (const auto source = take(to_read_)) {
                put(read_, read_now(*source));
            }
        }
    }
    ReadResult read_now(const AdapterSource& source) const {
        return guarded<ReadAdapter>(source.folder, [&]() -> ReadResult {
            auto files = texts_ == nullptr ? AdapterFiles::read(source.folder, source.hash, model_)
                                           : read_adapter(source.folder, source.hash, model_, *texts_);
            if (!files) return unexpected(files.error());
            const std::size_t bytes = (*files)->slot_bytes(backend_);
            return ReadAdapter{source, std::move(*files), bytes};
        });
    }
    static PackResult pack_now(const Packing& packing) {
        return guarded<std::unique_ptr<Adapter>>(packing.files.source.folder,
                                                 [&]() -> PackResult { return packing.files.files->pack(*packing.slot); });
    }
    // Running out of memory fails only the jobs of this adapter.
    template <class T, class Work>
    static Expected<T, AdapterError> guarded(const std::filesystem::path& folder, const Work& work) {
        try {
            return work();
        } catch (const std::bad_alloc&) {
            return unexpected(AdapterError{fmt::format("{}: not enough memory to load the adapter", folder.string()), true});
        } catch (const std::exception& error) {
            return unexpected(AdapterError{fmt::format("{}: {}", folder.string(), error.what()), true});
        }
    }

    const Model& model_;
    kernels::Backend& backend_;
    const ModelTexts* const texts_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<AdapterSource> to_read_;  // all of these: guarded by mutex_
    std::deque<ReadResult> read_;
    std::deque<Packing> to_pack_;
    std::deque<PackResult> packed_;
    bool stopping_ = false;
    std::thread thread_;  // last: it uses all of the above
};

struct Resident {
    kernels::SlotRange range;
    std::unique_ptr<kernels::Slot> slot;
    std::unique_ptr<Adapter> adapter;  // null while it is packed
    std::int64_t pins = 0;
    std::uint64_t last_use = 0;
    std::optional<Clock::time_point> keep_until;  // until its first pin

    bool is_in_use() const { return pins > 0 || adapter == nullptr; }
};
using Residents = std::map<std::string, Resident, std::less<>>;

struct Failure {
    std::string reason;
    int attempts = 0;
    bool is_final = false;  // false: the load is retried, and its requests keep waiting
    std::chrono::milliseconds pause{};
    Clock::time_point retry_at;
};

}  // namespace

struct AdapterCache::Implementation {
    Implementation(const Model& model, kernels::Backend& the_backend, kernels::KvCache& the_memory, BlockPool& the_blocks,
                   const Options& wanted)
        : backend(the_backend),
          memory(the_memory),
          blocks(the_blocks),
          block_bytes(backend.kv_block_bytes(model.kv_shape())),
          options(wanted),
          loader(model, backend, options.texts) {}

    bool take_packed();
    bool take_read();
    void begin_reading();
    void find_slot(bool may_borrow);
    kernels::SlotRange area() const;
    void evict(Residents::iterator victim);
    BlockId first_block_under(std::size_t begin) const;
    std::int64_t lent_before(std::size_t begin) const { return first_block_under(begin) - (blocks.total() - blocks.lent()); }
    void settle_lending();
    void fail(const std::string& hash, AdapterError error);
    bool is_asked_for(std::string_view hash) const {
        const auto is_it = [&](const AdapterSource& source) { return source.hash == hash; };
        return std::ranges::any_of(reading, is_it) || std::ranges::any_of(queue, is_it) || (without_room && is_it(without_room->source));
    }

    kernels::Backend& backend;
    kernels::KvCache& memory;
    BlockPool& blocks;
    const std::size_t block_bytes;
    const Options options;
    Residents residents;
    std::map<std::string, Failure, std::less<>> failures;
    std::deque<AdapterSource> queue;
    std::deque<AdapterSource> reading;           // by the loader
    std::optional<ReadAdapter> without_room;     // read, but without a slot
    std::deque<std::string> packing;             // by the loader
    std::optional<std::string> borrows_nothing;  // an adapter that gets no slot over lent blocks: see take_back_for()
    std::uint64_t uses = 0;                      // orders residents by last use
    Stats stats;
    Loader loader;  // last: its thread ends before the rest goes
};

// This and take_read(): false if the loader has no result.
bool AdapterCache::Implementation::take_packed() {
    std::optional<PackResult> result = loader.take_packed();
    if (!result) return false;
    const std::string hash = std::move(packing.front());
    packing.pop_front();
    const auto resident = residents.find(hash);
    if (!*result) {
        evict(resident);
        fail(hash, std::move(result->error()));
        return true;
    }
    ++stats.loads;
    failures.erase(hash);
    resident->second.adapter = std::move(**result);
    resident->second.keep_until = Clock::now() + options.unpinned_grace;
    return true;
}

bool AdapterCache::Implementation::take_read() {
    std::optional<ReadResult> result = loader.take_read();
    if (!result) return false;
    CHECK(!reading.empty() && !without_room, "a result answers the oldest request");
    const std::string hash = std::move(reading.front().hash);
    reading.pop_front();
    const std::size_t most = memory.slots().end - memory.slots().begin;
    if (!*result) {
        fail(hash, std::move(result->error()));
    } else if ((*result)->bytes > most) {
        fail(hash, {fmt::format("the adapter needs {} bytes, but adapters have {} bytes; raise --adapter-memory", (*result)->bytes, most)});
    } else {
        without_room = std::move(**result);
    }
    return true;
}

void AdapterCache::Implementation::begin_reading() {
    for (; reading.size() < reading_max && !queue.empty(); queue.pop_front()) {
        loader.read(queue.front());
        reading.push_back(std::move(queue.front()));
    }
}

void AdapterCache::Implementation::find_slot(bool may_borrow) {
    if (!without_room) return;
    const auto now = Clock::now();
    std::vector<TakenSlot> taken;
    for (const auto& [hash, resident] : residents) {
        const bool stays = resident.is_in_use() || (resident.keep_until && now < *resident.keep_until);
        taken.push_back({resident.range, stays ? std::nullopt : std::optional(resident.last_use)});
    }
    std::ranges::sort(taken, {}, [](const TakenSlot& slot) { return slot.range.begin; });
    auto choice = choose_slot(without_room->bytes, memory.slots(), taken);
    if ((!choice || !choice->victims.empty()) && may_borrow && memory.lends_blocks() && borrows_nothing != without_room->source.hash) {
        blocks.spare_from(static_cast<BlockId>(blocks.total() / 2));
        choice = choose_slot(without_room->bytes, area(), taken);
    }
    if (!choice) return;
    for (const TakenSlot& victim : choice->victims) {
        evict(std::ranges::find_if(residents, [&](const auto& entry) { return entry.second.range == victim.range; }));
    }
    const std::string hash = without_room->source.hash;
    Resident& resident = residents[hash];
    resident.range = choice->range;
    resident.last_use = ++uses;
    settle_lending();
    resident.slot = backend.make_slot(memory, resident.range);
    stats.resident_bytes += without_room->bytes;
    packing.push_back(hash);
    loader.pack(std::move(*without_room), *resident.slot);
    without_room.reset();
}

// Where slots may be: in the memory reserved for adapters, and before it over blocks that are lent or may be.
kernels::SlotRange AdapterCache::Implementation::area() const {
    const kernels::SlotRange own = memory.slots();
    const std::int64_t unheld = blocks.total() - blocks.held();
    const std::int64_t first = std::max<std::int64_t>(blocks.total() - unheld / 2, blocks.unheld_from());
    return {kernels::slot_aligned(std::min(own.begin, static_cast<std::size_t>(first) * block_bytes)), own.end};
}

void AdapterCache::Implementation::evict(Residents::iterator victim) {
    stats.resident_bytes -= victim->second.range.end - victim->second.range.begin;
    if (victim->second.adapter != nullptr) ++stats.evictions;
    residents.erase(victim);
    settle_lending();
}

BlockId AdapterCache::Implementation::first_block_under(std::size_t begin) const {
    return static_cast<BlockId>(begin < memory.slots().begin ? begin / block_bytes : static_cast<std::size_t>(blocks.total()));
}

// Blocks are lent from the first one that a slot covers.
void AdapterCache::Implementation::settle_lending() {
    std::size_t begin = memory.slots().begin;
    for (const auto& [hash, resident] : residents) begin = std::min(begin, resident.range.begin);
    blocks.lend_from(first_block_under(begin));
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

AdapterCache::AdapterCache(const Model& model, kernels::Backend& backend, kernels::KvCache& memory, BlockPool& blocks,
                           const Options& options)
    : implementation_(std::make_unique<Implementation>(model, backend, memory, blocks, options)) {}

AdapterCache::~AdapterCache() = default;

void AdapterCache::poll(bool may_borrow) {
    Implementation& my = *implementation_;
    while (my.take_packed()) {
    }
    my.find_slot(may_borrow);
    while (!my.without_room && my.take_read()) my.find_slot(may_borrow);
    my.begin_reading();
}

void AdapterCache::prefetch(const AdapterSource& source) {
    Implementation& my = *implementation_;
    if (state(source.hash) != State::absent || my.queue.size() >= queue_max) return;
    my.queue.push_back(source);
    my.begin_reading();
}

AdapterCache::State AdapterCache::state(std::string_view hash) const {
    const Implementation& my = *implementation_;
    const auto resident = my.residents.find(hash);
    if (resident != my.residents.end()) return resident->second.adapter != nullptr ? State::ready : State::loading;
    if (my.is_asked_for(hash)) return State::loading;
    const auto failure = my.failures.find(hash);
    if (failure == my.failures.end() || Clock::now() >= failure->second.retry_at) return State::absent;
    return failure->second.is_final ? State::failed : State::retrying;
}

std::optional<std::string_view> AdapterCache::needs_room() const {
    const Implementation& my = *implementation_;
    return my.without_room ? std::optional<std::string_view>(my.without_room->source.hash) : std::nullopt;
}

void AdapterCache::give_up_room() {
    Implementation& my = *implementation_;
    CHECK(my.without_room.has_value(), "only an adapter without room is given up");
    my.without_room.reset();
}

std::string AdapterCache::failure(std::string_view hash) const {
    const auto failure = implementation_->failures.find(hash);
    return failure != implementation_->failures.end() ? failure->second.reason : "";
}

const Adapter* AdapterCache::pin(std::string_view hash) {
    const auto found = implementation_->residents.find(hash);
    if (found == implementation_->residents.end() || found->second.adapter == nullptr) return nullptr;
    Resident& resident = found->second;
    ++resident.pins;
    resident.last_use = ++implementation_->uses;
    resident.keep_until.reset();
    if (implementation_->borrows_nothing == hash) implementation_->borrows_nothing.reset();
    return resident.adapter.get();
}

void AdapterCache::unpin(std::string_view hash) {
    const auto found = implementation_->residents.find(hash);
    CHECK(found != implementation_->residents.end() && found->second.pins > 0, "unpin follows pin");
    --found->second.pins;
    found->second.last_use = ++implementation_->uses;
}

std::int64_t AdapterCache::blocks_to_take_back() const {
    const Implementation& my = *implementation_;
    std::int64_t blocks = my.blocks.lent();
    for (const auto& [hash, resident] : my.residents) {
        if (resident.is_in_use()) blocks = std::min(blocks, my.lent_before(resident.range.begin));
    }
    return blocks;
}

std::int64_t AdapterCache::lent_blocks_before(std::string_view hash) const {
    const Implementation& my = *implementation_;
    const auto resident = my.residents.find(hash);
    return resident == my.residents.end() ? my.blocks.lent() : my.lent_before(resident->second.range.begin);
}

void AdapterCache::take_back_for(const std::string& hash) {
    implementation_->borrows_nothing = hash;
    take_back(implementation_->blocks.lent());
}

void AdapterCache::take_back(std::int64_t blocks) {
    Implementation& my = *implementation_;
    const auto end = static_cast<std::size_t>(my.blocks.total() - my.blocks.lent() + blocks) * my.block_bytes;
    for (auto it = my.residents.begin(); it != my.residents.end();) {
        const auto each = it++;
        if (each->second.range.begin < end && !each->second.is_in_use()) my.evict(each);
    }
}

void AdapterCache::wait(std::chrono::milliseconds timeout) { implementation_->loader.wait(timeout, !implementation_->without_room); }

AdapterCache::Stats AdapterCache::stats() const {
    Stats stats = implementation_->stats;
    stats.resident = implementation_->residents.size();
    const kernels::SlotRange own = implementation_->memory.slots();
    stats.budget_bytes = own.end - own.begin;
    return stats;
}

}  // namespace lorry::engine
