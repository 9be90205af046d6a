"""The memory that a process may use, by the control groups that /proc and /sys would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stowplan.common.host_memory import control_groups, host_memory

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
V1, V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")
MOUNTED = "30 23 0:26 {} {} rw,nosuid shared:4 - {} {} rw"


def group(folder: Path, files: tuple[str, str], limit: int | str, usage: int = 7) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, value in zip(files, (limit, usage), strict=True):
        (folder / file).write_text(f"{value}\n")


def process(folder: Path, groups: list[str], mounts: list[tuple[str, str, str]]) -> Path:
    lines = [MOUNTED.format(root, folder / place, kind, kind) for root, place, kind in mounts]
    (folder / "cgroup").write_text("\n".join(groups))
    (folder / "mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/sda1 rw", *lines]))
    return folder


@pytest.mark.parametrize("least", ["a/b", "a", "."])
def test_each_group_above_a_process_binds_it(tmp_path: Path, least: str) -> None:
    for name in ("a/b", "a", "."):
        group(tmp_path / "sys" / name, V2, 5000 if name == least else 6000)
    group(tmp_path / "sys/a/other", V2, 10)
    group(tmp_path / "sys/a/b/below", V2, 10)
    assert host_memory(process(tmp_path, ["0::/a/b"], [("/", "sys", "cgroup2")])) == 5000


def test_groups_of_version_1_bind_beside_those_of_version_2(tmp_path: Path) -> None:
    folder = process(
        tmp_path,
        ["9:cpu,memory:/jobs/a b", "8:pids:/", "0::/"],
        [("/", "pids", "cgroup"), ("/", "memory", "cgroup"), ("/", "unified", "cgroup2")],
    )
    group(tmp_path / "memory/jobs/a b", V1, 500 << 20)
    group(tmp_path / "memory/jobs", V1, 400 << 20, 300 << 20)
    group(tmp_path / "memory", V1, 9223372036854771712)
    (tmp_path / "unified").mkdir()
    assert control_groups(folder) == [(500 << 20, 7), (400 << 20, 300 << 20), (9223372036854771712, 7)]
    assert host_memory(folder) == min(400 << 20, MACHINE)


def test_a_container_sees_its_own_group_as_the_mount_s_root(tmp_path: Path) -> None:
    group(tmp_path / "sys/inner", V2, 3000)
    group(tmp_path / "sys", V2, 4000)
    group(tmp_path / "sys/docker", V2, 10)  # one that the container made itself
    for own, least in (("/docker/1f/inner", 3000), ("/docker/1f", 4000), ("/docker/other", MACHINE)):
        assert host_memory(process(tmp_path, [f"0::{own}"], [("/docker/1f", "sys", "cgroup2")])) == least


def test_without_a_limit_it_is_the_machine_s(tmp_path: Path) -> None:
    assert host_memory(tmp_path) == MACHINE
    group(tmp_path / "sys", V2, "max")
    assert host_memory(process(tmp_path, ["0::/"], [("/", "sys", "cgroup2")])) == MACHINE
    assert 0 < host_memory() <= MACHINE
