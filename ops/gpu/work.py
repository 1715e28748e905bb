"""The sizes of ops/gpu-check's benchmarks on the GPU, and in a rehearsal of the same commands on a CPU. Used by parts.py."""

from dataclasses import dataclass
from pathlib import Path

from memory import sequences_that_fit
from process import Failure


@dataclass(frozen=True)
class Work:
    lorry: Path
    card_bytes: int | None = None  # the GPU's memory, which limits batches; None: not known
    shape: str = "llama-3.1-8b"
    device: str = "cuda"
    batches: tuple[int, ...] = (64, 256)
    context: int = 1024
    decoded: int = 64  # tokens that each sequence draws in the parts that measure decode steps
    prompts: tuple[int, ...] = (1024, 8192)
    step_tokens: int = 8192  # enough to prefill all prompts of a batch before its first sequence ends
    offline: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (1000, 1000, 1), (512, 128, 3))  # input, output, batches of requests
    few: tuple[int, ...] = (16,) * 8  # ranks
    mixed: tuple[int, ...] = (8, 16, 32, 64) * 16
    profiled_layers: int = 2
    baseline: tuple[str, ...] = ()  # flags of ops/gpu/baselines.py

    def padded(self) -> tuple[int, ...]:
        return (max(self.mixed),) * len(self.mixed)

    def batch(self, tokens: int, wanted: int | None = None, ranks: tuple[int, ...] = ()) -> int:
        """The batch of sequences of this many tokens: the wanted or largest one if it fits the card, else the largest that fits and uses
        each adapter equally often."""
        wanted = wanted or self.batches[-1]
        if self.card_bytes is None:
            return wanted
        batch = sequences_that_fit(self.card_bytes, wanted, tokens, self.step_tokens, ranks, max(16, len(ranks)))
        if batch == 0:
            raise Failure(f"the card has {self.card_bytes / 2**30:.0f} GiB: no batch of sequences of {tokens} tokens fits with the model")
        return batch

    def adapters_batch(self) -> int:
        """One batch for all variants of adapters, so that their steps can be compared."""
        return self.batch(self.context + self.decoded, ranks=self.padded())


def rehearsal(lorry: Path) -> Work:
    return Work(lorry=lorry, shape="stories42m", device="cpu", batches=(2, 4), context=16, decoded=8, prompts=(16,), step_tokens=64,
                offline=((8, 4, 2),), few=(4, 4), mixed=(4, 8) * 2, baseline=("--tiny", "--device", "cpu"))  # fmt: skip
