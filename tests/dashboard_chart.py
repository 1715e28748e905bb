#!/usr/bin/env python3
"""Draws what the queries of the dashboard have found, a panel each. stack_check.py calls it, with a Python that has matplotlib.

    tests/dashboard_chart.py FILE.svg    standard input: [{"title", "unit", "series": [{"legend", "points": [[seconds, value], …]}]}]
"""
import io
import json
import pathlib
import re
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

UNITS = {"s": "seconds", "percentunit": "share", "bytes": "bytes", "Bps": "bytes per second"}
COLUMNS = 3
LEGENDS_MAX = 6


def main(file):
    # Text stays text, so the file is small; a fixed salt and no date, so it says what it shows and nothing else.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lorry", "font.size": 8, "font.sans-serif": ["DejaVu Sans"],
                         "axes.titlesize": 9, "lines.linewidth": 1.2})
    panels = json.load(sys.stdin)
    figure, axes = plt.subplots(-(-len(panels) // COLUMNS), COLUMNS, figsize=(12, 2.1 * -(-len(panels) // COLUMNS)), layout="constrained")
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    for panel, axis in zip(panels, axes.flat):
        for series in panel["series"]:
            points = [(at, value) for at, value in series["points"] if value == value]  # not NaN
            axis.plot(*zip(*points) if points else ([], []), label=series["legend"])
        axis.set_title(panel["title"], loc="left")
        axis.set_ylabel(UNITS.get(panel["unit"], ""))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(*(each[:LEGENDS_MAX] for each in axis.get_legend_handles_labels()), fontsize=6, frameon=False, loc="upper left")
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    # Hundredths of a point are enough.
    pathlib.Path(file).write_text(re.sub(r"(\d\.\d\d)\d+", r"\1", drawn.getvalue()))


if __name__ == "__main__":
    main(sys.argv[1])
