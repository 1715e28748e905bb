// Graphs of decoding steps stay within their memory budget, and nothing is allocated while the engine runs. The emulated GPU counts both.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/step_memory.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulation/cublaslt.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

namespace emulation = kernels::cuda::emulation;

const tests::Labelled graphs_without_tsan{"*", {tests::Label::not_tsan}};

struct GraphRig {
    explicit GraphRig(std::size_t graph_bytes, std::int64_t sequences_max = 40, std::unique_ptr<kernels::Backend> own_backend = nullptr,
                      bool reserves = false)
        : backend(own_backend != nullptr ? std::move(own_backend) : kernels::make_cuda_backend({})) {
        EngineOptions options{
            .sequences_max = sequences_max, .step_rows_max = 64, .adapter_bytes = std::size_t{64} << 20, .graph_bytes = graph_bytes};
        model = Model::load(tests::golden_folder() / "checkpoints/llama-gqa-linear", *backend, options.step_rows_max,
                            options.sample_rows_max());
        if (reserves) reserve_steps(*model, *backend, options);
        options.kv_bytes = 64 * backend->kv_block_bytes(model->kv_shape());
        engine = std::make_unique<Engine>(*model, *backend, tests::gpt2_tokenizer(), options);
    }
    // Runs `count` sequences at a time, with an adapter or without. Returns their tokens.
    std::vector<std::vector<TokenId>> run(RequestId count, bool with_adapter = false, std::int64_t tokens = 4) {
        const auto folder = tests::golden_folder() / "adapters/plain";
        for (RequestId i = 0; i < count; ++i) {
            Request request{.id = ++last, .prompt = std::vector<TokenId>(prompt_tokens, 3), .max_tokens = tokens};
            request.prompt.front() = static_cast<TokenId>(2 + i);
            if (with_adapter && i % 2 == 0) {
                request.adapter = AdapterSource{.hash = inspect_adapter(folder, model->config())->hash, .folder = folder};
            }
            request.drawing = shared({.sampling = {.repetition_penalty = i % 3 == 0 ? 1.3 : 1.0}});
            engine->submit(std::move(request));
        }
        std::map<RequestId, std::vector<TokenId>> drawn;
        StepOutput output;
        while (engine->has_work()) {
            if (!engine->step(output)) engine->wait_for_adapters(std::chrono::milliseconds(50));
            for (const Result& result : output.results) drawn[result.id] = result.tokens;
        }
        std::vector<std::vector<TokenId>> all;
        for (auto& [id, sequence] : drawn) all.push_back(std::move(sequence));
        return all;
    }
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Model> model;
    std::unique_ptr<Engine> engine;
    RequestId last = 0;
    std::size_t prompt_tokens = 3;
};

TEST(Graphs, AreMadeForTheLargestBatchesThatFitTheBudget) {
    const kernels::DeviceInfo whole = GraphRig(std::size_t{1} << 30).backend->info();
    EXPECT_EQ(whole.graphs, 3) << "40, 32 and 16 rows";
    EXPECT_EQ(whole.graph_bytes % emulation::graph_launch_bytes, 0U);
    const std::size_t two_thirds = whole.graph_bytes / 3 * 2;

    GraphRig rig(two_thirds);
    EXPECT_EQ(rig.backend->info().graphs, 2);
    EXPECT_EQ(rig.backend->info().graph_bytes, two_thirds);
    rig.run(2);
    EXPECT_GT(rig.backend->info().graph_steps, 0U) << "two rows use the graph of 32";
    EXPECT_EQ(GraphRig(two_thirds - 1).backend->info().graphs, 1);
}

// Pins: if the device runs out of memory before the budget is used, the engine starts all the same.
TEST(Graphs, ThatTheDeviceHasNoMemoryForAreLeftOut) {
    const std::size_t whole = GraphRig(std::size_t{1} << 30).backend->info().graph_bytes;
    for (const std::int64_t wanted : {0, 1, 2}) {
        emulation::limit_graphs(whole / 3 * static_cast<std::size_t>(wanted) + whole / 6 + emulation::graph_launch_bytes);
        GraphRig rig(std::size_t{1} << 30);
        EXPECT_EQ(rig.backend->info().graphs, wanted);
        EXPECT_EQ(rig.backend->info().graph_bytes, whole / 3 * static_cast<std::size_t>(wanted));
        EXPECT_FALSE(rig.run(17).empty());
    }
    emulation::limit_graphs(std::size_t{1} << 30);
}

