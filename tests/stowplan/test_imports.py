"""What may import what, read from the source; and what an import of stowplan loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAVES = {
    "stowplan._version",
    "stowplan.archive",
    "stowplan.errors",
    "stowplan.files",
    "stowplan.minimalloc",
    "stowplan.units",
}
FRAMEWORKS = ("chainer", "cupy", "torch", "matplotlib", "pulp", "highspy", "rich", "click")

# folder, its name as a package, what of the project it may import beside itself
RULES = [
    ("packing", "stowplan.packing", LEAVES),
    ("profiler", "stowplan.profiler", LEAVES),
    ("scheduling", "stowplan.scheduling", LEAVES | {"stowplan.packing"}),
    ("allocator", "stowplan.allocator", LEAVES | {"stowplan.packing", "stowplan.profiler"}),
]
PUBLIC = {
    "stowplan",
    "stowplan.allocator",
    "stowplan.chainer.links",
    "stowplan.compat",
    "stowplan.errors",
    "stowplan.packing",
    "stowplan.packing.pools",
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
            with suppress(
                SyntaxError, ValueError
            ):  # prose; else a program in a string, which imports as the file does
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


def within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize(("folder", "package", "allowed"), RULES)
def test_no_arrow_runs_back(folder: str, package: str, allowed: set[str]) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for file in files:
        own = ".".join([package, *file.relative_to(ROOT / folder).parts[:-1]])
        for line, module in imports(file, own):
            top = module.split(".")[0]
            where = f"{file.relative_to(ROOT)}, line {line}: {module}"
            assert top not in {"packing", "profiler", "scheduling", "allocator", "experiments"}, (
                f"{where}: a second copy"
            )
            assert top != "stowplan" or within(module, allowed | {package}), where


def test_leaves_import_leaves_only() -> None:
    for leaf in LEAVES:
        file = ROOT / (leaf.replace(".", "/") + ".py")
        for line, module in imports(file, "stowplan"):
            assert module.split(".")[0] != "stowplan" or module in LEAVES, (
                f"{file.name}, line {line}: {module}"
            )


def test_experiments_use_the_public_face() -> None:
    for file in sorted((ROOT / "experiments").rglob("*.py")):
        own = ".".join(file.relative_to(ROOT).parts[:-1])
        for line, module in imports(file, own):
            if module.split(".")[0] == "stowplan":
                public = module in PUBLIC or module.rpartition(".")[0] == "stowplan"
                assert public, f"{file.relative_to(ROOT)}, line {line}: {module}"


def test_the_rules_see_an_arrow_that_runs_back(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "def f():\n    from ..allocator.plan import Plan\n    from .. import cli\n    import stowplan.demo\n"
        "PROGRAM = 'import stowplan.report'\n"
    )
    found = [module for _, module in imports(file, "stowplan.packing")]
    assert sorted(found) == ["stowplan.allocator.plan", "stowplan.cli", "stowplan.demo", "stowplan.report"]
    assert not any(within(module, LEAVES | {"stowplan.packing"}) for module in found)


def modules_after(code: str) -> set[str]:
    code += "\nimport sys\nprint(*sys.modules)"
    # From the root on purpose: there the bare folders could be imported.
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_stowplan_loads_no_framework_and_no_compiled_code() -> None:
    loaded = modules_after("import stowplan")
    assert not loaded & {
        *FRAMEWORKS,
        "numpy",
        "stowplan.packing",
        "stowplan.allocator",
        "stowplan.profiler",
        "stowplan.scheduling",
    }


def test_using_stowplan_loads_no_framework_and_no_second_copy() -> None:
    loaded = modules_after(
        "import stowplan, stowplan.packing, stowplan.profiler, stowplan.scheduling, stowplan.compat\n"
        "stowplan.NumpyPool()"
    )
    assert "stowplan.allocator" in loaded
    assert not loaded & {*FRAMEWORKS, "profiler", "packing", "scheduling", "allocator"}


def test_the_command_line_loads_no_framework_before_it_is_needed() -> None:
    loaded = modules_after("import stowplan.cli")
    assert not loaded & (set(FRAMEWORKS) - {"click"})
