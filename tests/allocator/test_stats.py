"""How a pool's figures are shown: in Jupyter, behind a progress bar, to Prometheus."""

from __future__ import annotations

import gc
import io
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator import Stats
from stowplan.errors import MissingDependencyError

from ..running import run

STATS = Stats(
    replayed=900,
    guests=60,
    upstream=40,
    reasons={"no_plan": 75, "mismatch": 25},
    smaller=3,
    missing=2,
    plans=2,
    reoptimizations=1,
    arena_bytes=3 << 20,
    kept_bytes=1 << 19,
    live_bytes=1 << 20,
    peak_live_bytes=2 << 20,
    reserved_bytes=4 << 20,
    peak_reserved_bytes=5 << 20,
    lower_bound=2 << 20,
)


def trained() -> NumpyPool:
    pool = NumpyPool(warmup=1, small=0)
    with pool:
        run(pool, 6, lambda: np.ones(100_000))
    return pool


def shown() -> tuple[list[list[str]], list[str]]:
    """Return the text of every row of the table in Jupyter, and how wide the parts of the bar are."""
    tree = ElementTree.fromstring(f"<div>{STATS._repr_html_().replace('&emsp;', '')}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows, re.findall(r"flex:(\d+)", STATS._repr_html_())


def test_jupyter_shows_how_requests_were_served() -> None:
    rows, widths = shown()
    assert widths == ["900", "60", "40"]
    assert rows[0] == ["■ served from the plan", "900", "90.00%"]
    assert ["no_plan", "75", ""] in rows
    assert ["arena", "3.0 MiB", "fragmentation 50.00%"] in rows


def test_text_has_the_same_rows() -> None:
    rows = [re.split(r"\s{2,}", line.strip()) for line in str(STATS).splitlines()]
    assert rows[0] == ["1,000 requests"]
    assert rows[1:] == [[cell.strip("■ ") for cell in row if cell] for row in shown()[0]]
    pool = NumpyPool()
    assert str(pool) == f"NumpyPool: {pool.stats}"


def test_jupyter_takes_the_html() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    assert formatters.HTMLFormatter()(STATS) == STATS._repr_html_()


def test_names_are_escaped_and_nothing_is_divided_by_nothing() -> None:
    empty = replace(STATS, replayed=0, guests=0, upstream=0, lower_bound=0, reasons={"<script>": 0})
    assert "<script>" not in empty._repr_html_()
    assert empty.postfix()["planned"] == "0.0%"


def test_a_progress_bar_takes_the_postfix() -> None:
    assert STATS.postfix() == {"planned": "90.0%", "live": "1.0 MiB", "reserved": "4.0 MiB", "plans": "2"}
    text = io.StringIO()
    with pytest.importorskip("tqdm").tqdm(total=3, file=text) as progress:
        progress.set_postfix(STATS.postfix())
    assert "planned=90.0%, live=1.0 MiB" in text.getvalue()


def test_prometheus_reads_a_pool() -> None:
    client = pytest.importorskip("prometheus_client")
    from stowplan.prometheus import PoolCollector

    pool, other = trained(), NumpyPool()
    registry = client.CollectorRegistry()
    PoolCollector(pool, "train").register(registry)
    PoolCollector(other, "eval").register(registry)
    text = client.generate_latest(registry).decode()
    stats = pool.stats
    assert f'stowplan_requests_total{{pool="train",served="plan"}} {float(stats.replayed)}' in text
    counts = [line.split()[-1] for line in text.splitlines() if line.startswith("stowplan_requests_total")]
    assert sum(map(float, counts)) == stats.requests
    assert 'stowplan_plans_total{pool="train"} 1.0' in text
    assert registry.get_sample_value("stowplan_bytes", {"pool": "train", "of": "arena"}) == stats.arena_bytes
    assert registry.get_sample_value("stowplan_plans_total", {"pool": "eval"}) == 0


def test_prometheus_has_the_metrics_that_dashboards_ask_for() -> None:
    pytest.importorskip("prometheus_client")
    from stowplan.prometheus import PoolCollector

    pool = trained()
    metrics = {metric.name: metric for metric in PoolCollector(pool).collect()}
    assert {name: metric.type for name, metric in metrics.items()} == {
        "stowplan_requests": "counter",
        "stowplan_plans": "counter",
        "stowplan_reoptimizations": "counter",
        "stowplan_planning_seconds": "counter",
        "stowplan_plans_skipped": "counter",
        "stowplan_plans_failed": "counter",
        "stowplan_bytes": "gauge",
    }
    assert all(metric.documentation.endswith(".") for metric in metrics.values())
    sizes = {sample.labels["of"]: sample.value for sample in metrics["stowplan_bytes"].samples}
    stats = pool.stats
    assert sizes == {
        "planning": stats.planning_bytes,
        "kept": stats.kept_bytes,
        "live": stats.live_bytes,
        "peak_live": stats.peak_live_bytes,
        "arena": stats.arena_bytes,
        "reserved": stats.reserved_bytes,
        "peak_reserved": stats.peak_reserved_bytes,
        "lower_bound": stats.lower_bound,
    }


def test_prometheus_does_not_keep_a_pool_alive() -> None:
    pytest.importorskip("prometheus_client")
    from stowplan.prometheus import PoolCollector

    collector = PoolCollector(trained())
    gc.collect()
    assert list(collector.collect()) == []


def test_without_the_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "stowplan.prometheus", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'stowplan\[prometheus\]'"):
        import stowplan.prometheus  # noqa: F401
