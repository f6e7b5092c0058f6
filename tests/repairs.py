"""Repairs shared fixtures before each test, so that one failed test does not make others fail.

A failed test may leave a stopped broker, a Spark session without its Java process, or a mount without its daemon.
Every later test that shares this fixture would fail. So before each test the run checks the values of the fixtures in
`CHECKS`. A broken value is torn down with all fixtures that depend on it, and pytest sets the fixture up again for
the next test that needs it. A fixture whose setup failed is set up a second time, unless the setup skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def _cluster_works(brokers: Any) -> bool:
    return all(broker.works() for broker in brokers.values()) and brokers[1].knows(len(brokers))


def _spark_works(session: Any) -> bool:
    context = session.sparkContext
    java = getattr(context._gateway, "proc", None)
    if context._jsc is None or (java is not None and java.poll() is not None):
        return False
    return not context._jsc.sc().isStopped()


CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "broker": lambda broker: bool(broker.works()),
    "three_brokers": _cluster_works,
    "spark": _spark_works,
    "shared_mount": lambda mount: bool(mount.works()),
}
"""For each shared fixture by name, a function that returns whether the fixture's value still works."""
_SHARED: list[pytest.FixtureDef[Any]] = []
"""The fixtures of `CHECKS` that this process has set up at least once."""
_RETRIED: list[pytest.FixtureDef[Any]] = []
"""The fixtures whose failed setup was tried again."""


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """If `CHECKS` has the fixture, add the fixture to `_SHARED`, so that it is checked before each later test."""
    if fixturedef.argname in CHECKS and fixturedef not in _SHARED:
        _SHARED.append(fixturedef)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tear down the broken shared fixtures, so that this test's setup makes new ones."""
    for definition in _SHARED:
        if reason := _broken(definition):
            name = definition.argname
            item.add_report_section("setup", "repair", f"the fixture {name} was set up again: {reason}")
            _tear_down(definition, item)


def _broken(definition: pytest.FixtureDef[Any]) -> str:
    """Return why a fixture must be set up again, or an empty string if it works or was never set up."""
    if definition.cached_result is None:
        return ""
    value, _, failure = definition.cached_result
    if failure is not None:
        if isinstance(failure[0], pytest.skip.Exception) or definition in _RETRIED:
            return ""
        _RETRIED.append(definition)
        return f"its setup failed: {failure[0]}"
    try:
        return "" if CHECKS[definition.argname](value) else "it did not work any more"
    except Exception as error:  # noqa: BLE001 (whatever the check meets, the value cannot be used)
        return repr(error)


def _tear_down(definition: pytest.FixtureDef[Any], item: pytest.Item) -> None:
    """Tear down a fixture and its dependents; errors in the teardown do not fail the test."""
    try:
        definition.finish(item._request)  # type: ignore[attr-defined] # each kind of test has it
    except Exception as error:  # noqa: BLE001 (as above)
        item.add_report_section("setup", "repair", f"while it was torn down: {error!r}")
