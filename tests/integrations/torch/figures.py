"""Order networks and write docs/results/torch_order.csv: run this file in .venv-torch."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import torch
from nets import NETS, loss, make

from stowplan.papers.olla.joint import place
from stowplan.scheduling.ordering import order
from stowplan.torch import graph, in_order, measure, trace, trace_training

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "torch_order.csv"
HEAD = ("network", "step", "operators", "before", "after", "less", "bound", "arena", "measured", "seconds")
RUNS = 3


def row(name: str, kind: str) -> list[str]:
    module, inputs = make(name)
    if kind == "inference":
        step = trace(module.eval(), inputs)
    else:
        step = trace_training(module, inputs, loss, learning_rate=0.1)
    step_graph = graph(step)
    found = [order(step_graph) for _ in range(RUNS)]
    best = found[0]
    measured = measure(in_order(step, best.order), *inputs).peak
    arena = place(step_graph, best.order).peak
    counts = [
        f"{count:,}" for count in (len(step_graph), best.before, best.peak, best.lower_bound, arena, measured)
    ]
    seconds = statistics.median(one.seconds for one in found)
    return [name, kind, *counts[:3], f"{best.saved:.1%}", *counts[3:], f"{seconds:.3f}"]


def main() -> None:
    torch.set_num_threads(1)
    rows = [row(name, "inference") for name in NETS]
    # The decoder serves, and writes into its inputs.
    rows += [row(name, "training") for name in NETS if name != "decoder"]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        writer.writerows(rows)
    print(*(",".join(line) for line in [list(HEAD), *rows]), sep="\n")


if __name__ == "__main__":
    main()
