"""The report in a real browser: headless Chromium, driven through Selenium.

Skips where there is no Chromium, no driver or no Selenium.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bokeh", reason="bokeh is not installed; expected: pip install 'stowplan[report]'")
pytest.importorskip("selenium", reason="selenium is not installed; expected: pip install 'stowplan[test]'")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from stowplan.common.files import from_here
from stowplan.insight.report import save_report
from stowplan.profiler import Profile
from tools.screenshots import browser, opened

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium and chromedriver are not installed (Debian: chromium chromium-driver)",
)

DEEP = """
const found = [];
const walk = (node) => {
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.children || []) {
    if (child.classList.contains("bk-Tooltip")) found.push((child.shadowRoot || child).textContent);
    walk(child);
  }
};
walk(document.body);
return found.join(" ");
"""  # text of all tooltips, which Bokeh keeps in shadow trees
WHERE = """
const figure = Bokeh.documents[0].roots()[arguments[0]].children[1];
const view = Bokeh.index.find_one(figure);
const box = view.canvas_view.el.getBoundingClientRect();
return [box.x + view.frame.x_scale.compute(arguments[1]), box.y + view.frame.y_scale.compute(arguments[2])];
"""  # where on the page a tick and an address of a map are
RANGE = "const x = Bokeh.documents[0].get_model_by_name('clock'); return [x.start, x.end];"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    unknown = "--host-resolver-rules=MAP * ~NOTFOUND"  # every host
    driver = browser("--window-size=1500,1100", unknown, logs={"browser": "ALL", "performance": "ALL"})
    driver.set_page_load_timeout(100)
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def profile() -> Profile:
    """300 blocks, most of which die young."""
    rng, n = np.random.default_rng(0), 300
    start = 2 * np.arange(n)
    end = np.minimum(start + 1 + 2 * np.exp(rng.uniform(0, 5, n)).astype(int), 2 * n)
    sites = tuple(f"net/layer{k}.py:{k} <forward>" for k in range(30))
    size = np.exp(rng.uniform(6, 15, n)).astype(np.int64)
    return Profile(size, start, end, period=2 * n + 1, site=rng.integers(0, 30, n), sites=sites)


@pytest.fixture(scope="module")
def saved(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    save_report(path, profile, title="A step", solver="best_fit")
    return path


@pytest.fixture
def page(driver: Any, saved: Path) -> Any:
    for log in ("browser", "performance"):  # what came before is gone once read
        driver.get_log(log)
    opened(driver, saved)
    return driver


def test_opens_without_network_and_without_errors(page: Any) -> None:
    complaints = [entry for entry in page.get_log("browser") if entry["level"] != "INFO"]
    assert complaints == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked
    assert [url[:60] for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_peak_is_shown_first(page: Any, profile: Profile) -> None:
    tick = int(profile.live_bytes().argmax())
    alive = int((profile.alive_at(tick) & profile.planned).sum())
    assert page.find_element(By.ID, "moment").text.startswith(f"tick {tick:,}: {alive:,} blocks, ")
    verdict = page.find_element(By.ID, "verdict").text
    assert re.fullmatch(r"The plan reserves .*, \d+% less than .*; .* holds the most at the peak\.", verdict)


def pointed(page: Any, at: list[float], *, click: bool = False) -> None:
    actions = ActionChains(page)
    actions.w3c_actions.pointer_action.move_to_location(int(at[0]) - 3, int(at[1]))
    actions.w3c_actions.pointer_action.move_to_location(int(at[0]), int(at[1]))
    if click:
        actions.w3c_actions.pointer_action.click()
    actions.perform()


@pytest.mark.parametrize("map_number", [0, 1])
def test_hover_tells_of_a_block(page: Any, profile: Profile, map_number: int) -> None:
    name = ("plan", "pool")[map_number]
    found = page.execute_script(
        f"const d = Bokeh.documents[0].get_model_by_name('{name}_detail').data;"
        "return ['left', 'right', 'bottom', 'top', 'number'].map((name) => d[name][0]);"
    )
    left, right, bottom, top, number = found
    pointed(page, page.execute_script(WHERE, map_number, (left + right) / 2, (bottom + top) / 2))
    WebDriverWait(page, 20).until(lambda browser: "site" in browser.execute_script(DEEP))
    text = page.execute_script(DEEP)
    assert f"block:{number}" in text.replace(" ", "").replace("\n", "")
    assert from_here(profile.sites[profile.site[number]]) in text


def test_click_shows_who_is_alive(page: Any, profile: Profile) -> None:
    moment = page.find_element(By.ID, "moment")
    before = moment.text
    middle = page.execute_script("return Bokeh.documents[0].get_model_by_name('address').end / 2")
    pointed(page, page.execute_script(WHERE, 1, profile.period / 4, middle), click=True)
    WebDriverWait(page, 20).until(lambda _: moment.text != before)
    tick = int(page.find_element(By.ID, "tick").get_attribute("value"))
    assert abs(tick - profile.period / 4) < 0.02 * profile.period
    alive = np.flatnonzero(profile.alive_at(tick) & profile.planned)
    assert f"tick {tick:,}: {len(alive):,} blocks, " in moment.text
    shown = [int(button.text) for button in page.find_elements(By.CSS_SELECTOR, "#alive td button")]
    assert set(shown) == set(alive.tolist())
    assert profile.size[shown].tolist() == sorted(profile.size[alive].tolist(), reverse=True)


def test_everything_is_within_reach_of_the_keyboard(page: Any, profile: Profile) -> None:
    body = page.find_element(By.TAG_NAME, "body")
    for _ in range(20):
        body.send_keys(Keys.TAB)
        if page.switch_to.active_element.get_attribute("id") == "maps":
            break
    maps = page.switch_to.active_element
    assert maps.get_attribute("id") == "maps"
    assert page.execute_script(RANGE) == [0, profile.period]
    maps.send_keys("+")
    start, end = page.execute_script(RANGE)
    assert end - start < profile.period
    maps.send_keys(Keys.ARROW_RIGHT if start == 0 else Keys.ARROW_LEFT)
    assert page.execute_script(RANGE) != [start, end]
    maps.send_keys("0")
    assert page.execute_script(RANGE) == [0, profile.period]
    maps.send_keys(",")
    tick = int(profile.live_bytes().argmax())
    assert page.find_element(By.ID, "tick").get_attribute("value") == str(tick - 1)
    maps.send_keys("p")
    assert page.find_element(By.ID, "tick").get_attribute("value") == str(tick)
    smallest = page.find_elements(By.CSS_SELECTOR, "#alive td button")[-1]
    smallest.send_keys(Keys.ENTER)
    low, high = page.execute_script(RANGE.replace("clock", "address"))
    assert high - low == 5 * 512 * -(-profile.size[int(smallest.text)] // 512)
