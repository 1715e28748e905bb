"""How large the benchmarks of ops/gpu-check are: on the GPU, and as a rehearsal of the same commands on a CPU."""

from dataclasses import dataclass
from pathlib import Path

from memory import sequences_that_fit
from process import Failure


@dataclass(frozen=True)
class Work:
    lorry: Path
    card_bytes: int | None = None  # of the GPU's memory, which cuts batches down; None: not known
    shape: str = "llama-3.1-8b"
    device: str = "cuda"
    batches: tuple[int, ...] = (64, 256)
    context: int = 1024
    decoded: int = 64  # tokens of each sequence in the parts that look at decode steps
    prompts: tuple[int, ...] = (1024, 8192)
    step_tokens: int = 8192  # so many that all prompts of a batch are read before its first sequence has drawn its tokens
    offline: tuple[tuple[int, int, int], ...] = ((128, 128, 4), (1000, 1000, 1), (512, 128, 3))  # input, output, batches of requests
    few: tuple[int, ...] = (16,) * 8  # ranks
    mixed: tuple[int, ...] = (8, 16, 32, 64) * 16
    profiled_layers: int = 2
    baseline: tuple[str, ...] = ()  # flags of ops/gpu/baselines.py

    def padded(self) -> tuple[int, ...]:
        return (max(self.mixed),) * len(self.mixed)

    def batch(self, tokens: int, wanted: int | None = None, ranks: tuple[int, ...] = ()) -> int:
        """The largest one, or the one that is wanted, of sequences of so many tokens, if the card holds it; else what it holds, each
        adapter being asked for equally often."""
        wanted = wanted or self.batches[-1]
        if self.card_bytes is None:
            return wanted
        batch = sequences_that_fit(self.card_bytes, wanted, tokens, self.step_tokens, ranks, max(16, len(ranks)))
        if batch == 0:
            raise Failure(f"the card's {self.card_bytes / 2**30:.0f} GiB hold no batch of sequences of {tokens} tokens beside the model")
        return batch

    def adapters_batch(self) -> int:
        """One for all ways to give adapters, so that their steps compare."""
        return self.batch(self.context + self.decoded, ranks=self.padded())


def rehearsal(lorry: Path) -> Work:
    return Work(lorry=lorry, shape="stories42m", device="cpu", batches=(2, 4), context=16, decoded=8, prompts=(16,), step_tokens=64,
                offline=((8, 4, 2),), few=(4, 4), mixed=(4, 8) * 2, baseline=("--tiny", "--device", "cpu"))  # fmt: skip
