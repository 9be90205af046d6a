"""What a rank of the paper's models needs: ``python -m experiments.scale``.

The live peak of a rank of the models of 22 to 1000 billion parameters, predicted from profiles of small ones by
`stowplan.prediction.ranks`. The file is ``scale_memory``.
"""

from __future__ import annotations

from pathlib import Path

import click

import stowplan.chainer  # noqa: F401 (mends Chainer)
from stowplan.prediction import fit_ranks

from .measures import output
from .measures.kept import Row
from .models.split_block import Parallel, activation_bytes, parameter_count
from .parallel.profile import profile

BASE = {"words": 16, "batch": 2, "width": 32, "heads": 4, "ranks": 2, "layers": 2}
OTHERS = {"words": 32, "batch": 3, "width": 64, "heads": 8, "ranks": 4}
CHECK = {"words": 128, "batch": 2, "width": 256, "heads": 8, "ranks": 4, "layers": 8}
"""Is predicted and profiled as well."""
MODELS = {
    "22B": {"heads": 64, "width": 6144, "layers": 48, "batch": 4},
    "175B (GPT-3)": {"heads": 96, "width": 12288, "layers": 96, "batch": 1},
    "530B": {"heads": 128, "width": 20480, "layers": 105, "batch": 1},
    "1T": {"heads": 160, "width": 25600, "layers": 128, "batch": 1},
}
"""V. A. Korthikanti et al., arXiv 2205.05198, table 3: sequences of 2048 words, 8 ranks; without its pipeline."""
WORDS, RANKS = 2048, 8
WAYS: tuple[Parallel, ...] = ("tensor", "sequence")


def predict() -> tuple[list[Row], dict[str, float]]:
    """Return a row for each model and way; and for each way, the prediction of `CHECK` over its profile."""
    rows: list[Row] = []
    checked = {}
    for way in WAYS:
        shapes = [
            {**BASE, name: number, "layers": layers}
            for layers in (2, 3)
            for name, number in (*OTHERS.items(), ("words", BASE["words"]))
        ]
        profiles = [(_named(shape, way), profile(way, shape)) for shape in shapes]
        model = fit_ranks(profiles, way)
        predicted = model.at(_named(CHECK, way), alignment=64).planned_peak
        checked[way] = predicted / profile(way, CHECK).planned_peak
        for name, numbers in MODELS.items():
            peak = model.at({"words": WORDS, way: RANKS, **numbers}, alignment=64).planned_peak
            layers, width = numbers["layers"], numbers["width"]
            kept = layers * activation_bytes(WORDS, numbers["batch"], width, numbers["heads"], RANKS, way)
            lasting = layers * 16 * parameter_count(width, RANKS)  # with gradients and Adam's states
            rows.append(
                {
                    "device": "cpu",
                    "model": name,
                    "parallel": way,
                    "ranks": RANKS,
                    "peak": peak,
                    "kept": round(kept),
                    "lasting": lasting,
                    "over_form": peak / (kept + lasting),
                }
            )
    return rows, checked


def _named(shape: dict[str, int], way: str) -> dict[str, int]:
    return {way if name == "ranks" else name: number for name, number in shape.items()}


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f}"


@click.command()
@output.out
def main(out: Path) -> None:
    """Predict the memory of a rank of models that fit no machine here."""
    column = output.Column
    models, checked = predict()
    ratios = ", ".join(f"{way} {share:.4f}" for way, share in checked.items())
    columns = [
        column("model", "model"),
        column("by", "parallel"),
        column("live peak of a rank, GiB", "peak", _gib),
        column("activations kept, GiB", "kept", _gib),
        column("parameters, gradients, Adam, GiB", "lasting", _gib),
        column("peak over both", "over_form", "{:.4f}".format),
    ]
    note = (
        "Predicted from profiles of ranks of 2 and 3 layers, at most 64 wide; float32, 8 ranks, no pipeline. "
        f"Checked on 8 layers, 256 wide, 128 words: predicted over profiled {ratios}."
    )
    path = out / "scale_memory"
    output.write_table(models, columns, path, "A rank of models that fit no machine here", note)
    output.show(path)


if __name__ == "__main__":
    main()
