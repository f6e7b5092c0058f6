"""The verdict on each mutant, stored line by line so that a stopped run can continue."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.mutants.catalog import Mutant
from tests.mutants.trial import Verdict


class Results:
    """Verdicts in a file of JSON lines. A verdict is valid while the mutant, its file and its tests are unchanged."""

    def __init__(self, path: Path, checkout: Path) -> None:
        self._path = path
        self._checkout = checkout
        self._lock = threading.Lock()
        self._trees: dict[str, str] = {}
        self._fingerprints: dict[str, str] = {}
        self._known: dict[str, tuple[str, Verdict]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["id"]] = (entry["of"], Verdict(entry["verdict"]))

    def known(self, mutant: Mutant) -> Verdict | None:
        """Return an earlier run's verdict; None if there is none or the mutant, its file or its tests have changed."""
        of, verdict = self._known.get(mutant.id, ("", None))
        return verdict if of == self._fingerprint(mutant) else None

    def keep(self, mutant: Mutant, verdict: Verdict) -> None:
        """Store a verdict on disk immediately. May be called from any thread."""
        entry = {"id": mutant.id, "of": self._fingerprint(mutant), "verdict": verdict.value}
        with self._lock:
            self._known[mutant.id] = (entry["of"], verdict)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def _fingerprint(self, mutant: Mutant) -> str:
        """Return a digest of the mutant, its file and its tests, as they were at the first call."""
        if mutant.id not in self._fingerprints:
            self._fingerprints[mutant.id] = self._digest(mutant)
        return self._fingerprints[mutant.id]

    def _digest(self, mutant: Mutant) -> str:
        names = (mutant.file, *(test.partition("::")[0] for test in mutant.tests))
        parts = [repr(mutant.edits), *(self._tree(name) for name in names)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _tree(self, name: str) -> str:
        """Return a digest of a file, or of every source below a folder."""
        if name not in self._trees:
            top = self._checkout / name
            files = sorted(top.rglob("*.py")) if top.is_dir() else [top]
            digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
            self._trees[name] = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return self._trees[name]


def score(mutants: Iterable[Mutant], verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return lines for folders and for top-level folders: how many mutants were killed, and which survived."""
    counted = [mutant for mutant in mutants if mutant.harmless is None and mutant.id in verdicts]
    lines = []
    for group in (lambda one: one.package, lambda one: one.file.partition("/")[0]):
        total = Counter(group(one) for one in counted)
        alive: dict[str, list[str]] = {}
        for one in counted:
            if verdicts[one.id] is Verdict.ALIVE:
                alive.setdefault(group(one), []).append(one.id)
        for name, count in sorted(total.items()):
            living = alive.get(name, [])
            killed = count - len(living)
            named = f"  alive: {' '.join(living)}" if living else ""
            lines.append(f"{name:24} {killed:4} of {count:4} {100 * killed / count:6.1f} %{named}")
    return lines
