"""Writes docs/folders.md: each folder of the sources with the first sentence of its docstring.

Run `python scripts/folders.py` to write the page. `tests/test_architecture.py` fails while the page is out of date.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "folders.md"
LAYERS = (
    "topicfs",
    "fusefs",
    "pipeline",
    "cluster",
    "schemas",
    "migration",
    "inspection",
    "protocol",
    "replication",
)
"""The packages listed first, from the highest layer down; other packages follow by name."""
_OPENING = """\
# Folders

For those who look for the place of something in the sources: each folder, with the first sentence of its
`__init__.py`. [ARCHITECTURE.md](../ARCHITECTURE.md) has the picture. `python scripts/folders.py` writes this page.
"""


def page() -> str:
    """Return the text of the page."""
    found = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
    order = [*LAYERS, *(name for name in found if name not in LAYERS)]
    return "\n".join([_OPENING, *(table(ROOT / name) for name in order)])


def table(package: Path) -> str:
    """Return the table of a package and of the folders in it."""
    folders = sorted({path.parent for path in package.rglob("*.py")})
    rows = [f"| `{folder.relative_to(ROOT)}/` | {first_sentence(folder)} |" for folder in folders]
    return "\n".join([f"## `{package.name}/`", "", "| folder | what it owns |", "|---|---|", *rows, ""])


def first_sentence(folder: Path) -> str:
    """Return the first sentence of a folder's docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    sentence = re.match(r"(.+?\.)(\s|$)", docstring, re.DOTALL)
    if sentence is None:
        raise ValueError(
            f"{folder}/__init__.py: write a docstring whose first sentence says what the folder owns"
        )
    return " ".join(sentence[1].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
