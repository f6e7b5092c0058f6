"""Notifications to the kernel: it shall forget cached attributes and names."""

from __future__ import annotations

import logging
import os
import struct
import threading
from contextlib import suppress
from queue import SimpleQueue

from topicfs.fusefs.nodes.context import KernelCache

log = logging.getLogger("topicfs")

END_SECONDS = 5.0
"""Most seconds that the end of a mount waits for a notification, which may wait in the kernel for a request."""

_HEAD = struct.Struct("=IiQ")
"""Length, code of the notification, and 0 where an answer has the id of its request."""
_INODE = struct.Struct("=IiQQqq")
"""The header, the node, and a negative offset: the kernel keeps the cached content."""
_INVALIDATE_INODE, _INVALIDATE_ENTRY = 2, 3


class KernelNotifications(KernelCache):
    """Sends the notifications. A thread sends those about names; it ends before the mount does."""

    def __init__(self) -> None:
        self.device = -1
        """The descriptor of /dev/fuse, once it is open."""
        self._names: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def forget_attributes(self, node_id: int) -> None:
        """Invalidate cached attributes. This takes half a microsecond, and never waits for a request."""
        with suppress(OSError):  # ENOENT: it had forgotten already.
            os.write(self.device, _INODE.pack(_INODE.size, _INVALIDATE_INODE, 0, node_id, -1, 0))

    def forget_name(self, parent_id: int, name: str) -> None:
        """Have the thread invalidate a cached name. In the kernel it may wait for a request, which this thread goes on to answer."""
        if self._ended:
            return
        self._names.put((parent_id, os.fsencode(name)))
        if self._thread is None:
            thread = threading.Thread(target=self._forget_names, name="forget-names", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The system has no thread left: the next name tries again.
                log.warning("forgetting names cannot begin: %s", error)
            else:
                self._thread = thread

    def _forget_names(self) -> None:
        while (forgotten := self._names.get()) and not self._ended:
            parent_id, name = forgotten
            body = struct.pack("=QII", parent_id, len(name), 0) + name + b"\0"
            try:
                os.write(self.device, _HEAD.pack(_HEAD.size + len(body), _INVALIDATE_ENTRY, 0) + body)
            except OSError as error:
                # ENOENT, mostly; and whatever it still believes is over after its timeout.
                log.debug("%s: not forgotten: %s", forgotten, error)

    def end(self) -> None:
        """End the thread; no more notifications are sent to the kernel (blocking).

        Call this while requests are still answered. A notification waits in the kernel for a request on the same
        directory, so the thread ends only after that request has been answered.
        """
        self._ended = True
        self._names.put(None)
        if self._thread is not None:
            self._thread.join(END_SECONDS)
        self.device = -1  # The number may soon be that of another file.
