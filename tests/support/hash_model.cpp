// The hash model and the backend that holds its "KV cache": one token per slot.
#include "tests/support/hash_model.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "schema/check.h"

namespace lorry::tests {
namespace {

using kernels::BlockId;
using kernels::TokenId;

class TokenCache final : public kernels::KvCache {
public:
    explicit TokenCache(std::int64_t blocks) : tokens(static_cast<std::size_t>(blocks * hash_block_size), -1) {}
    const kernels::KvShape& shape() const override { return shape_; }
    std::int64_t blocks() const override { return static_cast<std::int64_t>(tokens.size()) / hash_block_size; }
    std::size_t bytes() const override { return tokens.size() * sizeof(TokenId); }
    kernels::SlotRange slots() const override { return {}; }
    TokenId& at(std::span<const BlockId> table, std::int64_t position) {
        const BlockId block = table[static_cast<std::size_t>(position / hash_block_size)];
        return tokens[static_cast<std::size_t>(block * hash_block_size + position % hash_block_size)];
    }
    std::vector<TokenId> tokens;
    std::vector<TokenId> step_tokens;  // of the step that was begun last

private:
    kernels::KvShape shape_{.layers = 1, .kv_heads = 1, .head_dim = 1};
};

// Row r of the "logits" holds the hash of the tokens up to row r.
std::uint64_t& hash_at(const kernels::Matrix& logits, std::size_t row) { return static_cast<std::uint64_t*>(logits.data)[row]; }

class HashBackend final : public kernels::Backend {
public:
    explicit HashBackend(std::int64_t steps_queued) : steps_(static_cast<std::size_t>(steps_queued)) {}
    kernels::DeviceInfo info() const override { return {.name = "hash", .fingerprint = "hash"}; }
    std::int64_t block_size() const override { return hash_block_size; }
    std::size_t kv_block_bytes(const kernels::KvShape&) const override { return hash_block_size; }
    std::int64_t steps_queued_max() const override { return std::ssize(steps_); }
    void finish_step() override {
        CHECK(finished_ < begun_, "only a step that was begun is finished");
        const Step& oldest = step_at(++finished_);
        std::ranges::copy(oldest.drawn, oldest.results.begin());
    }
    std::unique_ptr<kernels::Buffer> allocate(std::size_t) override { return unused(); }
    void upload(void*, std::span<const std::byte>) override { unused(); }
    void read_back(std::span<std::byte>, const void*) override { unused(); }
    std::unique_ptr<kernels::Slot> make_measuring_slot() override { return unused(), nullptr; }

private:
    std::unique_ptr<kernels::KvCache> do_make_kv_cache(const kernels::KvShape&, std::int64_t blocks, std::size_t) override {
        auto cache = std::make_unique<TokenCache>(blocks);
        cache_ = cache.get();
        return cache;
    }
    void do_copy_block(kernels::KvCache& cache, BlockId from, BlockId to) override {
        auto& tokens = dynamic_cast<TokenCache&>(cache).tokens;
        std::copy_n(tokens.begin() + from * hash_block_size, hash_block_size, tokens.begin() + to * hash_block_size);
    }
    void do_begin_step(const kernels::StepInputs& inputs) override {
        CHECK(begun_ - finished_ < steps_.size(), "a step is finished before one more is begun");
        const std::vector<kernels::SampleResult>& before = step_at(begun_).drawn;
        cache_->step_tokens.assign(inputs.tokens.begin(), inputs.tokens.end());
        CHECK(inputs.drawn.empty() || finished_ < begun_, "what a step drew that was finished is known");
        for (const kernels::DrawnRow& each : inputs.drawn) {
            cache_->step_tokens[static_cast<std::size_t>(each.row)] = before.at(static_cast<std::size_t>(each.sample_row)).token;
        }
        step_at(++begun_) = {};
    }
    void do_run(const kernels::Op& op) override {
        const auto* const* const args = std::get_if<const kernels::SampleArgs*>(&op);
        args != nullptr ? draw(**args) : static_cast<void>(unused());
    }
    std::unique_ptr<kernels::PackedWeight> do_pack_weight(std::span<const kernels::WeightPart>, kernels::WeightRole) override {
        return unused(), nullptr;
    }
    std::unique_ptr<kernels::PackedLora> do_pack_lora(std::span<const kernels::LoraPart>) override { return unused(), nullptr; }
    std::unique_ptr<kernels::Slot> do_make_slot(kernels::KvCache&, const kernels::SlotRange&) override { return unused(), nullptr; }

    void draw(const kernels::SampleArgs& args) {
        Step& step = step_at(begun_);
        step.results = args.results;
        for (std::size_t i = 0; i < args.rows.size(); ++i) {
            const kernels::SampleRow& row = args.rows[i];
            const std::uint64_t seen = row.prompt.size() + row.output.size() + (row.ends_with_drawn ? 1 : 0);
            CHECK(!row.draw || row.position == seen, "prompt and output are all that stands before the token to be drawn");
            const std::uint64_t hash = hash_at(args.logits, i);
            kernels::SampleResult& result = step.drawn.emplace_back();
            result.token = next_token(hash);
            const auto may_be_drawn = [&](TokenId token) {
                const auto word = static_cast<std::size_t>(token) / 32;
                const bool allowed = row.allowed.empty() || (word < row.allowed.size() && (row.allowed[word] >> (token % 32) & 1U) != 0);
                return allowed && std::ranges::find(row.banned, token) == row.banned.end();
            };
            while (!may_be_drawn(result.token)) {
                result.token = static_cast<TokenId>((result.token + 1) % hash_vocabulary);
            }
            result.logprob = hash_logprob(hash, result.token);
            for (const TokenId target : row.targets) {
                result.targets.push_back(hash_logprob(hash, target));
                if (row.want_ranks) result.ranks.push_back(hash_rank(hash, target));
            }
        }
    }

