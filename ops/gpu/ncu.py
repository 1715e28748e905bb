"""Reads the output of Nsight Compute's command line (`ncu --csv`) about the kernels that a program launched. Pure; used by parts.py.

For each launch and metric it prints a line of CSV, mixed with the output of the program:
    "ID",…,"Kernel Name",…,"Metric Name","Metric Unit","Metric Value"
    "7",…,"void norm<float>(NormTask)",…,"gpu__time_duration.sum","ns","5,120"
"""

import csv
import re
from dataclasses import dataclass, field

# Time, and the shares of their peak that memory and processors reached in it.
METRICS = {"gpu__time_duration.sum": "time", "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute"}  # fmt: skip
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0}
FIRST_OF_A_STEP = "embed"
LAST_OF_A_STEP = "sample"


@dataclass
class Launch:
    kernel: str
    figures: dict[str, float] = field(default_factory=dict)  # by METRICS' names; seconds and per cent


def short_name(kernel: str) -> str:
    """The name of a kernel without namespaces, template arguments and parameters."""
    found = re.match(r"(?:void )?([\w:]+)", re.sub(r"\(anonymous namespace\)|<unnamed>", "", kernel))
    return found.group(1).split("::")[-1] if found else kernel


def launches_of(output: str) -> list[Launch]:
    """The launches in order."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    launches: dict[str, Launch] = {}
    for row in csv.DictReader(lines[header:]):
        name = METRICS.get(row["Metric Name"] or "")
        if name is None:
            continue
        scale = SECONDS[row["Metric Unit"]] if name == "time" else 1.0
        launch = launches.setdefault(row["ID"], Launch(short_name(row["Kernel Name"])))
        launch.figures[name] = scale * float(row["Metric Value"].replace(",", ""))
    return list(launches.values())


def steps_of(launches: list[Launch]) -> list[list[Launch]]:
    """The launches of each step, from its first kernel to its last. Leaves out launches outside of steps, and steps that draw nothing, such
    as the blank one at the start."""
    steps: list[list[Launch]] = []
    for launch in launches:
        if launch.kernel == FIRST_OF_A_STEP:
            steps.append([])
        if steps and not any(done.kernel == LAST_OF_A_STEP for done in steps[-1]):
            steps[-1].append(launch)
    return [step for step in steps if step[-1].kernel == LAST_OF_A_STEP]


def unfinished_step(launches: list[Launch]) -> list[Launch]:
    """The launches of a last step that was profiled only in part; empty if there is no such step."""
    begin = max((i for i, launch in enumerate(launches) if launch.kernel == FIRST_OF_A_STEP), default=len(launches))
    ended = any(launch.kernel == LAST_OF_A_STEP for launch in launches[begin:])
    return [] if ended else launches[begin:]


def slowest(step: list[Launch], count: int = 3) -> dict[str, str]:
    """The kernels that take most of a step, with all launches of a kernel added up."""
    kernels: dict[str, list[Launch]] = {}
    for launch in step:
        kernels.setdefault(launch.kernel, []).append(launch)

    def seconds(launches: list[Launch]) -> float:
        return sum(launch.figures["time"] for launch in launches)

    def share(launches: list[Launch], of: str) -> float:
        return sum(launch.figures[of] * launch.figures["time"] for launch in launches) / max(seconds(launches), 1e-12)

    total = seconds(step)
    ranked = sorted(kernels.items(), key=lambda item: -seconds(item[1]))[:count]
    return {name: f"{100 * seconds(launches) / total:.0f} % of {1e3 * total:.2f} ms in {len(launches)} launches, memory "
                  f"{share(launches, 'memory'):.0f} %, compute {share(launches, 'compute'):.0f} %"
            for name, launches in ranked}  # fmt: skip
