// The backend that times every call, and the table.
#include "ops/bench/op_profile.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "ops/bench/wrapped_backend.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

class WatchedBackend final : public WrappedBackend {
public:
    using Take = std::function<OpProfile::Entry&(const std::string&)>;
    WatchedBackend(std::unique_ptr<Backend> backend, Take entry) : WrappedBackend(std::move(backend)), entry_(std::move(entry)) {}

    void finish_step() override {
        timed("finish_step", [&] { backend().finish_step(); });
    }

private:
    void do_copy_block(KvCache& cache, BlockId from, BlockId to) override {
        timed("copy_block", [&] { backend().copy_block(cache, from, to); });
    }
    void do_begin_step(const StepInputs& step) override {
        timed("begin_step", [&] { backend().begin_step(step); });
    }
    void do_run(const Op& op) override {
        const auto run = [&](const auto* args) {
            OpProfile::Entry& entry = timed(label_of(*args), [&] { backend().run(op); });
            count(*args, entry);
        };
        std::visit(run, op);
    }

    // What an op is listed as: matmuls by shape, others by name.
    static std::string label_of(const auto& args) { return args.op_name; }
    static std::string label_of(const MatmulArgs& args) { return label_of_matmul("matmul", args.weight); }
    static std::string label_of(const ActivatedMatmulArgs& args) { return label_of_matmul("activated matmul", args.weight); }
    static std::string label_of_matmul(const char* op, const PackedWeight& weight) {
        return fmt::format("{} {} from {}", op, weight.out_features(), weight.in_features());
    }

    // Adds the work of one call; only the time of other ops is measured.
    static void count(const auto& /*args*/, OpProfile::Entry& /*entry*/) {}
    static void count(const MatmulArgs& args, OpProfile::Entry& entry) { count_matmul(args.weight, args.in.rows, entry); }
    static void count(const ActivatedMatmulArgs& args, OpProfile::Entry& entry) {
        count_matmul(args.weight, args.in.rows, entry);
        count_adapters(args.groups, entry);
    }
    static void count(const LoraArgs& args, OpProfile::Entry& entry) { count_adapters(args.groups, entry); }
    static void count_adapters(std::span<const LoraGroup> groups, OpProfile::Entry& entry) {
        for (const LoraGroup& group : groups) entry.work.bytes += static_cast<double>(group.lora->bytes());
    }
    void count(const AttentionArgs& args, OpProfile::Entry& entry) const {
        entry.kind = OpProfile::Kind::attention;
        entry.work += attention_work(args);
    }
    static void count_matmul(const PackedWeight& weight, std::int64_t rows, OpProfile::Entry& entry) {
        entry.kind = OpProfile::Kind::matmul;
        entry.work += {.bytes = static_cast<double>(weight.bytes()),
                       .operations = 2.0 * real(rows * weight.out_features() * weight.in_features())};
    }

    // The work of one layer: row i of a sequence attends to all tokens up to its own, or to those of a window.
    Work attention_work(const AttentionArgs& args) const {
        const KvShape layer{.layers = 1, .kv_heads = args.kv_heads, .head_dim = args.head_dim};
        const double token_bytes = static_cast<double>(backend().kv_block_bytes(layer)) / real(backend().block_size());
        std::int64_t kept = 0;
        std::int64_t seen = 0;
        for (const StepSequence& sequence : args.step.sequences) {
            const std::int64_t tokens = sequence.position + sequence.row_count;
            const std::int64_t window = args.window.value_or(tokens);
            kept += std::min(tokens, window + sequence.row_count - 1);
            const std::int64_t full = std::clamp<std::int64_t>(window - sequence.position, 0, sequence.row_count);  // rows that see all
            seen += full * (2 * sequence.position + full + 1) / 2 + (sequence.row_count - full) * window;
        }
        return {.bytes = real(kept) * token_bytes, .operations = 4.0 * real(seen * args.heads * args.head_dim)};
    }

