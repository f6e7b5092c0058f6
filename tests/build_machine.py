"""On a build machine (CI) a skipped test counts as failed.

Elsewhere a test that needs FUSE, Java or Spark may be skipped with a reason. On a build machine, where a change is
judged, no test may be skipped. `.ci/run` sets CI=true there, and only this module reads CI. An expected failure
(xfail) is not a skip, because the test runs; if the test passes, it counts as failed (`xfail_strict`).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
REASON = "a build machine leaves out no test"


def is_build_machine() -> bool:
    """Return whether CI is set to anything but an empty string, `false` or `0`."""
    return os.environ.get("CI", "").lower() not in {"", "false", "0"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _judged((yield))


def _judged(report: Report) -> Report:
    """Change a skipped test's report into a failure with the same reason."""
    if report.skipped and not hasattr(report, "wasxfail") and is_build_machine():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {REASON}: {reason}"
    return report
