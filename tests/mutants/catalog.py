"""The list of mutants: TOML tables in `edits/`, with one file for each package.

[[mutant]]
id = "R2"                                                       unique, and never used again
file = "storage/segment/roll.py"
rule = "A segment rolls when it has waited longer than …"       the rule that the edit breaks
tests = ["tests/storage/log"]                                   tests that run first
harmless = "…"                                                  why no test can notice it; it does not count
[[mutant.edits]]
old = '''waited_ms(p) > p.max_wait_ms'''                        text that is in the file exactly once
new = '''waited_ms(p) >= p.max_wait_ms'''
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EDITS = Path(__file__).parent / "edits"
LEFT_OUT = "not java and not spark"
"""Marker expression that excludes tests from the wider run; they would take longer than all mutants together."""


class StaleEditError(Exception):
    """An edit that no longer fits the code and must be rewritten."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate mistake."""

    id: str
    file: str
    rule: str
    tests: tuple[str, ...]
    edits: tuple[tuple[str, str], ...]
    harmless: str | None = None

    @property
    def package(self) -> str:
        """The folder for which the mutant is counted, for example `storage/log`."""
        return str(Path(self.file).parent)

    @property
    def wider_tests(self) -> tuple[str, ...]:
        """The tests that run if the mutant's own tests pass."""
        return (f"tests/{self.file.partition('/')[0]}", "-m", LEFT_OUT)

    def applied_to(self, source: str) -> str:
        """Return the source with the mutant's mistake. Raises StaleEditError."""
        if any(source.count(old) != 1 for old, _new in self.edits):
            raise StaleEditError(f"{self.id}: {self.file} does not have the text of its edit exactly once")
        for old, new in self.edits:
            source = source.replace(old, new)
        return source

    def check(self, checkout: Path) -> None:
        """Check that the edit applies, changes the file's meaning, and names existing tests. Raises StaleEditError."""
        missing = [name for name in self._paths if not (checkout / name).exists()]
        if missing:
            raise StaleEditError(f"{self.id}: no such file: {' '.join(missing)}")
        source = (checkout / self.file).read_text()
        edited = self.applied_to(source)
        if edited == source:
            raise StaleEditError(f"{self.id}: its edit changes nothing in {self.file}")
        try:
            compile(edited, self.file, "exec")
        except SyntaxError as error:
            raise StaleEditError(f"{self.id}: its edit leaves no Python in {self.file}: {error}") from error

    @property
    def _paths(self) -> tuple[str, ...]:
        return (self.file, *(test.partition("::")[0] for test in self.tests))


def read_mutants(folder: Path = EDITS) -> list[Mutant]:
    """Return all mutants in the order of the files and of their entries."""
    return [
        _mutant(table)
        for path in sorted(folder.glob("*.toml"))
        for table in tomllib.loads(path.read_text()).get("mutant", ())
    ]


def _mutant(table: dict[str, Any]) -> Mutant:
    edits = tuple((edit["old"], edit["new"]) for edit in table["edits"])
    return Mutant(
        table["id"], table["file"], table["rule"], tuple(table["tests"]), edits, table.get("harmless")
    )
