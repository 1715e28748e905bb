// A backend that forwards every call to another one. Used by op_profile.cpp and pipeline_bench.cpp, which override the calls that they
// measure or leave out.
#pragma once

#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace lorry::ops {

class WrappedBackend : public kernels::Backend {
public:
    explicit WrappedBackend(std::unique_ptr<kernels::Backend> backend) : backend_(std::move(backend)) {}

    kernels::DeviceInfo info() const override { return backend_->info(); }
    std::unique_ptr<kernels::Buffer> allocate(std::size_t bytes) override { return backend_->allocate(bytes); }
    void upload(void* to, std::span<const std::byte> from) override { backend_->upload(to, from); }
    void read_back(std::span<std::byte> to, const void* from) override { backend_->read_back(to, from); }
    void on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) override { backend_->on_host(count, work); }
    std::int64_t row_stride(kernels::Format format, std::int64_t columns) const override { return backend_->row_stride(format, columns); }
    std::int64_t block_size() const override { return backend_->block_size(); }
    std::size_t kv_block_bytes(const kernels::KvShape& shape) const override { return backend_->kv_block_bytes(shape); }
    std::unique_ptr<kernels::Slot> make_measuring_slot() override { return backend_->make_measuring_slot(); }
    void reserve_steps(const kernels::ReserveArgs& args) override { backend_->reserve_steps(args); }
    void make_graphs(const kernels::GraphArgs& args) override { backend_->make_graphs(args); }
    std::int64_t steps_queued_max() const override { return backend_->steps_queued_max(); }
    void finish_step() override { backend_->finish_step(); }

protected:
    std::unique_ptr<kernels::PackedWeight> do_pack_weight(std::span<const kernels::WeightPart> parts, kernels::WeightRole role) override {
        return backend_->pack_weight(parts, role);
    }
    std::unique_ptr<kernels::PackedLora> do_pack_lora(std::span<const kernels::LoraPart> parts) override {
        return backend_->pack_lora(parts);
    }
    std::unique_ptr<kernels::KvCache> do_make_kv_cache(const kernels::KvShape& shape, std::int64_t blocks,
                                                       std::size_t slot_bytes) override {
        return backend_->make_kv_cache(shape, blocks, slot_bytes);
    }
    std::unique_ptr<kernels::Slot> do_make_slot(kernels::KvCache& cache, const kernels::SlotRange& range) override {
        return backend_->make_slot(cache, range);
    }
    void do_copy_block(kernels::KvCache& cache, kernels::BlockId from, kernels::BlockId to) override {
        backend_->copy_block(cache, from, to);
    }
    void do_begin_step(const kernels::StepInputs& step) override { backend_->begin_step(step); }
    void do_run(const kernels::Op& op) override { backend_->run(op); }

    kernels::Backend& backend() { return *backend_; }
    const kernels::Backend& backend() const { return *backend_; }

private:
    const std::unique_ptr<kernels::Backend> backend_;
};

}  // namespace lorry::ops
