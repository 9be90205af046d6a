"""Tensor and sequence parallelism: gradients of the unsplit network, masks that fit together, what a rank keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan.errors import MissingDependencyError

try:
    from stowplan.papers.mlsys2023 import parallel
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

from chainer import gradient_check

from experiments.measures.ranks import require_mpi, run_ranks
from experiments.measures.runner import CannotRunError
from experiments.models import split_block
from experiments.models.split_block import Blocks, activation_bytes
from experiments.parallel import rank as one_rank
from stowplan.chainer import rerun
from stowplan.papers.mlsys2023.parallel import LoneRank, ParallelError, Ranks

WORDS, BATCH, WIDTH, HEADS = SHAPE = 32, 2, 64, 4
LAYERS = 3
PARALLEL = ("tensor", "sequence")


def ranks_of(count: int, way: str, rank: int = 0) -> Ranks:
    return Ranks(LoneRank(count, rank), sequence=way == "sequence")


def drawn(rows: int) -> Any:
    return np.random.default_rng(0).standard_normal((rows, WIDTH), np.float32)


# --- over MPI -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("tensor", marks=pytest.mark.slow),
        "sequence",
        pytest.param("selective", marks=pytest.mark.slow),
    ],
)
def test_ranks_have_unsplit_gradients_and_keep_the_closed_form(way: Any) -> None:
    try:
        require_mpi()
    except CannotRunError as why:
        pytest.skip(str(why))
    found = run_ranks(2, "experiments.parallel.rank", [way, *map(str, (*SHAPE, LAYERS))], 60)
    assert len(found) == 2
    for rank in found:
        assert 0 < rank["error"] < 1e-5  # with dropout
        assert rank["kept"] == pytest.approx(LAYERS * activation_bytes(*SHAPE, 2, way), rel=1e-3)
    if way == "selective":
        return
    # A lone rank asks for what a real one does, so that profiles need no MPI.
    net = Blocks(LAYERS, WIDTH, HEADS, ranks_of(2, way))
    net.cleargrads()
    x = drawn(WORDS * BATCH // (2 if way == "sequence" else 1))
    assert one_rank.recorded(net, x, x.copy(), BATCH) == (found[0]["kept"], found[0]["peak"])


# --- one rank of many, without MPI ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", PARALLEL)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_live_peak_of_a_rank_is_the_closed_form_and_gradients(way: Any, count: int) -> None:
    layers = 24  # so many that what the backward pass has in flight is little beside them
    net = Blocks(layers, WIDTH, HEADS, ranks_of(count, way))
    net.cleargrads()
    rows = WORDS * BATCH // (count if way == "sequence" else 1)
    x = drawn(rows)
    kept, peak = one_rank.recorded(net, x, x.copy(), BATCH)
    form = layers * activation_bytes(WORDS, BATCH, WIDTH, HEADS, count, way)
    assert kept == pytest.approx(form, rel=1e-3)
    gradients = 4 * layers * split_block.parameter_count(WIDTH, count)
    assert form + gradients < peak < 1.05 * (form + gradients)


@pytest.mark.parametrize("count", [1, 8])
def test_sequence_and_selective_keep_the_form_to_the_byte_and_change_no_bit(count: int) -> None:
    words, batch, width, heads = 32, 2, 64, 8
    ranks = ranks_of(count, "sequence")
    x = drawn(words * batch // count)
    kept, peak = one_rank.selected(
        (Blocks(LAYERS, width, heads, ranks), Blocks(LAYERS, width, heads, ranks)), x, x.copy(), batch
    )
    assert kept == LAYERS * activation_bytes(words, batch, width, heads, count, "selective")
    assert peak < one_rank.recorded(Blocks(LAYERS, width, heads, ranks), x, x.copy(), batch)[1]


# --- dropout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9, 65_529, 65_536, 100_003])
def test_the_mask_of_a_part_is_the_part_of_the_mask(first: int) -> None:
    x = np.ones(200_000, np.float32)
    whole = parallel.dropout(x, 0.1, (3, 1), 0).array
    part = parallel.dropout(x[first:], 0.1, (3, 1), first).array
    np.testing.assert_array_equal(part, whole[first:])


def test_a_mask_is_drawn_again_bit_by_bit() -> None:
    x = np.random.default_rng(0).standard_normal((400, 500), np.float32)
    y = parallel.dropout(x, 0.3, (1, 2), 77)
    function = y.creator
    mask = function.kept.copy()
    assert rerun.rebuildable(function, (x,), (y.array,), ["kept"]) == {"kept"}
    rerun.set_hidden(function, "kept", None)
    assert rerun.bit_equal(rerun.rerun(function, (x,))[0], y.array)
    np.testing.assert_array_equal(function.kept, mask)


# --- functions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (split_block.gelu, (5, 7)),
        (lambda x: split_block.causal_softmax(x, 0.3), (2, 3, 4, 4)),
        (lambda x: parallel.dropout(x, 0.5, (1,)), (6, 8)),
    ],
)
def test_gradients_are_those_of_finite_differences(function: Any, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, gy = random.standard_normal((2, *shape))
    gradient_check.check_backward(function, x, gy, dtype=np.float64, atol=1e-6, rtol=1e-5)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ParallelError, match="4 heads over 3 ranks"):
        Blocks(1, WIDTH, HEADS, ranks_of(3, "tensor"))
    with pytest.raises(ParallelError, match="5 rows over 2 ranks"):
        parallel.reduce_scatter(np.ones((5, 2), np.float32), ranks_of(2, "sequence"))
    arrays = (np.ones(shape, np.float32) for shape in ((2, 3), (4, 5), (4,)))
    with pytest.raises(ParallelError, match=r"shapes \(2, 3\), \(4, 5\)"):
        parallel.gather_linear(*arrays, ranks_of(2, "sequence"))
    with pytest.raises(ParallelError, match="rank 2 of 2"):
        LoneRank(2, 2)
    with pytest.raises(ParallelError, match="ratio of 1"):
        parallel.dropout(np.ones(3, np.float32), 1, (0,))


def test_the_parts_of_all_ranks_are_the_whole() -> None:
    whole = Blocks(1, WIDTH, HEADS, ranks_of(1, "tensor"))
    parts = [Blocks(1, WIDTH, HEADS, ranks_of(2, "tensor", rank)) for rank in range(2)]
    assert (parts[0][0].look.W.array != parts[1][0].look.W.array).all()  # drawn apart
    for part in parts:
        parallel.take_parts(part, whole)
    for name, axis in (("look", 0), ("project", 1), ("widen", 0), ("narrow", 1)):
        joined = np.concatenate([getattr(part[0], name).W.array for part in parts], axis)
        np.testing.assert_array_equal(joined, getattr(whole[0], name).W.array)
