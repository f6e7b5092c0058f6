"""Tests that the dashboard and alerts of docs/watching use existing metrics, and that Prometheus understands them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.conftest import ROOT
from topicfs.fusefs.metrics.table import METRICS, MetricKind

WATCHING = ROOT / "docs" / "watching"
DASHBOARD = json.loads((WATCHING / "topicfs-dashboard.json").read_text())
ALERTS = WATCHING / "topicfs-alerts.yml"
SERIES = {
    name: one
    for one in METRICS
    for name in (
        [f"{one.name}{suffix}" for suffix in ("_bucket", "_count", "_sum")]
        if one.kind is MetricKind.HISTOGRAM
        else [one.name]
    )
}


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each query of the dashboard with its panel's title."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def unknown(text: str) -> set[str]:
    return set(re.findall(r"topicfs_\w+", text)) - SERIES.keys()


def test_every_metric_that_is_asked_for_is_there():
    """Every metric in the dashboard's queries and the alerts exists."""
    assert {} == {title: found for title, target in targets() if (found := unknown(target["expr"]))}
    assert set() == unknown(ALERTS.read_text())


def test_counters_are_shown_as_rates_and_labels_are_theirs():
    """The dashboard shows counters as rates, and legends and sums use only labels that the metric has."""
    for title, target in targets():
        expression = target["expr"]
        names = re.findall(r"topicfs_\w+", expression)
        for name in names:
            if SERIES[name].kind is not MetricKind.GAUGE and name != "topicfs_log_recoveries_total":
                assert re.search(rf"(rate|increase)\({name}", expression), title
        labels = {"instance", "le", *(label for name in names for label in SERIES[name].labels)}
        by = {one.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for one in found.split(",")}
        assert by | set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, title


def test_the_dashboard_is_whole():
    """Each panel has a unique id and title, a place in the grid, and the selected data source."""
    panels = DASHBOARD["panels"]
    assert len(panels) == len({one["id"] for one in panels}) == len({one["title"] for one in panels})
    for one in panels:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= 24
        if one["type"] != "row":
            assert "${datasource}" == one["datasource"]["uid"]
    assert ["datasource", "instance"] == [one["name"] for one in DASHBOARD["templating"]["list"]]


def test_the_page_lists_the_alerts():
    """docs/watching.md lists the alerts in the order of their file."""
    page = (ROOT / "docs" / "watching.md").read_text()
    assert re.findall(r"(?m)^      - alert: (\w+)$", ALERTS.read_text()) == re.findall(
        r"(?m)^\| `(Topicfs\w+)` \|", page
    )


@pytest.mark.promtool
def test_promtool_understands_the_alerts():
    """promtool accepts the alerts' names, expressions and templates."""
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.promtool
def test_promtool_understands_the_queries_of_the_dashboard(tmp_path):
    """promtool accepts the dashboard's queries as rules, with Grafana's variables filled in."""
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, target) in enumerate(targets())
        if (expression := target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*"))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert f"{len(rules)} rules found" in done.stdout
