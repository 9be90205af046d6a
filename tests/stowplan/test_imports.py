"""What may import what, read from the source; and what an import of stowplan loads."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from contextlib import suppress
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from ..children import printed, python

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"chainer", "cupy", "torch", "dask", "distributed", "matplotlib", "pulp", "highspy", "rich", "click"}

FOLDERS = (ROOT / "tools" / "rooms.txt").read_text().split()
ROOMS = {folder.split("/")[-1]: ROOT / folder for folder in FOLDERS}
"""The folders of the rooms, by the names that they are imported by."""
TOP = {folder.split("/")[0] for folder in FOLDERS}
MAY_IMPORT: dict[str, set[str]] = {
    "common": set(),
    "profiler": set(),
    "packing": set(),
    "scheduling": {"packing"},
    "planning": {"profiler", "packing", "scheduling"},
    "allocator": {"profiler", "packing", "planning"},
    "prediction": {"profiler", "packing", "scheduling", "planning"},
    "chainer": {"profiler", "scheduling", "allocator"},
    "torch": {"profiler", "scheduling", "allocator"},
    "dask": {"allocator", "prediction"},
    "papers": {"packing", "scheduling", "chainer"},
}
"""Which rooms a room may import beside `common`."""
FLOORS = {
    "chainer": (
        "graph_builder bit_packing im2col",
        "parameter_swap",
        "patches written meter evictions updates rerun",
        "schedule_follower optimizer_in_backward function_state",
        "backward_pass sparing",
        "values",
        "execution",
        "recorder",
        "known",
        "scheduler",
        "graph_recorder training",
    ),
    "allocator": (
        "cache counter_definitions lane_policy planner_thread planning_budget step_boundaries backends.upstream_memory",
        "fork_handlers lane options stats",
        "report",
        "lanes",
        "step",
        "pool",
        "backends.host_pool backends.cupy_pool",
        "backends.numpy_pool backends.torch_cuda_pool",
        "backends.torch_pool",
    ),
}
"""A room's modules by floor, the lowest first. Each imports those of lower floors, or to its left on its own."""
PUBLIC = {
    "stowplan",
    "stowplan.cli.scripts",
    "stowplan.common.files",
    "stowplan.compat",
    "stowplan.dask",
    "stowplan.errors",
    "stowplan.packing",
    "stowplan.planning",
    "stowplan.insight.comparison",
    "stowplan.insight.pool_models",
    "stowplan.prediction",
    "stowplan.profiler",
    "stowplan.scheduling",
    "stowplan.scheduling.ordering",
}


