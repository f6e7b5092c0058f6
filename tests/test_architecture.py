"""Tests that the source tree is as ARCHITECTURE.md describes it; import-linter checks the directions of imports."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.folders import PAGE, page

ROOT = Path(__file__).parents[1]
ENGINE = ("storage", "coordination", "replication", "inspection", "migration", "protocol", "listener")
PACKAGES = (*ENGINE, "cluster", "schemas", "fusefs", "topicfs", "pipeline")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("test_*.py"))
DRAWERS = {"util", "utils", "common", "helpers", "misc", "base"}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of the source `path`, which is parsed only once."""
    return list(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def keep_nodes() -> Iterator[None]:
    """Turn off garbage collection while this module runs: it keeps some million objects, none of them in a cycle."""
    gc.disable()
    yield
    nodes.cache_clear()
    gc.enable()


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def compiled() -> tuple[str, ...]:
    """Return the sources that setup.py compiles."""
    return next(
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "COMPILED"
    )


def test_there_are_sources_to_look_at():
    """The lists of sources and tests that this module checks are not empty."""
    assert len(SOURCES) > 100
    assert len(TESTS) > 30


def test_the_page_of_folders_is_what_its_script_writes():
    """docs/folders.md equals the output of `python scripts/folders.py`: each folder with its docstring's start."""
    assert page() == PAGE.read_text()


def test_what_the_architecture_names_is_there():
    """Each path that ARCHITECTURE.md names exists, and each import contract that it names is in pyproject.toml."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = re.findall(rf"`((?:{'|'.join([*PACKAGES, 'tests', 'benchmarks'])})/[\w./]*)`", text)
    assert [] == [path for path in paths if not (ROOT / path).exists()]
    named = re.findall(r"(?m)^\| (.+)\. \| the contract of this name \|$", text)
    assert text.count("the contract of this name") == len(named)
    assert [] == [name for name in named if f'name = "{name}"\n' not in (ROOT / "pyproject.toml").read_text()]


def test_a_class_name_has_one_meaning():
    """Public classes have different names, except in the API, which uses its users' words, such as Topic."""
    homes: dict[str, list[str]] = {}
    for path in (path for path in SOURCES if not path.is_relative_to(ROOT / "topicfs" / "api")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(shown(path))
    assert {} == {name: places for name, places in homes.items() if len(places) > 1}


def test_the_engine_has_no_async():
    """The engine has no async functions; a caller with an event loop runs the blocking calls in threads."""
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        shown(path)
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] in ENGINE and any(isinstance(node, waits) for node in nodes(path))
    ]
    assert [] == found


def test_only_the_command_prints():
    """Only `topicfs/` prints, except for the daemon's last message to the user."""
    found = {
        shown(path)
        for path in SOURCES
        if not path.is_relative_to(ROOT / "topicfs")
        for node in nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert {"fusefs/mounting/background.py"} >= found


def test_no_module_has_an_unspecific_name():
    """No module or folder has an unspecific name such as `utils` or `common`."""
    assert [] == [shown(path) for path in SOURCES if path.stem in DRAWERS or path.parent.name in DRAWERS]


def test_modules_are_nouns():
    """docs/words.md lists exactly the modules whose names end in -ing."""
    allowed = re.search(r"(?m)^Modules are nouns.*?(?=\n\n)", (ROOT / "docs/words.md").read_text(), re.DOTALL)
    assert allowed is not None
    named = set(re.findall(r"`(\w+)`", allowed[0]))
    found = {path.stem for path in SOURCES if path.stem.endswith("ing")}
    assert named == found


def test_every_test_says_what_it_pins():
    """Every test has a docstring."""
    silent = [
        f"{shown(path)}:{node.name}"
        for path in TESTS
        for node in functions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert [] == silent


def test_the_compiled_modules_are_plain_sources():
    """setup.py lists each compiled module once, and each has a `.py` source that imports cython for its types."""
    listed = compiled()
    assert len(set(listed)) == len(listed)
    assert [] == [source for source in listed if "import cython" not in (ROOT / source).read_text()]


def test_links_of_the_documents_lead_somewhere():
    """Every relative link in the project's Markdown files leads to an existing file."""
    broken = [
        f"{shown(document)}: {target}"
        for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("fusefs/*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert [] == broken
