"""Runs CuPy's own tests on the simulated device, with CuPy's pool and with ours: ``make device-cupy-tests``.

The tests come from CuPy's source distribution, which pip downloads, in the version of the wheel; none of its files is
ours. They run once with each allocator (`cupy_plugin.py`), each file in a process of its own. The table says how many
pass with CuPy's pool, why others do not, and where the outcome with `CupyPool` is another one: there has to be none.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import libraries, simulated

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs" / "results"
POOLS = ("cupy", "marked")
MOST = 16
"""Tests of each file of arrays and of what computes with them."""
SECONDS = 900
"""For one file with one pool; what takes longer is reported as such."""

SELECTION = {
    "memory": [
        "cuda_tests/test_memory.py",
        "cuda_tests/test_memory_hook.py",
        "cuda_tests/memory_hooks_tests",
    ],
    "pinned memory": ["cuda_tests/test_pinned_memory.py"],
    "streams and events": ["cuda_tests/test_stream.py"],
    "graphs": ["cuda_tests/test_graph.py"],
    "devices and runtime": ["cuda_tests/test_device.py", "cuda_tests/test_runtime.py"],
    "threads": ["core_tests/test_multithreading.py"],
    "arrays": [
        *(
            "core_tests/test_ndarray.py",
            "core_tests/test_ndarray_copy_and_view.py",
            "core_tests/test_ndarray_get.py",
        ),
        *(
            "core_tests/test_ndarray_conversion.py",
            "core_tests/test_ndarray_owndata.py",
            "core_tests/test_flags.py",
        ),
        *("core_tests/test_ndarray_contiguity.py", "core_tests/test_dlpack.py", "core_tests/test_core.py"),
        *(
            "creation_tests/test_basic.py",
            "creation_tests/test_from_data.py",
            "creation_tests/test_matrix.py",
        ),
    ],
    "indexing": [
        *("core_tests/test_ndarray_indexing.py", "core_tests/test_ndarray_adv_indexing.py"),
        *(
            "core_tests/test_ndarray_scatter.py",
            "indexing_tests/test_indexing.py",
            "indexing_tests/test_insert.py",
        ),
    ],
    "elementwise": [
        *(
            "core_tests/test_elementwise.py",
            "core_tests/test_userkernel.py",
            "core_tests/test_ndarray_unary_op.py",
        ),
        *(
            "binary_tests/test_elementwise.py",
            "logic_tests/test_comparison.py",
            "math_tests/test_rounding.py",
        ),
        *("math_tests/test_explog.py", "math_tests/test_trigonometric.py", "math_tests/test_hyperbolic.py"),
    ],
    "reductions": [
        *("core_tests/test_reduction.py", "core_tests/test_ndarray_reduction.py", "core_tests/test_scan.py"),
        *("logic_tests/test_truth.py", "statistics_tests/test_meanvar.py"),
    ],
    "kernels": ["core_tests/test_raw.py", "core_tests/test_function.py", "core_tests/test_carray.py"],
    "linear algebra": ["linalg_tests/test_product.py", "linalg_tests/test_norms.py"],
    "manipulation": [
        *(
            "manipulation_tests/test_join.py",
            "manipulation_tests/test_shape.py",
            "manipulation_tests/test_split.py",
        ),
        *(
            "manipulation_tests/test_tiling.py",
            "manipulation_tests/test_transpose.py",
            "padding_tests/test_pad.py",
        ),
    ],
}
"""Files of CuPy's tests: memory and order on a device, and a broad slice of arrays. Left out is what is compiled into
CuPy for a device (sorting), what hipFFT, hipSPARSE and hipSOLVER compute, hipBLAS but for products of matrices, and
files with thousands of kernels."""

WHOLE = (
    "memory",
    "pinned memory",
    "streams and events",
    "graphs",
    "devices and runtime",
    "threads",
    "kernels",
)
"""These groups run whole; of each file of the others run at most `MOST` tests, evenly spread."""

ALONE = {"cuda_tests/test_graph.py"}
"""A test that fails here leaves its stream capturing, which others would be refused for: each runs by itself."""

Outcomes = dict[str, tuple[str, str]]


def sources(version: str) -> Path:
    """Download CuPy's source distribution, unless it is there; return the folder of its tests."""
    kept = simulated.out() / f"cupy-{version}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=simulated.out()) as folder:
            # To learn its dependencies, pip would build it for CUDA, which fails; what it has unpacked, it leaves.
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-clean", "--no-deps"]
            command += ["--no-build-isolation", "--no-binary=:all:", f"--dest={folder}", f"cupy=={version}"]
            environment = {**os.environ, "TMPDIR": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            found = [path.parent for path in Path(folder).glob("*/*/tests/cupy_tests")]
            if not found:
                raise libraries.SetUpError(f"pip finds no sources of CuPy {version}:\n{done.stderr}")
            found[0].rename(kept)
    return kept / "cupy_tests"


def parts(tests: Path, file: str) -> list[str]:
    """Return what of a file runs in a process of its own: all of it, or each test."""
    if file not in ALONE:
        return [file]
    text = (tests / file).read_text()
    (group,) = re.findall(r"^class (Test\w+)", text, re.MULTILINE)
    return [f"{file}::{group}::{name}" for name in re.findall(r"^    def (test_\w+)", text, re.MULTILINE)]


def run(tests: Path, file: str, pool: str, variables: dict[str, str], most: int) -> tuple[Outcomes, int]:
    """Run at most so many tests of a file with a pool; return the outcomes, and how many requests a plan served."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outcomes.json"
        environment = {
            **variables,
            "PYTHONPATH": str(HERE),
            "STOWPLAN_CUPY_POOL": pool,
            "STOWPLAN_CUPY_MOST": str(most),
            "STOWPLAN_CUPY_OUTCOMES": str(written),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "cupy_plugin", "-p", "no:cacheprovider"]
        command += [
            "-c",
            os.devnull,
            f"--rootdir={tests.parent}",
            "--import-mode=prepend",
            "-W",
            "ignore",
            str(tests / file),
        ]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return {file: ("failed", f"takes more than {SECONDS} s")}, 0
        if not written.exists():
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            return {file: ("failed", f"ends with status {done.returncode}: {lines[-1] if lines else ''}")}, 0
        found = json.loads(written.read_text())
    stats = found["stats"] or {}
    return {test: tuple(outcome) for test, outcome in found["outcomes"].items()}, stats.get("replayed", 0)


def reason_class(reason: str) -> str:
    """Return what reasons have in common that differ in numbers and addresses alone."""
    short = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", re.sub(r"/[\w./-]+/", "", reason)).strip()
    return short.replace("|", "/")[:110] or "no reason given"


def count(outcomes: Outcomes, outcome: str) -> int:
    """Return how many tests came to this."""
    return sum(found == outcome for found, _ in outcomes.values())


def differences(expected: Outcomes, found: Outcomes) -> list[str]:
    """Return the tests whose outcomes are not those with CuPy's pool, with both."""
    missing = ("missing", "")
    return [
        f"{test}: {expected.get(test, missing)[0]} with CuPy's pool, {found.get(test, missing)[0]}: "
        f"{found.get(test, missing)[1]}"
        for test in sorted({*expected, *found})
        if expected.get(test, missing)[0] != found.get(test, missing)[0]
    ]


def table(wheel: libraries.Wheel, groups: dict[str, dict[str, Outcomes]], replayed: int) -> str:
    """Return the page: a row for each group, the differences, and why tests fail with CuPy's pool."""
    made_with = " DEVICE_BUILD=cuda" if wheel.for_cuda else ""
    if [*groups] != [*SELECTION]:
        made_with += f' CUPY_TESTS="{shlex.join(groups)}"'
    sampled = ", ".join(group for group in groups if group not in WHOLE)
    lines = [
        "# CuPy's own tests on the simulated device",
        "",
        f"The tests of {wheel.name} {wheel.version}, on two devices, each body five times in a row",
        "(those of `unittest`: once).",
        *([f"At most {MOST} tests of each file of {sampled} run, evenly spread."] if sampled else []),
        f"Made by `make device-cupy-tests{made_with}`.",
        "",
        "| tests of | pass | fail | skip | differ with `CupyPool`, marked |",
        "|---|---:|---:|---:|---:|",
    ]
    unlike: list[str] = []
    reasons: collections.Counter[str] = collections.Counter()
    for group, pools in groups.items():
        plain = pools["cupy"]
        found = differences(plain, pools["marked"])
        unlike += [f"marked: {line}" for line in found]
        reasons.update(reason_class(reason) for outcome, reason in plain.values() if outcome == "failed")
        counts = [str(count(plain, outcome)) for outcome in ("passed", "failed", "skipped")]
        lines.append(f"| {' | '.join([group, *counts, str(len(found))])} |")
    lines += [
        "",
        f"Served from a plan in these tests: {replayed:,} requests (marked).",
        "",
        "## Other outcomes with `CupyPool`",
        "",
    ]
    lines += [f"- {line}" for line in unlike] or ["None."]
    lines += ["", "## Why tests fail with CuPy's own pool, too", ""]
    lines += [f"- {number}: `{reason}`" for reason, number in reasons.most_common(40)]
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the selection, print and write the table; return 1 where an outcome differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.device.cupy_tests", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("groups", nargs="*", help="only these, of: " + ", ".join(SELECTION))
    chosen = parser.parse_args()
    if wrong := {*chosen.groups} - {*SELECTION}:
        parser.error(f"no such group: {', '.join(sorted(wrong))}; expected: {', '.join(SELECTION)}")
    variables = {
        "SIMHIP_DEVICES": "2",
        **simulated.environment(simulated.out()),
    }  # some tests wait for ever where there is one
    wheel = libraries.wheel()
    tests = sources(wheel.version)
    out = RESULTS / ("device_cupy_cuda.md" if wheel.for_cuda else "device_cupy.md")
    groups: dict[str, dict[str, Outcomes]] = {}
    replayed = 0
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for group in chosen.groups or SELECTION:
            most = sys.maxsize if group in WHOLE else MOST
            jobs = {
                (part, pool): workers.submit(run, tests, part, pool, variables, most)
                for pool in POOLS  # the first one compiles the kernels of a file
                for file in SELECTION[group]
                if (tests / file).exists()  # not every version has each
                for part in parts(tests, file)
            }
            if not jobs:
                continue
            groups[group] = {pool: {} for pool in POOLS}
            for (_, pool), job in jobs.items():
                outcomes, served = job.result()
                groups[group][pool].update(outcomes)
                replayed += served
            print(
                f"{group}: " + ", ".join(f"{p} {count(o, 'passed')}" for p, o in groups[group].items()),
                flush=True,
            )
            # What was found is kept if this is interrupted.
            out.write_text(table(wheel, groups, replayed))
    print(out.read_text())
    return int(any(differences(found["cupy"], found["marked"]) for found in groups.values()))


if __name__ == "__main__":
    sys.exit(main())
