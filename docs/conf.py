"""Sphinx configuration. Built with warnings as errors: ``make docs``."""

import os
import re

_version = os.path.join(os.path.dirname(__file__), "..", "stowplan", "_version.py")
with open(_version, encoding="utf-8") as _file:
    release = re.search(r'"(.+)"', _file.read().split("__version__")[1])[1]

project = "stowplan"
author = "the stowplan authors"
project_copyright = "the stowplan authors"
html_theme = "furo"
html_title = f"stowplan {release}"
exclude_patterns = ["_build"]
