"""`python -m tests.language --sample 100 --seed 7`: print random docstrings, messages and sentences to judge.

A reader who did not write the texts marks each text that had to be read twice. The goal is at most five in a hundred.
Paths restrict the sample to some files or folders, and `--kind` restricts it to docstrings, error messages or
sentences of documents.
"""

# ruff: noqa: T201 - a command, for people

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = ("docstring", "message", "sentence")
FEWEST_WORDS = 4
_CODE_BLOCK = re.compile(r"(?ms)^ *```.*?^ *```$|^<!--.*?-->$|^    .*?$")
_PARAGRAPH = re.compile(r"(?m)^(?:[-*] |\d+\. |\|)?.+(?:\n(?![-*|#] ?|\d+\. ).+)*")
_SENTENCE = re.compile(r"\S.*?(?:[.!?:](?=\s+[A-Z`*\[])|\Z)", re.DOTALL)


class Text(NamedTuple):
    """A text of the repository, and where it is."""

    path: str
    line: int
    kind: str
    words: str
    beside: str = ""
    """What a reader sees beside the text: the code that a docstring describes, or the words before a sentence."""


def texts(path: str) -> Iterator[Text]:
    """Yield the texts of one file."""
    source = (ROOT / path).read_text()
    found = _of_python(source) if path.endswith(".py") else _of_document(source)
    for kind, line, text, beside in found:
        words = _on_one_line(text)
        if len(re.findall(r"[A-Za-z]{2,}", words)) >= FEWEST_WORDS:
            yield Text(path, line, kind, words, beside)


def _on_one_line(text: str) -> str:
    return " ".join(re.sub(r"^[#>*-]+ ", "", text.strip()).split())


def _of_python(source: str) -> Iterator[tuple[str, int, str, str]]:
    """Yield a module's docstrings, including those of attributes, its error messages and its options' help."""
    nodes = list(ast.walk(ast.parse(source)))
    owners = {part: node.name for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    for node in nodes:
        for before, after in pairwise([node, *getattr(node, "body", ())] if _has_statements(node) else ()):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = after.value.value
                if isinstance(text, str):
                    owner = f"{owners[before]}: " if before in owners else ""
                    yield "docstring", after.lineno, text, owner + _head(before)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (("message", arg.lineno, _shown(arg), "") for arg in node.exc.args)
        elif isinstance(node, ast.keyword) and node.arg == "help":
            yield "message", node.value.lineno, _shown(node.value), ""


def _has_statements(node: ast.AST) -> bool:
    return isinstance(getattr(node, "body", None), list)


def _head(node: ast.AST) -> str:
    """Return the first line of a function, class or assignment; empty for a module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        node = copy(node)
        node.body, node.decorator_list = [], []
    return "" if isinstance(node, ast.Module) else ast.unparse(node).partition("\n")[0]


def _shown(node: ast.expr) -> str:
    """Return a string expression with its placeholders; empty for any other expression."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_shown, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _of_document(source: str) -> Iterator[tuple[str, int, str, str]]:
    """Yield the sentences of paragraphs and list items, and the cells of tables, with what precedes them."""
    prose = _CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), source)
    before = columns = ""
    for part in _PARAGRAPH.finditer(prose):
        is_row = part[0].startswith("|")
        if is_row and not columns:
            columns = _on_one_line(part[0])
        elif not is_row:
            columns = ""
        for piece in re.finditer(r"[^|]+", part[0]) if is_row else _SENTENCE.finditer(part[0]):
            line = prose.count("\n", 0, part.start() + piece.start()) + 1
            yield "sentence", line, piece[0], f"{columns} … {_on_one_line(part[0])}" if is_row else before
            before = _on_one_line(piece[0])


def main() -> None:
    """Print the sample in the order of the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.language", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files and folders [default: the whole repository]")
    parser.add_argument("--sample", type=int, default=100, help="how many texts [default: 100]")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other texts [default: 0]")
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    listing = subprocess.run(
        ["git", "ls-files", *options.paths], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = [path for path in listing if path.endswith((".py", ".md")) and (ROOT / path).is_file()]
    known = [text for path in files for text in texts(path) if options.kind in {None, text.kind}]
    for text in sorted(random.Random(options.seed).sample(known, min(options.sample, len(known)))):
        beside = f" {'of' if text.kind == 'docstring' else 'after'} {text.beside}" if text.beside else ""
        print(f"{text.path}:{text.line}: {text.kind}{beside}\n    {text.words}")


if __name__ == "__main__":
    main()