    template <class Call>
    OpProfile::Entry& timed(const std::string& name, const Call& call) {
        const Clock::time_point begin = Clock::now();
        call();
        OpProfile::Entry& entry = entry_(name);
        ++entry.calls;
        entry.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
        return entry;
    }

    const Take entry_;
};

// The most operations per second that the machine does for an op of that kind; nullopt if its operations are not counted.
std::optional<double> operations_limit(OpProfile::Kind kind, const MachineLimits& limits) {
    switch (kind) {
        case OpProfile::Kind::matmul: return limits.matmuls.per_second;
        case OpProfile::Kind::attention: return limits.attention.per_second;
        case OpProfile::Kind::other: break;
    }
    return std::nullopt;
}

// The rate of an op, and its share of the machine's measured limit.
struct Rate {
    double per_second = 0.0;
    double share = 0.0;
};
std::optional<Rate> rate_of(double amount, double seconds, std::optional<double> limit) {
    if (amount == 0.0 || !limit) return std::nullopt;
    return Rate{.per_second = amount / seconds, .share = amount / seconds / *limit};
}
std::optional<Rate> operation_rate(const OpProfile::Entry& entry, const MachineLimits& limits) {
    return rate_of(entry.work.operations, entry.seconds, operations_limit(entry.kind, limits));
}
std::optional<Rate> byte_rate(const OpProfile::Entry& entry, const MachineLimits& limits) {
    return rate_of(entry.work.bytes, entry.seconds, limits.bytes);
}

}  // namespace

std::unique_ptr<Backend> OpProfile::watch(std::unique_ptr<Backend> backend) {
    return std::make_unique<WatchedBackend>(std::move(backend), [this](const std::string& name) -> Entry& { return entries_[name]; });
}

std::vector<std::pair<std::string, OpProfile::Entry>> OpProfile::sorted() const {
    std::vector<std::pair<std::string, Entry>> entries(entries_.begin(), entries_.end());
    std::ranges::sort(entries, std::greater{}, [](const auto& item) { return item.second.seconds; });
    return entries;
}

schema::Json OpProfile::json(const MachineLimits& limits) const {
    schema::Json ops = schema::Json::Array();
    for (const auto& [name, entry] : sorted()) {
        schema::Json op = schema::Json::object({{"op", name}, {"calls", entry.calls}, {"seconds", entry.seconds}});
        if (const auto rate = operation_rate(entry, limits)) {
            op.set("operations", entry.work.operations);
            op.set("operations_per_second", rate->per_second);
            op.set("operations_share", rate->share);
        }
        if (const auto rate = byte_rate(entry, limits)) {
            op.set("bytes", entry.work.bytes);
            op.set("bytes_per_second", rate->per_second);
            op.set("bytes_share", rate->share);
        }
        ops.push(std::move(op));
    }
    return ops;
}

std::string OpProfile::show(double seconds, const MachineLimits& limits) const {
    double rest = seconds;
    std::vector<std::vector<std::string>> rows = {{"op", "calls", "ms", "share", "GOP/s", "of limit", "GB/s", "of limit"}};
    const auto add = [&](const std::string& name, const Entry& entry) {
        std::vector<std::string>& row =
            rows.emplace_back(std::vector{name, entry.calls > 0 ? show_count(entry.calls) : "", fmt::format("{:.1f}", entry.seconds * 1e3),
                                          fmt::format("{:.1f} %", 100.0 * entry.seconds / seconds)});
        for (const auto& rate : {operation_rate(entry, limits), byte_rate(entry, limits)}) {
            row.push_back(rate ? fmt::format("{:.1f}", rate->per_second * 1e-9) : "");
            row.push_back(rate ? fmt::format("{:.0f} %", 100.0 * rate->share) : "");
        }
    };
    for (const auto& [name, entry] : sorted()) {
        add(name, entry);
        rest -= entry.seconds;
    }
    add("not an op", {.seconds = rest});
    return show_table(rows, 0b11111110);
}

}  // namespace lorry::ops
