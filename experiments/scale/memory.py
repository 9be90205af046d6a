"""What a rank of the paper's models needs, predicted from profiles of small ones by `stowplan.shape_prediction`."""

from __future__ import annotations

from stowplan.shape_prediction import fit_ranks

from ..measures.kept import Row
from ..models.split_block import Parallel, activation_bytes, parameter_count
from ..parallel.profile import profile

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
