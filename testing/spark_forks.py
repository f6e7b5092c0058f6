"""The process that forks Spark's Python processes in tests: `python -m testing.spark_forks PID`.

It ends with the process PID, which runs the tests. `testing/spark_python.py` sends the requests. A forked process
gets the arguments, environment, directory and standard files of the program that Spark started. It is ended when that
program is ended, and its exit status is passed back to the program.

Spark imports the modules that its workers need after its daemon has forked them, because imports may start threads,
and threads do not survive a fork. Here, only threads of pyarrow and NumPy may be missing after a fork.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from testing.spark_python import address_of

STREAMS = "pyspark.sql.streaming.python_streaming_source_runner"
IMPORTED = (
    "pyarrow",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    STREAMS,
    "topicfs.pipeline.data_source",
)
SIGNAL_RETRY_SECONDS = 1.0
"""Pause before a signal is sent again. If a signal arrives right after a fork, Python drops the exception that ends
Spark's daemon.
"""


class Fork(NamedTuple):
    """A running forked process, and the program that waits for it."""

    pid: int
    end: int
    """A descriptor that becomes ready when the forked process ends."""
    waiting: socket.socket


def main() -> None:
    owner = sys.argv[1]
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(address_of(owner))
    except OSError:
        return  # Another process has already taken the address.
    listening.listen(1024)
    for module in IMPORTED:
        import_module(module)
    for module in ("pyspark.daemon", STREAMS):
        # These modules run as programs; runpy would warn that they are already imported.
        del sys.modules[module]
    gc.freeze()
    faulthandler.register(signal.SIGUSR1)  # `testing/stacks.py` sends this signal.
    request = serve(listening, int(owner))
    if request is not None:
        run(request)


def serve(listening: socket.socket, owner: int) -> dict[str, Any] | None:
    """Fork for each request until the owner has ended. In the forked process, return the request."""
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(os.pidfd_open(owner), selectors.EVENT_READ, None)
        except ProcessLookupError:
            return None
        selector.register(listening, selectors.EVENT_READ, listening)
        ending: set[int] = set()
        while True:
            for ready in _ready(selector, ending):
                if ready.data is None:
                    return None
                if ready.data is not listening:
                    # If a process and its program end together, the descriptors of both are ready. Handling
                    # the first one closes the second one.
                    if selector.get_map().get(ready.fd) is ready:
                        _end(selector, ready, ending)
                    continue
                waiting, _ = listening.accept()
                request, descriptors = _received(waiting)
                if request is None:
                    waiting.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    _forget(selector)
                    _take_over(request, descriptors)
                    return request
                for descriptor in descriptors:
                    os.close(descriptor)
                fork = Fork(pid, os.pidfd_open(pid), waiting)
                selector.register(fork.end, selectors.EVENT_READ, fork)
                selector.register(waiting, selectors.EVENT_READ, fork)


def _ready(selector: selectors.BaseSelector, ending: set[int]) -> list[selectors.SelectorKey]:
    """Return the ready keys; until a key is ready, repeat the signal to each process that should end."""
    while not (ready := selector.select(SIGNAL_RETRY_SECONDS if ending else None)):
        for pid in ending:
            os.kill(pid, signal.SIGTERM)
    return [key for key, _ in ready]


def _received(waiting: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return a request and its standard files; None if the program ended before it had sent everything."""
    try:
        _, descriptors, _, _ = socket.recv_fds(waiting, 1, 3)
        with waiting.makefile("rb") as lines:
            line = lines.readline()
    except OSError:
        return None, []
    if line.endswith(b"\n") and len(descriptors) == 3:
        return json.loads(line), descriptors
    for descriptor in descriptors:
        os.close(descriptor)
    return None, []


def _end(selector: selectors.BaseSelector, ready: selectors.SelectorKey, ending: set[int]) -> None:
    """Pass on the status of a process that has ended, or end a process whose program has ended."""
    fork: Fork = ready.data
    if ready.fd != fork.end:
        selector.unregister(fork.waiting)
        os.kill(
            fork.pid, signal.SIGTERM
        )  # The process ID is still valid, because nobody has waited for the process yet.
        ending.add(fork.pid)
        return
    ending.discard(fork.pid)
    selector.unregister(fork.end)
    os.close(fork.end)
    _, status = os.waitpid(fork.pid, 0)
    if fork.waiting in selector.get_map():
        selector.unregister(fork.waiting)
    with suppress(OSError):  # The program has already ended.
        fork.waiting.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    fork.waiting.close()


def _forget(selector: selectors.BaseSelector) -> None:
    """Close the descriptors that only the forking process needs."""
    for key in list(selector.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        else:
            os.close(key.fd)
    selector.close()


def _take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """Use the standard files, directory, environment and module path of the program that Spark started."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [request["folder"], *added]


def run(request: dict[str, Any]) -> None:
    """Run the module as `python -m` does."""
    module, *arguments = request["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
