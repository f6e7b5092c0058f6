"""The functions of setup.py, loaded without the build that an import of setup.py would run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETUP = Path(__file__).parents[1] / "setup.py"
NAMES = ("CONSTANTS", "write_constants")


def _defined() -> dict[str, Any]:
    wanted = [
        node
        for node in ast.parse(SETUP.read_text()).body
        if (isinstance(node, ast.FunctionDef | ast.Assign) and getattr(node, "name", None) in NAMES)
        or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) in NAMES)
    ]
    defined: dict[str, Any] = {"ast": ast, "Path": Path}
    exec(compile(ast.Module(wanted, []), str(SETUP), "exec"), defined)
    return defined


_DEFINED = _defined()
CONSTANTS: tuple[str, ...] = _DEFINED["CONSTANTS"]
write_constants: Callable[[str], None] = _DEFINED["write_constants"]
