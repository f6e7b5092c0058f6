"""The processor time that the command needs to start, compared with a Python that only imports click.

As with an installed package, Python reads compiled modules from a cache. The first round fills the cache and is not
measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from benchmarks.frame import units
from benchmarks.frame.question import OURS, Benchmark, Case, Cases, Conditions, Goal, Side, WrongResultError

PYTHON = "python -c 'import click'"
MAIN = "import sys; from topicfs.main import main; sys.argv[0] = 'topicfs'; main()"
RUNS = 5
"""Runs in each round; the fastest run counts."""


def cases(conditions: Conditions) -> Cases:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(conditions.directory / "cache")}
    data = f"--data={conditions.directory / 'data'}"
    _run(environment, ["-c", MAIN, "topics", "create", data, "orders"])
    _run(environment, ["-c", MAIN, "append", data, "orders/0"], stdin="hello\n")
    click = Side(PYTHON, partial(_quickest, environment, ["-c", "import click"]))
    for words, most, floor in ((("--help",), 3.0, 3.0), (("cat", data, "orders/0/0"), 3.0, 4.5)):
        yield Case(
            name=f"topicfs {words[0]}{' orders/0/0' if len(words) > 1 else ''}",
            unit=units.MILLISECONDS_OF_PROCESSOR,
            sides=(Side(OURS, partial(_quickest, environment, ["-c", MAIN, *words])), click),
            goals=(Goal(of=PYTHON, target=most, floor=floor),),
        )


def _run(environment: dict[str, str], words: list[str], *, stdin: str = "") -> float:
    """Run Python; return its processor time in milliseconds."""
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    ) as child:
        assert child.stdin is not None
        child.stdin.write(stdin.encode())
        child.stdin.close()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise WrongResultError(f"{words}: status {child.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def _quickest(environment: dict[str, str], words: list[str]) -> float:
    return min(_run(environment, words) for _ in range(RUNS))


BENCHMARK = Benchmark(
    name="start", question="How much processor time does the command take to start?", cases=cases
)