    struct Step {
        std::vector<kernels::SampleResult> drawn;
        std::span<kernels::SampleResult> results;
    };
    Step& step_at(std::size_t count) { return steps_[count % steps_.size()]; }

    TokenCache* cache_ = nullptr;  // the one that was made last
    std::vector<Step> steps_;      // used in turn
    std::size_t begun_ = 0;
    std::size_t finished_ = 0;

    static std::unique_ptr<kernels::Buffer> unused() { CHECK(false, "the hash model calls no arithmetic"); }
};

class HashModel final : public engine::Model {
public:
    HashModel(std::int64_t max_positions, std::int64_t rows_max, std::int64_t sample_rows_max)
        : rows_max_(rows_max), logits_(static_cast<std::size_t>(sample_rows_max)) {
        config_.vocabulary = hash_vocabulary;
        config_.max_positions = max_positions;
    }
    const engine::ModelConfig& config() const override { return config_; }
    kernels::KvShape kv_shape() const override { return {.layers = 1, .kv_heads = 1, .head_dim = 1}; }
    std::size_t weight_bytes() const override { return 0; }
    const std::string& fingerprint() const override { return fingerprint_; }
    const engine::ModelLayout& layout() const override { CHECK(false, "the hash model has no weights"); }
    const engine::Checkpoint& checkpoint() const override { CHECK(false, "the hash model has no weights"); }
    std::int32_t rope_row(std::int64_t position, std::optional<std::int64_t>) override { return static_cast<std::int32_t>(position); }

    kernels::Matrix forward(const engine::ForwardArgs& args, kernels::KvCache& kv) override {
        auto& cache = dynamic_cast<TokenCache&>(kv);
        const kernels::StepInputs& step = args.step;
        CHECK(step.rows > 0 && step.rows <= rows_max_, "a step has rows and keeps its limit");
        CHECK(step.sample_rows.size() <= logits_.size(), "a step keeps its limit of sampled rows");
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(step.rows));
        for (const kernels::StepSequence& sequence : step.sequences) {
            for (std::int64_t i = 0; i < sequence.row_count; ++i) {
                const auto row = static_cast<std::size_t>(sequence.row_begin + i);
                CHECK(step.positions[row] == sequence.position + i, "positions follow the sequence");
                cache.at(sequence.blocks, sequence.position + i) = cache.step_tokens[row];
            }
            std::vector<TokenId> seen;
            for (std::int64_t position = 0; position < sequence.position + sequence.row_count; ++position) {
                seen.push_back(cache.at(sequence.blocks, position));
                if (position >= sequence.position) {
                    hashes[static_cast<std::size_t>(sequence.row_begin + position - sequence.position)] = hash_of(seen);
                }
            }
        }
        for (std::size_t i = 0; i < step.sample_rows.size(); ++i) logits_[i] = hashes[static_cast<std::size_t>(step.sample_rows[i])];
        return {.data = logits_.data(),
                .rows = static_cast<std::int64_t>(step.sample_rows.size()),
                .columns = hash_vocabulary,
                .stride = hash_vocabulary};
    }

private:
    engine::ModelConfig config_;
    std::string fingerprint_ = "hash";
    std::int64_t rows_max_;
    std::vector<std::uint64_t> logits_;
};

}  // namespace

std::uint64_t hash_of(std::span<const TokenId> tokens) { return XXH3_64bits(tokens.data(), tokens.size_bytes()); }

TokenId next_token(std::uint64_t hash) { return static_cast<TokenId>(hash % hash_vocabulary); }

std::vector<TokenId> hash_tokens(std::vector<TokenId> prompt, std::int64_t count) {
    std::vector<TokenId> drawn;
    for (std::int64_t i = 0; i < count; ++i) {
        drawn.push_back(next_token(hash_of(prompt)));
        prompt.push_back(drawn.back());
    }
    return drawn;
}

float hash_logprob(std::uint64_t hash, TokenId token) {
    return -1.0F - static_cast<float>((hash ^ static_cast<std::uint64_t>(token) * 0x9E3779B97F4A7C15U) % 1000) / 100.0F;
}

std::int32_t hash_rank(std::uint64_t hash, TokenId token) {
    std::int32_t rank = 1;
    for (TokenId other = 0; other < hash_vocabulary; ++other) rank += hash_logprob(hash, other) > hash_logprob(hash, token) ? 1 : 0;
    return rank;
}

std::unique_ptr<kernels::Backend> make_hash_backend(std::int64_t steps_queued) { return std::make_unique<HashBackend>(steps_queued); }

std::unique_ptr<engine::Model> make_hash_model(std::int64_t max_positions, std::int64_t rows_max, std::int64_t sample_rows_max) {
    return std::make_unique<HashModel>(max_positions, rows_max, sample_rows_max);
}

}  // namespace lorry::tests
