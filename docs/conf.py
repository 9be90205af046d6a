"""Sphinx configuration. Built with warnings as errors, and its examples run: ``make docs``.

The directive ``command-help`` stands for the help of every command, ``reasons`` for the table of reasons, and
``source-module`` for the public names of a package that need not be importable here: ``stowplan.torch``.
"""

import ast
import os
import re
from pathlib import Path

from click.testing import CliRunner
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.ext.napoleon import NumpyDocstring

_version = os.path.join(os.path.dirname(__file__), "..", "stowplan", "_version.py")
with open(_version, encoding="utf-8") as _file:
    release = re.search(r'"(.+)"', _file.read().split("__version__")[1])[1]

project = "stowplan"
author = "the stowplan authors"
project_copyright = "the stowplan authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
default_role = "py:obj"
# Annotations of fields: types of other packages, whose inventories would need a network, and a private one.
nitpick_ignore_regex = [("py:class", r"(numpy|collections\.abc|os)\..*|.*\.size_formulas\.Formulas")]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more: shapes, dtypes, units
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes that a class documents are fields, not members listed twice
napoleon_use_rtype = False
html_theme = "furo"
html_title = f"stowplan {release}"
exclude_patterns = ["_build"]


class CommandHelp(Directive):
    """What ``stowplan COMMAND --help`` prints, a section for each command."""

    def run(self):
        """Return the sections."""
        from stowplan.cli.main import COMMANDS, main

        sections = []
        for name in COMMANDS:
            done = CliRunner().invoke(main, [name, "--help"], prog_name="stowplan", terminal_width=100)
            if done.exit_code:
                raise self.error(f"stowplan {name} --help: {done.output}")
            section = nodes.section(ids=[f"stowplan-{name}"], names=[f"stowplan {name}"])
            section += nodes.title(text=f"stowplan {name}")
            section += nodes.literal_block(text=done.output.rstrip(), language="text")
            sections.append(section)
        return sections


class Reasons(Directive):
    """The table of reasons, as the code has it."""

    def run(self):
        """Return the table."""
        from stowplan.allocator.counter_definitions import REASONS

        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 12 40 48", ""]
        lines += ["   * - reason", "     - meaning", "     - what to do about it"]
        for name, reason in REASONS.items():
            lines.append(f"   * - ``{name}``")
            lines += [f"     - {_sentence(text)}" for text in (reason.why, reason.action)]
        return _parsed(self.state, "\n".join(lines), "reasons")


def _sentence(text):
    return re.sub("`([^`]+)`", r"``\1``", f"{text[0].upper()}{text[1:]}.")


def _parsed(state, text, source):
    node = nodes.container()
    state.nested_parse(StringList(text.splitlines(), source), 0, node)
    return node.children


def _signature(definition):
    """Return the arguments of a function or a class, without types."""
    if isinstance(definition, ast.ClassDef):
        made = [part for part in definition.body if getattr(part, "name", "") == "__init__"]
        if not made:
            return ""
        definition = made[0]
        definition.args.args = definition.args.args[1:]
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"({ast.unparse(definition.args)})"


class SourceModule(Directive):
    """The public functions and classes of a package, from its source."""

    required_arguments = 1

    def run(self):
        """Return the descriptions."""
        package = self.arguments[0]
        folder = Path(__file__).resolve().parents[1].joinpath(*package.split("."))
        lines = [f".. py:currentmodule:: {package}", ""]
        for imported in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
            if not isinstance(imported, ast.ImportFrom) or imported.level != 1:
                continue
            module = ast.parse((folder / f"{imported.module}.py").read_text(encoding="utf-8"))
            named = {
                part.name: part for part in module.body if isinstance(part, (ast.FunctionDef, ast.ClassDef))
            }
            for name in (alias.name for alias in imported.names):
                lines += self._described(named[name], "")
        return _parsed(self.state, "\n".join(lines), package)

    def _described(self, definition, indent):
        is_class = isinstance(definition, ast.ClassDef)
        kind = "class" if is_class else "method" if indent else "function"
        if any(ast.unparse(decorator) == "property" for decorator in definition.decorator_list):
            kind = "attribute"
        yield f"{indent}.. py:{kind}:: {definition.name}{'' if kind == 'attribute' else _signature(definition)}"
        yield ""
        inner = indent + "   "
        config = self.state.document.settings.env.config
        text = str(NumpyDocstring(ast.get_docstring(definition) or "", config, what=kind))
        yield from (inner + line if line else "" for line in text.splitlines())
        yield ""
        for part in definition.body if is_class else ():
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                part.args.args = part.args.args[1:]
                yield from self._described(part, inner)


def link_results(app, doctree):
    """Make each ``docs/results/TABLE.md`` a link to that table."""
    for literal in doctree.findall(nodes.literal):
        table = re.fullmatch(r"docs/results/(\w+)\.md", literal.astext())
        if table and not isinstance(literal.parent, (nodes.reference, pending_xref)):
            link = pending_xref(
                "", reftype="doc", refdomain="std", reftarget=f"/results/{table[1]}", refexplicit=True
            )
            literal.replace_self(link)
            link += literal


def setup(app):
    """Register the directives."""
    app.connect("doctree-read", link_results)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("reasons", Reasons)
    app.add_directive("source-module", SourceModule)
