// The watching backend and the table.
#include "ops/op_profile.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

class WatchedBackend final : public Backend {
public:
    using Take = std::function<OpProfile::Entry&(const std::string&)>;
    WatchedBackend(std::unique_ptr<Backend> backend, Take entry) : backend_(std::move(backend)), entry_(std::move(entry)) {}

    DeviceInfo info() const override { return backend_->info(); }
    std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return backend_->allocate(bytes); }
    void upload(void* to, std::span<const std::byte> from) override { backend_->upload(to, from); }
    void read_back(std::span<std::byte> to, const void* from) override { backend_->read_back(to, from); }
    std::unique_ptr<PackedWeight> pack_weight(std::span<const WeightPart> parts, WeightRole role) override {
        return backend_->pack_weight(parts, role);
    }
    std::unique_ptr<PackedLora> pack_lora(std::span<const LoraPart> parts) override { return backend_->pack_lora(parts); }
    void reserve_adapters(std::size_t bytes) override { backend_->reserve_adapters(bytes); }
    std::int64_t block_size() const override { return backend_->block_size(); }
    std::size_t kv_block_bytes(const KvShape& shape) const override { return backend_->kv_block_bytes(shape); }
    std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape, std::int64_t blocks) override {
        return backend_->make_kv_cache(shape, blocks);
    }

    void copy_block(KvCache& cache, BlockId from, BlockId to) override {
        timed("copy_block", [&] { backend_->copy_block(cache, from, to); });
    }
    void reserve_steps(const ReserveArgs& args) override { backend_->reserve_steps(args); }
    void make_graphs(const GraphArgs& args) override { backend_->make_graphs(args); }
    std::int64_t steps_in_flight_max() const override { return backend_->steps_in_flight_max(); }
    void begin_step(const StepInputs& step) override {
        timed("begin_step", [&] { backend_->begin_step(step); });
    }
    void finish_step() override {
        timed("finish_step", [&] { backend_->finish_step(); });
    }
    void embed(const EmbedArgs& args) override {
        timed("embed", [&] { backend_->embed(args); });
    }
    void norm(const NormArgs& args) override {
        timed("norm", [&] { backend_->norm(args); });
    }
    void matmul(const MatmulArgs& args) override {
        timed_matmul("matmul", args, [&] { backend_->matmul(args); });
    }
    void activated_matmul(const ActivatedMatmulArgs& args) override {
        timed_matmul("activated matmul", args, [&] { backend_->activated_matmul(args); });
    }
    void lora(const LoraArgs& args) override {
        timed("lora", [&] { backend_->lora(args); });
    }
    void group_bias(const GroupBiasArgs& args) override {
        timed("group_bias", [&] { backend_->group_bias(args); });
    }
    void rope_store(const RopeStoreArgs& args) override {
        timed("rope_store", [&] { backend_->rope_store(args); });
    }
    void attention(const AttentionArgs& args) override {
        timed("attention", [&] { backend_->attention(args); });
    }
    void activation(const ActivationArgs& args) override {
        timed("activation", [&] { backend_->activation(args); });
    }
    void gather_rows(const GatherRowsArgs& args) override {
        timed("gather_rows", [&] { backend_->gather_rows(args); });
    }
    void sample(const SampleArgs& args) override {
        timed("sample", [&] { backend_->sample(args); });
    }

private:
    template <class Args, class Work>
    void timed_matmul(const char* op, const Args& args, const Work& work) {
        const std::string name = fmt::format("{} {} from {}", op, args.weight.out_features(), args.weight.in_features());
        timed(name, work);
        const std::int64_t products = args.in.rows * args.weight.out_features() * args.weight.in_features();
        entry_(name).operations += 2.0 * static_cast<double>(products);
    }

    template <class Work>
    void timed(const std::string& name, const Work& work) {
        const Clock::time_point begin = Clock::now();
        work();
        OpProfile::Entry& entry = entry_(name);
        ++entry.calls;
        entry.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    }

    const std::unique_ptr<Backend> backend_;
    const Take entry_;
};

}  // namespace

std::unique_ptr<Backend> OpProfile::watch(std::unique_ptr<Backend> backend) {
    return std::make_unique<WatchedBackend>(std::move(backend), [this](const std::string& name) -> Entry& { return entries_[name]; });
}

std::vector<std::pair<std::string, OpProfile::Entry>> OpProfile::sorted() const {
    std::vector<std::pair<std::string, Entry>> entries(entries_.begin(), entries_.end());
    std::ranges::sort(entries, std::greater{}, [](const auto& item) { return item.second.seconds; });
    return entries;
}

schema::Json OpProfile::json() const {
    schema::Json ops = schema::Json::Array();
    for (const auto& [name, entry] : sorted()) {
        ops.push(schema::Json::object(
            {{"op", name}, {"calls", entry.calls}, {"seconds", entry.seconds}, {"matmul_operations", entry.operations}}));
    }
    return ops;
}

std::string OpProfile::show(double seconds, const char* unit) const {
    double rest = seconds;
    std::vector<std::vector<std::string>> rows = {{"op", "calls", "ms", "share", unit}};
    const auto add = [&](const std::string& name, const std::string& calls, double part, const std::string& rate) {
        rows.push_back({name, calls, fmt::format("{:.1f}", part * 1e3), fmt::format("{:.1f} %", 100.0 * part / seconds), rate});
    };
    for (const auto& [name, entry] : sorted()) {
        add(name, show_count(entry.calls), entry.seconds,
            entry.operations > 0.0 ? fmt::format("{:.0f}", entry.operations / entry.seconds * 1e-9) : "");
        rest -= entry.seconds;
    }
    add("not an op", "", rest, "");
    return show_table(rows, 0b11110);
}

}  // namespace lorry::ops
