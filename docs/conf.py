"""Sphinx configuration. Built with warnings as errors, and its examples run: ``make docs``."""

import os
import re

_version = os.path.join(os.path.dirname(__file__), "..", "stowplan", "_version.py")
with open(_version, encoding="utf-8") as _file:
    release = re.search(r'"(.+)"', _file.read().split("__version__")[1])[1]

project = "stowplan"
author = "the stowplan authors"
project_copyright = "the stowplan authors"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more: shapes, dtypes, units
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes that a class documents are fields, not members listed twice
napoleon_use_rtype = False
html_theme = "furo"
html_title = f"stowplan {release}"
exclude_patterns = ["_build"]
