"""Every document, section and test that sources and documents cite exists.

The pages in SPECIFICATION have the rules of Kafka's files. A source cites a section as `<page>#<anchor>`, with the
anchor that GitHub makes from the section's heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "benchmarks",
    "cluster",
    "coordination",
    "docs",
    "examples",
    "fusefs",
    "inspection",
    "listener",
    "migration",
    "pipeline",
    "protocol",
    "pyspark_topicfs",
    "replication",
    "schemas",
    "scripts",
    "storage",
    "testing",
    "tests",
    "topicfs",
    "typings",
)
SUFFIXES = {".md", ".pxd", ".py", ".pyi", ".sh", ".toml", ".xml"}
SPECIFICATION = ("docs/kafka-storage.md", "docs/kafka-coordinators.md")

_DOCUMENT = re.compile(r"(?<![\w./:#-])(?P<document>(?:[\w.-]+/)*[\w-]+\.md)\b(?:#(?P<anchor>[\w-]*))?")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_OWN_SECTION = re.compile(r"\]\(#([\w-]+)\)")
_SECTION_NUMBER = re.compile(r"(?<!RFC \d{3} )(?<!RFC \d{4} )§")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.suffix in SUFFIXES or path.name == "Makefile"]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    # This file contains the patterns that no other file may have.
    return sorted(path for path in found if path.is_file() and path != Path(__file__).resolve())


FILES = _files()
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]
TEXTS = {path: path.read_text() for path in FILES}


class Citation(NamedTuple):
    """A mention of a document and possibly of a section in the document."""

    source: Path
    document: str
    anchor: str | None

    def __str__(self) -> str:
        return f"{shown(self.source)}: {self.document}" + ("" if self.anchor is None else f"#{self.anchor}")

    @property
    def target(self) -> Path | None:
        """The cited document, or None if it is missing.

        The document is found by its path from the source or from the top folder, or by a unique name.
        """
        for base in (self.source.parent, ROOT):
            if (base / self.document).is_file():
                return (base / self.document).resolve()
        named = [path for path in DOCUMENTS if path.name == self.document]
        return named[0] if len(named) == 1 else None


def citations() -> Iterator[Citation]:
    for source, text in TEXTS.items():
        for found in _DOCUMENT.finditer(text):
            yield Citation(source, found["document"], found["anchor"])
        if source.suffix == ".md":
            for anchor in _OWN_SECTION.findall(text):
                yield Citation(source, source.name, anchor)


def anchors(document: Path) -> list[str]:
    """Return the anchors that GitHub makes for the headings of a document, without the title."""
    text = re.sub(r"(?ms)^```.*?^```", "", TEXTS[document])
    headings = re.findall(r"(?m)^##+ (.+?)\s*$", text)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


CITATIONS = list(citations())


def test_all_folders_with_sources_are_looked_at():
    """FOLDERS includes every package."""
    assert set() == {path.parent.name for path in ROOT.glob("*/__init__.py")} - set(FOLDERS)
    assert len(CITATIONS) > 100


def test_every_document_that_is_named_is_there():
    """Every document that is cited exists."""
    assert [] == [str(each) for each in CITATIONS if each.target is None]


def test_every_section_that_is_named_is_there():
    """Every anchor that is cited belongs to exactly one heading of its document."""
    known = {document: Counter(anchors(document)) for document in DOCUMENTS}
    assert [] == [
        str(each)
        for each in CITATIONS
        if each.anchor is not None and each.target is not None and known[each.target][each.anchor] != 1
    ]


def test_every_test_that_a_document_names_is_there():
    """Every `tests/PATH.py::NAME` in a document names an existing test."""
    named = {(path, *found) for path in DOCUMENTS for found in _TEST.findall(TEXTS[path])}
    assert "docs/security.md" in {shown(path) for path, _, _ in named}
    missing = [
        f"{shown(path)}: {module}::{name}"
        for path, module, name in sorted(named)
        if not re.search(rf"(?m)^(async )?def {name}\(", TEXTS.get(ROOT / module, ""))
    ]
    assert [] == missing


def test_each_line_of_who_is_trusted_names_a_test():
    """Each row of the tables in docs/security.md, except the header, names a test."""
    rows = [line for line in TEXTS[ROOT / "docs/security.md"].splitlines() if line.startswith("| ")]
    heads = [row for row in rows if row.endswith("| test |")]
    assert 4 == len(heads)
    assert [] == [row for row in rows if row not in heads and not _TEST.search(row)]


def test_sections_are_cited_by_name():
    """Sections are cited by anchor, because a section number is hard to find and may change unnoticed."""
    assert [] == [shown(path) for path, text in TEXTS.items() if _SECTION_NUMBER.search(text)]


def test_sources_cite_sections_and_not_whole_pages():
    """A source outside of tests cites a section of the specification, because a whole page takes long to search."""
    pages = {ROOT / page for page in SPECIFICATION}
    assert [] == [
        str(each)
        for each in CITATIONS
        if each.target in pages and each.anchor is None and _is_source(each.source)
    ]


def _is_source(path: Path) -> bool:
    return path.suffix != ".md" and ROOT / "tests" not in path.parents


@pytest.mark.parametrize("page", SPECIFICATION)
def test_every_section_of_the_specification_is_cited(page):
    """Each section of the specification is cited in another file: a rule that no code follows need not be written."""
    cited = {each.anchor for each in CITATIONS if each.target == ROOT / page and each.source != ROOT / page}
    assert [] == [anchor for anchor in anchors(ROOT / page) if anchor not in cited]
