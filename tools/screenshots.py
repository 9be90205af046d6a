"""Make the pictures of README and docs: the report in light and dark, and what a terminal shows.

    python -m tools.screenshots                  of a training step of GoogLeNet, profiled first (needs chainer)
    python -m tools.screenshots step.profile     of that profile

Written to docs/: report.png, report-dark.png, terminal.svg. Needs the extras report, experiments and test,
and Chromium with its driver.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SCRIPT = ROOT / "experiments" / "scripts" / "googlenet.py"
WINDOW = (1480, 1180)
PROFILE = ["profile", "-o", "step.profile", SCRIPT.name]
COMMANDS = (["show", "step.profile", "--top", "6"], ["report", "step.profile", "-o", "report.html"])
COLUMNS = 100
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich's; the pictures shall need no network


def stowplan(folder: Path, *arguments: str | os.PathLike[str]) -> str:
    """Run a command in a folder as on a terminal in colour; return what it printed."""
    environment = {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-W", "ignore", "-m", "stowplan", *map(os.fspath, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout + done.stderr if arguments[0] == "profile" else done.stdout


def browser(*arguments: str, logs: dict[str, str] | None = None) -> Any:
    """Return Selenium's driver of a headless Chromium, which keeps these logs."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    # As root, as in a container, Chromium runs without its sandbox only.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", logs or {})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def opened(driver: Any, page: Path) -> None:
    """Open a report, and wait until it is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(page.as_uri())
    ready = "return document.body.dataset.ready === 'yes'"
    WebDriverWait(driver, 60).until(lambda browser: browser.execute_script(ready))


def photograph_page(page: Path, dark: bool, target: Path) -> None:
    """Open a page in headless Chromium and save what is in the window as PNG."""
    from PIL import Image

    driver = browser("--hide-scrollbars")
    try:
        size = {"width": WINDOW[0], "height": WINDOW[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        opened(driver, page)
        # Two frames later everything is painted.
        driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    finally:
        driver.quit()
    # A third of the bytes, and no colour off by more than a few steps, which a median cut's are.
    picture = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(target, optimize=True)


def photograph_terminal(folder: Path, target: Path, printed: str | None) -> None:
    """Save what the commands print in a folder as SVG; that of the first one is known, where it was run."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)

    def show(arguments: list[str], text: str) -> None:
        console.print(Text(f"$ stowplan {' '.join(arguments)}", style="bold green"))
        console.print(Text.from_ansi(text.strip()))
        console.print()

    if printed is not None:
        show(PROFILE, printed)
    for arguments in COMMANDS:
        show(arguments, stowplan(folder, *arguments))
    svg = _WEB_FONT.sub("", console.export_svg(title="stowplan"))
    target.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of README and docs.")
    parser.add_argument("profile", type=Path, nargs="?", help="else a step of GoogLeNet is profiled")
    parser.add_argument("--to", type=Path, default=DOCS, help="folder (default: docs)")
    parser.add_argument("--title", default="One training step of GoogLeNet, batch 2")
    options = parser.parse_args()
    target = options.to.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        printed = None
        if options.profile is None:
            shutil.copy(SCRIPT, folder)
            printed = stowplan(folder, *PROFILE)
        else:
            shutil.copy(options.profile, folder / "step.profile")
        page = folder / "page.html"
        stowplan(folder, "report", "step.profile", "-o", page, "--title", options.title)
        photograph_page(page, False, target / "report.png")
        photograph_page(page, True, target / "report-dark.png")
        photograph_terminal(folder, target / "terminal.svg", printed)
    for picture in ("report.png", "report-dark.png", "terminal.svg"):
        print(f"{target / picture}: {(target / picture).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
