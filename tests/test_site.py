"""Tests that the documentation site has every page, and that every link in it works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "scripts" / "site_pages.py"
TASKS = ("Try it", "Use it every day", "Run it as a service")


class Parsed(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in {"href", "src"}:
                self.links.append(value)
            if value and (name == "src" or (name == "href" and tag == "link")):
                self.fetched.append(value)
            if value and name in {"id", "name"}:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site that `make site` builds, with the builder's warnings treated as errors."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run([sys.executable, PROGRAM, folder], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Parsed]:
    """The parsed pages of the site by file."""
    return {page: Parsed(page.read_text()) for page in site.rglob("*.html")}


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    """A broken link stops the build, with the file and the line of the link."""
    for folder in ("scripts", "packaging"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    settings = tmp_path / "packaging" / "site" / "zensical.toml"
    settings.write_text(re.sub(r"(?ms)^nav = .*?^\]$", "", settings.read_text()))
    (tmp_path / "README.md").write_text(f"# Here\n\n[there](#there)\n\n[no page]({'nowhere'}.md)\n")
    program = tmp_path / "scripts" / PROGRAM.name
    done = subprocess.run(
        [sys.executable, program, tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert 0 != done.returncode
    assert "README.md:3" in done.stdout + done.stderr
    assert "README.md:5" in done.stdout + done.stderr
    assert not (tmp_path / "site").exists()


def nav(entries: list[dict[str, object]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from nav(value)
            else:
                yield str(value)


def test_every_page_has_its_place():
    """Every page is in exactly one section; sections are named after what a reader wants to do."""
    settings = tomllib.loads((ROOT / "packaging" / "site" / "zensical.toml").read_text())["project"]
    sections = [next(iter(section)) for section in settings["nav"]]
    assert [*TASKS, "Spark", "Kafka", "Look inside", "Change it"] == sections
    there = {
        str(page.relative_to(ROOT))
        for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "fusefs/*.md")
        for page in ROOT.glob(pattern)
    }
    assert sorted(there) == sorted(nav(settings["nav"]))


def test_every_link_leads_somewhere(site, pages):
    """Every internal link leads to an existing file and section; external links are not requested."""
    lost = []
    for page, parsed in pages.items():
        for link in parsed.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                lost.append(f"{page.relative_to(site)}: {link}")
    assert [] == lost
    assert len(pages) > 20


def test_nothing_is_fetched_from_elsewhere(pages):
    """No page loads fonts, scripts or images from other sites, because these sites would learn about the reader."""
    assert [] == [
        f"{page.name}: {link}"
        for page, parsed in pages.items()
        for link in parsed.fetched
        if urlsplit(link).netloc
    ]
