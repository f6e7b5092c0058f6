"""`make mutants`: make each mistake of the list, run the tests that should notice the mistake, and report survivors.

A run takes about an hour on two cores. Every worker has its own copy of the checkout, which stays unchanged. The
verdicts are kept in .mutants/results.jsonl, so that the next run tries only mutants that have no verdict yet or have
changed. The command first lists the mutants whose edits no longer fit the code. These mutants are not tried, and the
run fails.
"""

# ruff: noqa: T201 - a command, for people

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalog import Mutant, StaleEditError, read_mutants
from tests.mutants.results import Results, score
from tests.mutants.trial import Scratch, TrialError, Verdict

CHECKOUT = Path(__file__).parents[2]


class Run:
    """The state that all workers share."""

    def __init__(self, todo: Sequence[Mutant], results: Results, *, wider: bool) -> None:
        self._todo: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in todo:
            self._todo.put(mutant)
        self._results = results
        self._wider = wider
        self._lock = threading.Lock()
        self._unsound: dict[tuple[tuple[str, ...], bool], bool] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.troubles: list[str] = []

    def work(self, folder: Path) -> None:
        """Try mutants until none is left."""
        scratch = Scratch(CHECKOUT, folder)
        try:
            while True:
                try:
                    mutant = self._todo.get_nowait()
                except queue.Empty:
                    return
                self._try(scratch, mutant)
        finally:
            scratch.remove()

    def _try(self, scratch: Scratch, mutant: Mutant) -> None:
        began = time.monotonic()
        try:
            verdict = self._verdict(scratch, mutant, mutant.tests)
            if verdict is Verdict.ALIVE and self._wider:
                verdict = self._verdict(scratch, mutant, mutant.wider_tests)
        except (TrialError, StaleEditError) as error:
            self.troubles.append(f"{mutant.id}: {error}")
            print(f"{mutant.id:4} not tried: {error}", flush=True)
            return
        self.verdicts[mutant.id] = verdict
        self._results.keep(mutant, verdict)
        took = f"({time.monotonic() - began:.0f} s)"
        print(f"{mutant.id:4} {verdict.value:6} {mutant.file}: {mutant.rule} {took}", flush=True)

    def _verdict(self, scratch: Scratch, mutant: Mutant, tests: tuple[str, ...]) -> Verdict:
        """Return the tests' verdict, after checking once per run that the tests pass without the mutant."""
        key = (tests, scratch.is_compiled(mutant))
        with self._lock:
            if key not in self._unsound:
                self._unsound[key] = scratch.unsound(tests, uncompiled=key[1])
        if self._unsound[key]:
            raise TrialError(f"these tests fail without any mutant: {' '.join(tests)}")
        return scratch.try_out(mutant, tests)


def main() -> None:
    asked = _arguments()
    listed = [one for one in read_mutants() if _asked_for(one, asked)]
    stale = _stale(listed)
    for trouble in stale.values():
        print(f"not tried: {trouble}", flush=True)
    mutants = [one for one in listed if one.harmless is None and one.id not in stale]
    results = Results(asked.results, CHECKOUT)
    known = {one.id: verdict for one in mutants if (verdict := results.known(one))}
    if asked.again:
        known = {}
    todo = [one for one in mutants if one.id not in known]
    harmless = sum(one.harmless is not None for one in listed)
    print(f"{len(todo)} to be tried, {len(known)} known, {harmless} harmless, {len(stale)} stale", flush=True)
    run = Run(todo, results, wider=not asked.near)
    if todo:
        with tempfile.TemporaryDirectory(prefix="topicfs-mutants-") as folder:
            workers = [
                threading.Thread(target=run.work, args=(Path(folder) / str(number),))
                for number in range(asked.jobs)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    verdicts = known | run.verdicts
    troubles = [*stale.values(), *run.troubles]
    print("\n".join(["", *score(mutants, verdicts), *troubles]))
    sys.exit(1 if troubles or Verdict.ALIVE in verdicts.values() else 0)


def _stale(mutants: Sequence[Mutant]) -> dict[str, str]:
    """Return, by mutant id, why each outdated edit no longer fits the code."""
    found = {}
    for mutant in mutants:
        try:
            mutant.check(CHECKOUT)
        except StaleEditError as error:
            found[mutant.id] = str(error)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mutants", nargs="*", metavar="ID|FILE|FOLDER", help="only these [all]")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="number of mutants tried at a time [one per core]",
    )
    parser.add_argument("--near", action="store_true", help="do not try surviving mutants with more tests")
    parser.add_argument("--again", action="store_true", help="also try mutants with a known verdict")
    parser.add_argument(
        "--results",
        type=Path,
        default=CHECKOUT / ".mutants" / "results.jsonl",
        help="[.mutants/results.jsonl]",
    )
    return parser.parse_args()


def _asked_for(mutant: Mutant, asked: argparse.Namespace) -> bool:
    names = [name.rstrip("/") for name in asked.mutants]
    return not names or any(mutant.id == name or f"{mutant.file}/".startswith(f"{name}/") for name in names)


if __name__ == "__main__":
    main()
