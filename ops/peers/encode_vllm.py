"""Drives vLLM's CPU build as a pooling engine, which runs in this process. Run by ops/bench-peers."""

import os

# vLLM reads these when imported. The engine runs in this process, so nothing waits for another. One thread per core, siblings included.
CORES = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING",
    VLLM_CPU_OMP_THREADS_BIND=CORES,
)  # fmt: skip

import vllm  # noqa: E402
from driver import Options, Request, serve  # noqa: E402


class Vllm:
    def __init__(self, options: Options) -> None:
        self.task = options.task
        arguments = vllm.EngineArgs(
            model=str(options.model), dtype={"f32": "float32", "bf16": "bfloat16"}[options.precision], runner="pooling",
            max_num_seqs=256, max_num_batched_tokens=4096, max_model_len=512,
        )  # fmt: skip
        self.llm = vllm.LLMEngine.from_engine_args(arguments)
        self.runs = 0
        self.engine = f"vLLM {vllm.__version__} (CPU)"
        self.settings = f"a pooling runner, {options.precision}, 4,096 tokens a step, 256 sequences, the engine in this process"

    def run(self, requests: list[Request], batch: int) -> list[list]:
        outputs: dict[str, list] = {}
        self.runs += 1
        for index, request in enumerate(requests):
            pooling = vllm.PoolingParams(task=self.task)
            self.llm.add_request(f"{self.runs}-{index}", {"prompt_token_ids": request.prompt}, pooling)
        while len(outputs) < len(requests):
            for output in self.llm.step():
                if output.finished:
                    data = output.outputs.data
                    outputs[output.request_id] = (data.argmax(dim=-1) if self.task == "token_classify" else data).tolist()
        return [outputs[f"{self.runs}-{index}"] for index in range(len(requests))]


serve(Vllm)
