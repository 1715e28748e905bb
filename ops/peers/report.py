"""Writes measurements as rates and ratios, in text and Markdown. Called by ops/bench-peers; needs no engine."""

from dataclasses import dataclass, field
from itertools import product
from statistics import mean, median

from works import KV_TOKENS, SHAPES, WORKS

LORRY = "Lorry"
OURS = (LORRY, "lorry-gptq")
PRECISIONS = ["f32", "bf16", "int8", "int4"]  # f32 only of encoders, int4 only of decoders


@dataclass
class Entrant:
    """One engine at one precision, with all works of a shape. An engine that fails is left out of later rounds."""

    name: str
    precision: str
    engine: str = ""  # with version
    settings: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    memory: int = 0  # peak, in bytes
    rates: dict[str, list[float]] = field(default_factory=dict)  # work -> tokens/s by round
    rates_beside: dict[str, list[float]] = field(default_factory=dict)  # the same with a busy neighbour
    switched: dict[str, list[float]] = field(default_factory=dict)  # work -> share of the time that went into merging, by round
    rates_free: dict[str, list[float]] = field(default_factory=dict)  # structured work -> tokens/s of as much free text, by round
    answers: dict[str, list[float]] = field(default_factory=dict)  # structured work -> answers/s by round
    invalid: dict[str, int] = field(default_factory=dict)  # structured work -> answers of all rounds that do not match their schema
    agreed: dict[str, float] = field(default_factory=dict)  # work -> agreement() with Lorry

    def best(self, work: str) -> float | None:
        return max(self.rates.get(work, []), default=None)

    def kept(self, work: str) -> float | None:
        """The share of its speed beside a busy neighbour: the median over rounds."""
        return median_share(self.rates_beside.get(work, []), self.rates.get(work, []))

    def of_free(self, work: str) -> float | None:
        """The rate of structured answers, of that of free text: the median over rounds."""
        return median_share(self.rates.get(work, []), self.rates_free.get(work, []))


def median_share(parts: list[float], wholes: list[float]) -> float | None:
    shares = [part / whole for part, whole in zip(parts, wholes, strict=False)]
    return median(shares) if shares else None


@dataclass(frozen=True)
class Ratio:
    """Lorry against the best peer of a work at one precision."""

    ours: Entrant
    peer: Entrant
    best: float  # ratio of the best rates
    rounds: list[float]  # ratio within each round, which shows the noise


def ratio_of(entrants: list[Entrant], work: str, precision: str, name: str = LORRY) -> Ratio | None:
    """The ratio of ours of that name; None if it or all peers are missing."""
    running = [entrant for entrant in entrants if entrant.precision == precision and entrant.best(work)]
    ours = next((entrant for entrant in running if entrant.name == name), None)
    peers = [entrant for entrant in running if entrant.name not in OURS]
    if not ours or not peers:
        return None
    peer = max(peers, key=lambda entrant: entrant.best(work))
    pairs = zip(ours.rates[work], peer.rates[work], strict=False)
    return Ratio(ours, peer, ours.best(work) / peer.best(work), [mine / theirs for mine, theirs in pairs])


def cosine(first: list[float], second: list[float]) -> float:
    def dot(one: list[float], other: list[float]) -> float:
        return sum(map(float.__mul__, one, other))

    return dot(first, second) / (dot(first, first) * dot(second, second)) ** 0.5


def agreement(task: str, outputs: list[list], reference: list[list]) -> float:
    """The mean cosine of vectors, the share of equal classes or token labels, or the share of texts that begin with the same token."""
    if task == "embed":
        return mean(map(cosine, outputs, reference))
    if task == "classify":
        return mean(one.index(max(one)) == other.index(max(other)) for one, other in zip(outputs, reference, strict=True))
    if task == "token_classify":
        return mean(one == other for pair in zip(outputs, reference, strict=True) for one, other in zip(*pair, strict=True))
    return mean(one[0] == other[0] for one, other in zip(outputs, reference, strict=True))


