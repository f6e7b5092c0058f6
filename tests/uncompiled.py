"""`pytest --uncompiled`: run the tests with the plain sources of the modules that Cython compiles.

The plain Python sources are the reference for the compiled modules. With this option an import loads the `.py` file,
although Python prefers an extension module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = ("topicfs.storage", "topicfs.inspection", "topicfs.fusefs", "topicfs.pipeline")
"""Packages that may have compiled modules."""


class SourceFinder(MetaPathFinder):
    """Finds the `.py` source of a module that also has an extension module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGES):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        suffix = next((suffix for suffix in EXTENSION_SUFFIXES if spec.origin.endswith(suffix)), None)
        if suffix is None:
            return None
        source = Path(spec.origin.removesuffix(suffix) + ".py")
        if not source.exists():
            return None
        return spec_from_file_location(fullname, source, loader=SourceFileLoader(fullname, str(source)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--uncompiled", action="store_true", help="run with the plain sources of the compiled modules"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the finder before a conftest imports a compiled module.

    pytest calls this function for plugins that are given by `-p`.
    """
    if early_config.known_args_namespace.uncompiled:
        _prefer_sources()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--uncompiled"):
        _prefer_sources()


def _prefer_sources() -> None:
    if any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        return
    loaded = [name for name in sys.modules if name.startswith(PACKAGES)]
    if loaded:
        raise pytest.UsageError(
            f"--uncompiled: already imported: {', '.join(sorted(loaded))}; give `-p tests.uncompiled` too"
        )
    sys.meta_path.insert(0, SourceFinder())


def pytest_report_header(config: pytest.Config) -> str:
    return "compiled modules: " + ("their sources" if config.getoption("--uncompiled") else "as built")
