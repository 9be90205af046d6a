"""Pairs of two sequences: valid, and as many as a table over all prefixes finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stowplan.profiler.sequence_matching import match_sequences

letters = st.lists(st.integers(0, 3), max_size=14)


def most_pairs(first: list[int], second: list[int]) -> int:
    """Longest common subsequence by dynamic programming."""
    row = [0] * (len(second) + 1)
    for a in first:
        last = row[:]
        for j, b in enumerate(second):
            row[j + 1] = last[j] + 1 if a == b else max(last[j + 1], row[j])
    return row[-1]


@given(letters, letters)
def test_pairs_rise_and_are_as_many_as_possible(first: list[int], second: list[int]) -> None:
    pairs = match_sequences(
        len(first), len(second), lambda i, j: first[i] == second[j], len(first) + len(second)
    )
    assert pairs is not None
    assert [first[i] for i in pairs[:, 0]] == [second[j] for j in pairs[:, 1]]
    assert all(sorted(set(column)) == column for column in pairs.T.tolist())
    assert len(pairs) == most_pairs(first, second)


@given(letters, letters, st.integers(0, 6))
def test_none_where_more_would_be_left(first: list[int], second: list[int], most: int) -> None:
    pairs = match_sequences(len(first), len(second), lambda i, j: first[i] == second[j], most)
    left = len(first) + len(second) - 2 * most_pairs(first, second)
    assert (pairs is None) == (left > most)
