"""Packing with a store of plans, or without.

What a store has is validated and taken, what it has not is packed and kept. Without one nothing of it is imported.
"""

from __future__ import annotations

import warnings

from ..packing import Placement, Problem, pack
from .store import DamagedError, PlanStore


class Packer:
    """Packs what the store does not have.

    Parameters
    ----------
    store
        None: everything is packed.
    in_haste
        As for `stowplan.packing.pack`.

    Attributes
    ----------
    packed
        Problems that were packed.
    """

    def __init__(self, store: PlanStore | None, *, in_haste: bool = False) -> None:
        self._store, self._in_haste = store, in_haste
        self.packed = 0

    def __call__(self, problem: Problem, solver: str) -> Placement:
        """Return the placement that the store has, or pack it and keep it there.

        Raises
        ------
        StowplanError
            The solver fails.
        """
        store, key = self._store, ""
        if store is not None and not problem.constrained:
            from .store_packing import encode, key_of

            key = key_of(problem, solver)
            found = self._found(store, key, problem)
            if found is not None:
                return found
        placement = pack(problem, solver, in_haste=self._in_haste)
        self.packed += 1  # after it: wishes that contradict each other are refused before anything is packed
        if store is not None and key:
            try:
                store.keep(key, encode(key, placement))
            except Exception as error:
                warn_once(f"{store.where(key)}: cannot be kept: {error}")
        return placement

    def _found(self, store: PlanStore, key: str, problem: Problem) -> Placement | None:
        from .store_packing import decode

        try:
            data = store.find(key)
            return None if data is None else decode(data, key, problem)
        except DamagedError as error:
            warn_once(f"{store.where(key)} is refused, and packed again: {error}")
        except Exception as error:
            warn_once(f"{store.where(key)} cannot be asked for: {error}")
        return None


_told: set[str] = set()


def warn_once(text: str) -> None:
    """Warn once; a plan is an optimization."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)
