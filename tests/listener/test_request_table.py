"""The table of requests: when the code of their handlers is imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.listener.serving import ANSWER_SECONDS, Served
from topicfs.listener import listener
from topicfs.listener.requests.table import COORDINATOR, REQUESTS

PROGRAM = """
import sys
from topicfs.listener.requests.table import import_handlers

import_handlers()
print(*sys.modules)
"""


def test_each_request_has_a_handler() -> None:
    """The handler of each request is found in the module that the table names."""
    assert [] == [served.place for served in REQUESTS.values() if not callable(served.handle)]


def test_a_listener_soon_imports_all_handlers(
    start: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener imports what no request has needed yet, so that an upgrade of the package does not mix two versions."""
    imported = threading.Event()
    monkeypatch.setattr(listener, "IMPORT_SECONDS", 0.0)
    monkeypatch.setattr(listener, "import_handlers", imported.set)
    start()
    assert imported.wait(ANSWER_SECONDS)


def test_the_imported_code_is_complete() -> None:
    """`import_handlers` imports the module of each request, and the coordinator of transactions."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    modules = {f"topicfs.listener.requests.{one.place.partition(':')[0]}" for one in REQUESTS.values()}
    assert {*modules, COORDINATOR} <= {*done.stdout.split()}