def show_rate(rate: float | None) -> str:
    if rate is None:
        return "–"
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def markdown_table(rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def ratio_rows(entrants: list[Entrant], works: list[str]) -> list[list[str]]:
    rows = [["work", "precision", "ours", "tok/s", "best peer", "its tok/s", "ratio", "in the rounds"]]
    for work, precision, name in product(works, PRECISIONS, OURS):
        ratio = ratio_of(entrants, work, precision, name)
        if ratio:
            spread = f"{min(ratio.rounds):.2f}–{max(ratio.rounds):.2f}"
            rows.append([work, precision, name, show_rate(ratio.ours.best(work)), ratio.peer.name, show_rate(ratio.peer.best(work)),
                         f"**{ratio.best:.2f}**", spread])  # fmt: skip
    return rows


def rate_rows(entrants: list[Entrant], works: list[str]) -> list[list[str]]:
    rows = [["engine", "precision", *works, "memory MB", "load s"]]
    for one in entrants:
        rates = [show_rate(one.best(work)) for work in works]
        rows.append([one.name, one.precision, *rates, f"{one.memory / 1e6:,.0f}", f"{one.load_seconds:.1f}"])
    return rows


def kept_rows(entrants: list[Entrant], works: list[str]) -> list[list[str]]:
    def show(share: float | None) -> str:
        return "–" if share is None else f"{share:.0%}"

    rows = [[one.name, one.precision, *(show(one.kept(work)) for work in works)] for one in entrants]
    return [["engine", "precision", *works], *rows]


def structured_rows(entrants: list[Entrant], works: list[str]) -> list[list[str]]:
    """Only the heading, if no work is structured."""
    rows = [["work", "engine", "precision", "tok/s", "free text tok/s", "of free text", "answers/s", "tokens an answer", "invalid"]]
    for work, one in product(works, entrants):
        if one.answers.get(work):
            tokens = mean(rate / answers for rate, answers in zip(one.rates[work], one.answers[work], strict=False))
            asked = WORKS[work].requests * len(one.answers[work])
            rows.append([work, one.name, one.precision, show_rate(one.best(work)), show_rate(max(one.rates_free[work])),
                         f"**{one.of_free(work):.2f}**", f"{max(one.answers[work]):.2f}", f"{tokens:.0f}",
                         f"{one.invalid[work]} of {asked}"])  # fmt: skip
    return rows


def shape_section(letter: str, entrants: list[Entrant], works: list[str], left_out: dict[str, str]) -> list[str]:
    """The Markdown of one shape."""
    lines = [f"## {letter}: {SHAPES[letter].title}", "", *markdown_table(ratio_rows(entrants, works)), ""]
    lines += ["The best rates in tokens/s:", "", *markdown_table(rate_rows(entrants, works)), ""]
    if any(one.rates_beside for one in entrants):
        lines += ["The share of its speed that each engine keeps beside a process that keeps one core busy:", ""]
        lines += [*markdown_table(kept_rows(entrants, works)), ""]
    structured = structured_rows(entrants, works)
    if len(structured) > 1:
        lines += ["Answers that match a schema, beside free text with as many tokens; invalid ones do not match it or are cut:", ""]
        lines += [*markdown_table(structured), ""]
    for work in works:
        switches = [f"{one.name} {one.precision} {median(one.switched[work]):.0%}" for one in entrants if any(one.switched.get(work, []))]
        if switches:
            lines += [f"Merging adapters or loading merged models took this share of {work}'s time, which the rate counts: "
                      + ", ".join(switches) + ".", ""]  # fmt: skip
    lines += agreement_lines(SHAPES[letter].task, entrants, works)
    settings = dict.fromkeys(f"- {one.engine}, {one.precision}: {text}" for one in entrants for text in one.settings)
    lines += ["Settings:", "", *settings]
    if left_out:
        lines += ["", "Left out:", "", *(f"- {what}: {why}" for what, why in left_out.items())]
    return [*lines, ""]


AGREEMENTS = {
    "generate": "Share of first tokens of {work} that equal Lorry's at that precision (random weights cause near ties)",
    "embed": "Mean cosine of {work}'s vectors with those of Lorry in f32",
    "classify": "Share of {work}'s classes that equal those of Lorry in f32 (random weights cause near ties)",
    "token_classify": "Share of {work}'s labels that equal those of Lorry in f32 (random weights cause near ties)",
}


def agreement_lines(task: str, entrants: list[Entrant], works: list[str]) -> list[str]:
    def show(share: float) -> str:
        return f"{share:.5f}" if task == "embed" else f"{share:.1%}"

    lines = []
    for work in works[:1]:
        shown = [f"{one.name} {one.precision} {show(one.agreed[work])}" for one in entrants if work in one.agreed]
        if shown:
            lines += [f"{AGREEMENTS[task].format(work=work)}: {', '.join(shown)}.", ""]
    return lines


def introduction(circumstances: str, remark: str, works: list[str], rounds: int) -> list[str]:
    return [
        "# Lorry beside other engines",
        "",
        f"Written by `ops/bench-peers`. {circumstances}{'; ' + remark if remark else ''}.",
        "",
        "Every engine runs one model with random weights on the same token ids. It draws tokens greedily and never stops early, but",
        f"answers that match a schema end by themselves. Each runs each work once a round ({rounds} in all) while the others are stopped;",
        f"loading and a warm-up are not timed. KV caches that all sequences share hold {KV_TOKENS:,} tokens. A rate is the best of the",
        "rounds. A ratio is Lorry's best rate to the best peer's best, followed by the lowest and highest ratio within a round.",
        "",
        *markdown_table([["work", "what", "rate of"], *([name, WORKS[name].title, f"{WORKS[name].counts} tokens"] for name in works)]),
        "",
    ]
