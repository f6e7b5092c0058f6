"""The program that Spark runs as Python in tests. A process that has imported all modules forks for this program.

For each kind of work Spark starts a daemon, `python -m pyspark.daemon MODULE`, and it starts a process for each
stream that it reads. Importing the modules in each process would take a second of CPU time. The program that Spark
starts instead passes its arguments, environment and standard files to `testing/spark_forks.py`, and ends together
with the forked process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (pathlib takes longer to import)
PROGRAM = os.path.join(ROOT, "build", "spark", "python")  # noqa: PTH118 (as above)
OWNER = "TOPICFS_TESTS_PROCESS"
"""Environment variable with the ID of the process that runs the tests; the forking process ends with it."""
LAST_WORDS = f"{PROGRAM}.log"
"""File for the errors of the forking process."""
TIMEOUT_SECONDS = 120
"""Seconds to wait for the forking process: less than a test's time limit, so that the test fails with this reason."""


def spark_python() -> str:
    """Return the program's path; make the program if it is missing or belongs to another environment.

    Processes that are forked for the program end with this process.
    """
    from pathlib import Path  # noqa: PLC0415 (see above)

    os.environ[OWNER] = str(os.getpid())
    # -S and -E ignore site-packages and Python's environment variables.
    script = f'#!/bin/sh\nexec "{sys.executable}" -S -E "{__file__}" "$@"\n'
    program = Path(PROGRAM)
    if not program.exists() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        unfinished.write_text(script)
        unfinished.chmod(0o755)
        unfinished.replace(program)
    return PROGRAM


def address_of(owner: str) -> str:
    """Return the abstract address, which needs no file, on which the forking process of `owner` listens."""
    return f"\0topicfs-tests-{owner}"


def main() -> None:
    arguments, owner = sys.argv[1:], os.environ.get(OWNER)
    if owner is None or arguments[:1] != ["-m"] or not arguments[1].startswith("pyspark."):
        os.execv(sys.executable, [sys.executable, *arguments])
    with _connected(owner) as forks:
        request = {"arguments": arguments[1:], "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109 (see above)
        socket.send_fds(forks, [b"F"], [0, 1, 2])
        forks.sendall(json.dumps(request).encode() + b"\n")
        # These files belong to the forked process: their readers must see them close when it ends.
        for descriptor in range(3):
            os.close(descriptor)
        status = int(forks.recv(16) or -signal.SIGKILL)
    os._exit(status if status >= 0 else 128 - status)


def _connected(owner: str) -> socket.socket:
    """Return a connection to the forking process; start that process if necessary.

    If several processes start a forking process, only one of the forking processes gets the address.
    """
    deadline, started = time.monotonic() + TIMEOUT_SECONDS, None
    while True:
        forks = socket.socket(socket.AF_UNIX)
        try:
            forks.connect(address_of(owner))
        except ConnectionRefusedError:
            forks.close()
            if (
                started is None or started.poll()
            ):  # Status 0 means that another process has already taken the address.
                started = _start_forks(owner)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the forking process did not answer for {TIMEOUT_SECONDS} s; its errors are in {LAST_WORDS}"
                ) from None
            time.sleep(0.02)
        else:
            return forks


def _start_forks(owner: str) -> subprocess.Popen[bytes]:
    own = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
    with open(LAST_WORDS, "ab") as last_words:  # noqa: PTH123 (pathlib takes longer to import)
        return subprocess.Popen(
            [sys.executable, "-m", "testing.spark_forks", owner],
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=last_words,
        )


if __name__ == "__main__":
    main()
