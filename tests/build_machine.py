"""On a build machine (CI) a test that is skipped is a test that failed.

Elsewhere tests that need a kernel's device, Java or Spark may be left out, each with its reason. Where a change is
judged nothing is left out: `.ci/run` says that it is such a place by CI=true, and this is the one rule that
reads it. A test that is expected to fail is not left out: it runs, and is a failure once it passes (`xfail_strict`).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
REASON = "a build machine leaves out no test"


def is_build_machine() -> bool:
    """Whether CI says so: set, and neither empty nor `false`."""
    return os.environ.get("CI", "").lower() not in {"", "false", "0"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _judged((yield))


def _judged(report: Report) -> Report:
    """Make a skip a failure that keeps its reason."""
    if report.skipped and not hasattr(report, "wasxfail") and is_build_machine():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {REASON}: {reason}"
    return report