TEST(Graphs, AreNotThereWithoutABudget) {
    const std::uint64_t made = emulation::graphs_made();
    GraphRig rig(0);
    rig.run(5);
    EXPECT_EQ(emulation::graphs_made(), made);
    EXPECT_EQ(rig.backend->info().graphs, 0);
    EXPECT_EQ(rig.backend->info().graph_steps, 0U);
}

// Pins: no graph is made and no memory is allocated or freed while requests run, because each of these stops the device.
TEST(Graphs, AreMadeAtStartAndNotLater) {
    GraphRig rig(std::size_t{1} << 30, 20, nullptr, true);
    const std::uint64_t made = emulation::graphs_made();
    const std::uint64_t waits = emulation::device_wide_waits();
    const std::uint64_t steps = rig.backend->info().graph_steps;
    for (const RequestId count : std::initializer_list<RequestId>{1, 17, 20, 3}) {
        rig.run(count);
        rig.run(count, true);
    }
    EXPECT_EQ(emulation::graphs_made(), made);
    EXPECT_EQ(emulation::device_wide_waits(), waits);
    // The first of four tokens is from the prefill; a queued step has only the rows that are needed.
    EXPECT_GE(rig.backend->info().graph_steps - steps, 4U * 2 * 2);
}

// With cuBLASLt for every shape that it can compute.
std::unique_ptr<kernels::Backend> library_backend(kernels::Quantization quantize) {
    namespace cuda = kernels::cuda;
    const auto ranges_of = [](const cuda::MatmulShape& shape) -> std::vector<cuda::MatmulRange> {
        const std::int64_t multiple = cuda::features_multiple(shape.inputs);
        if (shape.out_features % multiple != 0 || shape.in_features % multiple != 0) return {};
        return {{cuda::matmul_rows_max, emulation::words_of(emulation::CublasLtAlgorithm::plain)}};
    };
    cuda::MatmulChoice choice{std::make_unique<cuda::LibraryMatmul>(emulation::cublaslt(), cuda::MatmulTable{ranges_of, "every shape"}),
                              "emulated cuBLASLt"};
    return std::make_unique<cuda::CudaBackend>(kernels::CudaOptions{.storage = {.quantize = quantize}}, std::move(choice));
}

// Pins: a prefill needs more workspace than any graph, but the workspace of the graphs must not move.
TEST(Graphs, AreLaunchedAfterPrefillsThatTakeMoreMemory) {
    for (const kernels::Quantization quantize : {kernels::Quantization::none, kernels::Quantization::fp8}) {
        SCOPED_TRACE(kernels::name_of(quantize));
        GraphRig plain(0, 20, library_backend(quantize));
        GraphRig rig(std::size_t{1} << 30, 20, library_backend(quantize));
        for (const RequestId count : std::initializer_list<RequestId>{1, 20, 2}) {
            const std::uint64_t before = rig.backend->info().graph_steps;
            EXPECT_EQ(rig.run(count), plain.run(count));
            EXPECT_GT(rig.backend->info().graph_steps, before) << count << " sequences";
        }
    }
}

// Pins: there are no extra launches for scales or for the output of attention.
TEST(Graphs, OfFp8LaunchWhatThoseOfBfloat16Do) {
    std::int64_t layers = 0;
    const auto launches = [&](kernels::Quantization quantize) {
        const GraphRig rig(std::size_t{1} << 30, 32, library_backend(quantize));
        layers = rig.model->config().layers;
        const kernels::DeviceInfo info = rig.backend->info();
        EXPECT_EQ(info.graphs, 2) << "32 and 16 rows, which need no padding";
        return static_cast<std::int64_t>(info.graph_bytes / emulation::graph_launch_bytes) / info.graphs;
    };
    const std::int64_t wide = launches(kernels::Quantization::none);
    // For each of two queued steps there is a graph with adapters, for which the inputs of four projections are widened.
    EXPECT_EQ(launches(kernels::Quantization::fp8), wide + 2 * 4 * layers);
}

// Pins: prefills, their padding, low-rank updates of fp8 rows and long penalties allocated memory when they first ran.
TEST(Graphs, AndStepsTakeNoMemoryWhileRequestsRun) {
    for (const kernels::Quantization quantize : {kernels::Quantization::none, kernels::Quantization::fp8}) {
        SCOPED_TRACE(kernels::name_of(quantize));
        GraphRig rig(std::size_t{1} << 30, 20, library_backend(quantize), true);
        const std::uint64_t waits = emulation::device_wide_waits();
        for (const std::size_t prompt : {61U, 100U}) {
            rig.prompt_tokens = prompt;
            rig.run(5, true, 2);
            rig.run(20, false, 2);
        }
        EXPECT_EQ(emulation::device_wide_waits(), waits);
    }
}

}  // namespace
}  // namespace lorry::engine
