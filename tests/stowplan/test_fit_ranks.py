"""``stowplan fit`` of named shapes and ranks: small profiles of one rank predict larger ones, to the byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from stowplan.errors import MissingDependencyError

from .command_line import figures, refused
from .command_line import stowplan as command

try:
    import stowplan.chainer  # noqa: F401 (mends Chainer)
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

from experiments.models.split_block import activation_bytes, parameter_count
from experiments.parallel.profile import profile

BASE = {"words": 16, "batch": 2, "width": 32, "heads": 4, "ranks": 2, "layers": 2}
STEPS = {"words": 32, "batch": 3, "width": 64, "heads": 8, "ranks": 4}
GPT3 = "words:2048,batch:1,width:12288,heads:96,layers:96"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Arguments for the command, by what splits the rank's step."""
    folder = tmp_path_factory.mktemp("profiles")
    found: dict[str, list[str]] = {}
    for way in ("tensor", "sequence"):
        for layers in (2, 3):
            base = BASE | {"layers": layers}
            for shape in (base, *(base | {name: number} for name, number in STEPS.items())):
                text = ",".join(f"{name}:{number}" for name, number in shape.items())
                path = folder / f"{way}-{text}.profile"
                profile(way, shape).save(path)
                found.setdefault(way, []).append(f"{text.replace('ranks', way)}={path}")
    return found


fit = partial(figures, "fit")


@pytest.mark.parametrize("way", ["tensor", "sequence"])
def test_a_larger_rank_is_predicted_to_the_byte(files: dict[str, list[str]], way: str) -> None:
    shape = {"words": 64, "batch": 4, "width": 96, "heads": 12, "ranks": 4, "layers": 7}
    at = ",".join(f"{name}:{number}" for name, number in shape.items() if name != "ranks")
    others = files["tensor"][:2] if way == "sequence" else []  # are left out
    told = fit(*files[way], *others, "--at", at, "--ranks", "4", "--parallel", way)
    (predicted,) = told["predictions"]
    assert predicted["planned_peak"] == profile(way, shape).planned_peak
    assert predicted["shape"][way] == 4


@pytest.mark.parametrize(("width", "heads", "layers"), [(12288, 96, 96), (25600, 160, 128)])
def test_gpt_3_s_rank_is_the_closed_form_and_four_parameters(
    files: dict[str, list[str]], width: int, heads: int, layers: int
) -> None:
    """Parameters, gradients, and Adam's two states, in float32.

    With few layers the fullest moment of the wider network is in the update, with all of them in the backward pass.
    """
    way = "sequence" if width > 20000 else "tensor"
    retained = layers * 4 * 4 * parameter_count(width, 8)
    at = f"words:2048,batch:1,width:{width},heads:{heads},layers:{layers}"
    told = fit(*files[way], "--at", at, "--ranks", "8", "--parallel", way)
    form = layers * activation_bytes(2048, 1, width, heads, 8, way)  # type: ignore[arg-type]
    assert told["predictions"][0]["planned_peak"] == pytest.approx(form + retained, rel=0.005)


def test_data_divides_the_batch(files: dict[str, list[str]]) -> None:
    one_rank = [text.replace("sequence:2,", "") for text in files["sequence"] if "sequence:2," in text]
    told = fit(*one_rank, "--at", GPT3, "--batch", "10", "--ranks", "4", "--parallel", "data")
    assert told["predictions"][0]["shape"]["batch"] == 3
    assert told["predictions"][0]["batch"] == 10


def test_data_divides_the_batch_of_profiles_of_batches(files: dict[str, list[str]]) -> None:
    paths = [next(text for text in files["tensor"] if f"batch:{n},width:32" in text) for n in (2, 3)]
    batches = [f"{n}={path.partition('=')[2]}" for n, path in zip((2, 3), paths, strict=True)]
    told = fit(*batches, "--batch", "64", "--ranks", "4", "--parallel", "data")
    assert [one["batch"] for one in told["predictions"]] == [16]
    assert told["predictions"][0] == fit(*batches, "--batch", "16")["predictions"][0]


def test_a_table_is_printed(files: dict[str, list[str]]) -> None:
    arguments = ["fit", *files["sequence"], "--at", GPT3, "--ranks", "8", "--parallel", "sequence"]
    result = command(*arguments)
    assert result.exit_code == 0
    assert "12 profiles" in result.output
    assert "sequence" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", GPT3, "--ranks", "8"], "expected both or neither"),
        (["--at", GPT3, "--ranks", "8", "--parallel", "tensor"], "no profile with a number tensor"),
        (["--at", GPT3, "--ranks", "8", "--parallel", "data"], "no profile with neither of"),
        (["--ranks", "8", "--parallel", "sequence"], "expected --at"),
        (["--at", "words:x"], "expected NAME:NUMBER"),
        (["--at", GPT3, "--memory", "1GiB"], "expected no --memory"),
        (["--at", f"{GPT3},sequence:8", "--ranks", "4", "--parallel", "data"], "expected one way to split"),
        (["--at", f"{GPT3},sequence:8,tensor:4"], "expected one way to split"),
        (["--at", "words:1,batch:1,width:1,heads:1", "--ranks", "2", "--parallel", "sequence"], "layers"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    files: dict[str, list[str]], arguments: list[str], message: str
) -> None:
    said = refused("fit", *files["sequence"], *arguments)
    assert message in " ".join(said.replace("│", " ").split())


def test_a_number_of_ranks_that_splits_is_refused_for_batches(tmp_path: Path) -> None:
    (tmp_path / "two").touch()
    arguments = ["fit", f"2={tmp_path / 'two'}", "--ranks", "2", "--parallel", "tensor"]
    assert "no number tensor" in refused(*arguments)
