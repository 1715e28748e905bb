"""Drives vLLM's CPU build, whose engine runs in this process. Run by ops/bench-peers."""

import os

# vLLM reads these when imported. The engine runs in this process, so nothing waits for another. One thread per core, siblings included.
CORES = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING",
    VLLM_CPU_OMP_THREADS_BIND=CORES,
)  # fmt: skip

import vllm  # noqa: E402
from driver import Options, Request, serve  # noqa: E402
from vllm.config import StructuredOutputsConfig  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.sampling_params import StructuredOutputsParams  # noqa: E402

KV_BLOCK_TOKENS = 128
WEIGHTS = {
    "bf16": "bfloat16",
    "int8": "int8 weights and activations (compressed-tensors W8A8)",
    "int4": "weights of 4 bits (a GPTQ checkpoint)",
}


class Vllm:
    def __init__(self, options: Options) -> None:
        more = {}
        self.adapters: dict[str, LoRARequest] = {}
        if options.adapters:
            folders = sorted(options.adapters.iterdir())
            self.adapters = {folder.name: LoRARequest(folder.name, index, str(folder)) for index, folder in enumerate(folders, 1)}
            more = {"enable_lora": True, "max_loras": len(folders), "max_lora_rank": 16}
        if options.structures:
            # Random weights would draw white space without end where a grammar allows it.
            more = {"structured_outputs_config": StructuredOutputsConfig(backend=options.structures, disable_any_whitespace=True)}
        arguments = vllm.EngineArgs(
            model=str(options.model), dtype="bfloat16", max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=512,
            enable_prefix_caching=True, block_size=KV_BLOCK_TOKENS,
            num_gpu_blocks_override=options.kv_tokens // KV_BLOCK_TOKENS, **more,
        )  # fmt: skip
        self.llm = vllm.LLMEngine.from_engine_args(arguments)
        self.runs = 0
        self.engine = f"vLLM {vllm.__version__} (CPU)"
        self.settings = (
            "prefix cache on, a KV cache in bf16, 2,048 tokens a step, 64 sequences, compiled (not eager), the engine in this "
            "process; "
            + WEIGHTS[options.precision]
            + ("; one engine for all adapters (max_loras 8)" if options.adapters else "")
            + (f"; structured outputs by {options.structures}, without white space between tokens of JSON" if options.structures else "")
        )

    def run(self, requests: list[Request], batch: int) -> list[list[int]]:
        outputs: dict[str, list[int]] = {}
        waiting = list(enumerate(requests))[::-1]
        running = 0
        self.runs += 1
        while waiting or running:
            while waiting and running < batch:
                index, request = waiting.pop()
                sampling = vllm.SamplingParams(
                    temperature=0.0, ignore_eos=request.schema is None, max_tokens=request.output_tokens, detokenize=False,
                    structured_outputs=StructuredOutputsParams(json=request.schema) if request.schema else None,
                )  # fmt: skip
                lora = self.adapters.get(request.adapter) if request.adapter else None
                self.llm.add_request(f"{self.runs}-{index}", {"prompt_token_ids": request.prompt}, sampling, lora_request=lora)
                running += 1
            for output in self.llm.step():
                if output.finished:
                    outputs[output.request_id] = list(output.outputs[0].token_ids)
                    running -= 1
        return [outputs[f"{self.runs}-{index}"] for index in range(len(requests))]


serve(Vllm)