def imports(file: Path, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a file imports, wherever in it; `package` is the file's own."""
    return imports_of(ast.parse(file.read_text(encoding="utf-8")), package)


def imports_of(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            # A program in a string imports as the file does; what cannot be read is prose.
            with suppress(SyntaxError, ValueError):
                yield from ((node.lineno, module) for _, module in imports_of(ast.parse(node.value), package))
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            # "from .. import errors" names a module, "from ..errors import X" a thing in one.
            if node.module is None or base == "stowplan":
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base


def package_of(file: Path, room: str) -> str:
    return ".".join(["stowplan", room, *file.relative_to(ROOMS[room]).parts[:-1]])


def within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def test_picture_of_imports_has_all_rooms_and_no_circle() -> None:
    assert set(MAY_IMPORT) == set(ROOMS)
    TopologicalSorter(MAY_IMPORT).prepare()


@pytest.mark.parametrize("room", ROOMS)
def test_no_arrow_runs_back(room: str) -> None:
    allowed = {f"stowplan.{other}" for other in {"common", "_version", room, *MAY_IMPORT[room]}}
    # Before anything imports Chainer.
    allowed |= {"stowplan.compat"} if room in {"chainer", "papers"} else set()
    files = sorted(ROOMS[room].rglob("*.py"))
    assert files
    for file in files:
        for line, module in imports(file, package_of(file, room)):
            top = module.split(".")[0]
            where = f"{file.relative_to(ROOT)}, line {line}: {module}"
            assert top not in {*TOP, "experiments"}, f"{where}: a second copy"
            assert top != "stowplan" or within(module, allowed), where


@pytest.mark.parametrize("room", FLOORS)
def test_no_arrow_runs_up_within_a_room(room: str) -> None:
    order = [f"stowplan.{room}.{name}" for floor in FLOORS[room] for name in floor.split()]
    files = {module_of(file, room): file for file in ROOMS[room].rglob("*.py") if file.stem != "__init__"}
    assert sorted(files) == sorted(order), "expected each module once in FLOORS"
    for number, module in enumerate(order):
        tree = ast.parse(files[module].read_text(encoding="utf-8"))
        types = {id(part) for node in ast.walk(tree) if is_for_types(node) for part in ast.walk(node)}
        tree.body = [node for node in tree.body if id(node) not in types]
        for line, imported in imports_of(tree, package_of(files[module], room)):
            up = [name for name in order[number:] if within(imported, {name})]
            assert not up, f"{files[module].relative_to(ROOT)}, line {line}: {imported}"


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def module_of(file: Path, room: str) -> str:
    return f"{package_of(file, room)}.{file.stem}"


def test_the_face_imports_no_paper_and_only_the_command_line_imports_itself() -> None:
    for file in sorted((ROOT / "stowplan").rglob("*.py")):
        own = ".".join(file.relative_to(ROOT).parts[:-1])
        top = file.relative_to(ROOT / "stowplan").parts[0]
        refused = {"stowplan.papers"}
        if top not in {"cli", "__init__.py", "__main__.py"}:
            refused.add("stowplan.cli")
        for line, module in () if top in ROOMS else imports(file, own):
            assert not within(module, refused), f"{file.relative_to(ROOT)}, line {line}: {module}"


def test_experiments_use_the_public_face() -> None:
    for file in sorted((ROOT / "experiments").rglob("*.py")):
        own = ".".join(file.relative_to(ROOT).parts[:-1])
        for line, module in imports(file, own):
            if module.split(".")[0] == "stowplan":
                public = module in PUBLIC or within(module, {"stowplan.papers"})
                assert public or module.rpartition(".")[0] == "stowplan", (
                    f"{file.relative_to(ROOT)}, line {line}: {module}"
                )


def modules_after(code: str) -> set[str]:
    code += "\nimport sys\nprint(*sys.modules)"
    # From the root on purpose: there the bare folders could be imported.
    return set(printed("-c", code).split())


def test_stowplan_s_import_loads_no_framework_or_compiled_code() -> None:
    loaded = modules_after("import stowplan")
    assert not loaded & {*HEAVY, "numpy", *(f"stowplan.{room}" for room in ROOMS if room != "common")}


def test_using_stowplan_loads_no_framework_and_no_second_copy() -> None:
    loaded = modules_after(
        "import stowplan, stowplan.packing, stowplan.profiler, stowplan.scheduling, stowplan.planning\n"
        "import stowplan.compat\n"
        "stowplan.NumpyPool()"
    )
    assert "stowplan.allocator" in loaded
    assert not loaded & {*HEAVY, *ROOMS}


def test_the_command_line_loads_no_framework_before_it_is_needed() -> None:
    loaded = modules_after("import stowplan.cli.main")
    assert not loaded & (HEAVY - {"click"})


def test_run_loads_little_before_the_script(tmp_path: Path) -> None:
    """Start-up: what makes plans, shows tables or writes files waits until it is needed."""
    script = tmp_path / "script.py"
    script.write_text("import sys, numpy\nprint(*sys.modules)\n")
    loaded = set(printed("-m", "stowplan", "run", script).split())
    assert "stowplan.allocator.backends.numpy_pool" in loaded
    rooms = {"stowplan.packing", "stowplan.scheduling", "stowplan.planning.plan", "stowplan.profiler.formats"}
    commands = {name for name in loaded if name.startswith("stowplan.cli.commands.")}
    decisions = {"stowplan.allocator.lane", "stowplan.allocator.stats", "stowplan.profiler.steps"}
    assert not loaded & {*HEAVY, *rooms, *decisions, "csv", "logging", "json", "concurrent.futures"}
    assert commands == {"stowplan.cli.commands.run"}


def test_what_plans_without_serving_loads_no_allocator() -> None:
    loaded = modules_after(
        "import stowplan.planning.plan_maker, stowplan.planning.plan_file, stowplan.prediction\n"
        "import stowplan.insight.comparison, stowplan.insight.report.page, stowplan.cli.commands.fit"
    )
    assert not [name for name in loaded if within(name, {"stowplan.allocator"})]


def test_a_source_that_is_not_built_says_what_to_do(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "stowplan", tmp_path / "stowplan", symlinks=True)
    shutil.copytree(ROOT / "common", tmp_path / "common")
    (tmp_path / "allocator").mkdir()
    done = python("-c", "import stowplan", folder=tmp_path)
    assert done.returncode == 1
    assert "expected another current folder" in done.stderr.splitlines()[-1]
