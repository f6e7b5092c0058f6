"""The documentation as a site: `python scripts/site_pages.py FOLDER` writes it into FOLDER, and checks every link.

The pages are the Markdown files of this checkout. They are copied to a separate folder in the same layout, with the
files to which they link, so that links work on the site as in the checkout.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/*.md", "fusefs/*.md")
SETTINGS = ROOT / "packaging" / "site"
_ROW = re.compile(r"(?m)^\|.*")
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def main() -> None:
    """Build the site, and exit with the status of the builder; warnings are errors."""
    (target,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        lay_out(pages)
        shutil.copy(SETTINGS / "zensical.toml", folder)
        shutil.copytree(SETTINGS / "style", pages / "style")
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False
        )
        if done.returncode == 0:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(folder) / "site", target)
    sys.exit(done.returncode)


def lay_out(pages: Path) -> None:
    """Copy the pages, and the other files to which they link."""
    for page in (page for pattern in PAGES for page in ROOT.glob(pattern)):
        linked = {(page.parent / link).resolve() for link in _LINK.findall(page.read_text())}
        for file in (page, *(path for path in linked if path.is_file() and path.suffix != ".md")):
            copy = pages / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        text = _ROW.sub(_plain_pipes, page.read_text())
        (pages / page.relative_to(ROOT)).write_text(text)


def _plain_pipes(row: re.Match[str]) -> str:
    """Remove backslashes before pipes in a table row's code, because GitHub needs them but this builder shows them."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


if __name__ == "__main__":
    main()
