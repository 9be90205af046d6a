"""What the tests of predictions have in common: little memory for the runs that learn, which are quick then."""

from __future__ import annotations

import pytest

from stowplan.prediction import fit_function


@pytest.fixture
def modest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs take up to 64 MiB, whatever memory the machine has."""
    monkeypatch.setattr(fit_function, "available", lambda share: (1 << 26, "a test"))
