"""An empty filesystem with a broker behind it, which it asks in the thread that answers the kernel.

It waits for the broker and does nothing else meanwhile, as no real mount may: what a mount in Python that waits for the
broker takes at least. A file of one record is the empty filesystem's, once the batch that holds that record was fetched;
the lines of an append are one batch, which the broker has before the write is answered.

Run as `python -m benchmarks.peers.asking_filesystem MOUNTPOINT --broker HOST:PORT --read TOPIC --written TOPIC`; like the
empty filesystem it prints a line once it is mounted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# isort: off
from benchmarks.mount.setup.empty_filesystem import EmptyFileSystem, NodeKind, kind_of, serve

# isort: on
import pyfuse3
import trio

from benchmarks.mount.setup.mounts import Mount, empty_program
from benchmarks.peers.bare_requests import BareRequests
from topicfs.fusefs.mounting.limits import keep_freed_memory, raise_open_files
from topicfs.fusefs.mounting.request_loop import RequestLoop
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.native import system_clock

ASKING = "empty, then a request"


class AskingFileSystem(EmptyFileSystem):
    """The same, with a broker that is asked for each record that is looked up, and told of each append."""

    def __init__(self, requests: BareRequests, *, read: str, written: str) -> None:
        super().__init__(0)
        self._requests = requests
        self._read_topic, self._written_topic = read, written
        self._begun = b""

    async def lookup(self, parent_inode: int, name: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        text = name.decode()
        if kind_of(text) is NodeKind.RECORD:
            self._requests.batch_with(self._read_topic, int(text))
        return await super().lookup(parent_inode, name, ctx)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        cut = buf.rfind(b"\n") + 1
        whole = self._begun + buf[:cut] if cut else b""
        self._begun = buf[cut:] if cut else self._begun + buf
        self._requests.append(self._written_topic, encode_lines(whole, timestamp=system_clock()))
        return await super().write(fh, off, buf)


@contextmanager
def asking_filesystem(directory: Path, broker: str, *, read: str, written: str) -> Iterator[Mount]:
    """Mount such a filesystem, with the shortest request loop there is."""
    options = ["--broker", broker, "--read", read, "--written", written]
    with empty_program(ASKING, directory / f"asking-{read}", options, module=__name__) as mount:
        yield mount


def main() -> None:
    """Run until unmounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mountpoint")
    parser.add_argument("--broker", required=True, help="the one broker of the cluster")
    parser.add_argument("--read", required=True, help="the topic that records are looked up in")
    parser.add_argument("--written", required=True, help="the topic that lines are appended to")
    arguments = parser.parse_args()
    raise_open_files()
    keep_freed_memory()
    with closing(BareRequests(arguments.broker)) as requests:
        filesystem = AskingFileSystem(requests, read=arguments.read, written=arguments.written)
        trio.run(serve, filesystem, arguments.mountpoint, RequestLoop.DIRECT)


if __name__ == "__main__":
    main()
