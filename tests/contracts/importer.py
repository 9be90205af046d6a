"""What every importer must do: a file is a profile, or an error that names it. To test one, name it in a subclass."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stowplan.errors import StowplanError
from stowplan.profiler import Profile, formats

from ..fuzz.importers import mutated

inherited = settings(
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture]
)


class ImporterContract:
    """A whole file is read; a damaged one is read or refused, and nothing else comes of it.

    Attributes
    ----------
    name
        The registered format's name.
    sample
        What a file of it holds: a few blocks, one at least of them freed.
    """

    name: ClassVar[str]
    sample: ClassVar[bytes]
    pytestmark = pytest.mark.filterwarnings("ignore:the last line is cut off")

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "a log"

    def survive(self, path: Path, data: bytes) -> None:
        """Read a file of these bytes: a sound profile, or a `StowplanError`, which passes nowhere else."""
        path.write_bytes(data)
        try:
            profile = formats.read(path, self.name)
        except StowplanError as error:
            assert path.name in str(error)  # noqa: PT017 (either outcome is right)
            return
        assert len(profile.live_bytes()) == profile.period

    def test_a_file_is_recognized_and_read(self, path: Path) -> None:
        path.write_bytes(self.sample)
        assert formats.detect(path) == self.name
        profile = formats.read(path)
        assert len(profile) > 1
        assert profile.live_bytes().max() > 0
        assert len(profile.live_bytes()) == profile.period

    def test_no_other_format_recognizes_it(self) -> None:
        head = self.sample[: 1 << 10]
        others = [form.name for form in formats.registered() if form.recognizes and form.recognizes(head)]
        assert others == [self.name]

    def test_what_was_read_can_be_kept(self, path: Path, tmp_path: Path) -> None:
        path.write_bytes(self.sample)
        profile = formats.read(path)
        profile.save(tmp_path / "step.profile")
        again = Profile.load(tmp_path / "step.profile")
        assert (again.size.tolist(), again.start.tolist()) == (profile.size.tolist(), profile.start.tolist())

    def test_a_file_that_ends_anywhere(self, path: Path) -> None:
        for length in range(0, len(self.sample), max(1, len(self.sample) // 200)):
            self.survive(path, self.sample[:length])

    @inherited
    @given(st.integers(0, 10**9))
    def test_a_damaged_file(self, path: Path, seed: int) -> None:
        self.survive(path, mutated(self.sample, [self.sample], random.Random(seed)))

    @inherited
    @given(st.binary(max_size=200))
    def test_any_bytes(self, path: Path, data: bytes) -> None:
        self.survive(path, data)

    def test_a_file_that_is_not_there(self, path: Path) -> None:
        with pytest.raises(OSError, match=path.name):
            formats.read(path, self.name)
