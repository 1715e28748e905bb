"""How large the benchmarks of ops/gpu-check are: on the GPU, and as a rehearsal of the same commands on a CPU."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Work:
    lorry: Path
    shape: str = "llama-3.1-8b"
    device: str = "cuda"
    batches: tuple[int, ...] = (64, 256)
    context: int = 1024
    decoded: int = 64  # tokens of each sequence in the parts that look at decode steps
    prompts: tuple[int, ...] = (1024, 8192)
    step_tokens: int = 8192  # so many that all prompts of a batch are read before its first sequence has drawn its tokens
    offline: tuple[tuple[int, int, int], ...] = ((128, 128, 1024), (1000, 1000, 256), (512, 128, 768))  # input, output, requests
    few: tuple[int, ...] = (16,) * 8  # ranks
    mixed: tuple[int, ...] = (8, 16, 32, 64) * 16
    profiled_layers: int = 2
    memory: tuple[str, ...] = ("--kv-memory", "80GiB", "--adapter-memory", "24GiB")
    baseline: tuple[str, ...] = ()  # flags of ops/gpu/baselines.py

    def batch(self) -> int:
        return self.batches[-1]


def rehearsal(lorry: Path) -> Work:
    return Work(lorry=lorry, shape="stories42m", device="cpu", batches=(2, 4), context=16, decoded=8, prompts=(16,), step_tokens=64,
                offline=((8, 4, 8),), few=(4, 4), mixed=(4, 8) * 2, memory=(),
                baseline=("--tiny", "--device", "cpu"))  # fmt: skip
