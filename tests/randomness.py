"""Every random choice of a test can be repeated: seeds are printed and can be set.

A test that needs random numbers uses the fixture `chance`. Its numbers follow from the run's seed and the test's
name; `--random-seed` sets the seed, and a failing test prints it. Hypothesis prints how to repeat a failing example
(`@reproduce_failure`), and has `--hypothesis-seed`. On a build machine Hypothesis would use the same examples in each
run, and elsewhere it would fail examples that take long. This module turns off both defaults.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, Phase, settings

USUAL, MANY, FIRST_FAILURE = "topicfs", "many", "first-failure"
"""Profiles of Hypothesis: USUAL for `make test`, with other examples in each run; MANY for `tests.seeds`;
FIRST_FAILURE for `tests.mutants`, which does not minimize failing examples, because only the failure counts.
"""

PYTHON = ".venv/bin/python"
"""The checkout's interpreter, used in the commands that a failed run prints."""

USUAL_EXAMPLES, MANY_EXAMPLES = 40, 100
"""Number of examples for each test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-seed",
        type=int,
        help="seed of the tests that use the fixture `chance`; by default random, and printed",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Stored as an option, because the workers of a parallel run get the main process's options.
    if config.option.random_seed is None:
        config.option.random_seed = random.SystemRandom().randrange(1 << 32)
    usual = settings(
        deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(USUAL, usual, max_examples=USUAL_EXAMPLES)
    settings.register_profile(MANY, usual, max_examples=MANY_EXAMPLES)
    settings.register_profile(
        FIRST_FAILURE, usual, max_examples=MANY_EXAMPLES, phases=(Phase.explicit, Phase.generate)
    )
    settings.load_profile(USUAL)


def pytest_report_header(config: pytest.Config) -> str:
    return f"random seed: {config.option.random_seed}"


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that follow from the run's seed and the test's name."""
    return random.Random(f"{request.config.option.random_seed} {request.node.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and chance.__name__ in getattr(item, "fixturenames", ()):
        report.sections.append(
            ("random seed", f"have it again with --random-seed={item.config.option.random_seed}")
        )
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """End a failed run's output with the command that repeats each failed test alone."""
    yield
    config = terminalreporter.config
    reports = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    failed = sorted({report.nodeid for report in reports})
    if not failed:
        return
    options = [f"--random-seed={config.option.random_seed}"]
    if config.pluginmanager.has_plugin("randomly"):
        options.append(f"-p randomly --randomly-seed={config.getoption('randomly_seed')}")
    if config.getoption("uncompiled", default=False):
        options.append("--uncompiled")
    terminalreporter.section("to repeat a failed test alone")
    for nodeid in failed:
        terminalreporter.write_line(f"{PYTHON} -m pytest {' '.join(options)} {shlex.quote(nodeid)}")
