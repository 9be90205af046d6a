"""A few thousand of the inputs of `importers.py`, which makes a million."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .importers import mutated, seeds, survivor

pytestmark = pytest.mark.filterwarnings("ignore:the last line is cut off")
SURVIVE = survivor()
SEEDS = seeds()


@settings(settings.get_profile("cheap"))
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_mutated_samples_are_survived(seed: bytes, rng: object) -> None:
    SURVIVE(mutated(seed, SEEDS, rng))  # type: ignore[arg-type]


@settings(settings.get_profile("usual"))
@given(st.integers(0, 4), st.binary(max_size=200))
def test_any_bytes_are_survived(form: int, content: bytes) -> None:
    SURVIVE(bytes([form]) + content)


@settings(settings.get_profile("usual"))
@given(st.lists(st.sampled_from("}]()hjqru\x94\x85tesXKMJG\x8aNa."), max_size=40))
def test_any_program_of_pickle_instructions_is_survived(program: list[str]) -> None:
    SURVIVE(b"\x03\x80\x04" + "".join(program).encode("latin-1"))
